"""What is copied into the rows of batches, worked out for several batches at once: numpy columns there, plain lists here."""
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from pipelines.plan import Plan, Read

TOGETHER = 16  # batches


class Span(NamedTuple):
    """One read of some batches. The lists have an entry for each row that has a chunk, but `widths` and `dtype`."""

    read: Read
    dtype: Any
    widths: list[int]  # of each batch: frames, or samples of audio
    track: list[int]  # -1 reads nothing
    first: list[int]  # frame or sample of the timeline
    count: list[int]
    fps: list[float]  # native
    mean: list[float]
    gain: list[float]
    length: np.ndarray  # int64, frames of the timeline


class Rows(NamedTuple):
    """Batches `number`, `number` + `step`, ... of a complete plan: the rows offsets[i]:offsets[i + 1] of the columns are the
    first rows of the i-th of them, which has shape[i] = (rows, frames)."""

    plan: Plan
    number: int
    step: int
    offsets: list[int]
    shape: list[tuple[int, int]]
    columns: dict[str, np.ndarray]
    sample_ids: list[str]
    recordings: list[str]
    spans: tuple[Span, ...]


def rows_of(plan: Plan, number: int, count: int = 1, step: int = 1) -> Rows:
    """What is read for up to `count` batches from `number` on, each `step` behind the one before."""
    batches = plan.batches
    assert batches is not None
    numbers = slice(number, number + count * step, step)
    members = [batches.members(n) for n in range(len(batches))[numbers]]
    chunks, offsets = np.concatenate(members), np.append(0, np.cumsum([len(chunks) for chunks in members]))
    frames = batches.frames[numbers]
    lengths = np.minimum(plan.length[chunks], np.repeat(frames, np.diff(offsets)))
    track = plan.track[chunks]
    columns = {"lengths": lengths, "starts": plan.start[chunks], "prefix": plan.prefix[chunks], "tracks": track}
    if plan.levels.dtype == "int16":
        heard = plan.read("audio").track
        columns["audio_mean"], columns["audio_gain"] = level(plan, track if heard is None else heard[chunks])
    spans = tuple(_span(plan, read, chunks, lengths, offsets, frames.tolist()) for read in plan.reads)
    shape = list(zip(batches.rows[numbers].tolist(), frames.tolist(), strict=True))
    names = [plan.tracks.named(t) for t in track.tolist()]
    return Rows(plan, number, step, offsets.tolist(), shape, columns, [name for name, _ in names], [of for _, of in names],
                spans)


def level(plan: Plan, track: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean and the gain of tracks, both float32."""
    mean, gain = plan.levels.mean, plan.levels.gain
    zero, one = np.zeros(len(track), np.float32), np.ones(len(track), np.float32)
    return zero if mean is None else mean[track], one if gain is None else gain[track]


def _span(plan: Plan, read: Read, chunks: np.ndarray, lengths: np.ndarray, offsets: np.ndarray, frames: list[int]) -> Span:
    """A read for some chunks; where it takes the chunk's own length, cut to the batch."""
    track = (plan.track if read.track is None else read.track)[chunks]
    first = (plan.start if read.start is None else read.start)[chunks]
    length = lengths if read.length is None else read.length[chunks]
    fps, count, widths, dtype = plan.tracks.fps[track], length, frames, np.dtype(np.float32)
    mean = gain = np.empty(0)
    if read.name == "track_labels":
        widths, dtype = np.maximum.reduceat(length, offsets[:-1]).tolist(), np.dtype(np.uint8)
    elif read.stream == "faces":
        dtype = np.dtype(np.uint8)
    elif read.stream == "audio":
        slowest = np.minimum.reduceat(fps, offsets[:-1]).tolist()
        widths = [plan.timeline.width(wide, rate) for wide, rate in zip(frames, slowest, strict=True)]
        start, stop = plan.timeline.edge(first, fps), plan.timeline.edge(first + length, fps)
        first, count = start, np.minimum(stop - start, np.repeat(widths, np.diff(offsets)))
        (mean, gain), dtype = level(plan, track), np.dtype(plan.levels.dtype)
    return Span(read, dtype, widths, track.tolist(), first.tolist(), count.tolist(), fps.tolist(), mean.tolist(), gain.tolist(),
                length)
