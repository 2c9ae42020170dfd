"""The loaders that most runs need: `train`, `evaluate`, and `build` for a chain made by hand."""
from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypedDict, Unpack

import numpy as np

from asdstore.errors import InputError
from pipelines.batching import Cost
from pipelines.compat import original_batch
from pipelines.loader import Loader
from pipelines.recipe import Recipe
from pipelines.settings import whole
from pipelines.tracks import opened
from pipelines.transforms import Transform, budget_batch, chain, chunk, normalize, prefix, resample, targets

_NAMED = 5


class Running(TypedDict, total=False):
    """How a loader runs, which changes nothing of what it reads; see `build`."""

    rank: int | None
    world: int | None
    prefetch: int
    threads: int
    processes: int
    start_method: str | None


Targets = Callable[[np.ndarray], np.ndarray]  # labels uint8 [frames] of a whole track -> [frames, ...]


def build(packs: Any, transform: Transform, seed: int = 0, **running: Unpack[Running]) -> Loader:
    """The loader of a transform over packs.

    Args:
        packs: a pack, a path that `asdstore.open` knows, or a list of them.
        transform: usually a `chain`.
        seed: of every draw.
        rank, world: this process among how many; found from an initialised torch.distributed or JAX run where not given.
        prefetch: batches made ahead (for each process), 2.
        threads: that make them, 2; 0 makes each batch when it is asked for.
        processes: that make them instead, for transforms that are heavy in Python; they start by `start_method` ("forkserver"
            where there is one, else "spawn").

    Raises: what `asdstore.open`, the transforms and `Loader` raise, among them InputError "empty", "geometry", "fps".
    Warns where tracks are shorter than one frame of the timeline, with their number and names.
    """
    recipe = Recipe(opened([packs]), transform, seed)
    loader = Loader(recipe, **running)
    plan = recipe.plan(0)
    if len(plan.short) and not np.isin(plan.short, plan.track).all():
        names = ", ".join(plan.tracks.sample_id(track) for track in plan.short[:_NAMED].tolist())
        more = f" and {len(plan.short) - _NAMED} more" if len(plan.short) > _NAMED else ""
        warnings.warn(f"{len(plan.short)} tracks shorter than one frame of the timeline are not fed: {names}{more}",
                      stacklevel=3)
    return loader


def train(*packs: Any, window: int | None = 250, context: int = 50, frame_budget: int = 2048, min_batch: int = 4,
          max_batch: int = 16, seed: int = 0, fps: float = 25.0, jitter: bool = False,
          augment: Transform | Sequence[Transform] = (), targets: Transform | Targets | None = None, audio: str = "float32",
          shapes: int | None = None, group: int = 24, fit: str | None = None, cost: Cost | None = None, shuffle: bool = True,
          drop_last: bool | None = None, compat: str | None = None, **running: Unpack[Running]) -> Loader:
    """A loader for training: chunks of tracks in batches of a frame budget, mixed anew each epoch, every frame scored once.

    Args:
        packs: packs, paths or lists of them; together they are one corpus.
        window: frames fed at the most, context included; None feeds whole tracks.
        context: earlier frames fed before each chunk, not scored.
        frame_budget, min_batch, max_batch, shapes, group, fit, cost, shuffle: see `budget_batch`.
        seed: of the order and of all augmentation.
        fps: of the model.
        jitter: move the cuts of long tracks in every epoch.
        augment: `mix_voice`, `substitute_voice`, `augment_faces` or own transforms, in order.
        targets: a function of a track's labels, or a transform such as `projection_targets()`.
        audio: "float32", or "int16" to normalise on the device; see `normalize`.
        compat: "muvap" for the original program's batches, cropped to their shortest chunk; `drop_last` belongs to it.
        running: rank, world, prefetch, threads, processes, start_method; see `build`.

    A batch is a dictionary of, for B rows of T frames (S = T * 640 samples at 25 fps):
        faces           uint8 [B, T, height, width]
        audio           float32 [B, S], or int16 [B, S] with audio_mean and audio_gain, float32 [B]
        labels          float32 [B, T], 0 or 1
        targets         as the function gives them [B, T, ...]
        scored          bool [B, T]: frames that count; False on the prefix, on padding and in fillers
        valid           bool [B]: rows that are a chunk
        lengths, starts, prefix     int64 [B]: frames fed, the first of them in its track, how many are not scored
        tracks          int64 [B]: position in the corpus
        sample_ids, recordings      str [B]
        scored_in_step  int: scored frames of this step over all ranks
    Rows end in zeros (audio too: after normalising).

    Raises: InputError, "window", "context", "budget", ..., and what `build` raises.
    """
    if compat not in (None, "muvap"):
        raise InputError("compat", file="train", expected="None or 'muvap'", found=repr(compat))
    if drop_last is not None and not compat:
        raise InputError("drop_last", file="train", expected="compat='muvap'", found="the default batches, which lose nothing")
    span = _span(window, context, strict=not compat)
    stages = [resample(fps, samples_per_frame=round(16000 / fps) if compat else None), chunk(span, jitter=jitter),
              prefix(context)]
    if compat:
        _only_original(jitter=jitter, shapes=shapes, cost=cost)
        stages.append(original_batch(frame_budget, min_batch, max_batch, drop_last=drop_last is not False, shuffle=shuffle,
                                     fit=fit or "crop", seed=seed))
    else:
        stages.append(budget_batch(frame_budget, min_batch, max_batch, cost=cost, shapes=shapes, group=group, fit=fit or "pad",
                                   shuffle=shuffle))
    stages += [normalize(dtype=audio), *_listed(augment), *_targets(targets)]
    return build(list(packs), chain(*stages), seed, **running)


def evaluate(*packs: Any, frame_budget: int | None = None, min_batch: int = 1, max_batch: int = 64, fps: float = 25.0,
             targets: Transform | Targets | None = None, audio: str = "float32", seed: int = 0, compat: str | None = None,
             **running: Unpack[Running]) -> Loader:
    """A loader for evaluation: whole tracks, each once over all ranks, in the same order every time.

    One track makes a batch, in the order of the packs; with `frame_budget` (8192 is usual) tracks of similar length share
    padded batches, longest first. Ranks have equal steps: the last one is completed with batches whose `valid` is False. A
    track shorter than one frame of the timeline is fed as one frame, so that it gets a score too.

    Args: as `train`; `compat="muvap"` leaves such tracks out and lets ranks repeat batches, as the original does.
    """
    if compat not in (None, "muvap"):
        raise InputError("compat", file="evaluate", expected="None or 'muvap'", found=repr(compat))
    if compat:
        stages = [resample(fps, samples_per_frame=round(16000 / fps))]
    else:
        stages = [resample(fps, at_least=1)]
    if frame_budget is not None and compat:
        stages.append(original_batch(frame_budget, min_batch, max_batch, drop_last=False, shuffle=False, fit="pad", seed=seed))
    elif frame_budget is not None:
        stages.append(budget_batch(frame_budget, min_batch, max_batch, shuffle=False))
    return build(list(packs), chain(*stages, normalize(dtype=audio), *_targets(targets)), seed, **running)


def _span(window: int | None, context: int, strict: bool) -> int | None:
    """Frames of a chunk that are scored."""
    context = whole("context", context, 0, file="train", unit="frames")
    if window is None:
        return None
    window = whole("window", window, 1, file="train", unit="frames")
    if strict and context >= window:
        raise InputError("context", file="train", expected=f"fewer frames than the window, {window}, which counts them",
                         found=str(context))
    return max(window - context, 1)


def _only_original(**settings: Any) -> None:
    for name, value in settings.items():
        if value:
            raise InputError(name, file="train", expected="nothing beside compat='muvap'", found=repr(value))


def _listed(transforms: Transform | Sequence[Transform]) -> Sequence[Transform]:
    return [transforms] if isinstance(transforms, Transform) else transforms


def _targets(given: Transform | Targets | None) -> list[Transform]:
    if given is None:
        return []
    return [given if isinstance(given, Transform) else targets(given)]
