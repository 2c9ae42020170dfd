"""What adapters hand to the writer: a `Record` of every track before any decoding, and the `Media` that loading one gives."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spec.errors import InputError


class Record(NamedTuple):
    """What is known of a track from its metadata. It must pickle: a worker process loads it."""

    dataset: str  # "ava", "wasd", "msdwild", "avcc" or another name
    sample_id: str  # unique in the pack
    fps: float  # native rate
    frames: int  # native frames
    start_sec: float  # start on the recording's timeline, 0.0 where the audio is local to the clip
    recording: str  # names what tracks share: the source video, or the resolved audio file
    source: object  # the adapter's own: where the media is


class Media(NamedTuple):
    """What loading a record gives."""

    faces: NDArray[np.uint8]  # [frames, height, width]
    audio: NDArray[np.float32]  # [samples], mono 16 kHz, full scale 1, from the start of the track on; of any length
    labels: NDArray[np.uint8]  # [frames], 0 or 1
    notes: dict[str, float | int | str] = {}  # what the report counts: numbers are added up, texts are counted


class Encoded(NamedTuple):
    """A track as it is stored: an array for each stream, its row of the index without offsets, its tally for the report."""

    arrays: dict[str, NDArray[Any]]
    row: dict[str, Any]
    tally: dict[str, Any]


def check_records(records: Sequence[Record]) -> None:
    """Refuses records that cannot become a pack, before anything is decoded.

    Raises InputError with the row: "no-tracks", "sample-id" (empty, or not UTF-8), "duplicate-id", "frames", "fps", "start".

    >>> check_records([])
    Traceback (most recent call last):
    spec.errors.InputError: expected at least one track, found none [no-tracks]
    """
    if not records:
        raise InputError("no-tracks", expected="at least one track", found="none")
    first: dict[str, int] = {}
    for row, record in enumerate(records):
        def refuse(kind: str, expected: str, found: object, row: int = row, name: str = record.sample_id) -> InputError:
            return InputError(kind, row=row, sample_id=name, expected=expected, found=str(found))

        for text in (record.sample_id, record.dataset, record.recording):
            if not _is_text(text):
                raise refuse("sample-id", "texts that UTF-8 can hold", ascii(text))
        if not record.sample_id:
            raise refuse("sample-id", "a sample id", "an empty text")
        if record.sample_id in first:
            raise refuse("duplicate-id", "every sample id once", f"the one of row {first[record.sample_id]} again")
        if type(record.frames) is not int or record.frames <= 0:
            raise refuse("frames", "at least one frame", record.frames)
        if not (math.isfinite(record.fps) and record.fps > 0):
            raise refuse("fps", "a finite rate above 0", record.fps)
        if not (math.isfinite(record.start_sec) and record.start_sec >= 0):
            raise refuse("start", "a finite start of 0 seconds or later", record.start_sec)
        first[record.sample_id] = row


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\x00" not in text
