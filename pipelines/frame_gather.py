"""One gather for each minibatch of frames: the context of a frame is put beside it as it is copied.

Frames lie one behind the other in memory, so the context of most of them is one stretch: rows of a view whose steps are
single frames. Only at the ends of utterances, where a frame is repeated, rows are put together frame by frame.
"""
from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Block(NamedTuple):
    """Frames of a file that lie in memory: float32 [frames, dim] and int32 [frames] or None, from frame `first` on.

    Where few frames are kept these and their context alone: `numbers` says which they are, and `offsets` where utterances
    begin among them. `first` is 0 then.
    """

    features: np.ndarray
    labels: np.ndarray | None
    first: int
    numbers: np.ndarray | None = None
    offsets: np.ndarray | None = None


def with_context(rows: np.ndarray, offsets: np.ndarray, left: int, right: int) -> np.ndarray:
    """The numbers of the frames `rows`, which ascend, and of those in their context, each once: int64, ascending.

    >>> with_context(np.array([0, 6, 7]), np.array([0, 3, 9]), 1, 2).tolist()
    [0, 1, 2, 5, 6, 7, 8]
    """
    utterance = offsets.searchsorted(rows, "right")
    stop = np.minimum(rows + right + 1, offsets[utterance])
    start = np.maximum(rows - left, offsets[utterance - 1])
    start[1:] = np.maximum(start[1:], stop[:-1])  # what the row before has already
    counts = stop - start
    return np.repeat(start - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())


def gather_rows(block: Block, rows: np.ndarray | range, offsets: np.ndarray, left: int, right: int) -> np.ndarray:
    """The frames `rows` with their context, oldest first: float32 [rows, (left + 1 + right) * dim].

    `rows` are numbers of frames in the file, `offsets` where its utterances begin. Context ends where the utterance does; at
    its ends the first and the last frame are repeated.

    >>> block = Block(np.arange(5, dtype=np.float32)[:, None], None, 0)
    >>> gather_rows(block, np.array([4, 0]), np.array([0, 3, 5]), 1, 1).tolist()
    [[3.0, 4.0, 4.0], [0.0, 0.0, 1.0]]
    """
    if not left and not right:
        if isinstance(rows, range):
            return block.features[rows.start - block.first:rows.stop - block.first].copy()
        return block.features.take(rows - block.first, axis=0, mode="clip")
    if len(block.features) <= left + right:
        return _frame_by_frame(block, np.asarray(rows), offsets, left, right)
    copied = _consecutive if isinstance(rows, range) else _scattered
    out, places = copied(block, rows, offsets, left, right)  # type: ignore[arg-type]
    if len(places):
        mended = places + rows.start if isinstance(rows, range) else rows[places]
        out[places] = _frame_by_frame(block, mended, offsets, left, right)
    return out


def _frame_by_frame(block: Block, rows: np.ndarray, offsets: np.ndarray, left: int, right: int) -> np.ndarray:
    index = rows[:, None] + np.arange(-left, right + 1)
    utterance = offsets.searchsorted(rows, "right")
    np.maximum(index, offsets[utterance - 1][:, None], out=index)
    np.minimum(index, offsets[utterance][:, None] - 1, out=index)
    index -= block.first
    return block.features.take(index, axis=0, mode="clip").reshape(len(rows), index.shape[1] * block.features.shape[1])


def _stretches(block: Block, width: int) -> np.ndarray:
    """Row t is the frames t to t + width of the block: a view whose rows overlap."""
    frames, dim = block.features.shape
    return np.ndarray((frames - width + 1, width * dim), np.float32, block.features, 0,  # type: ignore[arg-type]
                      (4 * dim, 4))


def _consecutive(block: Block, rows: range, offsets: np.ndarray, left: int, right: int) -> tuple[np.ndarray, np.ndarray]:
    """Consecutive frames as they lie, and the places of those at the ends of utterances."""
    width = left + 1 + right
    out = np.empty((len(rows), width * block.features.shape[1]), np.float32)
    low, high = max(rows.start, block.first + left), min(rows.stop, block.first + len(block.features) - right)
    if low < high:
        shift = left + block.first
        out[low - rows.start:high - rows.start] = _stretches(block, width)[low - shift:high - shift]
    begin, end = offsets.searchsorted((rows.start - left, rows.stop - 1 + right), "right")
    if begin == end and low == rows.start and high == rows.stop:
        return out, offsets[:0]
    edges = (offsets[max(begin - 1, 0):end + 1, None] + np.arange(-right, left)).ravel() - rows.start
    return out, edges[(edges >= 0) & (edges < len(rows))]


def _scattered(block: Block, rows: np.ndarray, offsets: np.ndarray, left: int, right: int) -> tuple[np.ndarray, np.ndarray]:
    """Frames anywhere as they lie, and the places of those at the ends of utterances."""
    stretches = _stretches(block, left + 1 + right)
    out = stretches[np.minimum(np.maximum(rows - (left + block.first), 0), len(stretches) - 1)]
    utterance = offsets.searchsorted(rows, "right")
    return out, np.flatnonzero((rows < offsets[utterance - 1] + left) | (rows >= offsets[utterance] - right))
