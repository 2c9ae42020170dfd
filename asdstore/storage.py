"""Mapped arrays: plain read-only ndarrays over files, opened lazily, bounded in number, right in every process.

A map is made by mmap(2) directly, so it keeps no file descriptor (Python's own mmap keeps one each before 3.13): a pack of
thousands of shards works under any `ulimit -n`. A map lives as long as a view of it, also after it was let go here.
"""
from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from asdstore.errors import MissingError, StoreError
from spec.facts import Piece

MOST_MAPS = 16_384  # arrays kept mapped, of about 65,000 that the kernel allows a process

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_longlong]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_PROT_READ, _MAP_SHARED = 1, 1


class _Map:
    """The bytes of one file, mapped until the last array over them is gone."""

    def __init__(self, file: int, size: int):
        self._address, self._size = _libc.mmap(None, size, _PROT_READ, _MAP_SHARED, file, 0), size
        if self._address in (None, ctypes.c_void_p(-1).value):
            self._address = None
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        self.__array_interface__ = {"version": 3, "typestr": "|u1", "shape": (size,), "data": (self._address, True)}

    def __del__(self) -> None:
        if self._address is not None:
            _libc.munmap(self._address, self._size)


class Stamp(NamedTuple):
    """What tells a file from another that took its place."""

    size: int
    inode: int
    modified: int  # nanoseconds


def stamp(path: str) -> Stamp:
    """The stamp of a file. Raises OSError."""
    return _stamp(os.stat(path))


def _stamp(found: os.stat_result) -> Stamp:
    return Stamp(found.st_size, found.st_ino, found.st_mtime_ns)


def map_file(path: str, size: int, known: Stamp | None = None) -> np.ndarray:
    """The bytes of a file as a read-only uint8 [size] that is mapped, not read.

    Raises MissingError, kind "missing"; StoreError, kind "stale", where it has another size by now, or another stamp.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise MissingError("missing", file=path, expected="the file that was there when the pack was opened",
                           found="none") from None
    try:
        found = _stamp(os.fstat(file))
        if found.size != size or (known is not None and found != known):
            was = f"{size} bytes" if found.size != size else "the file"
            now = f"{found.size} bytes" if found.size != size else "another file, or one that was written to"
            raise StoreError("stale", file=path, expected=f"{was} as when the pack was opened", found=now,
                             cure="Open the pack again.")
        return np.asarray(_Map(file, size)) if size else np.empty(0, np.uint8)
    finally:
        os.close(file)


class Source(NamedTuple):
    """Where one array lies: rows of `item_shape` and `dtype` in `pieces`; or, without pieces, a Zarr array to be read."""

    dtype: str
    shape: tuple[int, ...]
    pieces: tuple[Piece, ...] | None
    stamps: tuple[Stamp, ...]  # of the pieces' files
    folder: str = ""  # of the Zarr array


class Storage:
    """The arrays of a pack by slot number. `array(slot)` maps on first use; at most `most` stay mapped."""

    def __init__(self, sources: Sequence[Source], most: int = MOST_MAPS):
        self.sources = tuple(sources)
        self._most = most
        self.open: list[Any] = [None] * len(self.sources)  # slot -> array or None; a Pack reads it without a call
        self.used = bytearray(len(self.sources))  # slot -> 1 since it was last asked whether it may go
        self._mapped: list[int] = []  # slots, the next to go first
        self._lock = threading.Lock()
        _storages.add(self)

    def _forget(self) -> None:
        self.open[:] = [None] * len(self.sources)
        self.used[:] = bytes(len(self.sources))
        self._mapped.clear()
        self._lock = threading.Lock()

    def array(self, slot: int) -> Any:
        """The array of a slot: a read-only ndarray [rows, *item_shape], or an object that slices like one by rows."""
        self.used[slot] = 1
        found = self.open[slot]
        return self._map(slot) if found is None else found

    def _map(self, slot: int) -> Any:
        with self._lock:
            found = self.open[slot]
            if found is None:
                if len(self._mapped) >= self._most:
                    self._let_go()
                found = _array(self.sources[slot])
                self._mapped.append(slot)
                self.open[slot] = found
            return found

    def _let_go(self) -> None:
        """Let go of the map that was not used for longest, by the clock algorithm; its views keep it alive."""
        while self.used[oldest := self._mapped.pop(0)]:
            self.used[oldest] = 0
            self._mapped.append(oldest)
        self.open[oldest] = None


def _array(source: Source) -> Any:
    if source.pieces is None:
        from asdstore.zarr_arrays import open_zarr_array
        return open_zarr_array(source.folder)
    parts = [_piece(piece, known, source) for piece, known in zip(source.pieces, source.stamps, strict=True)]
    return parts[0] if len(parts) == 1 else Pieces(parts, source)


def _piece(piece: Piece, known: Stamp, source: Source) -> np.ndarray:
    shape = (piece.rows, *source.shape[1:])
    return np.ndarray(shape, source.dtype, map_file(piece.path, known.size, known), piece.offset)


class Pieces:
    """An array whose rows lie in several files: a slice within one is a view, a slice across them a copy."""

    def __init__(self, parts: Sequence[np.ndarray], source: Source):
        self._parts = parts
        self._starts = np.cumsum([0] + [len(p) for p in parts])
        self.shape, self.dtype = source.shape, np.dtype(source.dtype)

    def __getitem__(self, rows: slice) -> np.ndarray:
        start, stop, step = rows.indices(self.shape[0])
        if step != 1:
            return self[:][rows]
        first = int(np.searchsorted(self._starts, start, "right")) - 1
        places = zip(self._parts[first:], self._starts[first:].tolist(), strict=False)
        found = [part[max(0, start - at):max(0, stop - at)] for part, at in places if at < max(stop, start + 1)]
        joined = found[0] if len(found) == 1 else np.concatenate([np.empty((0, *self.shape[1:]), self.dtype), *found])
        joined.flags.writeable = False
        return joined


_storages: weakref.WeakSet[Storage] = weakref.WeakSet()


def _after_fork() -> None:
    """A forked child opens its own maps; a lock that another thread held at the fork is replaced."""
    for storage in list(_storages):
        storage._forget()


os.register_at_fork(after_in_child=_after_fork)
