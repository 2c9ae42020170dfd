"""`pipelines.mixture`: batches of speech in which corpora and languages have the shares that their weights give them."""
from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np

from asdstore.errors import InputError
from pipelines.loader import Composition, Loader
from pipelines.log_mel import FRAME
from pipelines.mixture_buckets import Buckets
from pipelines.mixture_draws import Mixture
from pipelines.mixture_summary import Partition, mixture_weights, named
from pipelines.presets import Running
from pipelines.spec_augment import SpecAugment
from pipelines.speech_batch import Reading
from pipelines.speech_corpus import Utterances, open_speech
from pipelines.speech_filters import Filters, keep
from pipelines.speech_source import Batching, SpeechRecipe
from pipelines.tokenizers import as_tokenizer

_NAMED = 10
_HOUR = 3600 * 16000  # samples
Names = Sequence[str] | None


class SpeechLoader(Loader):
    """A loader of batches of utterances; an epoch is a block of draws. Made by `mixture` and `evaluate`."""

    recipe: SpeechRecipe

    def finish(self, batch: dict[str, Any], epoch: int, first: int) -> dict[str, Any]:
        self.recipe.faults.update(batch.pop("faults"))
        del batch["scored"]  # the same as `valid`
        return batch

    @property
    def chunks(self) -> np.recarray:
        """The draws of the current epoch, int64 columns: row (position among all utterances of the sources), draw, samples."""
        rows, numbers = self.recipe.block(self.epoch).draws
        return np.rec.fromarrays([rows, numbers, self.recipe.utterances.samples[rows]],
                                 names=["row", "draw", "samples"])  # type: ignore[arg-type]

    def batches(self, epoch: int | None = None) -> Composition:
        """The batches of an epoch (the current one) in global order, as positions in `at(epoch).chunks`."""
        found = self.recipe.block(self.epoch if epoch is None else epoch).batches
        return Composition(found.ids, found.offsets)


def mixture(sources: Any, split: str = "train", *, summary: Any = None, beta_corpus: float = 0.5, beta_language: float = 0.5,
            unit: str = "utterances", languages: Names = None, corpora: Names = None, tokenizer: Any = None, seed: int = 0,
            block: int = 8192, sample_budget: int = 3_200_000, min_batch: int = 1, max_batch: int = 256, group: int = 24,
            shapes: int | None = None, compat: str | None = None, buckets: Buckets | None = None,
            min_audio_len: int | None = None, max_audio_len: int | None = None, min_samples_per_char: int = 160,
            keep_empty: bool = False, keep_unknown: bool = False, remove_unknown: bool = False, max_tokens: int | None = None,
            features: str = "waveform", normalize: str = "layer", dtype: Any = "float32",
            spec_augment: SpecAugment | None = None, undecodable: str = "report",
            **running: Unpack[Running]) -> SpeechLoader:
    """A loader that draws utterances by the weights of their corpora and languages, and batches them by length.

    An epoch is a block of draws: a pure function of (seed, epoch), batched within itself. Draws take each utterance of a corpus
    and language once, in random order, before they take one again, over all epochs and ranks. So an iteration goes on from any
    state at once and with any number of ranks, and no utterance waits longer than a block. `while True: for batch in loader`
    runs without end.

    Args:
        sources: a Parquet set or speech pack, a path of one, or a list of them.
        split: whose utterances are drawn.
        summary: hours of each (corpus, language): see `mixture_weights`. None counts the hours that are fed.
        beta_corpus, beta_language: 1 for shares proportional to hours, 0 for equal shares of corpora, and of languages in one.
        unit: what the weights are shares of: "utterances", as in the original, or "hours".
        languages, corpora: only these.
        tokenizer: a function of a text that gives whole numbers, or the path of a SentencePiece model; None for no targets.
        seed: of the order and of all augmentation.
        block: draws of an epoch. Batches of longer blocks pad less; one of 50 batches for each rank is long enough.
        sample_budget: samples of a batch, padding included; min_batch, max_batch: utterances; group, shapes: `budget_batch`.
        compat: "omnilingual" for batches of the original's `buckets`, in place of a budget.
        min_audio_len, max_audio_len: samples, both included; those of `buckets`, or 1 and 800,000, where not given.
        min_samples_per_char (160: at most 100 characters a second), keep_empty (texts without a character), keep_unknown
            (texts whose tokens are all unknown), max_tokens: `explain()` counts what is left out.
        remove_unknown: leave unknown tokens out of targets.
        features: "waveform" or "log_mel" (80 bands). normalize: "layer" or "scale". dtype: "float32", "float16". See `Reading`.
        spec_augment: masks, drawn for each draw by itself.
        undecodable: "report" leaves what cannot be decoded out, counts it and warns at the end of an epoch; "error" raises.
        running: rank, world, prefetch, threads (which decode), processes, start_method; see `build`.

    A batch is a dictionary of, for B utterances of T samples (or frames), and U tokens:
        source_seqs         [B, T] of dtype, or [B, T, 80]; 0 beyond source_seq_lens
        source_seq_lens     int64 [B]
        target_seqs         int64 [B, U], the tokenizer's pad_id (else 0) beyond target_seq_lens
        target_seq_lens     int64 [B]
        texts, languages, corpora, ids      str [B]
        draws               int64 [B]: which draw it is; no two of a seed are alike, though they may take one utterance
        valid               bool [B]: False in the batches that complete the last step of an epoch over several ranks, in rows
                            that complete a shape, and in the one row of a batch of which nothing could be decoded
        scored_in_step      int: utterances of this step over all ranks, those that cannot be decoded among them

    Raises: InputError "split", "unit", "summary", "beta", "empty", "block", "budget", "filter", ...; what opening raises.
    Warns where the summary has rows without utterances: the others get their weight.
    """
    if unit not in ("utterances", "hours"):
        raise InputError("unit", expected="'utterances' or 'hours'", found=repr(unit))
    options = _buckets(compat, buckets, min_audio_len, max_audio_len)
    least, most = options.min_audio_len, options.max_audio_len
    tokenizer = as_tokenizer(tokenizer)
    reading = Reading(features, normalize, dtype, tokenizer, remove_unknown, spec_augment, undecodable).checked()
    utterances = open_speech(sources)
    chosen = select(utterances, split, languages, corpora)
    least = max(least, FRAME) if features == "log_mel" else least
    rows, dropped = keep(utterances, chosen, Filters(least, most, keep_empty, min_samples_per_char, keep_unknown, max_tokens),
                         tokenizer)
    if not len(rows):
        raise InputError("empty", expected="utterances that pass the filters", found=f"none of {len(chosen)}: {dropped}")
    names, codes = _partitions(utterances, rows)
    hours = np.bincount(codes, utterances.samples[rows], len(names)) / _HOUR
    counts = np.bincount(codes, minlength=len(names))
    weights = mixture_weights(dict(zip(names, hours.tolist(), strict=True)) if summary is None else summary,
                              beta_corpus, beta_language, split)
    shares, unused = _shares(weights, names, summary, everything=languages is None and corpora is None)
    draws = shares * counts / hours if unit == "hours" else shares
    notes = {"split": split, "unit": unit, "left_out": dropped, "summary_without_utterances": unused, "partitions": {
        "/".join(name): {"weight": float(share), "utterances": int(count), "hours": round(float(amount), 6)}
        for name, share, count, amount in zip(names, shares, counts, hours, strict=True)}}
    batching = Batching(sample_budget, min_batch, max_batch, group, shapes, options if compat else None)
    recipe = SpeechRecipe(utterances, rows, Mixture.of(draws, codes, rows, block, utterances.local), batching, reading, seed,
                          notes)
    return SpeechLoader(recipe, **running)


def evaluate_speech(sources: Any, split: str = "dev", *, languages: Names = None, corpora: Names = None, tokenizer: Any = None,
                    sample_budget: int = 3_200_000, max_batch: int = 256, features: str = "waveform", normalize: str = "layer",
                    dtype: Any = "float32", remove_unknown: bool = False, undecodable: str = "report", seed: int = 0,
                    **running: Unpack[Running]) -> SpeechLoader:
    """One pass over a split: each utterance once over all ranks, longest first, whatever its length or text.

    Batches are those of `mixture`. Ranks have equal steps: the last one is completed with batches whose `valid` is False.

    Args: as `mixture`. Raises: as `mixture`; warns where a foreign set says no length of some utterances, which are left out.
    """
    tokenizer = as_tokenizer(tokenizer)
    reading = Reading(features, normalize, dtype, tokenizer, remove_unknown, None, undecodable).checked()
    utterances = open_speech(sources)
    chosen = select(utterances, split, languages, corpora)
    rows, dropped = keep(utterances, chosen, Filters(1), None)
    if dropped:
        warnings.warn(f"not evaluated: {dropped} of {len(chosen)} utterances", stacklevel=2)
    longest = int(utterances.samples[rows].max(initial=0))
    batching = Batching(max(sample_budget, longest + 160), 1, max_batch)
    return SpeechLoader(SpeechRecipe(utterances, rows, None, batching, reading, seed, {"split": split, "left_out": dropped}),
                        **running)


def select(utterances: Utterances, split: str, languages: Names, corpora: Names) -> np.ndarray:
    """Positions of the utterances of a split, and of some languages and corpora: int64 [n].

    Raises: InputError "split", "languages" or "corpora" for a name that no utterance has, with those that there are; "empty".
    """
    if not isinstance(split, str):
        raise InputError("split", expected="the name of a split", found=repr(split))
    for kind, wanted, column in (("split", [split], utterances.split), ("languages", languages, utterances.language),
                                 ("corpora", corpora, utterances.corpus)):
        if isinstance(wanted, str):
            raise InputError(kind, expected="a list of names", found=repr(wanted))
        missing = sorted(set(wanted or ()) - set(column.names))
        if missing:
            raise InputError(kind, expected=f"some of {', '.join(column.names[:50])}", found=", ".join(missing))
    found = np.flatnonzero(utterances.split.among([split]) & utterances.language.among(languages)
                           & utterances.corpus.among(corpora))
    if not len(found):
        raise InputError("empty", expected="utterances of this split, in these languages and corpora", found="none")
    return found


def _partitions(utterances: Utterances, rows: np.ndarray) -> tuple[list[Partition], np.ndarray]:
    """The (corpus, language) that rows have, and which one each row has: int64 [rows]."""
    width = len(utterances.language.names)
    joined = utterances.corpus.codes[rows].astype(np.int64) * width + utterances.language.codes[rows]
    values, codes = np.unique(joined, return_inverse=True)
    names = [(utterances.corpus.names[v // width], utterances.language.names[v % width]) for v in values.tolist()]
    return names, codes


def _shares(weights: dict[Partition, float], names: list[Partition], summary: Any,
            everything: bool) -> tuple[np.ndarray, list[str]]:
    """The weights of the partitions that are drawn, over their sum, and the summary's rows without utterances."""
    missing = ["/".join(name) for name in names if not weights.get(name)]
    if missing:
        raise InputError("summary", file=named(summary), expected="hours above 0 for each corpus and language that has "
                         "utterances", found=f"none for {', '.join(missing[:_NAMED])}{' ...' if len(missing) > _NAMED else ''}",
                         cure="Make it again with `asdstore stats`, or leave them out with corpora= and languages=.")
    unused = sorted("/".join(name) for name in set(weights) - set(names)) if everything else []
    if unused:
        warnings.warn(f"the summary has hours of what no utterance here has: {', '.join(unused[:_NAMED])}"
                      f"{' ...' if len(unused) > _NAMED else ''}", stacklevel=3)
    found = np.array([weights[name] for name in names])
    return found / found.sum(), unused


def _buckets(compat: str | None, buckets: Buckets | None, least: int | None, most: int | None) -> Buckets:
    """The original's options, with the lengths that are fed."""
    if compat not in (None, "omnilingual"):
        raise InputError("compat", expected="None or 'omnilingual'", found=repr(compat))
    if compat is None and buckets is not None:
        raise InputError("buckets", expected="compat='omnilingual' beside them", found="the planner's batches")
    given = {"min_audio_len": least, "max_audio_len": most}
    return (buckets or Buckets())._replace(**{name: value for name, value in given.items() if value is not None})
