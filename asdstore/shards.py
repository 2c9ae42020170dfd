"""One shard: its tracks are loaded one after the other and streamed to disk, so memory holds one track and never a shard.

A shard is built in `<work>/building-…`, and renamed to `<work>/pack/shard-NNNNNN` once it is on the disk and its facts stand in
`<work>/facts/`: a shard that is in its place is finished and has facts.
"""
from __future__ import annotations

import os
import platform
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from asdstore import files, report
from asdstore.frame_tracks import encode_frames
from asdstore.records import Encoded, Media, Record
from asdstore.speech_tracks import encode_speech
from spec import index, npy, zarr3
from spec.document import dump_json, parse_json
from spec.errors import AsdError, FormatError, InputError
from spec.layout import FRAMES, SHARD_NAME, SPEECH, Layout, Stream
from spec.plan import track_bytes, track_rows
from spec.seal import SealedFile
from spec.timeline import audio_sample_count, level, model_frame_count, pcm16

LARGE = 32 << 20  # bytes of a track, from which on nothing else is loaded beside it
Stored = tuple[dict[str, Any], report.Tally]  # a written track's row of the index without offsets, and its tally


class ShardTask(NamedTuple):
    """All that a worker needs to write one shard. It pickles if `load` and the records do."""

    number: int
    records: tuple[Record, ...]
    load: Callable[[Record], Any]  # Media, or FrameMedia for a layout of frames
    layout: Layout
    work: Path  # the folder with pack/ and facts/
    plan: str  # digest of the plan that the shard belongs to


class ShardFacts(NamedTuple):
    """What remains of a written shard: the seal's entries of its files, in order, and the tally of its tracks."""

    number: int
    files: tuple[SealedFile, ...]
    tally: report.Tally


def write_shard(task: ShardTask, wrote: Callable[[Record], object] = lambda record: None, beside: bool = False) -> ShardFacts:
    """Loads the tracks of a shard and puts the shard in its place. `wrote(record)` is called after each track.

    With `beside` a track is encoded and written in a thread while the next one is loaded: an eighth faster where a core has
    nothing to do, and a waste of processor time where other shards are written on it.

    Raises InputError for media that cannot be stored, StoreError for a disk that refuses, and what `load` raises.
    """
    layout, name = task.layout, SHARD_NAME.format(task.number)
    building = task.work / f"building-{task.number:06d}-{platform.node()}-{os.getpid()}"
    files.remove_tree(building)
    files.make_folder(building)
    rows, tally = [], report.empty(layout)
    done = dict.fromkeys((s.name for s in layout.streams), 0)
    with ExitStack() as stack:
        arrays = {s.name: stack.enter_context(files.StreamFile(building / s.file, f"{name}/{s.file}")) for s in layout.streams}
        counts = [track_rows(record.frames, record.fps, layout) for record in task.records]
        total = {s.name: sum(count[s.name] for count in counts) for s in layout.streams}
        heads = {s.name: npy.header(s.dtype, (total[s.name], *s.item_shape)) for s in layout.streams}
        tails = {s.name: _tail(s, len(heads[s.name]), total[s.name]) for s in layout.streams}
        for s in layout.streams:
            arrays[s.name].reserve(len(heads[s.name]) + total[s.name] * s.row_bytes + len(tails[s.name]))
            arrays[s.name].write(heads[s.name])
        stored = stack.enter_context(closing((_store_beside if beside else _store_all)(task, arrays)))
        for record, count, (row, told) in zip(task.records, counts, stored, strict=True):
            rows.append(_in_order(row | {s.offset: done[s.name] for s in layout.streams}, layout))
            done = {stream: before + count[stream] for stream, before in done.items()}
            tally = report.add(tally, told)
            wrote(record)
        for s in layout.streams:
            arrays[s.name].write(tails[s.name])
        sealed = [arrays[s.name].finish() for s in layout.streams]
    sealed.append(files.write_file(building / index.NAME, f"{name}/{index.NAME}", dump_json(rows)))
    files.fsync_folder(building)
    facts = {"plan": task.plan, "files": [file._asdict() for file in sealed], "tally": tally}
    files.write_bytes(_facts_file(task), dump_json(facts))
    files.remove_tree(task.work / "pack" / name)
    files.rename(building, task.work / "pack" / name)
    files.fsync_folder(task.work / "pack")
    return ShardFacts(task.number, tuple(sealed), tally)


def _store_all(task: ShardTask, streams: dict[str, files.StreamFile]) -> Generator[Stored, None, None]:
    """Each track once it is written."""
    for record in task.records:
        yield _store(task.layout, record, _named(record, task.load, record), streams)


def _store_beside(task: ShardTask, streams: dict[str, files.StreamFile]) -> Generator[Stored, None, None]:
    """The same, with the next track loaded while one is written.

    A large one is written first, so that memory holds the largest track and not two of its kind.
    """
    with ThreadPoolExecutor(1) as thread:
        written: Future[Stored] | None = None
        for record in task.records:
            media = _named(record, task.load, record)
            if written is not None:
                yield written.result()
            written = thread.submit(_store, task.layout, record, media, streams)
            del media
            if track_bytes(record.frames, record.fps, task.layout) > LARGE:
                yield written.result()
                written = None
        if written is not None:
            yield written.result()


def _store(layout: Layout, record: Record, media: Any, streams: dict[str, files.StreamFile]) -> Stored:
    encode_track = {FRAMES.format: encode_frames, SPEECH.format: encode_speech}.get(layout.format, encode)
    track = _named(record, encode_track, record, media, layout)
    for name, array in track.arrays.items():
        streams[name].write(array)
    return track.row, track.tally


def finished_shard(task: ShardTask, changed: Callable[[Record, int], bool]) -> ShardFacts | None:
    """The facts of a shard that an earlier run of the same plan finished, if all its files are there with their sizes.

    `changed(record, since)` tells whether the media of a record changed at or after a time in ns: then it is not finished.
    """
    folder = task.work / "pack" / SHARD_NAME.format(task.number)
    try:
        found = parse_json(_facts_file(task).read_bytes())
        facts = ShardFacts(task.number, tuple(SealedFile(**entry) for entry in found["files"]), found["tally"])
        sizes = {f"{folder.name}/{path.name}": path.stat().st_size for path in folder.iterdir()}
        same = found["plan"] == task.plan and sizes == {file.name: file.bytes for file in facts.files}
        since = _facts_file(task).stat().st_mtime_ns
    except (OSError, FormatError, KeyError, TypeError):
        return None
    return facts if same and not any(changed(record, since) for record in task.records) else None


def encode(record: Record, media: Media, layout: Layout) -> Encoded:
    """A track in the form in which it is stored: faces and labels as they are, audio of the length that the frames ask for.

    Raises InputError with the sample id: "faces", "labels", "frames", "audio", "audio-empty", "audio-nan".
    """
    _check_media(record, media, layout.face_shape)
    count = audio_sample_count(record.frames, record.fps)
    missing = count - len(media.audio)
    samples = np.ascontiguousarray(media.audio[:count])
    if missing > 0:
        samples = np.concatenate([samples, np.zeros(missing, np.float32)])
    found = level(samples)
    row = {
        "dataset": record.dataset, "sample_id": record.sample_id, "recording": record.recording,
        "source_fps": float(record.fps), "source_frames": record.frames, "start_sec": float(record.start_sec),
        "model_frames": model_frame_count(record.frames, record.fps), "audio_samples": count, "audio_mean": found.mean,
        "audio_rms": found.rms, "audio_peak": found.peak, "speaking_ratio": float(media.labels.mean())}
    arrays = {"faces": np.ascontiguousarray(media.faces), "audio": pcm16(samples).astype("<i2", copy=False),
              "labels": np.ascontiguousarray(media.labels)}
    beyond = int(np.count_nonzero((samples > 1) | (samples < -1)))
    return Encoded(arrays, row, report.of_track(record, missing, beyond, media.notes))


def _named(record: Record, function: Callable[..., Any], *arguments: Any) -> Any:
    """What the function gives; whatever goes wrong in it names the record."""
    try:
        return function(*arguments)
    except AsdError as error:
        if error.fault.sample_id:
            raise
        raise type(error)(error.fault._replace(sample_id=record.sample_id)) from error
    except Exception as error:
        error.add_note(f"while sample {record.sample_id!r} was loaded")
        raise


def _check_media(record: Record, media: Media, face_shape: tuple[int, ...]) -> None:
    def refuse(kind: str, expected: str, found: str, cure: str = "") -> InputError:
        return InputError(kind, sample_id=record.sample_id, expected=expected, found=found, cure=cure)

    faces, audio, labels, _ = media
    if faces.dtype != np.uint8 or faces.ndim != 3 or faces.shape[1:] != face_shape:
        raise refuse("faces", f"uint8 faces of {list(face_shape)}", f"{faces.dtype} {list(faces.shape)}")
    if labels.dtype != np.uint8 or labels.ndim != 1:
        raise refuse("labels", "uint8 labels, one for each face", f"{labels.dtype} {list(labels.shape)}")
    if len(faces) != len(labels):
        raise refuse("labels", "one label for each face", f"{len(faces)} faces but {len(labels)} labels")
    if len(faces) != record.frames:
        raise refuse("frames", f"{record.frames} faces, as the table says", str(len(faces)))
    if labels.max() > 1:
        raise refuse("labels", "labels 0 or 1", f"{labels.max()} at frame {int(np.argmax(labels > 1))}")
    if audio.dtype != np.float32 or audio.ndim != 1:
        raise refuse("audio", "float32 audio of one channel", f"{audio.dtype} {list(audio.shape)}")
    if not len(audio) and record.frames > 1:
        raise refuse("audio-empty", f"audio for {record.frames} frames", "no sample at all",
                     "Extract the audio again, or skip the track; only a track of one frame may have none.")
    if not np.isfinite(audio).all():
        raise refuse("audio-nan", "finite samples", f"NaN or infinity at sample {int(np.argmin(np.isfinite(audio)))}")


def _in_order(row: dict[str, Any], layout: Layout) -> dict[str, Any]:
    return {f.name: row[f.name] for f in layout.fields if f.required or row[f.name]}


def _tail(stream: Stream, header: int, rows: int) -> bytes:
    """What follows the rows of an array: zeros up to a whole inner chunk, and the Zarr shard index."""
    chunk = stream.chunk_rows(rows)
    return bytes(zarr3.padding_bytes(rows, stream.row_bytes, chunk)) + zarr3.shard_tail(header, rows, stream.row_bytes, chunk)


def _facts_file(task: ShardTask) -> Path:
    return task.work / "facts" / f"{task.number:06d}.json"
