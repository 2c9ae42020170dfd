"""Which rows of the sources belong to which partition, and those rows one after the other, in bounded memory."""
from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from adapters.speech import tables
from adapters.speech.audio import cells
from adapters.speech.languages import language_code
from adapters.speech.sources import SPLITS, Piece, arrow_errors, batches, open_stream, whole
from asdstore.errors import Fault, InputError

BATCH = 16  # rows with their audio that are in memory at a time
BUFFER = 1 << 20  # bytes of a column that are read ahead
PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*")  # a split: others read <split>_<corpus>


class Span(NamedTuple):
    """Rows of one piece, ascending."""

    piece: Piece
    rows: range | np.ndarray


class Row(NamedTuple):
    """One utterance as its source has it."""

    piece: Piece
    number: int  # in its piece
    audio: str | bytes | memoryview | None  # a path or the bytes of a file
    text: str | None
    id: str
    speaker: str


Partitions = dict[tuple[str, str], list[Span]]  # (split, language): its rows in order


def partition(pieces: Iterable[Piece], languages: Mapping[str, str],
              any_language: bool = False) -> tuple[Partitions, list[Fault]]:
    """The rows of every partition, sorted, and a fault for each split or language that cannot be one.

    Arguments: `languages` gives the codes for names that a corpus has of its own; with `any_language` a code need not be
    one of the 1,672, as long as it can be the name of a folder.
    """
    found: Partitions = {}
    faults: list[Fault] = []
    checked: dict[tuple[str, str | None], str | None] = {}

    def value(name: str, said: str | None, piece: Piece, row: int, count: int) -> str | None:
        if (name, said) not in checked:
            try:
                checked[name, said] = _split(said) if name == "split" else _language(said, languages, any_language)
            except InputError as error:
                rows = f" in {count:,} rows" if count > 1 else ""
                faults.append(error.fault._replace(file=piece.path, row=row, found=f"{error.fault.found}{rows}"))
                checked[name, said] = None
        return checked[name, said]

    for piece in pieces:
        for (split, language), rows in _said(piece):
            first = int(rows[0]) if len(rows) else 0
            faults += _against_path(piece, first, len(rows), split, language, languages)
            key = (value("split", piece.split or split, piece, first, len(rows)),
                   value("language", piece.language or language, piece, first, len(rows)))
            if key[0] and key[1] and len(rows):
                found.setdefault((key[0], key[1]), []).append(Span(piece, rows))
    return dict(sorted(found.items())), faults


def _against_path(piece: Piece, row: int, count: int, split: str | None, language: str | None,
                  languages: Mapping[str, str]) -> Iterator[Fault]:
    """Where the columns of a partition say something else than its folders."""
    said = ("split", split, piece.split, SPLITS), ("language", language, piece.language, languages)
    for name, cell, folder, others in said:
        if folder and others.get(cell or "", cell) != others.get(folder, folder):
            yield Fault("partition", piece.path, row=row, expected=f"the {name} {folder!r}, as its path says",
                        found=f"{cell!r} in {count:,} rows", cure=f"Move the rows, or name it with --{name}.")


def _split(said: str | None) -> str:
    name = SPLITS.get(said or "", said or "")
    if not PLAIN.fullmatch(name):
        raise InputError("split", expected="letters, digits, '.' and '-', as in train, dev or test", found=repr(said),
                         cure="Name it with --split; an underscore would part split and corpus.")
    return name


def _language(said: str | None, languages: Mapping[str, str], any_language: bool) -> str:
    if said is None:
        raise InputError("language", expected="a language in every row", found="null")
    if said in languages:
        return languages[said]
    if any_language and re.fullmatch(r"\w[\w.-]*", said):
        return said
    return language_code(said)


def _said(piece: Piece) -> Iterator[tuple[tuple[str | None, str | None], range | np.ndarray]]:
    """The rows of a piece for each (split, language) that it says, in the order in which they come up."""
    constant = piece.split or None, piece.language or None
    columns = piece.names.split, piece.names.language
    if not any(columns):
        yield constant, range(_count(piece))
        return
    found: dict[tuple[str | None, str | None], list[np.ndarray]] = {}
    for first, batch in batches(piece, columns):
        values = [_texts(batch, column, piece) if column else [same] * len(batch)
                  for column, same in zip(columns, constant, strict=True)]
        keys = list(zip(*values, strict=True))
        order = {key: n for n, key in enumerate(dict.fromkeys(keys))}
        codes = np.array([order[key] for key in keys])
        for key, code in order.items():
            found.setdefault(key, []).append(first + np.flatnonzero(codes == code))
    for key, rows in found.items():
        yield key, np.concatenate(rows)


def _count(piece: Piece) -> int:
    if piece.kind == "table":
        return len(piece.table)
    with arrow_errors(piece.path):
        if piece.kind == "arrow":
            with open_stream(piece.path) as reader:
                return sum(map(len, reader))
        import pyarrow.parquet as pq

        return pq.read_metadata(piece.path).num_rows


# ---- reading

def read(spans: Iterable[Span]) -> Iterator[Row]:
    """The rows of some spans in order, a few of them in memory at a time. Raises InputError "parquet", "audio-layout"."""
    for span in spans:
        with arrow_errors(span.piece.path):
            for numbers, batch in _wanted(span):
                yield from _rows(span.piece, numbers, batch)


def take(spans: Iterable[Span]) -> tuple[Span, ...]:
    """The same spans with those rows alone of tables in memory, so that they travel light."""
    found = []
    for span in spans:
        if span.piece.kind == "table":
            table = span.piece.table.take(np.asarray(span.rows, np.int64))
            span = Span(span.piece._replace(table=table), range(len(table)))
        found.append(span)
    return tuple(found)


def count(spans: Iterable[Span]) -> int:
    """The rows of some spans."""
    return sum(len(span.rows) for span in spans)


def cut(spans: Iterable[Span], rows: int) -> Iterator[list[Span]]:
    """The spans in runs of `rows` rows, the last one of what is left."""
    run: list[Span] = []
    room = rows
    for piece, left in spans:
        while len(left):
            run.append(Span(piece, left[:room]))
            room -= len(run[-1].rows)
            left = left[len(run[-1].rows):]
            if not room:
                yield run
                run, room = [], rows
    if run:
        yield run


def _wanted(span: Span) -> Iterator[tuple[np.ndarray, Any]]:
    """Record batches of the wanted rows, with their numbers."""
    wanted = np.asarray(span.rows, np.int64)
    for first, batch in _slices(span.piece, wanted):
        low, high = np.searchsorted(wanted, [first, first + len(batch)])
        numbers = wanted[low:high]
        if len(numbers) == len(batch):
            yield numbers, batch
        elif len(numbers):
            yield numbers, batch.take(numbers - first)


def _slices(piece: Piece, wanted: np.ndarray) -> Iterator[tuple[int, Any]]:
    """Batches of BATCH rows where there are wanted rows, each with the number of its first."""
    columns = [name for name in (piece.names.audio, piece.names.text, piece.names.id, piece.names.speaker) if name]
    if piece.kind == "parquet":
        yield from _parquet_slices(piece, list(dict.fromkeys(columns)), wanted)
        return
    for first, batch in batches(piece, [*columns, tables.ROW] if piece.kind == "table" else columns):
        low, high = np.searchsorted(wanted, [first, first + len(batch)])
        if low == high:
            continue
        for at in range(int(wanted[low]) - first, int(wanted[high - 1]) - first + 1, BATCH):
            yield first + at, batch.slice(at, BATCH)


def _parquet_slices(piece: Piece, columns: list[str], wanted: np.ndarray) -> Iterator[tuple[int, Any]]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(piece.path, buffer_size=BUFFER, pre_buffer=False) as file:
        first = 0
        for group in range(file.metadata.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            low, high = np.searchsorted(wanted, [first, first + rows])
            at = first
            for batch in file.iter_batches(BATCH, [group], columns) if low < high else ():
                yield at, whole(batch)
                at += len(batch)
            first += rows


def _rows(piece: Piece, numbers: np.ndarray, batch: Any) -> Iterator[Row]:
    try:
        sounds, paths = _sounds(batch.column(piece.names.audio))
    except InputError as error:
        raise InputError(error.fault._replace(file=piece.path, cure=f"Write its column {piece.names.audio} as one.")) from None
    texts, speakers, ids = (_texts(batch, name, piece) for name in (piece.names.text, piece.names.speaker, piece.names.id))
    if piece.kind == "table":
        numbers = batch.column(tables.ROW).to_numpy()
    for number, sound, path, text, speaker, id_ in zip(numbers.tolist(), sounds, paths, texts, speakers, ids, strict=True):
        named = id_ or (os.path.splitext(os.path.basename(path))[0] if path else f"{piece.stem}:{number}")
        yield Row(piece, number, sound if sound is not None else path, text, named, speaker or "")


def _sounds(column: Any) -> tuple[list[Any], list[Any]]:
    """The bytes and the paths of an audio column: a struct of both, as Hugging Face has it, or one of them."""
    import pyarrow as pa

    if pa.types.is_struct(column.type):
        parts = dict(zip([field.name for field in column.type], column.flatten(), strict=True))
        if not {"bytes", "path"} & set(parts):
            raise InputError("audio-layout", expected="a struct of bytes and path", found=str(column.type)[:200])
        none = [None] * len(column)
        return cells(parts["bytes"]) if "bytes" in parts else none, cells(parts["path"]) if "path" in parts else none
    found = cells(column)
    return ([None if isinstance(cell, str) else cell for cell in found],
            [cell if isinstance(cell, str) else None for cell in found])


def _texts(batch: Any, name: str, piece: Piece) -> list[str | None]:
    if not name:
        return [None] * len(batch)
    import pyarrow as pa

    column = batch.column(name)
    try:
        return column.cast(pa.string()).to_pylist() if column.type != pa.string() else column.to_pylist()
    except pa.ArrowNotImplementedError as why:
        raise InputError("column", file=piece.path, expected=f"texts in the column {name}",
                         found=str(column.type)[:200]) from why
