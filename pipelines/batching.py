"""Which chunks share a batch, and in which order the batches come: a pure function of lengths and one key.

Chunks are sorted by length with ties drawn anew, and cut into batches so that whole runs of one length stay together: almost
nothing is padded, and the composition changes every epoch. Groups of batches of similar cost are then shuffled, so that the
ranks of a step do equal work while the flat order knows nothing of ranks. No batch costs more than the budget, except where
`min_batch` chunks of the longest length do.
"""
from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from asdstore.errors import InputError
from pipelines.keys import Key

_MOST_CUT = 0.25  # share of the batches that may be cut to complete a group
Cost = Callable[[np.ndarray], np.ndarray]  # int64 lengths -> the cost of one chunk of each, never falling


class Limits(NamedTuple):
    """What a batch may be: its budget in frames (or in the unit of `cost`), and the least and the most chunks."""

    budget: int
    min_batch: int = 4
    max_batch: int = 16
    cost: Cost | None = None

    def costs(self, lengths: np.ndarray) -> np.ndarray:
        """Cost of a chunk of each length: float64, or int64 where it is the length itself."""
        return lengths if self.cost is None else np.asarray(self.cost(lengths), np.float64)

    def sizes(self, lengths: np.ndarray) -> np.ndarray:
        """Chunks of a batch whose longest has each length: int64.

        >>> Limits(2048).sizes(np.array([64, 250, 700])).tolist()
        [16, 8, 4]
        """
        costs = np.maximum(self.costs(np.maximum(lengths, 1)), 1e-9)
        return np.clip(self.budget // costs, self.min_batch, self.max_batch).astype(np.int64)


class Batches(NamedTuple):
    """Batch b holds the chunks `ids[offsets[b]:offsets[b + 1]]`, in `rows[b]` rows of `frames[b]` frames.

    Rows beyond its chunks are fillers. int64: `ids` [members], `offsets` [batches + 1], `rows` and `frames` [batches].
    """

    ids: np.ndarray
    offsets: np.ndarray
    rows: np.ndarray
    frames: np.ndarray

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def sizes(self) -> np.ndarray:
        """Chunks in each batch: int64 [batches]."""
        return np.diff(self.offsets)

    def members(self, batch: int) -> np.ndarray:
        """Chunk ids of one batch: int64 [size]."""
        return self.ids[self.offsets[batch]:self.offsets[batch + 1]]


def check_limits(limits: Limits, longest: int) -> None:
    """Raises InputError, "min_batch", "max_batch" or "budget": limits that no batch of chunks up to `longest` can keep."""
    if not (isinstance(limits.budget, (int, float, np.integer, np.floating)) and limits.budget >= 1):
        raise InputError("budget", expected="a number, at least 1", found=repr(limits.budget))
    if not 1 <= limits.min_batch <= limits.max_batch:
        name = "min_batch" if limits.min_batch < 1 else "max_batch"
        raise InputError(name, expected="1 <= min_batch <= max_batch", found=f"{limits.min_batch}, {limits.max_batch}")
    cost = float(limits.costs(np.array([max(longest, 1)]))[0])
    if not limits.budget >= cost:
        raise InputError("budget", expected=f"a budget that holds at least one chunk of {longest} frames, {cost:g}",
                         found=f"{limits.budget:g}", cure="Raise the budget or shorten the window.")


def compose(lengths: np.ndarray, limits: Limits, key: Key, *, group: int = 24, shuffle: bool = True,
            fit: str = "pad") -> Batches:
    """All batches of an epoch, in their global order.

    Args:
        lengths: fed frames of each chunk, int64 [chunks], above 0.
        limits: budget and sizes.
        key: of the epoch; composition and order are drawn from it.
        group: batches of similar cost that stand together. Ranks of a step do equal work where the number of ranks divides it.
            A few batches are cut in two until their number is a multiple of it; a corpus so small that a quarter of them would
            have to be cut is left as it is.
        shuffle: False keeps ties in the order of the chunks and the batches from the longest to the shortest.
        fit: "pad" gives a batch the frames of its longest chunk, "crop" those of its shortest.

    >>> batches = compose(np.array([9, 5, 9, 9, 5]), Limits(27, 1, 3), Key.of(0), shuffle=False)
    >>> [batches.members(b).tolist() for b in range(len(batches))], batches.frames.tolist()
    ([[0, 2, 3], [1, 4]], [9, 5])
    """
    order = sort_descending(lengths, key.fold("ties") if shuffle else None)
    run_lengths, runs = _runs(lengths[order])
    sizes = cut_runs(runs, limits.sizes(run_lengths), run_lengths, limits)
    starts = np.cumsum(sizes) - sizes
    if shuffle:
        starts, sizes = _split(starts, sizes, limits.costs(lengths[order[starts]]), limits.min_batch, group)
        cost = sizes * limits.costs(lengths[order[starts]])
        ranking = in_groups(cost, group, key.fold("order"))
        starts, sizes = starts[ranking], sizes[ranking]
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    ids = order[np.repeat(starts - offsets[:-1], sizes) + np.arange(offsets[-1])]
    ends = starts if fit == "pad" else starts + sizes - 1
    return Batches(ids, offsets, sizes, lengths[order[ends]])


def sort_descending(lengths: np.ndarray, key: Key | None) -> np.ndarray:
    """Chunk ids from the longest to the shortest; ties in a random order, or in their own where there is no key."""
    longest = int(lengths.max(initial=0))
    # 16 bits are sorted by radix, in a fraction of the time
    falling = (longest - lengths).astype(np.uint16 if longest < 1 << 16 else np.int64)
    if key is None:
        return np.argsort(falling, kind="stable")
    return np.lexsort((*key.fold(np.arange(len(lengths))).columns(), falling))


def _runs(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Values of the runs in a sorted array, and their sizes."""
    starts = np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]])) if len(values) else np.empty(0, np.int64)
    return values[starts], np.diff(np.append(starts, len(values)))


def cut_runs(runs: np.ndarray, wanted: np.ndarray, lengths: np.ndarray, limits: Limits, slack: int = 1) -> np.ndarray:
    """Sizes of the batches that cut sorted chunks, longest first: int64 [batches].

    `runs` are the numbers of chunks of equal length, `wanted` the batch size of each length. A run that divides into batches
    of nearly that size (at most `slack` fewer) is cut evenly, without padding; what is left of another run starts a batch
    that the next runs fill.

    >>> cut_runs(np.array([31, 5]), np.array([8, 10]), np.array([200, 180]), Limits(1800, 4, 16)).tolist()
    [8, 8, 8, 7, 5]
    """
    low = limits.min_batch
    sizes: list[int] = []
    repeats: list[int] = []
    open_size = open_wanted = 0  # the batch that was started and is not full
    for run, k in zip(runs.tolist(), wanted.tolist(), strict=True):
        if open_size:
            moved = min(open_wanted - open_size, run)
            open_size, run = open_size + moved, run - moved
            if open_size < open_wanted:
                continue
            sizes.append(open_size)
            repeats.append(1)
            open_size = 0
        if not run:
            continue
        parts = -(-run // k)
        if run >= parts * (k - slack) and run // parts >= low:
            sizes += [run // parts + 1, run // parts]
            repeats += [run % parts, parts - run % parts]
        else:
            sizes.append(k)
            repeats.append(run // k)
            open_size, open_wanted = run % k, k
    found = np.repeat(np.array(sizes, np.int64), np.array(repeats, np.int64))
    return _close(found, open_size, lengths, runs, limits) if open_size else found


def _close(sizes: np.ndarray, left: int, lengths: np.ndarray, runs: np.ndarray, limits: Limits) -> np.ndarray:
    """The batches with the last `left` chunks: a batch of their own, or joined to the last one and halved if that is large.

    A joined batch that would exceed its budget is not made: then the last batch stays smaller than `min_batch`.
    """
    low = limits.min_batch
    if left >= low or not len(sizes):
        return np.append(sizes, left)
    joined = int(sizes[-1]) + left
    if joined >= 2 * low:
        return np.append(sizes[:-1], [joined - joined // 2, joined // 2])
    first = np.searchsorted(np.cumsum(runs), int(sizes[:-1].sum()), "right")
    if joined * float(limits.costs(lengths[first:first + 1])[0]) <= limits.budget and joined <= limits.max_batch:
        return np.append(sizes[:-1], joined)
    return np.append(sizes, left)


def _split(starts: np.ndarray, sizes: np.ndarray, costs: np.ndarray, low: int, group: int) -> tuple[np.ndarray, np.ndarray]:
    """Cut the costliest batches in two until their number is a multiple of `group`; all as they were if that cannot be."""
    missing = -len(sizes) % group
    if missing > len(sizes) * _MOST_CUT:
        return starts, sizes
    starts_, sizes_, costs_ = starts.tolist(), sizes.tolist(), costs.tolist()
    can = [(-size * cost, i) for i, (size, cost) in enumerate(zip(sizes_, costs_, strict=True)) if size >= 2 * low]
    heapq.heapify(can)
    for _ in range(missing):
        if not can:
            return starts, sizes
        _, i = heapq.heappop(can)
        half = sizes_[i] // 2
        starts_.append(starts_[i] + sizes_[i] - half)
        sizes_[i] -= half
        sizes_.append(half)
        costs_.append(costs_[i])
        for k in (i, len(sizes_) - 1):
            if sizes_[k] >= 2 * low:
                heapq.heappush(can, (-sizes_[k] * costs_[k], k))
    return np.array(starts_, np.int64), np.array(sizes_, np.int64)


def in_groups(cost: np.ndarray, group: int, key: Key) -> np.ndarray:
    """An order of the batches: `group` of similar cost together, groups and members shuffled, an incomplete group last.

    >>> order = in_groups(np.array([3, 900, 4, 901]), 2, Key.of(0))
    >>> sorted(map(sorted, order.reshape(-1, 2).tolist()))
    [[0, 2], [1, 3]]
    """
    numbers = np.arange(len(cost))
    ranking = np.argsort(cost + key.fold("ties", numbers).uniform(0, 0.5), kind="stable")
    whole, rest = divmod(len(cost), group)
    at = int(key.fold("incomplete").integers(whole + 1)[0]) * group  # whose cost the incomplete group has
    groups = np.concatenate([ranking[:at], ranking[at + rest:]]).reshape(whole, group)
    mixed = np.argsort(key.fold("members", numbers[:whole * group]).words.reshape(whole, group), axis=1, kind="stable")
    groups = np.take_along_axis(groups, mixed, axis=1)[key.fold("groups").permutation(whole)]
    return np.concatenate([groups.ravel(), ranking[at:at + rest][key.fold("last").permutation(rest)]])
