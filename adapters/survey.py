"""What an adapter finds out about a corpus before anything is decoded, and what it says of audio once that is decoded."""
from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from typing import Any, NamedTuple

from asdstore.audio import Decoded
from asdstore.errors import Fault, InputError
from asdstore.records import Record
from spec.layout import SAMPLE_RATE
from spec.timeline import audio_sample_count

Notes = dict[str, float | int | str]  # of a track, for the report: numbers are added up, texts are counted
STAMP = 0.01  # seconds: time stamps in file names have two decimals
REFUSED = 2.0  # seconds by which audio may differ from its video at the most


class Survey(NamedTuple):
    """A corpus before decoding: its tracks in order, everything that forbids packing it, and what the report will say."""

    records: list[Record]
    faults: list[Fault]
    skipped: dict[str, list[str]]  # reason: ids of what was left out
    sources: str  # changes when the media do
    report: dict[str, Any]
    extras: dict[str, bytes]  # more files for the pack


def refuse(faults: list[Fault]) -> None:
    """Raise an InputError for the first of the faults, with the others as notes; nothing where there is none."""
    if faults:
        error = InputError(faults[0])
        for fault in faults[1:]:
            error.add_note(fault.text())
        raise error


def fingerprint(paths: Iterable[str | os.PathLike[str]]) -> str:
    """A digest of the names, sizes and modification times of files and folders; absent ones count too."""
    digest = hashlib.sha256()
    for path in paths:
        try:
            stat = os.stat(path)
            facts = (stat.st_size, stat.st_mtime_ns)
        except OSError:
            facts = ()
        digest.update(f"{os.fspath(path)}\0{facts}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()


def check_span(found: Decoded, seconds: float, fps: float, sample_id: str, path: str) -> Notes:
    """Compare a clip's audio with the span of its time stamps: notes for the report, empty where they agree to a frame.

    Raises: InputError kinds "audio-empty" without a sample for a span, "audio-length" where they differ by more than REFUSED
    seconds.
    """
    if seconds:
        _check_any(found, sample_id, path)
    more = round(len(found.samples) / SAMPLE_RATE - seconds, 6)  # 902.96 - 900 is a little more than 2.96
    if abs(more) > REFUSED:
        raise InputError("audio-length", file=path, sample_id=sample_id,
                         expected=f"audio of {seconds:.2f} s, within {REFUSED:g} s, as the time stamps of the faces say",
                         found=f"{seconds + more:.2f} s", cure="Cut the clip's audio again from its recording.")
    if abs(more) <= 1 / fps + STAMP:
        return {}
    return {"audio_differs_from_time_stamps": f"{sample_id}: {more:+.2f} s"}


def check_enough(found: Decoded, record: Record, path: str) -> None:
    """Refuse a recording that ends more than REFUSED seconds before its track does; the writer counts shorter paddings.

    Raises: InputError kinds "audio-empty" where it ends before its track begins (one frame may do without), "audio-length".
    """
    if record.frames > 1:
        _check_any(found, record.sample_id, path)
    samples = audio_sample_count(record.frames, record.fps)
    if samples - len(found.samples) > REFUSED * SAMPLE_RATE:
        raise InputError("audio-length", file=path, sample_id=record.sample_id,
                         expected=f"{samples} samples at {SAMPLE_RATE} Hz from the track's start on, within {REFUSED:g} s",
                         found=str(len(found.samples)), cure="Is start_sec right, and the recording whole?")


def _check_any(found: Decoded, sample_id: str, path: str) -> None:
    if not len(found.samples):
        raise InputError("audio-empty", file=path, sample_id=sample_id, expected="audio from the track's start on",
                         found="no sample",
                         cure="Extract the audio again, or correct the start; only a track of one frame may have none.")


def audio_notes(found: Decoded, sample_id: str, whole: bool = True) -> Notes:
    """What the report counts of decoded audio: clipped samples, resampled tracks, headers that claim another length.

    `whole` says that `found` is the track's own file; of a shared recording only the tracks that it touches are counted.
    """
    notes: Notes = {}
    if found.clipped:
        notes |= {"audio_clipped_source_samples": found.clipped} if whole else {"audio_clipped_recording_tracks": 1}
    if found.source_rate != SAMPLE_RATE:
        notes["audio_resampled_tracks"] = 1
    if whole and found.header_samples >= 0 and abs(found.header_samples - found.source_samples) > 0.1 * found.source_rate:
        notes["audio_header_wrong"] = f"{sample_id}: {found.header_samples} samples claimed, {found.source_samples} decoded"
    return notes
