"""RTTM: who speaks when, and its rasterisation to one label per video frame.

`SPEAKER <file> <channel> <start> <duration> <NA> <NA> <name> [<confidence> [<lookahead>]]`: 8 to 10 fields. Fields are
separated by blanks, so an id with a blank in it shifts them; such a line is a fault and not a guess.
"""
from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

import numpy as np

from adapters.tables import decimal, listed, text_lines
from asdstore.errors import Fault, InputError, MissingError

Intervals = tuple[tuple[float, float], ...]


class Speech(NamedTuple):
    """What RTTM files hold: seconds [start, end) per speaker per recording, the faults, and what was set aside."""

    recordings: dict[str, dict[str, Intervals]]
    faults: list[Fault]
    other_lines: dict[str, int]  # counts of lines of another type, ";;" for comments
    zero_durations: int


def parse_speaker(line: str) -> tuple[str, str, float, float]:
    """Recording, speaker, start and end in seconds of a SPEAKER line.

    Raises: InputError kind "rttm".

    >>> parse_speaker("SPEAKER 00001 0 0.5 0.25 <NA> <NA> 2 <NA> <NA>")
    ('00001', '2', 0.5, 0.75)
    """
    fields = line.split()
    try:
        if len(fields) not in (8, 9, 10) or not fields[2].isdecimal() or fields[5:7] != ["<NA>"] * 2 or fields[7] == "<NA>":
            raise ValueError
        for text in fields[8:]:
            if text != "<NA>":
                decimal(text)
        start, duration = decimal(fields[3]), decimal(fields[4])
    except ValueError:
        raise InputError("rttm", expected="SPEAKER id channel start duration <NA> <NA> name, with 8 to 10 fields in all",
                         found=repr(line[:120]), cure="Ids and names must not hold blanks.") from None
    if not (math.isfinite(start) and math.isfinite(duration) and start >= 0 and duration >= 0):
        raise InputError("rttm", expected="a start and a duration that are finite and not negative",
                         found=f"start {fields[3]}, duration {fields[4]}")
    return fields[1], fields[7], start, start + duration


def read_rttm(path: str | Path) -> Speech:
    """Read one RTTM file, or every `*.rttm` of a folder. Lines of other types, comments and zero durations are counted.

    Raises: MissingError kind "missing", InputError kind "encoding".
    """
    files = listed(Path(path), "*.rttm") if Path(path).is_dir() else [Path(path)]
    if not files:
        raise MissingError("missing", file=path, expected="RTTM files", found="none in the folder")
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    speech = Speech({}, [], {}, 0)
    zero = 0
    for file in files:
        for number, line in text_lines(file):
            head = line.split(maxsplit=1)[0]
            if head != "SPEAKER":
                kind = ";;" if head.startswith(";") else head
                speech.other_lines[kind] = speech.other_lines.get(kind, 0) + 1
                continue
            try:
                recording, speaker, start, end = parse_speaker(line)
            except InputError as error:
                speech.faults.append(error.fault._replace(file=str(file), row=number))
                continue
            intervals = found.setdefault(recording, {}).setdefault(speaker, [])
            if end > start:
                intervals.append((start, end))
            else:
                zero += 1
    for recording, speakers in found.items():  # the same line in two files of a folder (all and few.val) is one interval
        speech.recordings[recording] = {name: tuple(sorted(set(spans))) for name, spans in speakers.items()}
    return speech._replace(zero_durations=zero)


def rasterise(intervals: Intervals, first: int, frames: int, fps: float) -> np.ndarray:
    """uint8[frames]: 1 where the centre of a frame lies in an interval [start, end); frames count from `first`.

    >>> rasterise(((0.0, 0.1),), 0, 4, 25.0).tolist()  # centres .02 .06 .10 .14
    [1, 1, 0, 0]
    """
    centres = first / fps + (np.arange(frames) + 0.5) / fps
    labels = np.zeros(frames, np.uint8)
    for start, end in intervals:
        labels[(start <= centres) & (centres < end)] = 1
    return labels
