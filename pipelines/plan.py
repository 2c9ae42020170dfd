"""The plan of an epoch: which spans of which tracks are fed, in which batches, and what is read for them. Columns only."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from asdstore.errors import InputError
from pipelines.batching import Batches
from pipelines.keys import Key
from pipelines.tracks import STREAMS, Tracks
from spec.layout import SAMPLE_RATE

Batch = dict[str, Any]


class Read(NamedTuple):
    """What is put under `name` in a batch: a span of a stream for every chunk, on the plan's timeline.

    `track`, `start`, `length` are int64 [chunks], or None for the chunk's own. Track -1 reads nothing and gives zeros. `tile`
    repeats audio that is shorter than `length`.
    """

    name: str
    stream: str
    track: np.ndarray | None = None
    start: np.ndarray | None = None
    length: np.ndarray | None = None
    tile: bool = False


class Timeline(NamedTuple):
    """Frames per second, None for each track's own, and how many frames every track has then (int64 [tracks]).

    Frame k owns the samples from round(k * 16000 / fps) on, or from k * samples_per_frame where that is given.
    """

    fps: float | None
    frames: np.ndarray
    samples_per_frame: int | None = None

    def edge(self, frame: Any, fps: Any) -> Any:
        """First sample of a frame (an integer or int64 column) of tracks whose native rate is `fps`.

        >>> Timeline(30.0, np.empty(0)).edge(np.arange(4), 25.0).tolist()
        [0, 533, 1067, 1600]
        """
        if self.samples_per_frame is not None:
            return frame * self.samples_per_frame
        return np.rint(frame * SAMPLE_RATE / (self.fps or fps)).astype(np.int64)

    def width(self, frames: int, fps: float) -> int:
        """Samples that hold `frames` frames wherever they start."""
        if self.samples_per_frame is not None:
            return frames * self.samples_per_frame
        return int(np.ceil(frames * SAMPLE_RATE / (self.fps or fps) - 1e-9))


class Levels(NamedTuple):
    """How audio is scaled: (x - mean[track]) * gain[track], x in [-1, 1). float32 [tracks]; None leaves it as it is stored.

    `dtype` "int16" hands out stored PCM with the two columns instead.
    """

    mean: np.ndarray | None = None
    gain: np.ndarray | None = None
    dtype: str = "float32"


class Plan(NamedTuple):
    """One epoch. A chunk is `length[i]` frames from `start[i]` of `track[i]`, of which the first `prefix[i]` are not scored.

    A plan that a recipe made pickles as that recipe, its epoch and its digest, and is made again where it is unpickled.
    """

    tracks: Tracks
    timeline: Timeline
    track: np.ndarray  # int64 [chunks]
    start: np.ndarray  # int64 [chunks]
    length: np.ndarray  # int64 [chunks], fed frames
    prefix: np.ndarray  # int64 [chunks]
    longest: int  # no chunk of any epoch has more frames
    reads: tuple[Read, ...]
    levels: Levels = Levels()
    short: np.ndarray = np.empty(0, np.int64)  # tracks without a single frame on the timeline
    batches: Batches | None = None  # None: every chunk by itself
    shapes: tuple[int, ...] = ()  # lengths to which batches are padded, where they are bounded
    fit: str = "pad"
    repeat: bool = False  # ranks complete a step with the first batches again, as the original does, not with fillers
    scored: np.ndarray | None = None  # int64 [batches], once the plan is complete
    notes: Mapping[str, Any] = {}  # what transforms report
    recipe: Any = None
    epoch: int = 0

    def identity(self, chunks: np.ndarray | slice = slice(None)) -> np.ndarray:
        """What chunks fold into a key, their pack's digest, track's position and first scored frame: uint64 [chunks]."""
        return Key(self.tracks.identity[self.track[chunks]]).fold(self.start[chunks] + self.prefix[chunks]).words

    def keep(self, chunks: np.ndarray) -> Plan:
        """The plan of some chunks: bool [chunks]."""
        return self._replace(track=self.track[chunks], start=self.start[chunks], length=self.length[chunks],
                             prefix=self.prefix[chunks])

    def read(self, name: str) -> Read:
        """The read of a name, with its columns filled in."""
        read = next(r for r in self.reads if r.name == name)
        return read._replace(track=self.track if read.track is None else read.track,
                             start=self.start if read.start is None else read.start,
                             length=self.length if read.length is None else read.length)

    def with_read(self, read: Read) -> Plan:
        """The plan with one read more, or another in place of the one of that name."""
        return self._replace(reads=(*(r for r in self.reads if r.name != read.name), read))

    def __reduce__(self):
        if self.recipe is None:
            return Plan, tuple(self)
        return _again, (self.recipe, self.epoch, self.recipe.digest)


def _again(recipe: Any, epoch: int, digest: str) -> Plan:
    recipe.expect(digest)
    return recipe.plan(epoch)


def whole_tracks(tracks: Tracks) -> Plan:
    """The plan before any transform: every track is one chunk, at its native frame rate."""
    nothing = np.zeros(len(tracks), np.int64)
    return Plan(tracks, Timeline(None, tracks.frames), np.arange(len(tracks)), nothing, tracks.frames, nothing,
                int(tracks.frames.max()), tuple(Read(name, name) for name in STREAMS))


def complete(plan: Plan) -> Plan:
    """The plan with batches, one for each chunk where no transform made any, and the scored frames of each.

    Raises: InputError, "empty", where nothing is left to feed.
    """
    if not len(plan.track):
        raise InputError("empty", file=", ".join(map(str, plan.tracks.packs)), expected="at least one chunk", found="none",
                         cure="No track has a frame on this timeline, or a filter removed them all.")
    batches = plan.batches
    if batches is None:
        n = len(plan.track)
        batches = Batches(np.arange(n), np.arange(n + 1), np.ones(n, np.int64), plan.length)
    fed = np.minimum(plan.length[batches.ids], np.repeat(batches.frames, batches.sizes))
    scored = np.maximum(fed - plan.prefix[batches.ids], 0)
    sums = np.add.reduceat(scored, batches.offsets[:-1]) if len(batches) else np.empty(0, np.int64)
    return plan._replace(batches=batches, scored=sums)
