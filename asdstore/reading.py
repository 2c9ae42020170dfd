"""Arrays read, not mapped: a disk that fails while it is read gives an error, where a map would end the process."""
from __future__ import annotations

import math
import os
from collections.abc import Iterator

import numpy as np

from asdstore.errors import FormatError
from asdstore.facts import open_file
from spec.facts import ArrayFacts, Facts, Piece
from spec.layout import Stream

READ_BYTES = 1 << 22  # of an array at a time


def usable(facts: Facts, shard: int, stream: Stream) -> ArrayFacts | None:
    """The array of a shard, if it is what the manifest says and its file is long enough."""
    array = facts.arrays[shard][facts.layout.streams.index(stream)]
    fits = array.fault is None and array.dtype == stream.dtype and len(array.shape) > 0 and array.shape[1:] == stream.item_shape
    return array if fits and array.size >= array.data_end else None


def read_bytes(path: str, at: int, length: int) -> bytes:
    """`length` bytes of a file from byte `at` on. Raises OSError; FormatError, kind "size"."""
    with open_file(path) as file:
        file.seek(at)
        found = file.read(length)
    if len(found) != length:
        raise FormatError("size", file=path, expected=f"{at + length} bytes", found=str(at + len(found)))
    return found


def read_rows(root: str, array: ArrayFacts, start: int, stop: int) -> np.ndarray:
    """Rows of an array. Raises OSError; FormatError, kind "size"; what decoding raises, where the array is compressed."""
    if array.pieces is None:
        from asdstore.zarr_arrays import open_zarr_array
        return np.ascontiguousarray(open_zarr_array(os.path.join(root, array.file))[start:stop])
    row_bytes = int(array.dtype[2:]) * math.prod(array.shape[1:])
    data = b"".join(_piece_bytes(piece, max(start, piece.start), min(stop, piece.start + piece.rows), row_bytes)
                    for piece in array.pieces if piece.start < stop and piece.start + piece.rows > start)
    return np.frombuffer(data, array.dtype).reshape(-1, *array.shape[1:])


def _piece_bytes(piece: Piece, start: int, stop: int, row_bytes: int) -> bytes:
    return read_bytes(piece.path, piece.offset + (start - piece.start) * row_bytes, (stop - start) * row_bytes)


def parts(root: str, array: ArrayFacts, stream: Stream) -> Iterator[np.ndarray]:
    """All rows of an array, whole inner chunks at a time. Raises as `read_rows`."""
    step = max(1, READ_BYTES // stream.row_bytes // stream.chunk) * stream.chunk
    return (read_rows(root, array, at, min(at + step, array.rows)) for at in range(0, array.rows, step))
