"""The ground truth of AVA and WASD, kept for evaluation: TalkNet's `*_orig.csv`, or the official CSVs, one per video.

The evaluation joins on the text of a time stamp and on the box, so rows are kept byte for byte, never reformatted.
"""
from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import numpy as np

from adapters.tables import decimal, listed, text_lines
from asdstore.errors import Fault, InputError

COLUMNS = ("video_id", "frame_timestamp", "entity_box_x1", "entity_box_y1", "entity_box_x2", "entity_box_y2", "label",
           "entity_id")  # of the official files, which have no header; TalkNet's have one, with label_id and instance_id after
SPEAKING = {"SPEAKING_AUDIBLE": 1, "NOT_SPEAKING": 0, "SPEAKING_NOT_AUDIBLE": 0}
LABEL_IDS = {"NOT_SPEAKING": "0", "SPEAKING_AUDIBLE": "1", "SPEAKING_NOT_AUDIBLE": "2"}
STAMP_TOLERANCE = 0.0051  # seconds: the file names of the frames have two decimals


class Truth(NamedTuple):
    """Ground truth of the wanted tracks: time stamps and labels per track in file order, and the rows as text."""

    stamps: dict[str, array]  # seconds
    labels: dict[str, bytearray]  # 0 or 1
    text: bytes  # header and rows of the wanted tracks, texts unchanged
    faults: list[Fault]
    other_rows: int  # rows of tracks that were not asked for


def read_truth(path: str | Path, wanted: frozenset[str]) -> Truth:
    """Read TalkNet's CSV, one official CSV or a folder of them; keep the rows of the `wanted` track ids.

    Raises: MissingError kind "missing", InputError kinds "encoding" and, for headers that do not agree, "columns".
    """
    stamps: dict[str, array] = {}
    labels: dict[str, bytearray] = {}
    kept = BytesIO()  # of AVA's training set half a gigabyte
    faults: list[Fault] = []
    header, other, begun = "", 0, None
    for file, number, line in _rows(Path(path)):
        cells = line.split(",")
        if file is not begun:  # its first row, blank lines aside
            begun = file
            own = line if cells[0] == COLUMNS[0] else ",".join(COLUMNS)
            if tuple(own.split(",")[:8]) != COLUMNS or (header and own != header):
                raise InputError("columns", file=file, row=number, expected=header or ",".join(COLUMNS), found=own)
            if not header:
                header = own
                kept.write(f"{header}\n".encode())
            if own is line:
                continue
        try:
            entity, stamp, label = parse_truth(cells, len(header.split(",")))
        except InputError as error:
            faults.append(error.fault._replace(file=str(file), row=number))
            continue
        if entity in wanted:
            stamps.setdefault(entity, array("d")).append(stamp)
            labels.setdefault(entity, bytearray()).append(label)
            kept.write(f"{line}\n".encode())
        else:
            other += 1
    return Truth(stamps, labels, kept.getvalue(), faults, other)


def _rows(path: Path) -> Iterator[tuple[Path, int, str]]:
    files = listed(path, "*.csv") if path.is_dir() else [path]
    if not files:
        raise InputError("columns", file=path, expected="one <video>-activespeaker.csv per video", found="no CSV")
    for file in files:
        for number, line in text_lines(file):
            yield file, number, line


def parse_truth(cells: Sequence[str], columns: int) -> tuple[str, float, int]:
    """Track id, time stamp in seconds and label (0 or 1; inaudible speech is 0) of a row.

    Raises: InputError kind "truth".

    >>> parse_truth("v,900.05,.1,.2,.3,.4,SPEAKING_AUDIBLE,v_0900_0960:1".split(","), 8)
    ('v_0900_0960:1', 900.05, 1)
    """
    try:
        if len(cells) != columns or cells[6] not in SPEAKING:
            raise ValueError
        numbers = [decimal(cell) for cell in cells[1:6]]
    except ValueError:
        raise InputError("truth", expected=f"{columns} columns, with numbers and a label that is one of {', '.join(SPEAKING)}",
                         found=repr(",".join(cells)[:160])) from None
    if not all(-1e9 < number < 1e9 for number in numbers):  # false for NaN too
        raise InputError("truth", expected="finite numbers", found=repr(",".join(cells)[:160]))
    if columns > 8 and cells[8] != LABEL_IDS[cells[6]]:
        raise InputError("truth", expected=f"label_id {LABEL_IDS[cells[6]]} beside {cells[6]}", found=repr(cells[8]))
    return cells[7], numbers[0], SPEAKING[cells[6]]


def check_truth(truth: Truth, sample_id: str, labels: bytes, frame_stamps: Sequence[float]) -> list[Fault]:
    """What is wrong between a track (labels and the time stamps of its frames) and its ground truth, if anything.

    >>> t = Truth({"a": array("d", [2.0, 1.0])}, {"a": bytearray([1, 0])}, b"", [], 0)
    >>> check_truth(t, "a", bytes([0, 1]), [1.0, 2.0]), len(check_truth(t, "a", bytes([1, 1]), [1.0, 2.0]))
    ([], 1)
    """
    stamps = np.frombuffer(truth.stamps.get(sample_id, array("d")), np.float64)
    order = np.argsort(stamps, kind="stable")
    found = np.frombuffer(bytes(truth.labels.get(sample_id, b"")), np.uint8)[order]
    stamps = stamps[order]
    expected, actual = f"{len(labels)} rows", f"{len(stamps)} rows"
    if len(stamps) == len(labels):
        shift = np.abs(stamps - np.array(frame_stamps)) if len(frame_stamps) == len(stamps) else np.zeros(1)
        differ = np.flatnonzero(found != np.frombuffer(labels, np.uint8))
        if len(np.unique(stamps)) != len(stamps):
            expected, actual = "every time stamp once", "repeated time stamps"
        elif len(differ):
            expected, actual = "the labels of the loader table", f"{len(differ)} others, first at frame {differ[0]}"
        elif shift.max() > STAMP_TOLERANCE:
            at = int(shift.argmax())
            expected, actual = f"a frame at {stamps[at]:.3f} s, within 0.005 s,", f"one at {frame_stamps[at]:.2f} s"
        else:
            return []
    return [Fault("truth", sample_id=sample_id, expected=expected + " of ground truth", found=actual)]
