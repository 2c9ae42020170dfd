"""AVA-ActiveSpeaker and WASD: a loader TSV, and a tree of JPEG crops and WAV clips, one of each per face track.

    <visual root>/<split>/<video>/<track id>/<time stamp>.jpg      <audio root>/<split>/<video>/<track id>.wav

WASD's convert script moves the tracks one level up (no <video> folder); both trees are found, track by track.
"""
from __future__ import annotations

import os
from array import array
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import numpy as np

from adapters.media import faces
from adapters.progress import Watch
from adapters.survey import STAMP, Survey, audio_notes, check_span, fingerprint
from adapters.tables import LoaderRow, read_loader
from adapters.truth import check_truth, read_truth
from asdstore import audio
from asdstore.errors import AsdError, Fault, InputError, MissingError
from asdstore.recordings import inferred
from asdstore.records import Media, Record
from spec.layout import FACE_SHAPE

STEADY = 25  # frames of a track from which on its time stamps tell its rate


class Clip(NamedTuple):
    """Where a track's media are, and its labels, one byte per frame."""

    faces: str  # the folder
    names: str  # of its JPEGs in order, with "/" between them
    seconds: float  # from the first time stamp to the last
    audio: str
    labels: bytes


def survey(dataset: str, loader: str | Path, visual_root: str | Path, audio_root: str | Path, split: str = "", *,
           skip_missing: bool = False, truth: str | Path | None = None, watch: Watch = iter) -> Survey:
    """Find the media of every track of `loader`, in its order, and all that is wrong with them.

    Arguments: `dataset` is "ava" or "wasd"; `split` a folder below both roots, if it is there; `truth` TalkNet's
    `*_orig.csv` or a folder of official CSVs, which is checked and goes into the pack as `ground_truth.csv`;
    `watch` passes the rows on, with a progress bar for example.

    Raises: MissingError kind "missing" without the table or a root; InputError for a table that is not one.
    """
    table = read_loader(loader)
    wanted = {row.sample_id for row in table.rows}
    pictures, sounds = _split_folder(visual_root, split), _split_folder(audio_root, split)
    tracks, wavs = find_tracks(pictures, wanted, ""), find_tracks(sounds, wanted, ".wav")
    found = Survey([], table.faults, {}, "", {}, {})
    stamps: dict[str, array] = {}
    for row in watch(table.rows):
        try:
            folder = _locate(tracks, row, "faces", pictures)
            wav = _locate(wavs, row, "audio", sounds)
            names, times = _frames(folder, row)
            stamps[row.sample_id] = array("d", times)
        except MissingError as error:
            if skip_missing:
                found.skipped.setdefault(error.kind, []).append(row.sample_id)
            else:
                found.faults.append(error.fault._replace(file=f"{loader}", row=row.row))
        except AsdError as error:
            found.faults.append(error.fault if error.fault.file else error.fault._replace(file=f"{loader}", row=row.row))
        else:
            recording = inferred(dataset, row.sample_id) or row.sample_id.partition(":")[0]
            found.records.append(Record(dataset, row.sample_id, row.fps, len(row.labels), 0.0, recording,
                                        Clip(folder, "/".join(names), times[-1] - times[0], wav, row.labels)))
    found = found._replace(report=_stamp_report(found.records, stamps), sources=fingerprint(
        path for record in found.records for path in (record.source.faces, record.source.audio)))  # type: ignore[attr-defined]
    return found if truth is None else _with_truth(found, truth, stamps)


def load(record: Record, shape: tuple[int, int] = FACE_SHAPE) -> Media:
    """Decode a track. Raises: what `faces` and `audio` raise, InputError kind "audio-length" (see `check_span`)."""
    clip: Clip = record.source  # type: ignore[assignment]
    sound = audio.decode(clip.audio, sample_id=record.sample_id)
    notes = check_span(sound, clip.seconds, record.fps, record.sample_id, clip.audio) | audio_notes(sound, record.sample_id)
    return Media(faces.read_jpegs(clip.faces, clip.names.split("/"), shape, record.sample_id), sound.samples,
                 np.frombuffer(clip.labels, np.uint8), notes)


def changed(record: Record, since: int) -> bool:
    """Whether a JPEG of a track changed at or after `since`, in ns."""
    clip: Clip = record.source  # type: ignore[assignment]
    return faces.jpegs_changed(clip.faces, since)


def find_tracks(root: str | Path, wanted: Collection[str], suffix: str) -> dict[str, list[str]]:
    """Paths of the wanted tracks in `root` and in the folders of `root`: their names are a track id and `suffix`."""
    found: dict[str, list[str]] = {}

    def note(entry: os.DirEntry[str]) -> bool:
        name = entry.name.removesuffix(suffix)
        known = entry.name.endswith(suffix) and name in wanted
        known = known and (not entry.is_symlink() or os.path.exists(entry.path))  # of a partial copy links may lead nowhere
        if known:
            found.setdefault(name, []).append(entry.path)
        return known

    for entry in sorted(os.scandir(root), key=lambda e: e.name):
        if not note(entry) and entry.is_dir():
            with os.scandir(entry.path) as children:
                for child in children:
                    note(child)
    return found


def _split_folder(root: str | Path, split: str) -> Path:
    folder = Path(root, split) if split and Path(root, split).is_dir() else Path(root)
    if not folder.is_dir():
        twins = {"clips_audios": "clip_audio", "clip_audios": "clip_audio", "clip_audio": "clips_audios"}
        twin = folder.with_name(twins.get(folder.name, folder.name))
        raise MissingError("missing", file=folder, expected="a folder", found="nothing",
                           cure=f"There is {twin}." if twin.is_dir() else "")
    return folder


def _locate(places: dict[str, list[str]], row: LoaderRow, what: str, root: Path) -> str:
    paths = places.get(row.sample_id, [])
    if not paths:
        raise MissingError(f"{what}-missing", sample_id=row.sample_id, expected=f"the {what} of the track in {root}",
                           found="nothing", cure="Extract it, or leave out with --skip-missing what a partial copy lacks.")
    if len(paths) > 1:
        raise InputError("ambiguous", sample_id=row.sample_id, expected=f"the {what} of a track in one place",
                       found=" and ".join(paths), cure="Remove the one that does not belong.")
    return paths[0]


def _frames(folder: str, row: LoaderRow) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """The names of the JPEGs and the time stamps in seconds that they are, as many as there are labels."""
    names, times, _ = faces.jpeg_folder_names(folder, row.sample_id)
    if not names:
        raise MissingError("faces-missing", file=folder, sample_id=row.sample_id, expected="JPEGs", found="an empty folder")
    if len(names) != len(row.labels):
        cure = "Above 100 frames per second names of two decimals collide." if row.fps > 100 else \
            "Extract the faces again, or correct the table; frames are paired with labels by position."
        raise InputError("faces", file=folder, sample_id=row.sample_id, expected=f"{len(row.labels)} JPEGs, one per label",
                       found=str(len(names)), cure=cure)
    return names, times


def _stamp_report(records: list[Record], stamps: dict[str, array]) -> dict[str, object]:
    """Holes in the time stamps, stamps that are off their place, and tracks that do not run at the rate of the table."""
    gaps: dict[str, int] = {}
    seconds = 0.0
    other_rate, uneven = [], []
    for record in records:
        times = np.frombuffer(stamps[record.sample_id], np.float64)
        steps = np.diff(times)
        wide = steps > 1.5 / record.fps + STAMP
        if wide.any():
            gaps[record.sample_id] = int(wide.sum())
            seconds += float(steps[wide].sum()) - int(wide.sum()) / record.fps
        steady = steps[~wide]
        if len(steady) >= STEADY and abs(float(steady.mean()) * record.fps - 1) > 0.02 + STAMP * record.fps / len(steady):
            other_rate.append(record.sample_id)
            continue
        off = np.flatnonzero(~wide & (abs(steps - 1 / record.fps) > 1.1 * STAMP))  # two stamps, each rounded to half of it
        if len(off):
            first = times[off[0] + 1]
            uneven.append(f"{record.sample_id}: {len(off)} steps, first {steps[off[0]]:.2f} s before {first:.2f}")
    return {"gaps": {"tracks": len(gaps), "gaps": sum(gaps.values()), "seconds": round(seconds, 2), "samples": sorted(gaps)},
            "time_stamps_at_another_rate": other_rate, "time_stamps_uneven": uneven}


def _with_truth(found: Survey, path: str | Path, stamps: dict[str, array]) -> Survey:
    truth = read_truth(path, frozenset(record.sample_id for record in found.records))
    faults: list[Fault] = [*found.faults, *truth.faults]
    for record in found.records:
        clip: Clip = record.source  # type: ignore[assignment]
        for fault in check_truth(truth, record.sample_id, clip.labels, stamps[record.sample_id]):
            faults.append(fault._replace(file=str(path)))
    rows = {"rows": sum(map(len, truth.stamps.values())), "rows_of_other_tracks": truth.other_rows}
    return found._replace(faults=faults, report={**found.report, "ground_truth": rows},
                          extras={"ground_truth.csv": truth.text})
