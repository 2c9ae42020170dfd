"""`python -m pipelines.verify --dataset_path ROOT --split train --num_iterations 10`: is a corpus of speech as it should be?

Opens a Parquet set or a pack, counts its partitions, rows and hours, and reads some batches as training would: their shapes,
their padding, what they draw of which language, and how fast they are decoded. Exit codes: 0 fine, 1 something could not be
decoded or a batch is not right, 2 usage, 3 unreadable.
"""
from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from asdstore.verb import make_callable

if TYPE_CHECKING:
    from asdstore.stats import Share
    from pipelines.mixture_loader import SpeechLoader


class Seen(NamedTuple):
    """One batch."""

    utterances: int
    source: tuple[int, ...]  # shapes
    target: tuple[int, ...]
    audio: int  # samples, or frames, without padding
    tokens: int
    text: str  # of its first row
    faults: tuple[str, ...] = ()


class Verification(NamedTuple):
    """What `verify` found. `speed` is seconds of audio read in a second; `padding` the share of it in the batches."""

    path: str
    split: str
    files: int
    shares: list[Share]
    left_out: dict[str, int]
    batches: list[Seen]
    drawn: dict[str, int]
    padding: float
    speed: float
    undecodable: list[str]

    @property
    def fine(self) -> bool:
        return not self.undecodable and not any(batch.faults for batch in self.batches)


def verify(dataset_path: Any, split: str = "train", num_iterations: int = 10, *, tokenizer: Any = None, stats_path: Any = None,
           **settings: Any) -> Verification:
    """Count a corpus and read `num_iterations` batches of it.

    A split whose name has "train" in it, or any with `stats_path` (a summary), is drawn as by `mixture`; others are read once,
    as by `evaluate`. Without a tokenizer one of the characters of the corpus is made. `settings` are further ones of these two.

    Raises: InputError "num_iterations" for one below 0; what opening and `mixture` raise.

    >>> found = verify("all_asr/version=0", "train", 10)                                       # doctest: +SKIP
    >>> found.fine, found.padding, found.speed                                                 # doctest: +SKIP
    (True, 0.031, 412.7)
    """
    from asdstore.formats.parquet import ParquetSet
    from asdstore.stats import compute_stats
    from pipelines.mixture_loader import evaluate_speech, mixture
    from pipelines.settings import whole
    from pipelines.speech_corpus import open_speech
    from pipelines.tokenizers import Characters

    whole("num_iterations", num_iterations, 0, file="verify")
    utterances = open_speech(dataset_path)
    shares = sorted(share for part in utterances.parts for share in compute_stats(part, per_split=True))
    chosen = tokenizer or Characters.of(utterances.text(i) for i in range(len(utterances)))
    if stats_path is not None or "train" in split:
        loader = mixture(utterances.parts, split, summary=stats_path, tokenizer=chosen, **settings)
    else:
        loader = evaluate_speech(utterances.parts, split, tokenizer=chosen, **settings)
    files = sum(len(part.parts) if isinstance(part, ParquetSet) else len(part.storage.sources) for part in utterances.parts)
    left_out = loader.recipe.notes["left_out"]
    return _read(loader, num_iterations, Verification(str(dataset_path), split, files, shares, left_out, [], {}, 0.0, 0.0, []))


def _read(loader: SpeechLoader, count: int, so_far: Verification) -> Verification:
    batches: list[Seen] = []
    drawn: Counter[str] = Counter()
    padded = spent = seconds = 0.0
    began = time.perf_counter()
    for batch in islice(_endless(loader), count):
        spent += time.perf_counter() - began
        batches.append(_seen(batch))
        of = zip(batch["corpora"], batch["languages"], batch["valid"], strict=True)
        drawn.update(f"{corpus}/{language}" for corpus, language, valid in of if valid)
        padded += batch["source_seqs"].shape[0] * batch["source_seqs"].shape[1]
        seconds += float(batch["source_seq_lens"].sum()) * (0.01 if batch["source_seqs"].ndim == 3 else 1 / 16000)
        began = time.perf_counter()
    padding = 1 - sum(batch.audio for batch in batches) / padded if padded else 0.0
    return so_far._replace(batches=batches, drawn=dict(drawn.most_common()), padding=round(padding, 6),
                           speed=round(seconds / spent, 3) if spent else 0.0,
                           undecodable=[fault.text() for fault in loader.recipe.faults.values()])


def _endless(loader: SpeechLoader) -> Iterator[dict[str, Any]]:
    """The batches of an evaluation, or of one block of a mixture after another."""
    yield from loader
    while loader.recipe.mixture is not None and len(loader):
        yield from loader


def _seen(batch: dict[str, Any]) -> Seen:
    """A batch in numbers, and what is wrong with it."""
    source, sizes = batch["source_seqs"], batch["source_seq_lens"]
    target, tokens = batch["target_seqs"], batch["target_seq_lens"]
    faults = []
    if not len(source) == len(sizes) == len(target) == len(tokens) == len(batch["texts"]) == len(batch["ids"]):
        faults.append("arrays of different numbers of rows")
    elif (sizes > source.shape[1]).any() or (tokens > target.shape[1]).any():
        faults.append("lengths beyond the batch")
    elif any(row[size:].any() for row, size in zip(source, sizes, strict=True)):
        faults.append("padding that is not 0")
    elif not all(abs(row).max(initial=0) < float("inf") for row in source):  # NaN is not less either
        faults.append("audio that is not finite")
    return Seen(int(batch["valid"].sum()), source.shape, target.shape, int(sizes.sum()), int(tokens.sum()),
                str(batch["texts"][0]), tuple(faults))


def describe(found: Verification) -> str:
    """The report as text."""
    rows, hours = sum(share.rows for share in found.shares), sum(share.hours for share in found.shares)
    lines = [f"{found.path}: {len(found.shares)} partitions, {found.files} files, {rows:,} rows, {hours:,.3f} h", "",
             f"{'corpus':<16}{'split':<10}{'language':<22}{'rows':>10}{'hours':>12}"]
    lines += [f"{share.corpus:<16}{share.split:<10}{share.language:<22}{share.rows:>10,}{share.hours:>12.3f}"
              for share in found.shares]
    if found.left_out:
        lines += ["", "left out: " + ", ".join(f"{count:,} {reason}" for reason, count in found.left_out.items())]
    for number, batch in enumerate(found.batches, 1):
        lines += ["", f"batch {number}: {batch.utterances} utterances",
                  f"  audio {list(batch.source)}, {batch.audio:,} of its own",
                  f"  text  {list(batch.target)}, {batch.tokens:,} tokens", f"  {batch.text!r}",
                  *(f"  {fault}" for fault in batch.faults)]
    lines += ["", "drawn: " + ", ".join(f"{name} {count}" for name, count in found.drawn.items()),
              f"padding {found.padding:.1%}, {found.speed:,.0f} seconds of audio read in a second"]
    return "\n".join(lines + [f"could not be decoded: {text}" for text in found.undecodable])


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m pipelines.verify",
                                     description="Count a corpus of speech and read some batches of it.")
    parser.add_argument("--dataset_path", "--dataset-path", required=True, help="a Parquet set or a pack of speech")
    parser.add_argument("--split", default="train", help="which one batches are read of (train)")
    parser.add_argument("--num_iterations", "--num-iterations", type=int, default=10, metavar="N", help="batches (10)")
    parser.add_argument("--tokenizer", help="a SentencePiece model (default: the characters of the corpus)")
    parser.add_argument("--stats_path", "--stats-path", help="a summary of hours for the weights (default: counted)")
    parser.add_argument("--json", action="store_true", help="the report as JSON on stdout")
    options = parser.parse_args(argv)
    if options.num_iterations < 0:
        parser.error("--num_iterations is a number of batches, 0 or more")
    from asdstore.errors import AsdError

    try:
        found = verify(options.dataset_path, options.split, options.num_iterations, tokenizer=options.tokenizer,
                       stats_path=options.stats_path)
    except AsdError as error:
        print(json.dumps({"faults": [error.fault._asdict()]}, indent=1) if options.json else error,
              file=sys.stdout if options.json else sys.stderr)
        return 3
    if options.json:
        shares = [{**share._asdict(), "hours": share.hours} for share in found.shares]
        batches = [batch._asdict() for batch in found.batches]
        told = {**found._asdict(), "shares": shares, "batches": batches, "fine": found.fine}
        print(json.dumps(told, indent=1, ensure_ascii=False))
    else:
        print(describe(found))
    return 0 if found.fine else 1


if __name__ == "__main__":
    sys.exit(main())
make_callable(__name__)
