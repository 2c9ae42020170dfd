"""From a plan to a batch in memory: views of mapped arrays are copied into one buffer, resampled and scaled on the way."""
from __future__ import annotations

from typing import Any

import numpy as np

from asdstore.copies import Copy, Scale, carry_out
from asdstore.verb import make_callable
from pipelines.buffers import GRAIN, Pool
from pipelines.plan import Batch, Plan
from pipelines.rows import Rows, Span, rows_of


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

    All that is to be copied is listed first and then carried out at once.
    """
    rows = of if isinstance(of, Rows) else rows_of(of, number)
    place = (number - rows.number) // rows.step
    count, frames = rows.shape[place]
    start, stop = rows.offsets[place:place + 2]
    used, face = slice(start, stop), rows.plan.tracks.face_shape
    fields: list[tuple[str, tuple[int, ...], Any]] = [
        (span.read.name, (count, span.widths[place], *(face if span.read.stream == "faces" else ())), span.dtype)
        for span in rows.spans]
    batch: Batch = dict((pool or Pool()).arrays(fields))
    jobs: list[Copy | Scale] = []
    for span in rows.spans:
        name, out = span.read.name, batch[span.read.name]
        (_list_audio if span.read.stream == "audio" else _list_frames)(rows.plan, span, used, out, jobs)
        if stop - start < count:
            out[stop - start:] = 0
        if name not in ("faces", "audio", "labels"):
            batch[f"{name}_length"] = _completed(span.length[used], count)
    _described(rows, used, count, frames, batch)
    carry_out(jobs)
    for span in rows.spans:
        if span.read.tile:
            _tile(rows.plan, span, used, batch[span.read.name])
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


def _list_frames(plan: Plan, span: Span, used: slice, rows: np.ndarray, jobs: list[Copy | Scale]) -> None:
    """Frames first:first + count of the timeline for each row, each the native frame at its centre; the rest is zero."""
    view, fps, width = plan.tracks.viewer(span.read.stream), plan.timeline.fps, rows.shape[1]
    columns = (column[used] for column in (span.track, span.first, span.count, span.fps))
    for out, track, first, count, native in zip(rows, *columns, strict=False):
        if track < 0:
            count = 0
        else:
            values, picks = view(track), None
            if fps is None or fps == native:
                values = values[first:first + count]
            else:  # spec.timeline.source_indices, for a part of the track
                source = np.floor((np.arange(first, first + count) + 0.5) / fps * native)
                picks = np.clip(source, 0, len(values) - 1).astype(np.int64)
            if values.dtype == out.dtype:
                jobs.append(Copy(out[:count], values, picks))
            else:
                out[:count] = values if picks is None else values[picks]
        if count < width:
            out[count:] = 0


def _list_audio(plan: Plan, span: Span, used: slice, rows: np.ndarray, jobs: list[Copy | Scale]) -> None:
    """Samples first:first + count for each row, on full scale 1 and scaled, or as they are stored; the rest is zero.

    Stored audio that ends within the last frame is completed with zeros before it is scaled, as the original does.
    """
    view, width = plan.tracks.viewer("audio"), rows.shape[1]
    stored = rows.dtype == np.int16
    columns = (column[used] for column in (span.track, span.first, span.count, span.mean, span.gain))
    for out, track, first, count, mean, gain in zip(rows, *columns, strict=False):
        if track < 0:
            out[:] = 0
            continue
        samples = view(track)[first:first + count]
        done = len(samples)
        if stored:
            jobs.append(Copy(out[:done], samples))
            count = done
        else:
            # (x / 32768 - mean) * gain with the same roundings: a power of two moves none of them
            jobs.append(Scale(out[:done], samples, mean * 32768, gain / 32768))
            if done < count:
                out[done:count] = np.float32(0 - mean) * np.float32(gain)
        if count < width:
            out[count:] = 0


def _tile(plan: Plan, span: Span, used: slice, rows: np.ndarray) -> None:
    """Audio that is shorter than what is wanted is repeated to its end."""
    view = plan.tracks.viewer("audio")
    for out, track, first, count in zip(rows, span.track[used], span.first[used], span.count[used], strict=False):
        done = len(view(track)[first:first + count]) if track >= 0 else 0
        for at in range(done, count, done) if done else ():
            out[at:min(at + done, count)] = out[:min(done, count - at)]


make_callable(__name__)
