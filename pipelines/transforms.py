"""Transforms: pairs of pure functions, one that moves spans about in a plan and one that changes a batch in memory.

    chain(resample(25), chunk(200), prefix(50), budget_batch(2048), normalize())

`chain` gives a Transform too, is associative, and refuses an order that cannot hold.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from asdstore.errors import InputError
from pipelines import batching
from pipelines.batching import Cost, Limits
from pipelines.chunks import history, tile
from pipelines.keys import Key
from pipelines.plan import Batch, Levels, Plan, Read, Timeline
from pipelines.settings import whole
from pipelines.shapes import choose, compose_shapes
from spec.timeline import gain

Planner = Callable[[Plan, Key], Plan]
Changer = Callable[[Batch, Key], Batch]


def unchanged(value: Any, key: Key) -> Any:
    """What a half of a transform does that does nothing."""
    return value


class Stage(NamedTuple):
    """One transform that is not a chain: its name and settings, which enter the digest of a plan, and its two functions."""

    name: str
    settings: tuple[tuple[str, Any], ...]
    plan: Planner
    apply: Changer
    still: bool = False  # plans alike in every epoch


class Transform(NamedTuple):
    """`plan(plan, key) -> plan` moves spans, metadata only; `apply(batch, key) -> batch` changes values, one key per row.

    Own transforms are made from two top-level functions (or one), so that they can be sent to other processes:

    >>> def louder(batch, key):
    ...     return {**batch, "audio": batch["audio"] * np.float32(2)}
    >>> [stage.name for stage in chain(resample(25), Transform(apply=louder)).stages]
    ['resample', 'louder']
    """

    plan: Planner = unchanged
    apply: Changer = unchanged
    stages: tuple[Stage, ...] = ()


# Where a stage may stand: the number of a later stage must not be below that of an earlier one.
_ORDER = {"filter": 1, "resample": 1, "chunk": 2, "prefix": 3, "mix_voice": 4, "substitute_voice": 4, "budget_batch": 5}
_LATE = ("mix_voice", "substitute_voice")  # may follow budget_batch too
_REPEATED = ("filter", "map")


def stage(name_: str, plan: Callable[..., Any] | None = None, apply: Callable[..., Batch] | None = None, /, *,
          still: bool = False, **settings: Any) -> Transform:
    """A transform of one stage, whose functions take its settings as keywords."""
    bound = [partial(function, **settings) if function else unchanged for function in (plan, apply)]
    return _of((Stage(name_, tuple(settings.items()), bound[0], bound[1], still),))


def chain(*transforms: Transform) -> Transform:
    """One transform that does all of them in order: plans first to last, and applies first to last.

    Raises: InputError "order" for stages that cannot follow one another, or that stand twice.

    >>> text(chain(chain(resample(25), chunk(200)), prefix(50))) == text(chain(resample(25), chain(chunk(200), prefix(50))))
    True
    >>> chain(budget_batch(2048), prefix(50))
    Traceback (most recent call last):
    spec.errors.InputError: chain: expected prefix before budget_batch, found budget_batch, prefix [order]
    """
    stages: list[Stage] = []
    for number, given in enumerate(transforms):
        if not isinstance(given, Transform):
            raise InputError("order", file="chain", expected="transforms", found=f"{type(given).__name__} at {number}")
        stages += given.stages or _custom(given)
    for i, later in enumerate(stages):
        for earlier in stages[:i]:
            _check_order(earlier.name, later.name, stages)
    return _of(tuple(stages))


def _check_order(earlier: str, later: str, stages: list[Stage]) -> None:
    found = ", ".join(stage.name for stage in stages)
    if earlier == later and later in (*_ORDER, "normalize", "targets", "augment_faces") and later not in _REPEATED:
        raise InputError("order", file="chain", expected=f"{later} once", found=found)
    if later not in _LATE and _ORDER.get(earlier, 0) > _ORDER.get(later, 9):
        raise InputError("order", file="chain", expected=f"{later} before {earlier}", found=found)
    pcm = any(s.name == "normalize" and dict(s.settings)["dtype"] == "int16" for s in stages)
    if later == "mix_voice" and pcm:
        raise InputError("order", file="chain", expected="float32 audio to mix voices in", found="normalize(dtype='int16')")
    for first in ("normalize", "substitute_voice"):
        if later == first and earlier == "mix_voice":
            raise InputError("order", file="chain", expected=f"{first} before mix_voice", found=found)


def _of(stages: tuple[Stage, ...]) -> Transform:
    return Transform(partial(run, stages, "plan"), partial(run, stages, "apply"), stages)


def run(stages: tuple[Stage, ...], half: str, value: Any, key: Key) -> Any:
    """All plans, or all applies, in order. A stage's key is folded from its name, and from its turn if it stands twice.

    Raises: what the stages raise; InputError "transform" for one that returns nothing.
    """
    seen: dict[str, int] = {}
    for each in stages:
        turn = seen[each.name] = seen.get(each.name, 0) + 1
        function = getattr(each, half)
        if function is not unchanged:
            value = function(value, key.fold(each.name) if turn == 1 else key.fold(each.name, turn))
        if value is None:
            raise InputError("transform", file=each.name, expected="a plan of plan(), and a batch of apply()", found="None",
                             cure="Return what the function was given, changed or not.")
    return value


def _custom(given: Transform) -> tuple[Stage, ...]:
    functions = [f for f in (given.plan, given.apply) if f is not unchanged]
    name = " and ".join(described(function) for function in functions)
    return (Stage(name, (), given.plan, given.apply),) if functions else ()


def described(value: Any) -> str:
    """A setting as text that is equal in every process: numbers and texts as they are, functions by name."""
    if isinstance(value, partial):
        return f"{described(value.func)}({_settings((*enumerate(value.args), *value.keywords.items()))})"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(described(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {described(item)}" for key, item in value.items()) + "}"
    if isinstance(value, np.ndarray):
        return f"array({value.tolist()})"
    if value is None or isinstance(value, (str, int, float, np.generic)):
        return repr(value.item() if isinstance(value, np.generic) else value)
    name = getattr(value, "__qualname__", None)
    if name is None:  # an object that is called: its class and what it holds
        return f"{type(value).__qualname__}({_settings(vars(value).items() if hasattr(value, '__dict__') else ())})"
    return name.rpartition("<locals>.")[2]


def _settings(items: Iterable[tuple[Any, Any]]) -> str:
    return ", ".join(f"{name}={described(value)}" for name, value in items)


def text(transform: Transform) -> str:
    """The stages with their settings: what the digest of a plan is taken of.

    >>> text(chain(resample(25), chunk(200)))
    'resample(fps=25.0, at_least=0, samples_per_frame=None) > chunk(window=200, jitter=False)'
    """
    return " > ".join(f"{each.name}({_settings(each.settings)})" for each in transform.stages)


# Stages that move spans ----------------------------------------------------------------------------------------------------


def resample(fps: float = 25.0, *, at_least: int = 0, samples_per_frame: int | None = None) -> Transform:
    """Put tracks on a timeline of `fps` frames per second; frame k of it owns the samples from round(k * 16000 / fps) on.

    Args:
        fps: of the model.
        at_least: 1 gives a track that is shorter than one frame of the timeline one frame nonetheless; 0 leaves it out, and the
            plan names it.
        samples_per_frame: a fixed number instead of exact edges, as the original program has; it drifts.

    Raises: InputError "fps".
    """
    if not (math.isfinite(fps) and fps > 0):
        raise InputError("fps", file="resample", expected="a finite rate above 0", found=str(fps))
    return stage("resample", _resample, still=True, fps=float(fps), at_least=at_least, samples_per_frame=samples_per_frame)


def _resample(plan: Plan, key: Key, *, fps: float, at_least: int, samples_per_frame: int | None) -> Plan:
    tracks = plan.tracks
    frames = np.floor(tracks.frames / tracks.fps * fps + 1e-9).astype(np.int64)  # spec.timeline.model_frame_count, by column
    short = plan.track[frames[plan.track] == 0]
    frames = np.maximum(frames, at_least)
    plan = plan._replace(timeline=Timeline(fps, frames, samples_per_frame), short=short, length=frames[plan.track],
                         longest=int(frames[plan.track].max(initial=0)))
    return plan.keep(plan.length > 0)


def chunk(window: int | None, *, jitter: bool = False) -> Transform:
    """Cut tracks longer than `window` frames into near-equal chunks that score every frame once; None leaves tracks whole.

    `jitter` moves all cuts of a track together, by a phase drawn anew each epoch.
    Raises: InputError "window".
    """
    if window is not None:
        window = whole("window", window, 1, file="chunk", unit="frames")
    return stage("chunk", _chunk, still=not jitter, window=window, jitter=bool(jitter))


def _chunk(plan: Plan, key: Key, *, window: int | None, jitter: bool) -> Plan:
    phase = key.fold(plan.tracks.identity[plan.track]).uniform() if jitter else None
    spans = tile(plan.length, window, phase)
    longest = plan.longest if window is None else min(plan.longest, window)
    return plan._replace(track=plan.track[spans.track], start=spans.start, length=spans.length, longest=longest,
                         prefix=np.zeros(len(spans.track), np.int64))


def prefix(frames: int) -> Transform:
    """Feed up to `frames` earlier frames of the track before each chunk, which are not scored. Raises: InputError "context"."""
    return stage("prefix", _prefix, still=True, frames=whole("context", frames, 0, file="prefix", unit="frames"))


def _prefix(plan: Plan, key: Key, *, frames: int) -> Plan:
    before = history(plan.start, frames)
    longest = min(plan.longest + frames, int(plan.timeline.frames.max()))
    return plan._replace(start=plan.start - before, length=plan.length + before, prefix=before, longest=longest)


def filter(predicate: Callable[[Any], Any]) -> Transform:
    """Keep the tracks (`asdstore.Track`) for which `predicate` is true.

    >>> filter(lambda track: track.fps > 20).stages[0].name
    'filter'
    """
    return stage("filter", _filter, still=True, predicate=predicate)


def _filter(plan: Plan, key: Key, *, predicate: Callable[[Any], Any]) -> Plan:
    tracks = plan.tracks
    kept = np.zeros(len(tracks), bool)
    for track in np.unique(plan.track).tolist():
        kept[track] = bool(predicate(tracks.packs[tracks.pack[track]][int(tracks.position[track])]))
    plan = plan.keep(kept[plan.track])
    short = plan.short[kept[plan.short]]
    return plan._replace(short=short, notes={**plan.notes, "filtered_tracks": int((~kept).sum())})


def budget_batch(frames: int = 2048, min_batch: int = 4, max_batch: int = 16, *, cost: Cost | None = None,
                 shapes: int | None = None, group: int = 24, fit: str = "pad", shuffle: bool = True) -> Transform:
    """Batches of at most `frames` frames, padding included, of `min_batch` to `max_batch` chunks; see `pipelines.batching`.

    Args:
        frames: the budget. Only `min_batch` chunks that are longer than `frames / min_batch` exceed it; `explain` reports them.
        cost: of one chunk of each length (int64 lengths -> numbers that never fall), where frames are not what limits; the
            budget is in its unit then.
        shapes: at most so many distinct (rows, frames); each group holds one of them. The lengths are chosen once, for epoch 0.
        group: batches of similar cost that stand together, so that ranks do equal work where their number divides it.
        fit: "pad" completes every chunk to the longest of its batch, "crop" cuts all to the shortest and loses frames.
        shuffle: False gives the same order in every epoch, longest first.

    Raises: InputError, "budget", "min_batch", "max_batch", "shapes", "group" or "fit"; while planning, "budget" for one below
    the longest chunk.
    """
    for name, value in (("group", group), ("shapes", 1 if shapes is None else shapes), ("min_batch", min_batch),
                        ("max_batch", max_batch)):
        whole(name, value, 1, file="budget_batch")
    if fit not in ("pad", "crop") or (fit == "crop" and shapes):
        raise InputError("fit", file="budget_batch", expected="'pad', or 'crop' without shapes", found=repr(fit))
    batching.check_limits(Limits(frames, min_batch, max_batch, cost), 0)
    return stage("budget_batch", _budget_batch, frames=frames, min_batch=min_batch, max_batch=max_batch, cost=cost,
                 shapes=shapes, group=group, fit=fit, shuffle=shuffle)


def _budget_batch(plan: Plan, key: Key, *, frames: int, min_batch: int, max_batch: int, cost: Cost | None, shapes: int | None,
                  group: int, fit: str, shuffle: bool) -> Plan:
    limits = Limits(frames, min_batch, max_batch, cost)
    batching.check_limits(limits, plan.longest)
    plan = plan._replace(fit=fit, notes={**plan.notes, "limits": limits})
    if shapes is None:
        return plan._replace(batches=batching.compose(plan.length, limits, key, group=group, shuffle=shuffle, fit=fit))
    grid = plan.shapes or choose(plan.length, plan.longest, shapes)
    return plan._replace(shapes=grid, batches=compose_shapes(plan.length, grid, limits, key, group=group, shuffle=shuffle))


# Stages that say what is read, or change a batch ---------------------------------------------------------------------------


def normalize(rms_dbfs: float = -25.0, max_gain_db: float = 20.0, peak: float = 0.99, *, dtype: str = "float32") -> Transform:
    """Scale audio to one loudness: (x - mean) * gain, from the levels of the track's whole stored span, never of a slice.

    `dtype` "int16" leaves the samples as they are stored and adds audio_mean and audio_gain, float32 [B], to do it on the
    device: (audio / 32768 - mean) * gain, and 0 beyond `lengths`. Raises: InputError, "level" or "dtype".
    """
    if not (math.isfinite(rms_dbfs) and math.isfinite(max_gain_db) and math.isfinite(peak) and peak > 0):
        raise InputError("level", file="normalize", expected="two numbers of dB, and a peak above 0",
                         found=f"{rms_dbfs}, {max_gain_db}, {peak}")
    if dtype not in ("float32", "int16"):
        raise InputError("dtype", file="normalize", expected="'float32' or 'int16'", found=repr(dtype))
    return stage("normalize", _normalize, still=True, rms_dbfs=float(rms_dbfs), max_gain_db=float(max_gain_db),
                 peak=float(peak), dtype=dtype)


def _normalize(plan: Plan, key: Key, *, rms_dbfs: float, max_gain_db: float, peak: float, dtype: str) -> Plan:
    gains = gain(plan.tracks.rms, plan.tracks.peak, rms_dbfs, max_gain_db, peak)
    return plan._replace(levels=Levels(plan.tracks.mean, np.asarray(gains, np.float32), dtype))


def targets(fn: Callable[[np.ndarray], np.ndarray], name: str = "targets") -> Transform:
    """Put `fn(labels)` into the batch, computed on the whole track before it is cut: a boundary never invents silence.

    `fn` takes uint8 [frames], the labels of a track on the plan's timeline, and returns [frames, ...]; it must be pure.

    >>> targets(np.cumsum).stages[0].name
    'targets'
    """
    return stage("targets", _targets_plan, _targets, still=True, fn=fn, name=name)


def _targets_plan(plan: Plan, key: Key, *, fn: Callable, name: str) -> Plan:
    own = plan.read("labels").track
    return plan.with_read(Read("track_labels", "labels", own, np.zeros_like(plan.start), plan.timeline.frames[plan.track]))


def _targets(batch: Batch, key: Key, *, fn: Callable, name: str) -> Batch:
    whole, sizes = batch["track_labels"], batch["track_labels_length"]
    frames = batch["scored"].shape[1]
    found = None
    for row, (size, start, length) in enumerate(np.stack([sizes, batch["starts"], batch["lengths"]], axis=1).tolist()):
        if not length:
            continue
        values = np.asarray(fn(whole[row, :size]))
        if len(values) != size:
            raise InputError("targets", sample_id=str(batch["sample_ids"][row]), expected=f"{size} frames from {described(fn)}",
                             found=f"{list(values.shape)}")
        if found is None:
            found = np.zeros((len(sizes), frames, *values.shape[1:]), values.dtype)
        found[row, :length] = values[start:start + length]
    rest = {k: v for k, v in batch.items() if k not in ("track_labels", "track_labels_length")}
    return rest if found is None else {**rest, name: found}


def map(fn: Callable[[Batch], Batch]) -> Transform:
    """Change every batch by `fn(batch) -> batch`. For draws, make a `Transform(apply=fn)`: it is given a key for every row."""
    return stage("map", None, _map, still=True, fn=fn)


def _map(batch: Batch, key: Key, *, fn: Callable[[Batch], Batch]) -> Batch:
    return fn(batch)


def quadratic(lengths: np.ndarray, q: float) -> np.ndarray:
    """Cost T + T²/q of attention over T frames, for `budget_batch(cost=functools.partial(quadratic, q=512))`."""
    return lengths + lengths * (lengths / q)
