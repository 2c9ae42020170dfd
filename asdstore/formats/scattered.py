"""Many stretches of a file read into many places, with few calls."""
from __future__ import annotations

import os
from collections.abc import Iterable

from asdstore.errors import FormatError

GAP = 4096  # bytes between two stretches that are read and thrown away rather than read apart
MOST = 1000  # buffers of one call
LARGEST = 1 << 26  # bytes of one call


def read_into(path: str, wanted: Iterable[tuple[int, memoryview]]) -> None:
    """Fills each memoryview (of bytes) with the bytes of a file from an offset on; calls are saved where offsets rise.

    Raises FormatError, kind "truncated", where the file ends before.
    """
    thrown = memoryview(bytearray(GAP))
    buffers: list[memoryview] = []
    first = at = 0
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        for offset, view in wanted:
            gap = offset - at
            if buffers and 0 <= gap <= GAP and len(buffers) < MOST and at - first < LARGEST:
                if gap:
                    buffers.append(thrown[:gap])
            else:
                _fill(file, path, first, buffers)
                buffers, first = [], offset
            buffers.append(view)
            at = offset + len(view)
        _fill(file, path, first, buffers)
    finally:
        os.close(file)


def _fill(file: int, path: str, at: int, buffers: list[memoryview]) -> None:
    done = os.preadv(file, buffers, at) if buffers else 0
    for view in buffers:  # a short read is completed buffer by buffer
        here = min(done, len(view))
        done, at = done - here, at + here
        while here < len(view):
            more = os.preadv(file, [view[here:]], at)
            if not more:
                raise FormatError("truncated", file=path, offset=at, expected=f"{len(view) - here} more bytes", found="the end",
                                  cure="The file changed since it was opened.")
            here, at = here + more, at + more
