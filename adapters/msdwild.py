"""MSDWild: videos with the boxes of their faces, and RTTM that says who speaks when. Windows of a video become clips.

    <input>/<video>.mp4   <input>/<video>.csv   all.rttm (or a folder of RTTMs)

Each video is decoded once, from its start, never by seeking; its audio once too. All its faces are cut in that pass.
"""
from __future__ import annotations

from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adapters.boxes import Boxes, find_row, read_boxes
from adapters.media import video
from adapters.media.crop import BLANK, crop_face
from adapters.media.probe import Video, probe
from adapters.progress import Watch
from adapters.rttm import Speech, rasterise, read_rttm
from adapters.survey import Notes, Survey, audio_notes, check_enough, fingerprint
from adapters.tables import listed
from adapters.windows import DOCUMENTED, Choice, Window, lay_windows, present
from asdstore import audio
from asdstore.errors import AsdError, Fault, InputError, MissingError
from asdstore.records import Media, Record
from spec.layout import FACE_SHAPE
from spec.timeline import audio_sample_count

TOO_FEW = "video-frames"  # the kind of the error of a video that decodes to fewer frames than were counted


class Cut(NamedTuple):
    """A face in a window of a video: where its media are, and its labels, one byte per frame."""

    video: str
    boxes: str
    start: int  # frame
    face: str
    labels: bytes


def survey(folder: str | Path, rttm: str | Path, split: str = "", choice: Choice = DOCUMENTED, *, skip_missing: bool = False,
           counted: dict[str, int] | None = None, watch: Watch = iter) -> Survey:
    """Lay the windows of every video in `folder`, sorted by name, and find all that is wrong.

    Arguments: `rttm` is a file or a folder of them; `split` an RTTM whose recordings are the videos to take (a path, or the
    name of a file beside `rttm` or in it); `counted` the frames of videos that are known to decode to another number.

    Raises: MissingError kind "missing" without the folder, any video in it, the RTTM or the split; InputError kind "encoding".
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise MissingError("missing", file=folder, expected="a folder of MP4 and CSV files", found="nothing")
    speech = read_rttm(rttm)
    names = {path.stem for path in folder.iterdir() if path.suffix in (".mp4", ".csv") and not path.name.startswith(".")}
    if not names:
        raise MissingError("missing", file=folder, expected="MP4 and CSV files in the folder", found="none",
                           cure="Give the folder that they lie in; folders below it are not searched.")
    members, faults = (names, []) if not split else _members(find_split(split, Path(rttm)))
    faults = [*speech.faults, *(fault for fault in faults if fault not in speech.faults)]
    found, tally, members = Survey([], faults, {}, "", {}, {}), _Tally(), sorted(members)
    for name in watch(members):
        try:
            pair = _pair(folder, name, speech)
        except MissingError as error:
            if skip_missing:
                found.skipped.setdefault(error.kind, []).append(name)
            else:
                found.faults.append(error.fault)
            continue
        try:
            facts = probe(pair[0])
            facts = facts._replace(frames=(counted or {}).get(str(pair[0]), facts.frames))
            if not facts.sound:
                raise InputError("audio-missing-stream", file=pair[0], expected="an audio stream", found="none",
                                 cure="Leave the video out of the split, or add its sound.")
            boxes = read_boxes(pair[1])
            found.faults.extend(boxes.faults)
            found.records.extend(_records(name, pair, facts, boxes, speech, choice, tally))
        except AsdError as error:
            found.faults.append(error.fault if error.fault.file else error.fault._replace(file=str(pair[0])))
    sources = fingerprint(path for name in members for path in (folder / f"{name}.mp4", folder / f"{name}.csv"))
    return found._replace(sources=sources, report={"windows": tally.report(), "rttm": {
        "zero_durations": speech.zero_durations, "other_lines": speech.other_lines,
        "recordings_without_video": 0 if split else len(speech.recordings.keys() - names)}})


def find_split(split: str, rttm: Path) -> Path:
    """The RTTM that lists the videos of a split. Raises: MissingError kind "missing"."""
    home = rttm if rttm.is_dir() else rttm.parent
    for path in (Path(split), home / split, home / f"{split}.rttm"):
        if path.is_file():
            return path
    raise MissingError("missing", file=home / f"{split}.rttm", expected="the RTTM of the split", found="nothing",
                       cure="There are " + (", ".join(path.stem for path in listed(home, "*.rttm")) or "none") + ".")


def _members(split: Path) -> tuple[Collection[str], list[Fault]]:
    """The videos that the RTTM of a split lists, and all that is wrong with it."""
    lists = read_rttm(split)
    if lists.recordings or lists.faults:
        return lists.recordings, lists.faults
    return (), [Fault("rttm", file=str(split), expected="SPEAKER lines, whose recordings are the videos of the split",
                      found="none", cure="The official lists are RTTM files.")]


def _pair(folder: Path, name: str, speech: Speech) -> tuple[Path, Path]:
    pair = folder / f"{name}.mp4", folder / f"{name}.csv"
    for path, kind in zip(pair, ("video-missing", "boxes-missing"), strict=True):
        if not path.is_file():
            raise MissingError(kind, file=path, expected=f"a file for video {name}", found="nothing",
                               cure="Fetch it, or leave the video out with --skip-missing.")
    if name not in speech.recordings:
        raise MissingError("rttm-missing", file=pair[0], expected=f"SPEAKER lines for video {name}", found="none",
                           cure="Give the RTTM of all videos, or leave the video out with --skip-missing.")
    return pair


class _Tally:
    """What the choice of windows keeps and loses, over all videos."""

    def __init__(self) -> None:
        self.videos = self.windows = self.windows_without_face = self.faces_left_out = 0
        self.rows_beyond_video = self.repeated_rows = 0
        self.seconds = self.kept = 0.0
        self.lost: list[str] = []
        self.faceless: list[str] = []
        self.unnamed: list[str] = []
        self.miscounted: list[str] = []
        self.uneven: list[str] = []
        self.apart: list[str] = []

    def add(self, name: str, facts: Video, boxes: Boxes, windows: list[Window], kept_faces: list[list[str]],
            speakers: Collection[str]) -> None:
        kept = len({frame for window in windows for frame in range(window.start, window.start + window.frames)})
        self.videos += 1
        self.windows += len(windows)
        self.seconds += facts.frames / facts.fps
        self.kept += kept / facts.fps
        self.rows_beyond_video += sum(frame >= facts.frames for face in boxes.faces.values() for frame in face)
        self.repeated_rows += boxes.repeated
        self.windows_without_face += sum(not faces for faces in kept_faces)
        for window, faces in zip(windows, kept_faces, strict=True):
            span = range(window.start, window.start + window.frames)
            self.faces_left_out += sum(any(frame in track for frame in span) for track in boxes.faces.values()) - len(faces)
        if not windows:
            self.lost.append(name)
        elif not any(kept_faces):
            self.faceless.append(name)
        self.unnamed += [f"{name}: {face}" for face in sorted(set().union(*kept_faces) - set(speakers))]
        if facts.claimed_frames != facts.frames:
            self.miscounted.append(f"{name}: {facts.claimed_frames} frames claimed, {facts.frames} found")
        if facts.uneven > 1 / facts.fps:
            self.uneven.append(f"{name}: up to {facts.uneven:.2f} s off {facts.fps:g} per second")
        if abs(facts.sound_after) > 1 / facts.fps:
            self.apart.append(f"{name}: {facts.sound_after:+.2f} s")

    def report(self) -> dict[str, object]:
        share = self.kept / self.seconds if self.seconds else 0.0
        return {"videos": self.videos, "videos_without_window": len(self.lost), "hours": round(self.seconds / 3600, 6),
                "hours_in_windows": round(self.kept / 3600, 6), "share_of_hours_in_windows": round(share, 4),
                "windows": self.windows, "windows_without_face": self.windows_without_face,
                "faces_left_out": self.faces_left_out, "box_rows_beyond_video": self.rows_beyond_video,
                "box_rows_repeated": self.repeated_rows, "lost_videos": self.lost,
                "videos_without_lasting_face": self.faceless, "faces_not_in_rttm": self.unnamed,
                "frames_miscounted": self.miscounted, "frames_uneven": self.uneven,
                "sound_after_picture": self.apart}


def _records(name: str, pair: tuple[Path, Path], facts: Video, boxes: Boxes, speech: Speech, choice: Choice,
             tally: _Tally) -> Iterator[Record]:
    windows = lay_windows(boxes.frames, facts.frames, facts.fps, choice)
    kept = [present(boxes.faces, window, choice) for window in windows]
    speakers = speech.recordings[name]
    tally.add(name, facts, boxes, windows, kept, speakers)
    for window, faces in zip(windows, kept, strict=True):
        for face in faces:
            labels = rasterise(speakers.get(face, ()), window.start, window.frames, facts.fps).tobytes()
            yield Record("msdwild", f"{name}_{window.segment:05d}_{face}", facts.fps, window.frames, window.start / facts.fps,
                         name, Cut(str(pair[0]), str(pair[1]), window.start, face, labels))


class Load:
    """Decode tracks: `load(record)`. Fast for records in the order of the survey, right in any order.

    It remembers the video it is in (not when pickled), so one pass over a video serves all its faces and windows. Held are
    the cut faces of one window and its overlap with the next. Raises: what `video` and `audio` raise; InputError kinds
    "audio-length", and TOO_FEW with the decoded count in `fault.found` and the video in `fault.file`.
    """

    def __init__(self, shape: tuple[int, int] = FACE_SHAPE):
        self.shape = shape
        self._reel: _Reel | None = None

    def __reduce__(self):
        return Load, (self.shape,)

    def __call__(self, record: Record) -> Media:
        cut: Cut = record.source  # type: ignore[assignment]
        if self._reel is None or self._reel.path != cut.video or cut.start < self._reel.first:
            self._reel = _Reel(cut, self.shape)
        wanted = audio_sample_count(record.frames, record.fps)
        with ThreadPoolExecutor(1) as pool:  # the sound of a video is decoded beside its first window
            coming = pool.submit(audio.window, cut.video, record.start_sec, wanted, sample_id=record.sample_id)
            faces, notes = self._reel.faces(cut, record)
            sound = coming.result()
        check_enough(sound, record, cut.video)
        return Media(faces, sound.samples, np.frombuffer(cut.labels, np.uint8),
                     notes | audio_notes(sound, record.sample_id, whole=False))


class _Reel:
    """A video that is being decoded, and the cut faces of its frames from `first` on."""

    def __init__(self, cut: Cut, shape: tuple[int, int]):
        self.path, self.table, self.shape = cut.video, cut.boxes, shape
        self.boxes: dict[int, dict[str, tuple[float, ...]]] = {}
        for face, track in read_boxes(cut.boxes).faces.items():
            for frame, box in track.items():
                self.boxes.setdefault(frame, {})[face] = box
        self.frames = _ahead(video.frames(cut.video))
        self.first = self.decoded = 0
        self.cuts: dict[int, dict[str, NDArray[np.uint8]]] = {}

    def faces(self, cut: Cut, record: Record) -> tuple[NDArray[np.uint8], Notes]:
        """The faces of a track, uint8 [frames, height, width], and what to report of them."""
        self._forward(cut.start, cut.start + record.frames)
        faces = np.empty((record.frames, *self.shape), np.uint8)
        absent = nothing = 0
        for number, face in enumerate(faces, cut.start):
            found = self.cuts[number].get(cut.face)
            absent += found is None
            face[:] = BLANK if found is None else found
            nothing += found is not None and found[0, 0] == BLANK and bool((found == BLANK).all())
        return faces, {name: count for name, count in
                       (("faces_absent", absent), ("faces_outside_picture", nothing)) if count}

    def _forward(self, start: int, end: int) -> None:
        for number in range(self.first, min(start, self.decoded)):
            del self.cuts[number]
        self.first = start
        while self.decoded < end:
            frame = next(self.frames, None)
            if frame is None:
                raise InputError(TOO_FEW, file=self.path, expected=f"at least {end} frames", found=str(self.decoded))
            if self.decoded >= start:
                self.cuts[self.decoded] = self._cut(frame)
            self.decoded += 1


    def _cut(self, frame: NDArray[np.uint8]) -> dict[str, NDArray[np.uint8]]:
        """All faces of the frame that has just been decoded."""
        cuts = {}
        for face, box in self.boxes.get(self.decoded, {}).items():
            try:
                cuts[face] = crop_face(frame, box, self.shape)
            except InputError as error:
                raise InputError(error.fault._replace(
                    file=self.table, row=find_row(self.table, self.decoded, face),
                    sample_id=f"{Path(self.path).stem}, face {face}")) from error
        return cuts


def _ahead(frames: Iterator[NDArray[np.uint8]]) -> Iterator[NDArray[np.uint8]]:
    """The same frames, each decoded in a thread while the one before it is used."""
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, frames, None)
        while (frame := coming.result()) is not None:
            coming = pool.submit(next, frames, None)
            yield frame


def recount(fault: Fault) -> tuple[str, int]:
    """The video and its decoded frames, from an error of kind TOO_FEW."""
    return fault.file, int(fault.found)
