"""Zarr v3 arrays, ours and foreign ones: where their rows lie, if they can be mapped, and a reader for all others.

Opening looks at every chunk file: a missing one is an error here, never zeros. Nothing is imported from Zarr or TensorStore
until an array must be decoded.
"""
from __future__ import annotations

import functools
import itertools
import math
import os
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from asdstore import facts
from asdstore.errors import FormatError, MissingError, StoreError
from spec import zarr3
from spec.facts import Piece
from spec.zarr3 import ArrayDocument

DOCUMENT = "zarr.json"
CUT = "The file was cut or written over: restore it."


def read_document(folder: str | os.PathLike[str]) -> ArrayDocument:
    """What the Zarr v3 array in `folder` says of itself.

    Raises: MissingError "missing"; FormatError "json" or "zarr-document", also for an array without axes.
    """
    path = os.path.join(folder, DOCUMENT)
    document = zarr3.parse_array_document(facts.read_document("", path, zarr3.MAX_DOCUMENT), path)
    if not document.shape:
        raise FormatError("zarr-document", file=path, expected="an array of rows", found="a single value without axes")
    return document


def extents(folder: str | os.PathLike[str]) -> list[Piece] | None:
    """Where the rows of an array lie, in order of the rows, neighbours in one file as one piece; None if they cannot be mapped.

    They can be where the values are neither compressed nor byte-swapped and every chunk holds whole rows. All chunk files are
    checked either way. Raises: what `read_document` raises; MissingError "missing" for a chunk that is not there; FormatError
    "size" for a chunk file of another length, "zarr-index" for a broken shard index.
    """
    document = read_document(folder)
    whole_rows = document.chunk[1:] == document.inner[1:] == document.shape[1:]
    mappable = document.raw and document.dtype[0] != ">" and whole_rows
    pieces: list[Piece] = []
    for position in _positions(document):
        path = os.path.join(folder, document.chunk_key(position))
        offsets = _check_chunk(path, document, position)
        if mappable:
            _append(pieces, path, document, position[0] * document.chunk[0], offsets)
    return pieces if mappable else None


def _positions(document: ArrayDocument) -> Iterator[tuple[int, ...]]:
    if math.prod(document.shape):  # an axis of no length leaves no chunks, however long the others
        for number in range(math.prod(document.grid)):
            yield tuple(int(at) for at in np.unravel_index(number, document.grid))


def _append(pieces: list[Piece], path: str, document: ArrayDocument, first: int, offsets: NDArray[np.uint64]) -> None:
    """Adds the rows of one chunk file, which begin with row `first`; `offsets` [n] are those of its inner chunks."""
    rows, end = document.inner[0], min(first + document.chunk[0], document.shape[0])
    offsets = offsets[:zarr3.chunk_count(end - first, rows)]
    jumps = np.flatnonzero(offsets[1:] != offsets[:-1] + np.uint64(_inner_bytes(document))) + 1
    for at, until in itertools.pairwise([0, *jumps.tolist(), len(offsets)]):
        start = first + at * rows
        pieces.append(Piece(path, int(offsets[at]), start, min(first + until * rows, end) - start))


def _inner_bytes(document: ArrayDocument) -> int:
    return math.prod(document.inner) * int(document.dtype[2:])


def _check_chunk(path: str, document: ArrayDocument, position: tuple[int, ...]) -> NDArray[np.uint64]:
    """Looks at one chunk file as far as can be without decoding. Offsets [n] of its inner chunks, where there are such."""
    try:
        with facts.open_file(path) as file:
            size = os.fstat(file.fileno()).st_size
            if document.index in ("start", "end"):
                return _shard_offsets(file, size, path, document, position)
    except OSError as error:
        raise MissingError("missing", file=path, expected="the chunk file", found=error.strerror or str(error),
                           cure="Restore it or make the array again; empty chunks must be written too.") from None
    if size != _inner_bytes(document) if document.raw else size == 0:
        expected = f"{_inner_bytes(document)} bytes" if document.raw else "a compressed chunk"
        raise FormatError("size", file=path, expected=expected, found=f"{size} bytes", cure=CUT)
    return np.zeros(1, np.uint64)


def _shard_offsets(file: BinaryIO, size: int, path: str, document: ArrayDocument,
                   position: tuple[int, ...]) -> NDArray[np.uint64]:
    counts = [n // k for n, k in zip(document.chunk, document.inner, strict=True)]
    length = zarr3.index_bytes(math.prod(counts))
    if size < length:
        raise FormatError("zarr-index", file=path, expected=f"a shard with an index of {length} bytes", found=f"{size} bytes",
                          cure=CUT)
    at_end = document.index == "end"
    file.seek(size - length if at_end else 0)
    inside = [first * n + np.arange(m) * k < rows for first, n, m, k, rows in
              zip(position, document.chunk, counts, document.inner, document.shape, strict=True)]
    needed = functools.reduce(np.logical_and.outer, inside).reshape(-1)
    bounds = (0, size - length) if at_end else (length, size)
    found = zarr3.parse_shard_index(file.read(length), len(needed), begin=bounds[0], end=bounds[1], needed=needed, file=path)
    odd = np.flatnonzero(needed & (found[:, 1] != _inner_bytes(document))) if document.raw else []
    if len(odd):
        raise FormatError("zarr-index", file=path, expected=f"inner chunks of {_inner_bytes(document)} bytes",
                          found=f"chunk {odd[0]} with {found[odd[0], 1]}")
    return found[:, 0]


def open_zarr_array(folder: str | os.PathLike[str]) -> ZarrArray:
    """An array that is decoded as it is read, by TensorStore. Raises: what `extents` raises.

    Arrays that `extents` can place are read right too, only slower than through a map.
    """
    extents(folder)
    return ZarrArray(folder)


class ZarrArray:
    """A Zarr v3 array that slices along its first axis into read-only ndarrays in the byte order of this machine."""

    def __init__(self, folder: str | os.PathLike[str]):
        _refuse_fork()
        import tensorstore

        self.folder = os.path.abspath(folder)
        self._store = self._result(tensorstore.open({
            "driver": "zarr3", "kvstore": {"driver": "file", "path": self.folder + os.sep},
            "fill_missing_data_reads": False}, open=True, read=True))
        self.shape: tuple[int, ...] = tuple(self._store.shape)
        self.dtype: np.dtype = np.dtype(self._store.dtype.numpy_dtype)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> np.ndarray:
        """The rows as a new read-only array. Raises: MissingError "missing", FormatError "zarr-chunk", StoreError "forked"."""
        start, stop, step = rows.indices(self.shape[0])
        if step != 1:
            return self[:][rows]
        _refuse_fork()
        found = np.asarray(self._result(self._store[start:max(start, stop)].read()))
        found.flags.writeable = False
        return found

    def _result(self, future: Any) -> Any:
        try:
            return future.result()
        except ValueError as error:
            text = str(error)
        if text.startswith("NOT_FOUND"):
            raise MissingError("missing", file=self.folder, expected="every chunk, as when it was opened", found=text[:300])
        raise FormatError("zarr-chunk", file=self.folder, expected="chunks that can be decoded", found=text[:300], cure=CUT)

    def __reduce__(self):
        return open_zarr_array, (self.folder,)


_process = 0  # that uses TensorStore: copied by fork, its threads are gone and it aborts the process


def _refuse_fork() -> None:
    global _process
    _process = _process or os.getpid()
    if _process != os.getpid():
        raise StoreError("forked", expected="a process that began without TensorStore", found="a fork of one that used it",
                         cure="Start workers with spawn or forkserver, or open compressed arrays in the workers only.")
