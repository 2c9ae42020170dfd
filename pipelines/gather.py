"""From a plan to a batch in memory: views of mapped arrays are copied into one buffer, resampled and scaled on the way."""
from __future__ import annotations

from typing import Any

import numpy as np

from asdstore.verb import make_callable
from pipelines.buffers import GRAIN, Pool
from pipelines.plan import Batch, Plan
from pipelines.rows import Rows, Span, rows_of

_PIECE = 960 << 10  # bytes: from 1 MiB on, memcpy first reads the lines that it is about to overwrite
_BLOCK = 1 << 17  # samples scaled at a time, so that they stay in the cache
_FIRST = np.zeros(1, np.int64)

Copy = tuple[np.ndarray, np.ndarray, np.ndarray]  # values, which of them, into what
Sound = tuple[np.ndarray, np.ndarray, float, float, bool]  # samples, into what, mean, gain, repeated to its end?


def batch_bytes(plan: Plan) -> int:
    """Bytes that hold the largest batch of a complete plan."""
    assert plan.batches is not None
    frames = int((plan.batches.rows * plan.batches.frames).max(initial=0))
    sounds = sum(read.stream == "audio" for read in plan.reads)
    pixels = int(np.prod(plan.tracks.face_shape)) if any(r.stream == "faces" for r in plan.reads) else 0
    return int(frames * (pixels + sounds * 4 * 16000 / (plan.timeline.fps or 25.0) + 16)) + GRAIN


def gather(of: Plan | Rows, number: int, pool: Pool | None = None) -> Batch:
    """Batch `number` of a complete plan (or of the rows of some of its batches, where they are worked out already), before the
    transforms are applied: faces, audio, labels and what describes them. `pool` has the memory, by default new memory.

        batch = pipelines.gather(loader.recipe.plan(epoch), 3)

    Rows are completed with zeros: the end of a shorter chunk, and whole rows that have no chunk (`valid` False).

    All that is to be copied is listed first and copied then: each row pushes the interpreter's own memory out of the cache.
    """
    rows = of if isinstance(of, Rows) else rows_of(of, number)
    place = number - rows.number
    count, frames = rows.shape[place]
    start, stop = rows.offsets[place:place + 2]
    used, face = slice(start, stop), rows.plan.tracks.face_shape
    fields: list[tuple[str, tuple[int, ...], Any]] = [
        (span.read.name, (count, span.widths[place], *(face if span.read.stream == "faces" else ())), span.dtype)
        for span in rows.spans]
    batch: Batch = dict((pool or Pool()).arrays(fields))
    copies: list[Copy] = []
    sounds: list[Sound] = []
    for span in rows.spans:
        name, out = span.read.name, batch[span.read.name]
        (_list_audio if span.read.stream == "audio" else _list_frames)(rows.plan, span, used, out, copies, sounds)
        if stop - start < count:
            out[stop - start:] = 0
        if name not in ("faces", "audio", "labels"):
            batch[f"{name}_length"] = _completed(span.length[used], count)
    _described(rows, used, count, frames, batch)
    for values, picks, out in copies:
        values.take(picks, 0, out, "clip")  # the mode that takes no buffer; no pick is out of range
    for sound in sounds:
        _scale(*sound)
    return batch


def _completed(values: np.ndarray, rows: int, fill: Any = 0) -> np.ndarray:
    """A column of the chunks as a column of the rows."""
    return np.concatenate([values, np.full(rows - len(values), fill, values.dtype)]) if len(values) < rows else values.copy()


def _described(rows: Rows, used: slice, count: int, frames: int, batch: Batch) -> None:
    columns, at, chunks = rows.columns, np.arange(frames), used.stop - used.start
    prefix, lengths = (_completed(columns[name][used], count)[:, None] for name in ("prefix", "lengths"))
    batch["scored"] = (at >= prefix) & (at < lengths)
    batch["valid"] = np.arange(count) < chunks
    for name, column in columns.items():
        batch[name] = _completed(column[used], count, {"tracks": -1, "audio_gain": 1}.get(name, 0))
    nobody = [""] * (count - chunks)
    batch["sample_ids"] = np.array(rows.sample_ids[used] + nobody, np.str_)
    batch["recordings"] = np.array(rows.recordings[used] + nobody, np.str_)


def _list_frames(plan: Plan, span: Span, used: slice, rows: np.ndarray, copies: list[Copy], _: list[Sound]) -> None:
    """Frames first:first + count of the timeline for each row, each the native frame at its centre; the rest is zero."""
    view, fps, width = plan.tracks.viewer(span.read.stream), plan.timeline.fps, rows.shape[1]
    columns = (column[used] for column in (span.track, span.first, span.count, span.fps))
    for out, track, first, count, native in zip(rows, *columns, strict=False):
        if track < 0:
            count = 0
        elif fps is None or fps == native:
            _list_copy(view(track)[first:first + count], out[:count], copies)
        else:
            values = view(track)
            # spec.timeline.source_indices, for a part of the track
            source = np.floor((np.arange(first, first + count) + 0.5) / fps * native)
            source = np.clip(source, 0, len(values) - 1).astype(np.int64)
            if values.dtype == out.dtype:
                copies.append((values[source[0]:source[-1] + 1], source - source[0], out[:count]))
            else:
                out[:count] = values[source]
        if count < width:
            out[count:] = 0


def _list_audio(plan: Plan, span: Span, used: slice, rows: np.ndarray, copies: list[Copy], sounds: list[Sound]) -> None:
    """Samples first:first + count for each row, the rest is zero.

    Stored audio that ends within the last frame is completed with zeros before it is scaled, as the original does.
    """
    view, width = plan.tracks.viewer("audio"), rows.shape[1]
    stored = rows.dtype == np.int16 and not span.read.tile
    columns = (column[used] for column in (span.track, span.first, span.count, span.mean, span.gain))
    for out, track, first, count, mean, gain in zip(rows, *columns, strict=False):
        if track < 0:
            count = 0
        else:
            samples = view(track)[first:first + count]
            if stored:
                count = len(samples)
                _list_copy(samples, out[:count], copies)
            else:
                sounds.append((samples, out[:count], mean, gain, span.read.tile))
        if count < width:
            out[count:] = 0


def _list_copy(values: np.ndarray, out: np.ndarray, copies: list[Copy]) -> None:
    """A run of items in equal pieces, between which the interpreter's lock is not taken; what is converted is copied here."""
    if values.dtype != out.dtype:
        out[:] = values
        return
    pieces = -(-values.nbytes // _PIECE)
    if pieces > 1:
        values, out = values.reshape(-1), out.reshape(-1)
        if rest := len(values) % pieces:
            out[-rest:] = values[-rest:]
            values, out = values[:-rest], out[:-rest]
        copies.append((values.reshape(pieces, -1), np.arange(pieces), out.reshape(pieces, -1)))
    elif pieces:
        copies.append((values.reshape(1, -1), _FIRST, out.reshape(1, -1)))


def _scale(samples: np.ndarray, out: np.ndarray, mean: float, gain: float, tile: bool) -> None:
    """(x / 32768 - mean) * gain with the same roundings, as a power of two moves none of them; int16 stays as it is."""
    done = len(samples)
    if out.dtype == np.int16:
        out[:done], out[done:] = samples, 0
    else:
        mean, gain = mean * 32768, gain / 32768
        for at in range(0, done, _BLOCK):
            part = out[at:min(at + _BLOCK, done)]
            np.copyto(part, samples[at:at + _BLOCK])  # the cast by itself is several times faster than one within a sum
            np.subtract(part, mean, out=part)
            np.multiply(part, gain, out=part)
        if done < len(out):
            out[done:] = np.float32(0 - mean) * np.float32(gain)
    if tile and done:
        for at in range(done, len(out), done):
            out[at:at + done] = out[:min(done, len(out) - at)]


make_callable(__name__)
