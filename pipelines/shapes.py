"""Batches of few distinct shapes, for compilers that specialise a program on each: XLA, CUDA graphs.

At most K lengths are chosen so that padding up to the next of them wastes least; a batch has one of the lengths and exactly
the number of rows that its length allows. Every group of batches (what the ranks of a step share) holds one shape.
"""
from __future__ import annotations

import numpy as np

from pipelines.batching import Batches, Limits, sort_descending
from pipelines.keys import Key

_CANDIDATES = 256  # lengths from which the grid is chosen


def choose(lengths: np.ndarray, longest: int, count: int) -> tuple[int, ...]:
    """At most `count` lengths, rising, the last of them `longest`, to which padding `lengths` wastes fewest frames.

    >>> choose(np.array([3, 3, 4, 9, 9]), 10, 2)
    (4, 10)
    """
    values, numbers = np.unique(np.append(lengths, longest), return_counts=True)
    numbers[-1] -= 1
    if len(values) > _CANDIDATES:  # every so many chunks; the longest stays
        ranks = np.cumsum(numbers) * (_CANDIDATES - 1) // max(int(numbers.sum()), 1)
        keep = np.append(ranks[1:] != ranks[:-1], True)
        numbers = np.diff(np.cumsum(numbers)[keep], prepend=0)
        values = values[keep]
    below = np.concatenate([[0], np.cumsum(numbers)])
    n = len(values)
    # spent[i]: least padded frames of the chunks of values[:i] with the lengths allowed so far
    spent = np.full(n + 1, np.inf)
    spent[0] = 0.0
    choices = []
    joined = (below[1:, None] - below[None, :n]) * values[:, None].astype(np.float64)  # [last, first] of one length
    joined[np.triu_indices(n, 1)] = np.inf
    for _ in range(min(count, n)):
        total = spent[None, :n] + joined
        first = total.argmin(axis=1)
        choices.append(first)
        spent = np.concatenate([[0.0], total[np.arange(n), first]])
    picked, end = [], n
    for first in reversed(choices):
        if end == 0:
            break
        picked.append(int(values[end - 1]))
        end = int(first[end - 1])
    return tuple(sorted(picked))


def compose_shapes(lengths: np.ndarray, grid: tuple[int, ...], limits: Limits, key: Key, *, group: int = 24,
                   shuffle: bool = True) -> Batches:
    """All batches of an epoch, each of one of the shapes (limits.sizes(T), T) for T in `grid`, in their global order.

    A length whose chunks do not fill whole groups is completed with the longest of the shorter ones; only the last batch
    of all may have rows without a chunk.

    >>> batches = compose_shapes(np.array([2, 9, 8, 3, 9]), (3, 9), Limits(18, 1, 9), Key.of(0), group=1, shuffle=False)
    >>> [batches.members(b).tolist() for b in range(len(batches))], batches.rows.tolist(), batches.frames.tolist()
    ([[1, 4], [2, 3], [0]], [2, 2, 6], [9, 9, 3])
    """
    order = sort_descending(lengths, key.fold("ties") if shuffle else None)
    falling = np.asarray(grid[::-1], np.int64)
    rows_of = limits.sizes(falling)
    # how many chunks need at least each length
    needed = len(lengths) - np.searchsorted(np.sort(lengths), np.append(falling[1:], 0), "right")
    groups: list[np.ndarray] = []  # of batch numbers
    rows: list[int] = []
    frames: list[int] = []
    done = 0
    for number, (length, size, upto) in enumerate(zip(falling.tolist(), rows_of.tolist(), needed.tolist(), strict=True)):
        whole = -(-max(upto - done, 0) // (size * group))
        end = min(done + whole * size * group, len(order))
        if shuffle:
            order[done:end] = order[done:end][key.fold("shape", number).permutation(end - done)]
        count = -(-(end - done) // size)
        first = len(rows)
        rows += [size] * count
        frames += [length] * count
        groups += [np.arange(first + g, min(first + g + group, first + count)) for g in range(0, count, group)]
        done = end
    sizes = np.array(rows, np.int64)
    if len(sizes):
        sizes[-1] -= int(sizes.sum()) - len(order)
    starts = np.cumsum(sizes) - sizes
    ranking = _shuffled(groups, group, key) if shuffle else np.arange(len(sizes))
    sizes, starts = sizes[ranking], starts[ranking]
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    ids = order[np.repeat(starts - offsets[:-1], sizes) + np.arange(offsets[-1])]
    return Batches(ids, offsets, np.array(rows, np.int64)[ranking], np.array(frames, np.int64)[ranking])


def _shuffled(groups: list[np.ndarray], size: int, key: Key) -> np.ndarray:
    """Groups in a random order, their members too; the incomplete one, of which there is at most one, stays last."""
    mixed = [group[key.fold("members", number).permutation(len(group))] for number, group in enumerate(groups)]
    whole = [group for group in mixed if len(group) == size]
    ordered = [whole[i] for i in key.fold("groups").permutation(len(whole))]
    return np.concatenate([*ordered, *(group for group in mixed if len(group) < size), np.empty(0, np.int64)])
