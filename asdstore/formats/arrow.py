"""Parquet files through Arrow: opened with errors that name them, judged as files of a set, their columns as plain values."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from asdstore.errors import DependencyError, FormatError, MissingError
from asdstore.formats.parquet_set import Part
from spec.strings import Strings


@contextmanager
def opened(path: str) -> Iterator[Any]:
    """A pyarrow ParquetFile. Raises FormatError "parquet" for what Arrow raises in the block; MissingError; DependencyError."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as why:
        raise DependencyError("dependency", expected="the package pyarrow", found=str(why),
                              cure="pip install 'asdstore[speech]'") from why
    try:
        with pq.ParquetFile(path) as file:
            yield file
    except FileNotFoundError as why:
        raise MissingError("missing", file=path, expected="the file", found="none") from why
    except (pa.ArrowException, OSError, UnicodeDecodeError) as why:
        raise FormatError("parquet", file=path, expected="a whole Parquet file", found=str(why)[:200],
                          cure="It was cut short or is another file: restore it.") from why


def octets(cell: Any) -> bytes:
    """The bytes of a cell of audio_bytes, none for null."""
    if not cell.is_valid:
        return b""
    return cell.values.to_numpy().tobytes() if hasattr(cell, "values") else cell.as_py()


def check_schema(schema: Any, part: Part) -> None:
    """Raises FormatError "schema" where a column of the format is missing or of another type."""
    import pyarrow.types as types

    def of_bytes(kind: Any) -> bool:
        listed = types.is_list(kind) or types.is_large_list(kind)
        return types.is_int8(kind.value_type) if listed else types.is_binary(kind) or types.is_large_binary(kind)

    wanted = {"text": (lambda kind: types.is_string(kind) or types.is_large_string(kind), "string"),
              "audio_bytes": (of_bytes, "list<int8>"), "audio_size": (types.is_int64, "int64")}
    for name, (fits, says) in wanted.items():
        found = schema.field(name).type if schema.get_field_index(name) >= 0 else None
        if found is None or not fits(found):
            raise FormatError("schema", file=part.name, expected=f"{name}: {says}", found=str(found or "no such column"))


def check_partition(column: Any, key: str, part: Part) -> None:
    """Raises FormatError "partition" where a column says another corpus, split or language than the path."""
    values = column.unique().to_pylist()
    if values not in ([], [getattr(part, key)]):
        found = next(value for value in values if value != getattr(part, key))
        raise FormatError("partition", file=part.name, expected=f"{key} {getattr(part, key)!r}, as the path says",
                          found=repr(found)[:80], cure="Move the rows to the partition that they belong to.")


def strings(column: Any) -> Strings:
    """An Arrow text column as Strings, null as ""."""
    import pyarrow as pa

    parts = []
    for chunk in column.fill_null("").cast(pa.large_string()).chunks:
        _, offsets, data = chunk.buffers()
        ends = np.frombuffer(offsets, np.int64)[chunk.offset:chunk.offset + len(chunk) + 1]
        blob = np.frombuffer(data or b"", np.uint8)[ends[0]:ends[-1]]
        parts.append(Strings(blob, ends - ends[0]))
    return Strings.concat([Strings.empty(0), *parts])
