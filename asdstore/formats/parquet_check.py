"""What `check` finds in a Parquet set: numbered rules, each with what breaks it and where. Foreign sets are judged too.

With "deep" every byte is compared with the manifest, and every utterance decoded.
"""
from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from asdstore.errors import AsdError, Fault
from asdstore.formats.arrow import check_partition, check_schema, octets, opened
from asdstore.formats.parquet_set import COLUMNS, GROUP_ROWS, KEYS, MANIFEST, ROW_COLUMNS, Found, Part, find
from spec.layout import SAMPLE_RATE

Progress = Callable[[str], object]
READ_BYTES = 1 << 22
BATCH = 16  # rows with their audio that are in memory at a time
NAMES = tuple(column.name for column in COLUMNS)


class SetRule(NamedTuple):
    """One rule of a Parquet set."""

    id: str
    level: str
    text: str


RULES = tuple(SetRule(*rule) for rule in (
    ("P001", "MUST", "A set has Parquet files below corpus=…/split=…/language=…; its manifests are strict JSON."),
    ("P002", "MUST", "Every file that a manifest names is there, with its companion, and has its size."),
    ("P003", "MUST", "Below a manifest there is no Parquet file that it does not name."),
    ("P004", "MUST", "Every file is a whole Parquet file."),
    ("P005", "MUST", "Every file has the columns text (string), audio_bytes (list<int8>) and audio_size (int64)."),
    ("P006", "MUST", "Corpus, split and language inside a file are those of its path."),
    ("P007", "SHOULD", f"Row groups have at most {GROUP_ROWS} rows, and no file has other columns."),
    ("P008", "MUST", "Rows and samples are as many as the manifest says."),
    ("P009", "MUST", "No value is null, no audio_size below 1."),
    ("P010", "SHOULD", "Languages are written iso639-3_Script, splits without an underscore, and no text is empty."),
    ("P011", "MUST", "A companion has an id, a speaker and the place of the audio for each row."),
    ("P020", "MUST", "Every byte is what the manifest's sha256 says."),
    ("P021", "MUST", f"Every utterance decodes, and audio_size is its samples at {SAMPLE_RATE} Hz.")))
_LEVELS = {rule.id: rule.level for rule in RULES}
_BY_KIND = {"missing": "P002", "size": "P002", "parquet": "P004", "schema": "P005", "partition": "P006", "manifest": "P001",
            "json": "P001"}


class CheckedSet(NamedTuple):
    """What was found of one set."""

    files: int
    rows: int
    sealed: bool  # every corpus has its manifest
    faults: list[Fault]


def check_set(path: str | os.PathLike[str], deep: bool = False, progress: Progress = lambda name: None) -> CheckedSet:
    """Every rule that the set at `path` breaks. Raises MissingError, FormatError "version" where nothing can be judged."""
    met: list[Fault] = []
    found = find(path, met)
    faults = [_broken(_BY_KIND[fault.kind], fault) for fault in met]
    faults += _unlisted(found)
    rows = 0
    for part in found.parts:
        progress(part.name)
        try:
            count, some = _file(found, part)
            rows += count
            faults += some
            if deep:
                faults += _bytes(found, part)
                faults += _audio(found, part)
            faults += _companion(found, part, count)
        except AsdError as error:
            faults.append(_broken(_BY_KIND.get(error.kind, "P004"), error.fault._replace(file=part.name)))
    sealed = all(part.rows >= 0 for part in found.parts)
    order = [rule.id for rule in RULES]
    return CheckedSet(len(found.parts), rows, sealed, sorted(faults, key=lambda fault: (order.index(fault.rule), fault.file)))


def _broken(rule: str, fault: Fault) -> Fault:
    return fault._replace(rule=rule, level=_LEVELS[rule])


def _unlisted(found: Found) -> Iterator[Fault]:
    for folder, document in found.manifests.items():
        named = {entry["name"] for entry in document["files"]}
        for path in sorted(Path(found.root, folder).rglob("*.parquet")):
            name = os.path.relpath(path, found.root).replace(os.sep, "/")
            if path.name[0] not in "._" and path.relative_to(Path(found.root, folder)).as_posix() not in named:
                yield _broken("P003", Fault("unlisted", name, expected=f"only files that {MANIFEST} names", found="another one",
                                            cure="Remove it: readers of other programs would read it."))


def _file(found: Found, part: Part) -> tuple[int, list[Fault]]:
    """The rows of a file, and what its footer and its small columns say."""
    faults: list[Fault] = []

    def say(rule: str, kind: str, expected: str, what: object, row: int | None = None) -> None:
        faults.append(_broken(rule, Fault(kind, part.name, row=row, expected=expected, found=str(what))))

    with opened(os.path.join(found.root, part.name)) as file:
        check_schema(file.schema_arrow, part)
        for key in set(KEYS) & set(file.schema_arrow.names):
            check_partition(file.read([key])[key], key, part)
        names = [name for name in file.schema_arrow.names if name not in (*NAMES, *KEYS)]
        if names:
            say("P007", "columns", ', '.join(NAMES), f"{', '.join(names)} too")
        meta = file.metadata
        groups = [meta.row_group(n).num_rows for n in range(meta.num_row_groups)]
        if max(groups, default=0) > GROUP_ROWS:
            say("P007", "row-group", f"at most {GROUP_ROWS} rows", f"{max(groups)} in row group {groups.index(max(groups))}")
        small = file.read(["text", "audio_size"])
        _small_columns(small, say)
    samples = sum(size or 0 for size in small["audio_size"].to_pylist())
    for name, value in (("rows", len(small)), ("samples", samples)):
        if getattr(part, name) not in (-1, value):
            say("P008", "count", f"{getattr(part, name)} {name}, as the manifest says", value)
    if not re.fullmatch(r"[a-z]{3}_[A-Z][a-z]{3}(_\w+)?", part.language):
        say("P010", "language", "a language such as eng_Latn", part.language)
    if "_" in part.split:
        say("P010", "split", "a split without '_', which parts split and corpus elsewhere", part.split)
    return len(small), faults


def _small_columns(table: Any, say: Callable[..., None]) -> None:
    for row, (text, size) in enumerate(zip(table["text"].to_pylist(), table["audio_size"].to_pylist(), strict=True)):
        if text is None or size is None:
            say("P009", "null", "no null", f"{'text' if text is None else 'audio_size'} is null", row)
        elif size < 1:
            say("P009", "audio-size", "audio_size of at least 1", size, row)
        if text is not None and not text.strip():
            say("P010", "text-empty", "a text", repr(text), row)


def _companion(found: Found, part: Part, rows: int) -> Iterator[Fault]:
    """Where a manifest names a companion: its rows, and that every place holds the bytes of its row."""
    if part.rows < 0:
        return
    with opened(os.path.join(found.root, part.companion)) as file:
        names = [column.name for column in ROW_COLUMNS]
        if file.schema_arrow.names != names or file.metadata.num_rows != rows:
            yield _broken("P011", Fault("companion", part.companion, expected=f"{rows} rows of {', '.join(names)}",
                                        found=f"{file.metadata.num_rows} of {', '.join(file.schema_arrow.names)}"))
            return
        places = [column.to_pylist() for column in file.read(["at", "bytes"]).columns]
    with opened(os.path.join(found.root, part.name)) as file, open(os.path.join(found.root, part.name), "rb") as raw:
        row = 0
        for batch in file.iter_batches(BATCH, columns=["audio_bytes"]):
            for cell in batch.column("audio_bytes"):
                raw.seek(max(0, places[0][row] or 0))
                data = octets(cell)
                if raw.read(len(data)) != data or len(data) != places[1][row]:
                    yield _broken("P011", Fault("companion", part.companion, row=row, found="other bytes there",
                                                expected=f"the place of the audio, byte {places[0][row]} of the file"))
                row += 1


def _bytes(found: Found, part: Part) -> Iterator[Fault]:
    for name, digest in ((part.name, part.sha256), (part.companion, part.rows_sha256)):
        if digest:
            with open(os.path.join(found.root, name), "rb") as file:
                real = hashlib.file_digest(file, "sha256").hexdigest()
            if real != digest:
                yield _broken("P020", Fault("digest", name, expected=f"sha256 {digest[:16]}…", found=f"{real[:16]}…",
                                            cure="The file was exchanged or damaged: restore it or prepare the corpus again."))


def _audio(found: Found, part: Part) -> Iterator[Fault]:
    from asdstore.audio import decode_bytes

    row = 0
    with opened(os.path.join(found.root, part.name)) as file:
        for batch in file.iter_batches(BATCH, columns=["audio_bytes", "audio_size"]):
            for cell, size in zip(batch.column("audio_bytes"), batch.column("audio_size").to_pylist(), strict=True):
                if not cell.is_valid:
                    yield _broken("P009", Fault("null", part.name, row=row, expected="no null", found="audio_bytes is null"))
                else:
                    yield from _utterance(part, row, cell, size, decode_bytes)
                row += 1


def _utterance(part: Part, row: int, cell: Any, size: int | None, decode_bytes: Callable[..., Any]) -> Iterator[Fault]:
    try:
        samples = len(decode_bytes(octets(cell), file=part.name).samples)
    except AsdError as error:
        yield _broken("P021", error.fault._replace(file=part.name, row=row))
        return
    if size is not None and samples != size:
        yield _broken("P021", Fault("audio-size", part.name, row=row, expected=f"audio_size {samples}, as the audio is",
                                    found=str(size), cure="Prepare the corpus again."))
