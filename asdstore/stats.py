"""`python -m asdstore.stats SET [OUT.tsv]`: how many hours of each language a corpus has, as TSV.

`corpus language hours`, sorted, over all splits, as Omnilingual ASR's loader reads it; or one line for each split with its
rows. Of a Parquet set or a speech pack. Exit codes: 0 fine, 2 usage, 3 unreadable.
"""
from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np

RATE = 16000


class Share(NamedTuple):
    """What one corpus has of one language, in one split or in all ("")."""

    corpus: str
    language: str
    split: str
    rows: int
    samples: int  # at 16 kHz
    nulls: int  # rows that say no length: not in rows

    @property
    def hours(self) -> float:
        return self.samples / 3600 / RATE


def compute_stats(of: Any, output: str | os.PathLike[str] | None = None, per_split: bool = False) -> list[Share]:
    """The shares of a Parquet set or speech pack (a path, or one that is open), sorted; written to `output` as TSV if given.

    >>> asdstore.compute_stats("all_asr/version=0", "language_distribution_0.tsv")                            # doctest: +SKIP
    """
    import asdstore

    opened = asdstore.open(os.fspath(of)) if isinstance(of, (str, os.PathLike)) else of
    index = opened.index
    sizes = index["audio_size" if "audio_size" in index else "audio_samples"]
    shares = _shares([index[name] for name in ("corpus", "language", "split")], sizes)
    if not per_split:
        shares = _joined(shares)
    if output is not None:
        from asdstore.files import write_bytes
        write_bytes(Path(output), table(shares, per_split).encode())
    return shares


def table(shares: Iterable[Share], per_split: bool = False) -> str:
    """TSV with a header: corpus, language, hours; or corpus, language, split, rows, hours.

    >>> table([Share("mls", "deu_Latn", "", 1, 57_600_000, 0)])
    'corpus\\tlanguage\\thours\\nmls\\tdeu_Latn\\t1.0\\n'
    """
    head = ("corpus", "language", "split", "rows", "hours") if per_split else ("corpus", "language", "hours")
    lines = [head, *(tuple(str(getattr(share, name)) for name in head) for share in shares)]
    return "".join("\t".join(line) + "\n" for line in lines)


def _shares(keys: Sequence[np.ndarray], sizes: np.ndarray) -> list[Share]:
    import numpy as np

    codes = np.zeros(len(sizes), np.int64)
    names: list[np.ndarray] = []
    for key in keys:
        values, inverse = np.unique(key, return_inverse=True)
        codes = codes * max(1, len(values)) + inverse
        names.append(values)
    groups, inverse = np.unique(codes, return_inverse=True)
    known = sizes >= 0
    rows, nulls = (np.bincount(inverse[mask], minlength=len(groups)) for mask in (known, ~known))
    samples = np.zeros(len(groups), np.int64)
    np.add.at(samples, inverse[known], sizes[known])
    which = np.unravel_index(groups, tuple(max(1, len(values)) for values in names)) if len(groups) else ([], [], [])
    texts = [[str(values[i]) for i in at] for values, at in zip(names, which, strict=True)]
    return sorted(Share(*row) for row in zip(*texts, rows.tolist(), samples.tolist(), nulls.tolist(), strict=True))


def _joined(shares: Iterable[Share]) -> list[Share]:
    """One share for all splits of a language."""
    found: dict[tuple[str, str], Share] = {}
    for share in shares:
        key = share.corpus, share.language
        before = found.get(key, Share(*key, "", 0, 0, 0))
        found[key] = before._replace(rows=before.rows + share.rows, samples=before.samples + share.samples,
                                     nulls=before.nulls + share.nulls)
    return list(found.values())


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Returns its exit code."""
    parser = argparse.ArgumentParser(prog=None if sys.argv[0].startswith("asdstore") else "python -m asdstore.stats",
                                     description="Hours of each language of a Parquet set or speech pack, as TSV.")
    parser.add_argument("set", help="a Parquet set or a speech pack")
    parser.add_argument("output", nargs="?", help="the TSV (default: stdout)")
    parser.add_argument("--per-split", action="store_true", help="a line for each split, with its rows")
    parser.add_argument("--json", action="store_true", help="the shares as JSON on stdout")
    options = parser.parse_args(argv)
    from asdstore.errors import AsdError

    try:
        shares = compute_stats(options.set, options.output, options.per_split)
    except AsdError as error:
        print(json.dumps({"faults": [error.fault._asdict()]}, indent=2) if options.json else error,
              file=sys.stdout if options.json else sys.stderr)
        return 3
    if options.json:
        print(json.dumps([{**share._asdict(), "hours": share.hours} for share in shares], indent=2))
    elif not options.output:
        print(table(shares, options.per_split), end="")
    nulls = sum(share.nulls for share in shares)
    if nulls:
        print(f"{nulls:,} rows say no length and are not counted", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
