"""The batches of the original program (MuVAP at commit 589ebea), member for member, for runs that must be comparable.

What differs from `batching`: the members of a batch are the same in every epoch, a batch of `min_batch` long chunks may exceed
the budget, a last batch below `min_batch` can be dropped, and ranks repeat the first batches until all have equal steps.
"""
from __future__ import annotations

import random

import numpy as np

from pipelines.batching import Batches, Limits
from pipelines.keys import Key
from pipelines.plan import Plan
from pipelines.transforms import Transform, stage


def compose(lengths: np.ndarray, limits: Limits, *, drop_last: bool = True, shuffle: bool = True, seed: int = 0,
            epoch: int = 0, fit: str = "crop") -> Batches:
    """All batches of an epoch in the original's order; a rank r of R reads `batch_numbers(len(batches), R)[r::R]`.

    Args:
        lengths: fed frames of each chunk, int64 [chunks].
        limits: budget and sizes; `cost` is not used.
        drop_last: leave out a last batch that is smaller than `min_batch`.
        shuffle: mix the order of the batches (never their members) by `random.Random(seed + epoch)`.
        fit: "crop" gives a batch the frames of its shortest chunk, "pad" those of its longest.

    >>> batches = compose(np.array([5, 9, 9]), Limits(18, 1, 4), shuffle=False)
    >>> [batches.members(b).tolist() for b in range(len(batches))]
    [[1, 2], [0]]
    """
    order = np.argsort(-np.asarray(lengths, np.int64), kind="stable")
    falling = lengths[order]
    wanted = Limits(limits.budget, limits.min_batch, limits.max_batch).sizes(falling).tolist()
    bounds = [0]
    while bounds[-1] < len(order):
        bounds.append(min(bounds[-1] + wanted[bounds[-1]], len(order)))
    if drop_last and len(bounds) > 1 and bounds[-1] - bounds[-2] < limits.min_batch:
        bounds.pop()
    ranking = list(range(len(bounds) - 1))
    if shuffle:
        random.Random(seed + epoch).shuffle(ranking)
    edges = np.array(bounds, np.int64)
    starts, sizes = edges[:-1][ranking], np.diff(edges)[ranking]
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    ids = order[np.repeat(starts - offsets[:-1], sizes) + np.arange(offsets[-1])]
    return Batches(ids, offsets, sizes, falling[starts if fit == "pad" else starts + sizes - 1])


def batch_numbers(batches: int, ranks: int) -> np.ndarray:
    """Which batch stands at each place of an epoch: the first ones once more, so that `ranks` divides their number.

    Fewer batches than are missing cannot do that: then some ranks have a step less, as in the original.

    >>> batch_numbers(3, 2).tolist(), batch_numbers(1, 3).tolist()
    ([0, 1, 2, 0], [0, 0])
    """
    return np.arange(min(-(-batches // ranks) * ranks, 2 * batches)) % max(batches, 1)


def original_batch(frames: int, min_batch: int, max_batch: int, *, drop_last: bool, shuffle: bool, fit: str,
                   seed: int) -> Transform:
    """`compose` as a transform, in place of `budget_batch`."""
    return stage("budget_batch", _original_batch, frames=frames, min_batch=min_batch, max_batch=max_batch, drop_last=drop_last,
                 shuffle=shuffle, fit=fit, seed=seed)


def _original_batch(plan: Plan, key: Key, *, frames: int, min_batch: int, max_batch: int, drop_last: bool, shuffle: bool,
                    fit: str, seed: int) -> Plan:
    limits = Limits(frames, min_batch, max_batch)
    batches = compose(plan.length, limits, drop_last=drop_last, shuffle=shuffle, seed=seed, epoch=plan.epoch, fit=fit)
    return plan._replace(batches=batches, fit=fit, repeat=True, notes={**plan.notes, "limits": limits})
