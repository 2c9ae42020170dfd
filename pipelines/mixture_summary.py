"""Weights of a mixture of corpora and languages, from how many hours of each there are.

    W_c = (H_c / H) ** beta_corpus, over their sum;  V(l|c) = (h_cl / H_c) ** beta_language, over their sum in c
    w = W_c * V(l|c)

With beta 1 a share is proportional to its hours, with beta 0 all corpora, and all languages of a corpus, are alike.
Source: the Omnilingual ASR data-preparation document.
"""
from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from numbers import Real
from pathlib import Path
from typing import Any

from asdstore.errors import InputError, MissingError

Partition = tuple[str, str]  # corpus, language
_HEAD = ("corpus", "language", "hours")
_LARGEST = 1 << 28  # bytes of a summary


def mixture_weights(summary: Any, beta_corpus: float = 0.5, beta_language: float = 0.5,
                    split: str | None = None) -> dict[Partition, float]:
    """The weight of each (corpus, language); they add up to 1.

    Args:
        summary: a TSV file with a header and the columns corpus, language, hours (what `asdstore stats` writes), the shares
            that `compute_stats` gives, or a mapping of (corpus, language) to hours.
        beta_corpus, beta_language: 0 or more.
        split: which rows count, of a summary with a column `split`.

    Raises: InputError "beta"; "summary" for one without rows, with a row twice, with hours that are no finite number of 0 or
    more, or with a corpus of zero hours; MissingError "missing".

    >>> weights = mixture_weights({("mls", "deu"): 9.0, ("mls", "fra"): 1.0, ("cv", "lug"): 10.0}, 1, 0.5)
    >>> {"/".join(key): round(weight, 4) for key, weight in weights.items()}
    {'mls/deu': 0.375, 'mls/fra': 0.125, 'cv/lug': 0.5}
    """
    for name, beta in (("beta_corpus", beta_corpus), ("beta_language", beta_language)):
        if not (isinstance(beta, Real) and math.isfinite(beta) and beta >= 0):
            raise InputError("beta", expected=f"{name} of 0 or more", found=repr(beta))
    hours = read_summary(summary, split)
    totals = _sums(hours.items())
    for corpus, total in totals.items():
        if not total:
            raise InputError("summary", file=named(summary), sample_id=corpus, expected="more than 0 hours of each corpus",
                             found="0", cure="Leave it out.")
    whole = sum(totals.values())
    of_corpus = {corpus: (total / whole) ** beta_corpus for corpus, total in totals.items()}
    every = sum(of_corpus.values())
    of_language = {key: (amount / totals[key[0]]) ** beta_language for key, amount in hours.items()}
    in_corpus = _sums(of_language.items())
    return {key: of_corpus[key[0]] / every * (share / in_corpus[key[0]]) for key, share in of_language.items()}


def read_summary(summary: Any, split: str | None = None) -> dict[Partition, float]:
    """Hours by (corpus, language). Raises: as `mixture_weights`."""
    if isinstance(summary, (str, os.PathLike)):
        rows = _lines(Path(summary), split)
    elif isinstance(summary, Mapping):
        rows = [(number, *key, hours) for number, (key, hours) in enumerate(summary.items())]
    else:
        rows = [(number, one.corpus, one.language, one.hours) for number, one in enumerate(summary)
                if not split or one.split in ("", split)]
    found: dict[Partition, float] = {}
    for number, corpus, language, hours in rows:
        key = (str(corpus), str(language))
        if key in found:
            raise _wrong(summary, number, "each corpus and language once", f"{'/'.join(key)} again")
        found[key] = _hours(hours, summary, number)
    if not found:
        raise InputError("summary", file=named(summary), expected="at least one row",
                         found="none" if split is None else f"none of the split {split!r}")
    return found


def _lines(path: Path, split: str | None) -> list[tuple[int, str, str, str]]:
    """The rows of a TSV, with their lines counted from 1. All values are texts: a language may be called nan."""
    try:
        if path.stat().st_size > _LARGEST:
            raise InputError("summary", file=path, expected=f"at most {_LARGEST} bytes", found=str(path.stat().st_size))
        text = path.read_text("utf-8-sig")
    except UnicodeDecodeError as why:
        raise InputError("summary", file=path, expected="text in UTF-8", found=str(why)) from why
    except OSError as why:
        raise MissingError("missing", file=path, expected="a summary", found=why.strerror or str(why),
                           cure="Make it with `asdstore stats`.") from why
    head, *lines = text.splitlines() or [""]
    names = head.split("\t")
    if any(names.count(name) != 1 for name in _HEAD):
        raise InputError("summary", file=path, row=1, expected=f"a header with {', '.join(_HEAD)}", found=repr(head)[:200])
    rows = []
    for number, line in enumerate(lines, 2):
        cells = line.split("\t")
        if line and len(cells) != len(names):
            raise _wrong(path, number, f"{len(names)} columns", str(len(cells)))
        row = dict(zip(names, cells, strict=False))
        if line and (split is None or row.get("split", split) == split):
            rows.append((number, row["corpus"], row["language"], row["hours"]))
    return rows


def _hours(value: Any, summary: Any, row: int) -> float:
    try:
        hours = float(value)
    except (TypeError, ValueError):
        hours = math.nan
    if not (math.isfinite(hours) and hours >= 0):
        raise _wrong(summary, row, "hours of 0 or more", repr(value)[:80])
    return hours


def _sums(items: Iterable[tuple[Partition, float]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for (corpus, _), amount in items:
        found[corpus] = found.get(corpus, 0.0) + amount
    return found


def _wrong(summary: Any, row: int, expected: str, found: str) -> InputError:
    return InputError("summary", file=named(summary), row=row, expected=expected, found=found,
                      cure="Make it again with `asdstore stats`.")


def named(summary: Any) -> str:
    """What messages call a summary."""
    return os.fspath(summary) if isinstance(summary, (str, os.PathLike)) else "summary"
