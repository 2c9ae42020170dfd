"""Parquet files written row by row: texts, whole numbers, and one column of bytes whose pages hold those bytes as they are.

A list<int8> column costs as much to encode as its audio did, and Arrow has no byte type in Parquet that readers of these sets
know. But the dictionary of all 256 values in the order of their bits makes each byte its own index, and indices of 8 bits are
bytes: a page is a few bytes of header and then the file that a row holds, which any reader decodes and ours maps in place.
The bytes written depend on the rows alone, not on the release of a library, and memory holds one row of bytes.

Format: https://github.com/apache/parquet-format (Apache-2.0): Thrift's compact protocol, data pages of version 1.
"""
from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from asdstore.files import StreamFile

MAGIC = b"PAR1"
WRITER = "asdstore"
I32, I64, BINARY, LIST, STRUCT = 5, 6, 8, 9, 12  # of Thrift's compact protocol
INT32, INT64, BYTE_ARRAY = 1, 2, 6  # parquet.thrift: Type
OPTIONAL, REPEATED = 1, 2  # FieldRepetitionType
UTF8, LIST_OF, INT_8 = 0, 3, 15  # ConvertedType
PLAIN, RLE, RLE_DICTIONARY, PLAIN_DICTIONARY = 0, 3, 8, 2  # Encoding
DATA_PAGE, DICTIONARY_PAGE = 0, 2  # PageType
DICTIONARY = struct.pack("<256i", *range(128), *range(-128, 0))  # index n: the int8 with the bits of n
TEXT, NUMBER, BYTES = "text", "number", "bytes"


class Column(NamedTuple):
    """A column: TEXT (UTF-8), NUMBER (int64) or BYTES (list<int8>, one at the most)."""

    name: str
    kind: str


class _Chunk(NamedTuple):
    """Where the values of a column lie in the file, for one row group."""

    start: int
    bytes: int
    values: int


class ParquetWriter:
    """Writes the rows of one file. `file` is open and empty; who opened it closes it after `finish`."""

    def __init__(self, file: StreamFile, columns: Sequence[Column], group_rows: int):
        self.file, self.columns, self.group_rows = file, tuple(columns), group_rows
        self.groups: list[tuple[int, list[_Chunk]]] = []
        self.waiting: list[list[Any]] = [[] for _ in columns]
        self.stream = _Chunk(0, 0, 0)  # of the bytes in this group
        self.rows = 0
        file.write(MAGIC)

    def add(self, row: Sequence[Any]) -> int:
        """Adds a row, a value for each column. Returns where in the file its bytes begin, -1 if there is no such column."""
        at = -1
        for column, waiting, value in zip(self.columns, self.waiting, row, strict=True):
            waiting.append(len(value) if column.kind == BYTES else value)
            if column.kind == BYTES:
                at = self._write_bytes(value)
        self.rows += 1
        if len(self.waiting[0]) == self.group_rows:
            self._end_group()
        return at

    def finish(self) -> None:
        """Writes what is left and the footer."""
        if self.waiting[0]:
            self._end_group()
        footer = _footer(self.columns, self.groups)
        self.file.write(footer + struct.pack("<I", len(footer)) + MAGIC)

    def _write_bytes(self, data: bytes) -> int:
        start = self.stream.start
        if not self.stream.values:
            start = self.file.bytes
            self.file.write(DICTIONARY_PART)
        groups = -(-len(data) // 8)
        before = (_levels([(1, 0), (len(data) - 1, 1)]) + _levels([(len(data), 3)])  # one list, all of its values there
                  + b"\x08" + _varint(groups << 1 | 1))
        size = len(before) + groups * 8
        head = _page(DATA_PAGE, size, len(data), RLE_DICTIONARY) + before
        at = self.file.bytes + len(head)
        self.file.write(b"".join((head, data, bytes(groups * 8 - len(data)))))
        self.stream = _Chunk(start, self.file.bytes - start, self.stream.values + len(data))
        return at

    def _end_group(self) -> None:
        rows = len(self.waiting[0])
        chunks = []
        for column, values in zip(self.columns, self.waiting, strict=True):
            if column.kind == BYTES:
                chunks.append(self.stream)
                continue
            data = _levels([(rows, 1)])
            data += b"".join(map(_text, values)) if column.kind == TEXT else struct.pack(f"<{rows}q", *values)
            page = _page(DATA_PAGE, len(data), rows, PLAIN) + data
            chunks.append(_Chunk(self.file.bytes, len(page), rows))
            self.file.write(page)
        self.groups.append((rows, chunks))
        self.waiting = [[] for _ in self.columns]
        self.stream = _Chunk(0, 0, 0)


def _text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<I", len(data)) + data


def _levels(runs: Sequence[tuple[int, int]]) -> bytes:
    """Repetition or definition levels as runs of (count, level)."""
    data = b"".join(_varint(count << 1) + bytes((level,)) for count, level in runs if count)
    return struct.pack("<I", len(data)) + data


# ---- Thrift

def _varint(value: int) -> bytes:
    """A number of at least 0 in groups of 7 bits, the lowest first.

    >>> _varint(300).hex()
    'ac02'
    """
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _value(kind: int, value: Any) -> bytes:
    if kind in (I32, I64):
        return _varint(value << 1 if value >= 0 else ~(value << 1))
    if kind == BINARY:
        data = value.encode()
        return _varint(len(data)) + data
    if kind == LIST:
        of, items = value
        size = bytes((len(items) << 4 | of,)) if len(items) < 15 else bytes((0xF0 | of,)) + _varint(len(items))
        return size + b"".join(_value(of, item) for item in items)
    return _struct(*value)


def _struct(*fields: tuple[int, int, Any]) -> bytes:
    """Fields of (id, type, value), in the order of their ids, none more than 15 after the one before."""
    found, before = [], 0
    for number, kind, value in fields:
        found.append(bytes(((number - before) << 4 | kind,)) + _value(kind, value))
        before = number
    return b"".join(found) + b"\0"


# ---- parquet.thrift

def _page(kind: int, size: int, values: int, encoding: int) -> bytes:
    about = ((1, I32, values), (2, I32, encoding))
    if kind == DICTIONARY_PAGE:
        return _struct((1, I32, kind), (2, I32, size), (3, I32, size), (7, STRUCT, about))
    return _struct((1, I32, kind), (2, I32, size), (3, I32, size), (5, STRUCT, (*about, (3, I32, RLE), (4, I32, RLE))))


def _footer(columns: Sequence[Column], groups: Sequence[tuple[int, list[_Chunk]]]) -> bytes:
    schema: list[Any] = [((4, BINARY, "schema"), (5, I32, len(columns)))]
    for name, kind in columns:
        if kind == BYTES:
            schema += [((3, I32, OPTIONAL), (4, BINARY, name), (5, I32, 1), (6, I32, LIST_OF)),
                       ((3, I32, REPEATED), (4, BINARY, "list"), (5, I32, 1)),
                       ((1, I32, INT32), (3, I32, OPTIONAL), (4, BINARY, "element"), (6, I32, INT_8))]
        elif kind == TEXT:
            schema.append(((1, I32, BYTE_ARRAY), (3, I32, OPTIONAL), (4, BINARY, name), (6, I32, UTF8)))
        else:
            schema.append(((1, I32, INT64), (3, I32, OPTIONAL), (4, BINARY, name)))
    return _struct((1, I32, 2), (2, LIST, (STRUCT, schema)), (3, I64, sum(rows for rows, _ in groups)),
                   (4, LIST, (STRUCT, [_group(columns, rows, chunks) for rows, chunks in groups])), (6, BINARY, WRITER))


def _group(columns: Sequence[Column], rows: int, chunks: Sequence[_Chunk]) -> Any:
    size = sum(chunk.bytes for chunk in chunks)
    return ((1, LIST, (STRUCT, [_chunk(*pair) for pair in zip(columns, chunks, strict=True)])), (2, I64, size), (3, I64, rows))


def _chunk(column: Column, chunk: _Chunk) -> Any:
    type_ = {BYTES: INT32, TEXT: BYTE_ARRAY, NUMBER: INT64}[column.kind]
    path, encodings, first = [column.name], [RLE, PLAIN], chunk.start
    if column.kind == BYTES:
        path += ["list", "element"]
        encodings, first = [RLE, PLAIN_DICTIONARY, RLE_DICTIONARY], first + len(DICTIONARY_PART)
    about = [(1, I32, type_), (2, LIST, (I32, encodings)), (3, LIST, (BINARY, path)), (4, I32, 0), (5, I64, chunk.values),
             (6, I64, chunk.bytes), (7, I64, chunk.bytes), (9, I64, first)]
    if column.kind == BYTES:
        about.append((11, I64, chunk.start))
    return (2, I64, 0), (3, STRUCT, about)


DICTIONARY_PART = _page(DICTIONARY_PAGE, len(DICTIONARY), 256, PLAIN_DICTIONARY) + DICTIONARY
