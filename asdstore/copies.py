"""Copies of a batch, carried out together: in C and without the interpreter's lock where that was built, else by numpy.

The C part (`_copies.c`) is optional: what it does is what `by_numpy` does, byte for byte. It writes large batches past the
cache, so that nothing is read before it is overwritten, and lets the threads of a loader copy at the same time.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

try:
    from asdstore._copies import carry_out as in_c  # type: ignore[import-not-found]
except ImportError:  # it is built where there is a C compiler
    in_c = None

_PIECE = 960 << 10  # bytes: from 1 MiB on, memcpy first reads the lines that it is about to overwrite
_BLOCK = 1 << 17  # samples scaled at a time, so that they stay in the cache


class Copy(NamedTuple):
    """`out[:] = values`, or `out[i] = values[picks[i]]`; the dtypes are equal, picks int64. All arrays are contiguous."""

    out: np.ndarray
    values: np.ndarray
    picks: np.ndarray | None = None


class Scale(NamedTuple):
    """`out[:] = (values - mean) * gain` in float32, of int16 values."""

    out: np.ndarray
    values: np.ndarray
    mean: float
    gain: float


def by_numpy(jobs: Sequence[Copy | Scale]) -> None:
    """`carry_out` in numpy."""
    for job in jobs:
        if isinstance(job, Scale):
            _scale(*job)
        elif job.picks is not None:
            job.values.take(job.picks, 0, job.out, "clip")  # the mode that takes no buffer; no pick is out of range
        else:
            _copy(job.out.reshape(-1), job.values.reshape(-1))


def _copy(out: np.ndarray, values: np.ndarray) -> None:
    """In pieces of equal size, between which the interpreter's lock is not taken."""
    pieces = -(-values.nbytes // _PIECE)
    if pieces > 1:
        if rest := len(values) % pieces:
            out[-rest:] = values[-rest:]
            out, values = out[:-rest], values[:-rest]
        values.reshape(pieces, -1).take(np.arange(pieces), 0, out.reshape(pieces, -1), "clip")
    else:
        np.copyto(out, values)


def _scale(out: np.ndarray, values: np.ndarray, mean: float, gain: float) -> None:
    for at in range(0, len(values), _BLOCK):
        part = out[at:at + _BLOCK]
        np.copyto(part, values[at:at + _BLOCK])  # the cast by itself is several times faster than one within a sum
        np.subtract(part, mean, out=part)
        np.multiply(part, gain, out=part)


def carry_out(jobs: list[Copy | Scale]) -> None:
    """Do all of `jobs`, whose outputs must not overlap. Raises: ValueError where one does not fit, before anything is copied.

    >>> carry_out([Scale(out := np.empty(2, np.float32), np.array([3, 5], np.int16), 1.0, 2.0)]); out.tolist()
    [4.0, 8.0]
    """
    (by_numpy if in_c is None else in_c)(jobs)
