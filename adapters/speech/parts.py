"""One part of a Parquet set: its rows are read, decoded, encoded and written one after the other; bad ones are named.

A part is built as `<work>/building-…`, and comes into `<work>/pack/split=…/language=…/` once it is on the disk and its facts
stand in `<work>/facts/`. Where rows are shuffled their audio waits in a file without a name, so that memory holds one of them.
"""
from __future__ import annotations

import hashlib
import os
import platform
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from adapters.speech.audio import recode
from adapters.speech.rows import Row, Span, read
from adapters.speech.text import text_normalize
from adapters.survey import audio_notes
from asdstore import files, report
from asdstore.errors import AsdError, Fault, FormatError, InputError
from asdstore.formats.parquet_set import COLUMNS, GROUP_ROWS, ROW_COLUMNS, Part, part_name
from asdstore.formats.parquet_writer import ParquetWriter
from spec.document import dump_json, parse_json

NO_RULES = "none"
SAID = 16  # rows after which a word is said of them: a word takes a tenth of what a short clip does


class Options(NamedTuple):
    """What decides the bytes of a part, beside its rows."""

    corpus: str
    audio_format: str = "flac"
    rules: str = "omnilingual"  # of text_normalize, or "none"
    lower_case: bool = True
    remove_numbers: bool = True
    remove_brackets: bool = False
    shuffle_window: int = 0  # rows within which the order is drawn, 0 or 1 for the order of the source
    seed: int = 0


class PartTask(NamedTuple):
    """All that a worker needs to write one part. It pickles."""

    split: str
    language: str
    number: int
    spans: tuple[Span, ...]
    options: Options
    work: Path  # the folder with pack/ and facts/
    plan: str

    @property
    def name(self) -> str:
        return part_name(self.split, self.language, self.number)


class PartFacts(NamedTuple):
    """What remains of a part: its entry in the manifest (None where no row was left), the rows left out, and counts."""

    name: str
    part: Part | None
    rejected: tuple[Fault, ...]
    notes: dict[str, Any]


class _Kept(NamedTuple):
    """A good row; its audio is put aside at `at`."""

    text: str
    samples: int
    id: str
    speaker: str
    at: int
    bytes: int


Heard = Callable[[tuple[str, int]], object]


def write_part(task: PartTask, heard: Heard = lambda done: None) -> PartFacts:
    """Writes a part and puts it in its place. `heard((name, rows))` says now and then how many rows of it are done.

    Raises: InputError "parquet" for a source that cannot be read any more; StoreError for a disk that refuses.
    """
    facts = _Counted()
    building = task.work / f"building-{task.name.replace('/', '-')}-{platform.node()}-{os.getpid()}"
    rows = building.with_name(f"{building.name}.rows")
    with files.StreamFile(building, task.name) as data, files.StreamFile(rows, f"{task.name} rows") as beside:
        writer, companion = ParquetWriter(data, COLUMNS, GROUP_ROWS), ParquetWriter(beside, ROW_COLUMNS, 1 << 30)
        samples = 0
        for kept, audio in _in_order(task, facts, heard):
            at = writer.add((kept.text, audio, kept.samples))
            companion.add((kept.id, kept.speaker, at, len(audio)))
            samples += kept.samples
        writer.finish()
        companion.finish()
        sealed, sealed_rows = data.finish(), beside.finish()
    part = Part(task.name, task.options.corpus, task.split, task.language, writer.rows, samples, sealed.bytes, sealed.sha256,
                sealed_rows.bytes, sealed_rows.sha256)
    found = PartFacts(task.name, part if writer.rows else None, tuple(facts.rejected), facts.notes)
    files.write_bytes(_facts_file(task), dump_json({"plan": task.plan, **_document(found)}))
    if not writer.rows:
        files.remove(building)
        files.remove(rows)
        return found
    target = task.work / "pack" / task.name
    files.make_folder(target.parent)
    files.rename(rows, task.work / "pack" / part.companion)
    files.rename(building, target)
    files.fsync_folder(target.parent)
    return found


def finished_part(task: PartTask) -> PartFacts | None:
    """The facts of a part that an earlier run of the same plan finished, if its files are there in their sizes."""
    with suppress(OSError, FormatError, KeyError, TypeError):
        found = parse_json(_facts_file(task).read_bytes())
        facts = PartFacts(found["name"], Part(*found["part"]) if found["part"] else None,
                          tuple(Fault(*fault) for fault in found["rejected"]), found["notes"])
        pack = task.work / "pack"
        if found["plan"] == task.plan and (facts.part is None or (
                (pack / task.name).stat().st_size == facts.part.bytes
                and (pack / facts.part.companion).stat().st_size == facts.part.rows_bytes)):
            return facts
    return None


def text_rules(options: Options) -> dict[str, Any]:
    """What the manifest says of the texts."""
    if options.rules == NO_RULES:
        return {"rules": NO_RULES}
    return {"rules": options.rules, "lower_case": options.lower_case, "remove_numbers": options.remove_numbers,
            "remove_brackets": options.remove_brackets, "unicode": unicodedata.unidata_version}


class _Counted:
    """What a part leaves out and counts."""

    def __init__(self) -> None:
        self.rejected: list[Fault] = []
        self.notes: dict[str, Any] = {}


def _in_order(task: PartTask, facts: _Counted, heard: Heard) -> Iterator[tuple[_Kept, bytes]]:
    """The good rows with their audio, in the order in which they are written."""
    window = task.options.shuffle_window
    if window < 2:
        yield from _good_rows(task, facts, heard)
        return
    with files.Scratch(task.work) as aside:
        kept = [row._replace(at=aside.write(audio)) for row, audio in _good_rows(task, facts, heard)]
        for first in range(0, len(kept), window):
            for place in _shuffled(range(first, min(first + window, len(kept))), task):
                yield kept[place], aside.read(kept[place].at, kept[place].bytes)


def _shuffled(places: Sequence[int], task: PartTask) -> list[int]:
    """The places in an order that the seed and the part decide, on every machine alike."""
    def draw(place: int) -> bytes:
        return hashlib.blake2b(f"{task.options.seed}\0{task.name}\0{place}".encode(), digest_size=16).digest()

    return sorted(places, key=draw)


def _good_rows(task: PartTask, facts: _Counted, heard: Heard) -> Iterator[tuple[_Kept, bytes]]:
    done = 0
    for done, row in enumerate(read(task.spans), 1):
        try:
            yield _converted(row, task, facts)
        except AsdError as error:
            fault = error.fault
            facts.rejected.append(fault._replace(file=fault.file or row.piece.path, row=row.number, sample_id=row.id))
        if done % SAID == 0:
            heard((task.name, done))
    heard((task.name, done))


def _converted(row: Row, task: PartTask, facts: _Counted) -> tuple[_Kept, bytes]:
    """Raises InputError "text-null", "text-empty", "audio-…" for a row that is to be left out."""
    options = task.options
    if row.text is None:
        raise InputError("text-null", expected="a transcript", found="null")
    text = row.text if options.rules == NO_RULES else text_normalize(
        row.text, task.language, options.lower_case, options.remove_numbers, options.remove_brackets, options.rules)
    if not text.strip():
        raise InputError("text-empty", expected="a transcript with letters", found=repr(row.text)[:80])
    if row.audio is None:
        raise InputError("audio-empty", expected="an audio file", found="null")
    clip = recode(row.audio, options.audio_format)
    notes = {**audio_notes(clip.decoded, row.id), "decoded_by": {clip.decoded.backend: 1}}
    facts.notes = report.add(facts.notes, {name: [note] if isinstance(note, str) else note for name, note in notes.items()})
    return _Kept(text, clip.samples, row.id, row.speaker, 0, len(clip.data)), clip.data


def _document(facts: PartFacts) -> dict[str, Any]:
    return facts._asdict() | {"part": facts.part and tuple(facts.part)}


def _facts_file(task: PartTask) -> Path:
    return task.work / "facts" / f"{task.name.replace('/', '-')}.json"
