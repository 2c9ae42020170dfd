"""Which utterances are fed, and how many are not for which reason."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from asdstore.errors import InputError
from pipelines.speech_corpus import Utterances
from pipelines.tokenizers import Tokenizer


class Filters(NamedTuple):
    """What an utterance must have. `samples_per_character` 160 at 16 kHz is at most 100 characters a second; 0 for any."""

    min_samples: int = 1
    max_samples: int | None = None
    empty_text: bool = True  # may the text be empty?
    samples_per_character: int = 0
    unknown: bool = True  # may all tokens be unknown?
    max_tokens: int | None = None

    def check(self) -> None:
        """Raises InputError "filter" for limits that nothing can keep."""
        if self.min_samples < 1 or (self.max_samples is not None and self.max_samples < self.min_samples):
            raise InputError("filter", expected="1 <= min_audio_len <= max_audio_len",
                             found=f"{self.min_samples}, {self.max_samples}")
        if self.samples_per_character < 0 or (self.max_tokens is not None and self.max_tokens < 1):
            raise InputError("filter", expected="min_samples_per_char of 0 or more, max_tokens of 1 or more",
                             found=f"{self.samples_per_character}, {self.max_tokens}")


def keep(utterances: Utterances, rows: np.ndarray, filters: Filters,
         tokenizer: Tokenizer | None) -> tuple[np.ndarray, dict[str, int]]:
    """The rows that pass all filters, in order, and how many each filter left out.

    Args: `rows` int64 [n], positions in `utterances`; tokens are only made where a filter needs them.
    Raises: InputError "filter"; what the tokenizer raises, with the utterance.
    """
    filters.check()
    counts: dict[str, int] = {}

    def only(reason: str, wanted: Callable[[np.ndarray], np.ndarray]) -> None:
        nonlocal rows
        good = wanted(rows)
        counts[reason] = int(len(rows) - np.count_nonzero(good))
        rows = rows[good]

    samples = utterances.samples
    only("no audio_size", lambda rows: samples[rows] >= 0)
    only("too short", lambda rows: samples[rows] >= filters.min_samples)
    if filters.max_samples is not None:
        most = filters.max_samples
        only("too long", lambda rows: samples[rows] <= most)
    if not filters.empty_text:
        only("empty text", lambda rows: utterances.characters[rows] > 0)
    if filters.samples_per_character:
        only("too many characters a second",
             lambda rows: samples[rows] >= filters.samples_per_character * utterances.characters[rows])
    unknown = getattr(tokenizer, "unknown_id", None)
    if tokenizer is not None and ((not filters.unknown and unknown is not None) or filters.max_tokens is not None):
        tokens = list(_tokens(utterances, rows, tokenizer, None if filters.unknown else unknown))
        only("unknown tokens only", lambda rows: np.array([count >= 0 for count in tokens], bool))
        most = filters.max_tokens
        if most is not None:
            known = [count for count in tokens if count >= 0]
            only("too many tokens", lambda rows: np.array([count <= most for count in known], bool))
    return rows, {reason: count for reason, count in counts.items() if count}


def _tokens(utterances: Utterances, rows: np.ndarray, tokenizer: Tokenizer, unknown: int | None) -> Iterator[int]:
    """How many tokens each text has, -1 where all of them are unknown."""
    for row in rows.tolist():
        tokens = tokenizer(utterances.text(row))
        blank = unknown is not None and len(tokens) and all(token == unknown for token in tokens)
        yield -1 if blank else len(tokens)
