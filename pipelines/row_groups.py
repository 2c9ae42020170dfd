"""The audio of Parquet sets of other programs, whose row groups can only be decoded whole.

Batches mix what lies in many row groups, and all of those do not fit into memory. So a row group is decoded once for each block
of draws, and what the block needs of it moves to a temporary file. Sets that this project wrote are mapped and need none of it.
"""
from __future__ import annotations

import os
import tempfile
import threading
from collections import deque

import numpy as np

from asdstore.errors import AsdError
from asdstore.formats.parquet import ParquetSet

_KEPT = 2  # blocks whose files are kept


class RowGroups:
    """Reads the encoded audio of a set; `stage` says what a block will ask for."""

    def __init__(self, of: ParquetSet):
        self.set = of
        self.mapped = all(part.rows_bytes >= 0 for part in of.parts)
        self._blocks: deque[_Block] = deque(maxlen=_KEPT)

    def stage(self, rows: np.ndarray) -> None:
        """Begin a block: rows of the whole set, int64, in any order."""
        rows = np.sort(rows)  # np.unique takes ten times as long
        self._blocks.append(_Block(self.set, rows[np.append(True, rows[1:] != rows[:-1])[:len(rows)]]))

    def audio_bytes(self, row: int) -> bytes:
        """The encoded audio of a row of the whole set. Raises: as `ParquetSet.audio_bytes`."""
        for block in () if self.mapped else reversed(self._blocks):
            if block.has(row):
                return block.audio_bytes(row)
        return self.set.audio_bytes(row)


class _Block:
    """The rows of a block, and where those that were read lie in its file."""

    def __init__(self, of: ParquetSet, rows: np.ndarray):
        self.set, self.rows = of, rows
        self.places: dict[int, tuple[int, int]] = {}
        self.file = tempfile.TemporaryFile()
        self.lock = threading.Lock()

    def has(self, row: int) -> bool:
        at = int(np.searchsorted(self.rows, row))
        return at < len(self.rows) and self.rows[at] == row

    def audio_bytes(self, row: int) -> bytes:
        with self.lock:
            if row not in self.places:
                self._read_group(row)
            if row not in self.places:
                return self.set.audio_bytes(row)  # which raises what is wrong with it
            at, size = self.places[row]
        return os.pread(self.file.fileno(), size, at)

    def _read_group(self, row: int) -> None:
        """Move what the block needs of the row group of a row to the file."""
        start, stop = self.set.group(row)
        for other in self.rows[np.searchsorted(self.rows, start):np.searchsorted(self.rows, stop)].tolist():
            try:
                data = self.set.audio_bytes(other)
            except AsdError:  # of one row: it comes out when that row is asked for
                continue
            self.places[other] = (self.file.tell(), len(data))
            self.file.write(data)
        self.file.flush()
