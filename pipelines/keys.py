"""Counter-based random keys, as in JAX: a draw is a pure function of what was folded in, never of a process or the past.

A key holds one 64-bit word per row. `fold` makes another key, `uniform` and `integers` draw one number per row. The words are
mixed by the splitmix64 finaliser (Steele, Lea, Flood 2014) and by nothing else, so that no version of a library changes them.
"""
from __future__ import annotations

import hashlib
from typing import NamedTuple

import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_PART = 1 << 20  # rows drawn at a time where many are: the words of each take 8 bytes several times
_MASK = (1 << 64) - 1


def word(value: object) -> int:
    """64 bits of a text or an integer, equal on every machine.

    >>> word(-1) == 2**64 - 1, word("chunk") == word("chunk"), word("chunk") == word("prefix")
    (True, True, False)
    """
    if isinstance(value, str):
        return int.from_bytes(hashlib.blake2b(value.encode(), digest_size=8).digest(), "little")
    return int(value) & _MASK  # type: ignore[call-overload]


def _mix(words: np.ndarray) -> np.ndarray:
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


class Key(NamedTuple):
    """`words`: uint64 [1], or [rows] once a column has been folded in.

    >>> key = Key.of(seed=0, epoch=3).fold("mix_voice")
    >>> rows = key.fold(np.arange(4))
    >>> rows.uniform().shape, bool((rows.uniform() == key.fold(np.arange(4)).uniform()).all())
    ((4,), True)
    """

    words: np.ndarray

    @classmethod
    def of(cls, seed: int, epoch: int = 0) -> Key:
        """The key of an epoch of a seed."""
        return cls(np.zeros(1, np.uint64)).fold("asdstore", seed, epoch)

    def fold(self, *values: object) -> Key:
        """Another key for every text, integer or column (integer array [rows]) in `values`."""
        words = self.words
        for value in values:
            column = value.astype(np.uint64) if isinstance(value, np.ndarray) else np.array([word(value)], np.uint64)
            words = _mix(words ^ _mix(column + _GOLDEN))
        return Key(words)

    def uniform(self, low: float = 0.0, high: float = 1.0) -> np.ndarray:
        """float64 [rows] in [low, high): the same numbers each time; fold in a name for others."""
        return low + (high - low) * ((self.words >> np.uint64(11)) * 2.0**-53)

    def integers(self, below: np.ndarray | int) -> np.ndarray:
        """int64 [rows] in [0, below)."""
        return (self.uniform() * below).astype(np.int64)

    def columns(self) -> tuple[np.ndarray, np.ndarray]:
        """32 bits of each row as two uint16 columns for np.lexsort, which sorts such by radix: several times faster."""
        return (self.words >> np.uint64(32)).astype(np.uint16), (self.words >> np.uint64(48)).astype(np.uint16)

    def permutation(self, size: int) -> np.ndarray:
        """The numbers below `size` in a random order: int64 [size]."""
        parts = [self.fold(np.arange(at, min(at + _PART, size))).columns() for at in range(0, max(size, 1), _PART)]
        return np.lexsort([np.concatenate(columns) for columns in zip(*parts, strict=True)])

    def generator(self) -> np.random.Generator:
        """numpy's counter-based generator, seeded by this key's first word, for draws that numpy has and keys have not."""
        return np.random.Generator(np.random.Philox(key=int(self.words[0])))
