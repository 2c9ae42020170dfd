"""From a plan to a batch in memory: views of mapped arrays are copied into one buffer, resampled and scaled on the way."""
from __future__ import annotations

import sys
import threading
from typing import Any

import numpy as np

from pipelines.plan import Batch, Plan, Read

_ALIGN = 64  # bytes, what JAX and vector instructions want
_GRAIN = 1 << 20
_BLOCK = 1 << 17  # samples scaled at a time, so that they stay in the cache


def _references(buffers: list[Any], number: int) -> int:
    return sys.getrefcount(buffers[number])


_UNUSED = _references([np.empty(1)], 0)


class Pool:
    """Buffers that are used again once nobody refers to an array in them any more: no page is mapped twice.

    >>> pool = Pool()
    >>> first = pool.arrays([("a", (4,), "u1")])["a"]; where = first.ctypes.data
    >>> pool.arrays([("a", (4,), "u1")])["a"].ctypes.data == where       # `first` is alive
    False
    >>> del first; pool.arrays([("a", (4,), "u1")])["a"].ctypes.data == where
    True
    """

    def __init__(self, least: int = 0):
        self._least = least
        self._buffers: list[np.ndarray] = []
        self._lock = threading.Lock()

    def __reduce__(self):
        return Pool, (self._least,)

    def arrays(self, fields: list[tuple[str, tuple[int, ...], Any]]) -> dict[str, np.ndarray]:
        """Arrays by name, of a shape and a dtype each, side by side in one buffer. Their values are left over from before."""
        dtypes = [np.dtype(dtype) for _, _, dtype in fields]
        sizes = [int(np.prod(shape)) * dtype.itemsize for (_, shape, _), dtype in zip(fields, dtypes, strict=True)]
        buffer = self._buffer(sum(-(-size // _ALIGN) * _ALIGN for size in sizes) + _ALIGN)
        at = -buffer.ctypes.data % _ALIGN
        found = {}
        for (name, shape, _), dtype, size in zip(fields, dtypes, sizes, strict=True):
            found[name] = buffer[at:at + size].view(dtype).reshape(shape)
            at += -(-size // _ALIGN) * _ALIGN
        return found

    def _buffer(self, size: int) -> np.ndarray:
        with self._lock:
            free = [i for i in range(len(self._buffers)) if _references(self._buffers, i) == _UNUSED]
            for i in free:
                if self._buffers[i].nbytes >= size:
                    return self._buffers[i]
            for i in free[::-1]:  # too small: makes room for the one that is made now
                del self._buffers[i]
            size = max(size, self._least)
            self._buffers.append(np.empty(-(-size // _GRAIN) * _GRAIN, np.uint8))
            return self._buffers[-1]


def batch_bytes(plan: Plan) -> int:
    """Bytes that hold the largest batch of a complete plan."""
    assert plan.batches is not None
    frames = int((plan.batches.rows * plan.batches.frames).max(initial=0))
    sounds = sum(read.stream == "audio" for read in plan.reads)
    pixels = int(np.prod(plan.tracks.face_shape)) if any(r.stream == "faces" for r in plan.reads) else 0
    return int(frames * (pixels + sounds * 4 * 16000 / (plan.timeline.fps or 25.0) + 16)) + _GRAIN


def gather(plan: Plan, number: int, pool: Pool) -> Batch:
    """Batch `number` of a complete plan, before the transforms are applied: faces, audio, labels and what describes them.

    Rows are completed with zeros: the end of a shorter chunk, and whole rows that have no chunk (`valid` False).
    """
    assert plan.batches is not None
    chunks = plan.batches.members(number)
    rows, frames = int(plan.batches.rows[number]), int(plan.batches.frames[number])
    lengths = np.minimum(plan.length[chunks], frames)
    reads = [_columns(plan, read, chunks, lengths) for read in plan.reads]
    fields: list[tuple[str, tuple[int, ...], Any]] = [_field(plan, read, rows, frames) for read in reads]
    batch: Batch = dict(pool.arrays(fields))
    for read in reads:
        _fill(plan, read, batch[read.name])
        if read.name not in ("faces", "audio", "labels"):
            batch[f"{read.name}_length"] = _row_column(read.length, rows)
    return _described(plan, chunks, lengths, rows, frames, batch)


def _row_column(values: Any, rows: int, fill: Any = 0) -> np.ndarray:
    """A column of the chunks as a column of the rows."""
    values = np.asarray(values)
    found = np.full(rows, fill, values.dtype)
    found[:len(values)] = values
    return found


def _described(plan: Plan, chunks: np.ndarray, lengths: np.ndarray, rows: int, frames: int, batch: Batch) -> Batch:
    tracks, track, prefix = plan.tracks, plan.track[chunks], plan.prefix[chunks]
    at = np.arange(frames)
    scored = np.zeros((rows, frames), bool)
    scored[:len(chunks)] = (at >= prefix[:, None]) & (at < lengths[:, None])
    batch["scored"] = scored
    batch["valid"] = np.arange(rows) < len(chunks)
    batch["lengths"], batch["starts"] = _row_column(lengths, rows), _row_column(plan.start[chunks], rows)
    batch["prefix"], batch["tracks"] = _row_column(prefix, rows), _row_column(track, rows, -1)
    named = [tracks.named(t) for t in track.tolist()] + [("", "")] * (rows - len(chunks))
    batch["sample_ids"], batch["recordings"] = (np.array(names, np.str_) for names in zip(*named, strict=True))
    if plan.levels.dtype == "int16":
        heard = plan.read("audio").track
        mean, gain = _level(plan, track if heard is None else heard[chunks])
        batch["audio_mean"], batch["audio_gain"] = _row_column(mean, rows), _row_column(gain, rows, 1)
    return batch


def _level(plan: Plan, track: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    mean, gain = plan.levels.mean, plan.levels.gain
    zero, one = np.zeros(len(track), np.float32), np.ones(len(track), np.float32)
    return zero if mean is None else mean[track], one if gain is None else gain[track]


def _columns(plan: Plan, read: Read, chunks: np.ndarray, lengths: np.ndarray) -> Read:
    """A read's columns for the chunks of one batch; where it takes the chunk's own length, cut to the batch."""
    return read._replace(track=(plan.track if read.track is None else read.track)[chunks],
                         start=(plan.start if read.start is None else read.start)[chunks],
                         length=lengths if read.length is None else read.length[chunks])


def _field(plan: Plan, read: Read, rows: int, frames: int) -> tuple[str, tuple[int, ...], Any]:
    assert read.track is not None and read.length is not None
    if read.name == "track_labels":
        frames = int(read.length.max(initial=0))
    if read.stream == "audio":
        slowest = float(plan.tracks.fps[read.track].min(initial=np.inf)) if plan.timeline.fps is None else plan.timeline.fps
        return read.name, (rows, plan.timeline.width(frames, slowest)), plan.levels.dtype
    if read.stream == "faces":
        return read.name, (rows, frames, *plan.tracks.face_shape), np.uint8
    return read.name, (rows, frames), np.uint8 if read.name == "track_labels" else np.float32


def _fill(plan: Plan, read: Read, out: np.ndarray) -> None:
    """Fill the rows of one read, and with zeros what is left of them."""
    assert read.track is not None and read.start is not None and read.length is not None
    fps = plan.tracks.fps[read.track]
    columns = [read.track, read.start, read.length, fps]
    fill = _frames
    if read.stream == "audio":
        first = plan.timeline.edge(read.start, fps)
        wanted = np.minimum(plan.timeline.edge(read.start + read.length, fps) - first, out.shape[1])
        columns, fill = [read.track, first, wanted, *_level(plan, read.track)], _audio
    for row, (track, *facts) in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        used = fill(plan, read, plan.tracks.view(read.stream, track), out[row], *facts) if track >= 0 else 0
        out[row, used:] = 0
    out[len(read.track):] = 0


def _frames(plan: Plan, read: Read, view: np.ndarray, out: np.ndarray, start: int, length: int, native: float) -> int:
    """Frames start:start + length of the timeline, each the native frame at its centre; how many were written."""
    fps = plan.timeline.fps
    if fps is None or fps == native:
        np.copyto(out[:length], view[start:start + length])
        return length
    # spec.timeline.source_indices, for a part of the track
    source = np.clip(np.floor((np.arange(start, start + length) + 0.5) / fps * native), 0, len(view) - 1).astype(np.int64)
    if out.dtype == view.dtype:  # mode "clip" is the fast one; no index is out of range
        first = int(source[0])
        np.take(view[first:int(source[-1]) + 1], source - first, axis=0, out=out[:length], mode="clip")
    else:
        out[:length] = view[source]
    return length


def _audio(plan: Plan, read: Read, view: np.ndarray, out: np.ndarray, first: int, wanted: int, mean: float, gain: float) -> int:
    """`wanted` samples from `first` on, scaled; how many were written.

    Stored audio that ends within the last frame is completed with zeros before it is scaled, as the original does.
    """
    samples = view[first:first + wanted]
    done = len(samples)
    if out.dtype == np.int16:
        out[:done] = samples
        out[done:wanted] = 0
    else:
        # (x / 32768 - mean) * gain with the same roundings: a power of two moves none of them
        mean, gain = mean * 32768, gain / 32768
        for at in range(0, done, _BLOCK):
            part = out[at:min(at + _BLOCK, done)]
            np.copyto(part, samples[at:at + _BLOCK])  # the cast by itself is several times faster than one within a sum
            np.subtract(part, mean, out=part)
            np.multiply(part, gain, out=part)
        out[done:wanted] = np.float32(0 - mean) * np.float32(gain)
    if read.tile and done:
        for at in range(done, wanted, done):
            out[at:min(at + done, wanted)] = out[:min(done, wanted - at)]
    return wanted
