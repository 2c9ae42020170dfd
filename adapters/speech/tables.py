"""Tables and folders of audio files with transcripts, as Arrow tables of texts: audio, text, language, split, speaker, id.

TSV and CSV have a header, JSON Lines an object in each line; NeMo's and Common Voice's names of columns are known. Of a folder
every audio file counts, and its transcript is the .txt or .lab beside it, or a metadata table in the folder tells both.
"""
from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any

from asdstore.errors import AsdError, InputError, MissingError
from spec.document import parse_json

ALIASES = {
    "audio": ("audio", "audio_bytes", "audio_path", "audio_filepath", "path", "file", "file_name", "filename", "wav"),
    "text": ("text", "transcription", "raw_transcription", "transcript", "sentence"),
    "language": ("language", "lang", "locale"),
    "split": ("split", "subset"),
    "speaker": ("speaker", "speaker_id", "client_id"),
    "id": ("id", "utterance_id", "sample_id", "key"),
}
TABLES = (".tsv", ".csv", ".jsonl", ".json")
SOUNDS = (".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".m4a", ".aac", ".aiff", ".sph", ".webm", ".npy")
TRANSCRIPTS = (".txt", ".lab")
NONE = "-"  # asked for in the place of a column: there is none
LONGEST = 1 << 20  # bytes of a line
BATCH = 10_000  # rows
ROW = "row"  # a column of numbers beside the texts: which row of its table this was, from 1 on


def read_table(path: Path, root: Path | None = None, asked: Mapping[str, str] = MappingProxyType({})) -> Any:
    """The rows of a table as an Arrow table; audio paths are made absolute, from `root` or the table's folder on.

    `asked` names columns that are called otherwise than in ALIASES; "" and what is not in it is found by those.

    Raises: MissingError "missing"; InputError "table" (with the row, counted from 1 after the header), "column".
    """
    if not path.is_file():
        raise MissingError("missing", file=path, expected="a table of audio and text", found="no such file")
    rows = _json_rows(path) if path.suffix in (".jsonl", ".json") else _delimited_rows(path)
    return _arrow(rows, path, (root or path.parent).absolute(), asked)


def metadata(folder: Path) -> Path | None:
    """The table that tells what a folder holds, if there is one: metadata.jsonl, .tsv or .csv."""
    return next((folder / f"metadata{suffix}" for suffix in TABLES if (folder / f"metadata{suffix}").is_file()), None)


def read_folder(folder: Path) -> Any:
    """The audio files of a folder and the ones below it, in the order of their paths, each with the transcript beside it."""
    sounds = sorted(path for path in folder.rglob("*")
                    if path.suffix.lower() in SOUNDS and path.name[0] != "." and path.is_file())
    rows = ({"audio": str(path.absolute()), "text": _transcript(path)} for path in sounds)
    return _arrow(rows, folder, folder.absolute(), {})


def _transcript(sound: Path) -> str | None:
    for suffix in TRANSCRIPTS:
        path = sound.with_suffix(suffix)
        if path.is_file():
            try:
                return path.read_bytes()[:LONGEST].decode("utf-8-sig").strip()
            except UnicodeDecodeError as why:
                raise InputError("table", file=path, offset=why.start, expected="a transcript in UTF-8",
                                 found="other bytes") from why
    return None


def _delimited_rows(path: Path) -> Iterator[dict[str, str | None]]:
    tabs = path.suffix == ".tsv"
    with open(path, encoding="utf-8-sig", newline="") as file:
        reader = (csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE, strict=True) if tabs
                  else csv.reader(file, strict=True))
        number = 0
        try:
            header = next(reader, [])
            if len(set(header)) < len(header):
                raise InputError("table", file=path, expected="a header that names each column once",
                                 found=", ".join(header)[:200])
            for number, cells in enumerate(reader, 1):
                if cells and len(cells) != len(header):
                    raise InputError("table", file=path, row=number, expected=f"{len(header)} cells, as the header has",
                                     found=str(len(cells)))
                if cells:
                    yield dict(zip(header, cells, strict=True))
        except (csv.Error, UnicodeDecodeError) as why:
            raise InputError("table", file=path, row=number + 1, expected="a line that can be read",
                             found=str(why)[:200]) from why
    if not header:
        raise InputError("table", file=path, expected="a header that names columns", found="an empty file")


def _json_rows(path: Path) -> Iterator[dict[str, Any]]:
    with open(path, "rb") as file:
        for number, line in enumerate(iter(lambda: file.readline(LONGEST + 1), b""), 1):
            if not line.strip():
                continue
            try:
                row = parse_json(line, str(path), LONGEST)
            except AsdError as why:
                raise InputError("table", file=path, row=number, expected="a JSON object", found=why.fault.found) from why
            if not isinstance(row, dict):
                raise InputError("table", file=path, row=number, expected="a JSON object", found=type(row).__name__)
            yield row


def _arrow(rows: Iterable[dict[str, Any]], path: Path, root: Path, asked: Mapping[str, str]) -> Any:
    import pyarrow as pa

    walk = iter(rows)
    first = next(walk, None)
    if first is None:
        raise InputError("table", file=path, expected="at least one row", found="none")
    columns = {name: column_of(name, asked.get(name, ""), first, path) for name in ALIASES}
    columns = {name: column for name, column in columns.items() if column}
    schema = pa.schema([*((name, pa.string()) for name in columns), (ROW, pa.int64())])
    batches: list[Any] = []
    held: dict[str, list[Any]] = {name: [] for name in schema.names}
    for number, row in enumerate(chain((first,), walk), 1):
        held[ROW].append(number)
        for name, column in columns.items():
            value = row.get(column)
            held[name].append(_path(root, value) if name == "audio" else None if value is None else str(value))
        if len(held["audio"]) == BATCH:
            batches.append(pa.record_batch(held, schema))
            held = {name: [] for name in schema.names}
    return pa.Table.from_batches([*batches, pa.record_batch(held, schema)])


def column_of(name: str, wanted: str, columns: Iterable[str], path: object) -> str:
    """The column of a name: the one that is asked for, or the first that is called so. Raises InputError "column"."""
    if wanted == NONE:
        return ""
    columns = list(columns)
    if wanted and wanted not in columns:
        raise InputError("column", file=path, expected=f"a column {wanted!r} with the {name}", found=", ".join(columns)[:200])
    found = wanted or next((alias for alias in ALIASES[name] if alias in columns), "")
    if not found and name in ("audio", "text"):
        raise InputError("column", file=path, expected=f"a column {', '.join(ALIASES[name])}", found=", ".join(columns)[:200],
                         cure=f"Name it with --{name}-column.")
    return found


def _path(root: Path, value: Any) -> str | None:
    return os.path.join(root, str(value)) if value else None
