"""What a plan does with the data, in numbers."""
from __future__ import annotations

from typing import Any

import numpy as np

from pipelines.batching import Batches, Limits
from pipelines.chunks import starved
from pipelines.plan import Plan

WORLDS = (1, 2, 3, 4, 6, 8, 16, 32)
_NAMED = 20  # sample ids listed at the most


def explain_plan(plan: Plan, history: int = 50) -> dict[str, Any]:
    """Facts of a complete plan, as plain values by name.

    "utilisation" is the share of fed frames in all frames of the batches, padding included; "budget_fill" the share of the
    budget that those frames are; "starved" the share of scored frames fed with fewer than `history` earlier ones, at real track
    starts and at chunk starts; "prefix_cost" fed over scored frames; "balance" the mean over the largest work of the ranks of a
    step, averaged over steps, for several numbers of ranks; "autocorrelation" that of the mean length of consecutive batches.
    """
    batches = plan.batches
    assert batches is not None and plan.scored is not None
    frames = batches.rows * batches.frames
    fed = np.minimum(plan.length[batches.ids], np.repeat(batches.frames, batches.sizes))
    per_batch = np.add.reduceat(fed, batches.offsets[:-1]) if len(batches) else fed
    scored = int((plan.length - plan.prefix).sum())
    at_start, at_chunk = starved(plan.start, plan.length, plan.prefix, history)
    facts: dict[str, Any] = {
        "tracks": len(np.unique(plan.track)), "chunks": len(plan.track), "batches": len(batches),
        "utilisation": _share(fed.sum(), frames.sum()), "padded_over_fed": _share(frames.sum(), fed.sum()),
        "fed_frames": int(plan.length.sum()), "scored_frames": scored,
        "frames_lost": scored - int(plan.scored.sum()), "prefix_cost": _share(plan.length.sum(), scored),
        "starved": {"history": history, "track_starts": _share(at_start, scored), "chunk_starts": _share(at_chunk, scored)},
        "batch_rows": _spread(batches.rows), "batch_frames": _spread(frames),
        "shapes": len(np.unique(np.stack([batches.rows, batches.frames]), axis=1).T),
        "balance": {str(world): _balance(per_batch, world) for world in WORLDS if world <= max(len(batches), 1)},
        "autocorrelation": {str(lag): _autocorrelation(per_batch / np.maximum(batches.sizes, 1), lag) for lag in (1, 24)},
        "too_short": {"tracks": len(plan.short), "sample_ids": [plan.tracks.sample_id(t) for t in plan.short[:_NAMED]]},
    }
    limits = plan.notes.get("limits")
    if limits is not None:
        facts |= _budget(batches, limits)
    return facts | {name: value for name, value in plan.notes.items() if name != "limits"}


def _budget(batches: Batches, limits: Limits) -> dict[str, Any]:
    cost = batches.rows * limits.costs(batches.frames)
    return {"budget": limits.budget, "budget_fill": _share(cost.sum(), limits.budget * len(batches)),
            "over_budget": {"batches": int((cost > limits.budget).sum()), "largest": float(cost.max(initial=0))},
            "below_min_batch": int((batches.rows < limits.min_batch).sum())}


def _share(part: Any, whole: Any) -> float:
    return round(float(part) / float(whole), 6) if whole else 0.0


def _spread(values: np.ndarray) -> dict[str, float]:
    if not len(values):
        return {}
    return {"least": int(values.min()), "mean": round(float(values.mean()), 2), "most": int(values.max())}


def _balance(work: np.ndarray, world: int) -> float:
    steps = np.resize(work[:len(work) // world * world], (len(work) // world, world))
    return round(float((steps.mean(axis=1) / np.maximum(steps.max(axis=1), 1)).mean()), 6)


def _autocorrelation(values: np.ndarray, lag: int) -> float:
    centred = values - values.mean()
    power = float((centred**2).sum())
    return round(float((centred[lag:] * centred[:-lag]).sum()) / power, 6) if power and len(values) > lag else 0.0
