"""A column of texts as two arrays: all bytes in UTF-8, and where each text ends."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Strings:
    """`blob` uint8 [bytes], `offsets` int64 [rows + 1], monotone from 0: text i is blob[offsets[i]:offsets[i + 1]]."""

    blob: np.ndarray
    offsets: np.ndarray

    @staticmethod
    def of(values: Sequence[str]) -> Strings:
        """The column of some texts.

        >>> list(Strings.of(["a", "", "né"]))
        ['a', '', 'né']
        """
        parts = [v.encode() for v in values]
        ends = np.cumsum([len(p) for p in parts], dtype=np.int64)
        return Strings(np.frombuffer(b"".join(parts), np.uint8), np.concatenate([np.zeros(1, np.int64), ends]))

    @staticmethod
    def empty(rows: int) -> Strings:
        return Strings(np.empty(0, np.uint8), np.zeros(rows + 1, np.int64))

    @staticmethod
    def concat(columns: Sequence[Strings]) -> Strings:
        """One column of several, in order."""
        starts = np.cumsum([0] + [len(c.blob) for c in columns])
        ends = [c.offsets[1:] + start for c, start in zip(columns, starts, strict=False)]
        return Strings(np.concatenate([c.blob for c in columns]), np.concatenate([np.zeros(1, np.int64), *ends]))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> str:
        n = len(self)
        i = i + n if i < 0 else i
        if not 0 <= i < n:
            raise IndexError(i)
        return self.blob[self.offsets[i]:self.offsets[i + 1]].tobytes().decode()

    def __iter__(self) -> Iterator[str]:
        whole = self.blob.tobytes()
        ends = self.offsets.tolist()
        return (whole[a:b].decode() for a, b in zip(ends, ends[1:], strict=False))

    def are_utf8(self) -> bool:
        """Whether each text by itself is UTF-8.

        >>> Strings(Strings.of(["né"]).blob, np.array([0, 2, 3])).are_utf8()
        False
        """
        starts = self.offsets[self.offsets < len(self.blob)]
        if np.any(self.blob[starts] & 0xC0 == 0x80):  # in the middle of a character
            return False
        try:
            str(self.blob.data, "utf-8")
        except UnicodeDecodeError:
            return False
        return True

    def to_numpy(self) -> np.ndarray:
        """The texts as a numpy array of variable-length strings, [rows]."""
        return np.array(list(self), dtype=np.dtypes.StringDType())

    def fixed(self) -> np.ndarray:
        """The texts as fixed-width bytes, dtype S [rows]: compact, and sortable by array operations."""
        lengths = np.diff(self.offsets)
        width = max(1, int(lengths.max(initial=0)))
        found = np.zeros((len(self), width), np.uint8)
        row = np.repeat(np.arange(len(self)), lengths)
        found[row, np.arange(len(self.blob)) - np.repeat(self.offsets[:-1], lengths)] = self.blob
        return found.view(f"S{width}").reshape(-1)

    def take(self, rows: np.ndarray | slice) -> Strings:
        """The texts of some rows, in that order."""
        index = np.arange(len(self))[rows]
        starts, lengths = self.offsets[:-1][index], np.diff(self.offsets)[index]
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        return Strings(self.blob[np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)], offsets)
