"""AVCC, and any corpus of your own: a TSV with a header names faces, audio and labels of every track.

    sample_id  visual_path  audio_path  source_fps  labels  [start_sec]  [visual_kind]  [audio_sample_rate]

`visual_kind` is `npy` (uint8 [frames, 112, 112]), `jpeg_directory`, or `video` (a clip that shows one face crop).
`audio_path` may be a video too, and may be a long recording that many tracks share: `start_sec` says where a track starts.
"""
from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adapters.media import faces, video
from adapters.progress import Watch
from adapters.survey import Notes, Survey, audio_notes, check_enough, fingerprint
from adapters.tables import ManifestRow, read_manifest
from asdstore import audio
from asdstore.errors import AsdError, InputError, MissingError
from asdstore.records import Media, Record
from spec.layout import FACE_SHAPE, SAMPLE_RATE
from spec.timeline import audio_sample_count


class Source(NamedTuple):
    """Where a track's media are, how to read them, and its labels, one byte per frame."""

    faces: str
    kind: str
    audio: str
    rate: int  # Hz of a npy; other files know their own
    labels: bytes


def survey(loader: str | Path, root: str | Path | None = None, *, skip_missing: bool = False, watch: Watch = iter) -> Survey:
    """Find the media of every row of the manifest `loader`, in its order, and all that is wrong with them.

    Relative paths are relative to `root`, which is the manifest's folder by default. Tracks of one resolved audio file share
    their `recording`: its path, relative to the root where it lies inside.

    Raises: MissingError kind "missing" without the manifest; InputError kinds "columns", "encoding".
    """
    table = read_manifest(loader)
    base = Path(loader).parent if root is None else Path(root)
    found = Survey([], table.faults, {}, "", {"ignored_columns": table.ignored}, {})
    for row in watch(table.rows):
        try:
            found.records.append(_record(row, base))
        except MissingError as error:
            if skip_missing:
                found.skipped.setdefault(error.kind, []).append(row.sample_id)
            else:
                found.faults.append(error.fault._replace(row=row.row))
        except AsdError as error:
            found.faults.append(error.fault._replace(row=row.row))
    paths = (path for record in found.records for path in (record.source.faces, record.source.audio))  # type: ignore[attr-defined]
    return found._replace(sources=fingerprint(paths))


def _record(row: ManifestRow, base: Path) -> Record:
    visual, sound = base / row.visual_path, base / row.audio_path
    for path, kind in ((visual, "faces-missing"), (sound, "audio-missing")):
        if not os.path.exists(path):  # false, too, for a name that no file can have
            raise MissingError(kind, file=path, sample_id=row.sample_id, expected="the file that the manifest names",
                               found="nothing", cure="Correct the path or --root, or use --skip-missing.")
    if os.path.isdir(visual) != (row.visual_kind == "jpeg_directory"):
        expected, found = ("a folder", "a file") if row.visual_kind == "jpeg_directory" else ("a file", "a folder")
        raise InputError("visual-kind", file=visual, sample_id=row.sample_id, expected=f"{expected} for visual_kind "
                         f"{row.visual_kind}", found=found, cure="Correct the path, or visual_kind; empty, it is npy.")
    source = Source(str(visual), row.visual_kind, str(sound), row.audio_sample_rate, row.labels)
    count = _known_count(source, row.sample_id)
    if count not in (None, len(row.labels)):
        raise InputError("faces", file=visual, sample_id=row.sample_id, expected=f"{len(row.labels)} faces, one per label",
                         found=str(count))
    recording = sound.resolve()
    if recording.is_relative_to(base.resolve()):
        recording = recording.relative_to(base.resolve())
    return Record("avcc", row.sample_id, row.fps, len(row.labels), row.start_sec, recording.as_posix(), source)


def _known_count(source: Source, sample_id: str) -> int | None:
    """How many faces there are, where that can be told without decoding."""
    if source.kind == "npy":
        return len(faces.read_npy(source.faces, FACE_SHAPE, sample_id))
    if source.kind == "jpeg_directory":
        return len(faces.jpeg_folder_names(source.faces, sample_id).names)
    return None  # what a container claims is not to be trusted


def load(record: Record, shape: tuple[int, int] = FACE_SHAPE) -> Media:
    """Decode a track.

    Raises: what `faces`, `video` and `audio` raise; InputError kinds "audio-empty" and "audio-length" for audio too short,
    "faces" for a clip that decodes to another number of faces than there are labels.
    """
    source: Source = record.source  # type: ignore[assignment]
    wanted = audio_sample_count(record.frames, record.fps)
    sound = audio.window(source.audio, record.start_sec, wanted, SAMPLE_RATE, source.rate, record.sample_id)
    check_enough(sound, record, source.audio)
    return Media(_faces(source, shape, record.sample_id), sound.samples, np.frombuffer(source.labels, np.uint8),
                 audio_notes(sound, record.sample_id, whole=False) | _rate_note(record, source))


def changed(record: Record, since: int) -> bool:
    """Whether a JPEG of a track changed at or after `since`, in ns; of other media the files themselves tell."""
    source: Source = record.source  # type: ignore[assignment]
    return source.kind == "jpeg_directory" and faces.jpegs_changed(source.faces, since)


def _rate_note(record: Record, source: Source) -> Notes:
    """For the report: a clip that runs at another rate than the table says, by more than a frame at its end."""
    if source.kind != "video":
        return {}
    fps = video.container_facts(source.faces, record.sample_id).fps
    if abs(record.frames / fps - record.frames / record.fps) <= 1 / record.fps:
        return {}
    return {"video_at_another_rate": f"{record.sample_id}: {fps:g} per second, {record.fps:g} in the table"}


def _faces(source: Source, shape: tuple[int, int], sample_id: str) -> NDArray[np.uint8]:
    if source.kind == "npy":
        return faces.read_npy(source.faces, shape, sample_id)
    if source.kind == "jpeg_directory":
        names = faces.jpeg_folder_names(source.faces, sample_id).names
        return faces.read_jpegs(source.faces, names, shape, sample_id)
    clip = video.read_face_clip(source.faces, shape, sample_id)
    if len(clip) != len(source.labels):
        raise InputError("faces", file=source.faces, sample_id=sample_id, expected="one face that decodes for each label",
                         found=f"{len(clip)} faces but {len(source.labels)} labels")
    return clip
