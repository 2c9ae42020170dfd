"""Memory that batches are made in, used again: arrays side by side in one buffer, whose pages are mapped once."""
from __future__ import annotations

import sys
import threading
from math import prod
from typing import Any

import numpy as np

ALIGN = 64  # bytes, what JAX and vector instructions want
GRAIN = 1 << 20


def _references(buffers: list[Any], number: int) -> int:
    return sys.getrefcount(buffers[number])


_UNUSED = _references([np.empty(1)], 0)


class Pool:
    """Buffers that are used again once nobody refers to an array in them any more: no page is mapped twice.

    >>> pool = Pool()
    >>> first = pool.arrays([("a", (4,), "u1")])["a"]; where = first.ctypes.data
    >>> pool.arrays([("a", (4,), "u1")])["a"].ctypes.data == where       # `first` is alive
    False
    >>> del first; pool.arrays([("a", (4,), "u1")])["a"].ctypes.data == where
    True
    """

    def __init__(self, least: int = 0):
        self._least = least
        self._buffers: list[np.ndarray] = []
        self._lock = threading.Lock()

    def __reduce__(self):
        return Pool, (self._least,)

    def arrays(self, fields: list[tuple[str, tuple[int, ...], Any]]) -> dict[str, np.ndarray]:
        """Arrays by name, of a shape and a dtype each, side by side in one buffer. Their values are left over from before."""
        dtypes = [np.dtype(dtype) for _, _, dtype in fields]
        sizes = [prod(shape) * dtype.itemsize for (_, shape, _), dtype in zip(fields, dtypes, strict=True)]
        buffer = self._buffer(sum(-(-size // ALIGN) * ALIGN for size in sizes) + ALIGN)
        at = -buffer.ctypes.data % ALIGN
        found = {}
        for (name, shape, _), dtype, size in zip(fields, dtypes, sizes, strict=True):
            found[name] = buffer[at:at + size].view(dtype).reshape(shape)
            at += -(-size // ALIGN) * ALIGN
        return found

    def _buffer(self, size: int) -> np.ndarray:
        with self._lock:
            free = [i for i in range(len(self._buffers)) if _references(self._buffers, i) == _UNUSED]
            for i in free:
                if self._buffers[i].nbytes >= size:
                    return self._buffers[i]
            for i in free[::-1]:  # too small: makes room for the one that is made now
                del self._buffers[i]
            size = max(size, self._least)
            self._buffers.append(np.empty(-(-size // GRAIN) * GRAIN, np.uint8))
            return self._buffers[-1]
