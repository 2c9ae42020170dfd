"""Tables that name face tracks: the loader TSV of AVA and WASD, and the headered manifest of AVCC.

A table is read whole and every fault of it is collected, so that one run tells a user all there is to mend.
Labels are read as text, never evaluated.
"""
from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from asdstore.errors import Fault, InputError, MissingError

LABELS = {"0": 0, "1": 1, "0.0": 0, "1.0": 1}
LEAST, MOST = 0.001, 1e9  # of rates in Hz and times in seconds; what is beyond is a slip, and resamplers hang on it
VISUAL_KINDS = ("npy", "jpeg_directory", "video")
REQUIRED = ("sample_id", "visual_path", "audio_path", "source_fps", "labels")
OPTIONAL = {"start_sec": "0", "visual_kind": "npy", "audio_sample_rate": "16000"}


class LoaderRow(NamedTuple):
    """One face track of a loader TSV; `labels` holds one byte, 0 or 1, per native frame."""

    row: int
    sample_id: str
    fps: float
    labels: bytes


class ManifestRow(NamedTuple):
    """One face track of an AVCC manifest; `start_sec` is the track's start on the time line of its audio file."""

    row: int
    sample_id: str
    fps: float
    labels: bytes
    visual_path: str
    audio_path: str
    start_sec: float
    visual_kind: str
    audio_sample_rate: int


class Table(NamedTuple):
    """What a table holds: its rows, all its faults, and the columns that nobody reads."""

    rows: list
    faults: list[Fault]
    ignored: list[str]


def parse_labels(text: str) -> bytes:
    """The labels of a track from a list written as text, one byte per frame.

    Raises: InputError kind "labels" for anything but a non-empty list of 0 and 1.

    >>> parse_labels("[0, 1, 1]")
    b'\\x00\\x01\\x01'
    """
    text = text.strip()
    if not (text.startswith("[") and text.endswith("]")):
        raise InputError("labels", expected="a list such as [0, 1, 1]", found=repr(text[:40]))
    values = text[1:-1].split(",")
    if values == [""] or not text[1:-1].strip():
        raise InputError("labels", expected="one label per frame", found="an empty list")
    try:
        return bytes(LABELS[value.strip()] for value in values)
    except KeyError as bad:
        place = next(i for i, value in enumerate(values) if value.strip() not in LABELS)
        raise InputError("labels", expected="labels that are 0 or 1", found=f"{bad.args[0]!r} for frame {place}",
                         cure="AVA's label 2 (speaking, not audible) counts as 0.") from None


def decimal(text: str) -> float:
    """The number that a text is. Raises ValueError also for what Python alone takes for one: "1_0", digits beyond ASCII."""
    if "_" in text or not text.isascii():
        raise ValueError(text)
    return float(text)


def parse_number(text: str, name: str, *, positive: bool = True) -> float:
    """A rate, from LEAST on, or (not `positive`) a time from 0 on, MOST at the most. Raises: InputError kind `name`."""
    least = LEAST if positive else 0
    try:
        value = decimal(text)
    except ValueError:
        value = math.nan
    if not least <= value <= MOST:  # so for NaN
        raise InputError(name, expected=f"a number from {least} to {MOST:g}", found=repr(text[:40]))
    return value


def read_loader(path: str | Path) -> Table:
    """Read the loader TSV of AVA or WASD: id, frames, fps, labels and an optional running index, without a header.

    Raises: MissingError kind "missing" without the file, InputError kind "encoding" where it is not UTF-8 text.
    """
    table, seen = Table([], [], []), {}
    for number, line in text_lines(path):
        cells = line.split("\t")
        sample_id = cells[0].strip()
        try:
            if len(cells) not in (4, 5):
                cure = "This looks like an AVCC manifest: use `prepare avcc`." if sample_id == "sample_id" else ""
                raise InputError("columns", expected="4 or 5 columns separated by tabs", found=str(len(cells)), cure=cure)
            check_id(sample_id, seen, number)
            fps, labels = parse_number(cells[2], "fps"), parse_labels(cells[3])
            if cells[1].strip() != str(len(labels)):
                raise InputError("frames", expected=f"column 2 to be {len(labels)}, the number of labels",
                                 found=repr(cells[1]))
            table.rows.append(LoaderRow(number, sample_id, fps, labels))
        except InputError as error:
            table.faults.append(error.fault._replace(file=str(path), row=number, sample_id=sample_id))
    return _not_empty(table, path)


def read_manifest(path: str | Path) -> Table:
    """Read the headered TSV of AVCC; empty or absent optional columns take their defaults.

    Raises: MissingError kind "missing", InputError kinds "encoding", and "columns" where the header lacks a column.
    """
    lines = text_lines(path)
    header = [name.strip() for name in next(lines, (0, ""))[1].split("\t")]
    lost = [name for name in REQUIRED if name not in header]
    if lost or len(set(header)) != len(header):
        raise InputError("columns", file=path, row=1, expected="a header with each of " + ", ".join(REQUIRED),
                         found=("no " + ", ".join(lost)) if lost else "a repeated name",
                         cure="A loader TSV without a header belongs to `prepare ava` or `prepare wasd`.")
    table, seen = Table([], [], [n for n in header if n not in REQUIRED and n not in OPTIONAL]), {}
    for number, line in lines:
        cells = line.split("\t")
        row = {**OPTIONAL, **{name: cell.strip() for name, cell in zip(header, cells, strict=False) if cell.strip()}}
        sample_id = row.get("sample_id", "")
        try:
            if len(cells) > len(header):
                raise InputError("columns", expected=f"{len(header)} columns", found=str(len(cells)))
            table.rows.append(_manifest_row(row, number, seen))
        except InputError as error:
            table.faults.append(error.fault._replace(file=str(path), row=number, sample_id=sample_id))
    return _not_empty(table, path)


def _not_empty(table: Table, path: str | Path) -> Table:
    if not table.rows and not table.faults:
        table.faults.append(Fault("no-tracks", file=str(path), expected="a row for each track", found="none"))
    return table


def _manifest_row(row: dict[str, str], number: int, seen: dict[str, int]) -> ManifestRow:
    empty = [name for name in REQUIRED if name not in row]
    if empty:
        raise InputError("columns", expected="a value for " + ", ".join(empty), found="nothing")
    check_id(row["sample_id"], seen, number)
    if row["visual_kind"] not in VISUAL_KINDS:
        raise InputError("visual-kind", expected="one of " + ", ".join(VISUAL_KINDS), found=repr(row["visual_kind"]))
    rate = parse_number(row["audio_sample_rate"], "audio-rate")
    if rate != int(rate):
        raise InputError("audio-rate", expected="a whole number of Hz", found=row["audio_sample_rate"])
    return ManifestRow(number, row["sample_id"], parse_number(row["source_fps"], "fps"), parse_labels(row["labels"]),
                       row["visual_path"], row["audio_path"], parse_number(row["start_sec"], "start", positive=False),
                       row["visual_kind"], int(rate))


def check_id(sample_id: str, seen: dict[str, int], row: int) -> None:
    """Note `sample_id` in `seen`; ids name files, so they hold no path. Raises: InputError kinds "id", "duplicate"."""
    if sample_id in ("", ".", "..") or any(c in "/\\" or not c.isprintable() for c in sample_id):
        raise InputError("id", expected="an id of printable characters without / and \\", found=repr(sample_id))
    if sample_id in seen:
        raise InputError("duplicate", expected="every id once", found=f"the id of row {seen[sample_id]} again")
    seen[sample_id] = row


def listed(folder: Path, pattern: str) -> list[Path]:
    """The files of a folder that match, sorted, without those that an archive of macOS leaves beside them (`._name`)."""
    return sorted(path for path in folder.glob(pattern) if not path.name.startswith("."))


def text_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """The lines of a text file that are not blank, with their numbers from 1 and without line ends.

    Raises: MissingError kind "missing" where it cannot be opened; InputError kind "encoding" with the row and the byte.
    """
    number, offset, data = 0, 0, b""
    try:
        with open(path, "rb") as file:
            for number, data in enumerate(file, 1):
                line = data.decode("utf-8-sig" if number == 1 else "utf-8")
                if line.strip():
                    yield number, line.rstrip("\r\n")
                offset += len(data)
    except UnicodeDecodeError as error:
        mark = len(data) - len(error.object)  # the byte order mark is no part of what was decoded
        raise InputError("encoding", file=path, row=number, offset=offset + mark + error.start, expected="UTF-8 text",
                         found=f"{error.reason}, {error.object[error.start:error.start + 1]!r}",
                         cure="Save it as UTF-8.") from None
    except OSError as error:
        raise MissingError("missing", file=path, expected="a table", found="no such file" if isinstance(
            error, (FileNotFoundError, NotADirectoryError)) else f"{error.strerror}") from None
