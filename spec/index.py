"""The index of a pack as columns: numpy arrays and packed texts, never a list of dictionaries.

`index.json` (one JSON list of objects per shard) stays the truth. Rows that a program wrote in one regular form, as the
original program and this one do, are parsed by array operations; any other form goes through the JSON parser.
"""
from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import Any

import numpy as np

from spec.document import dump_json, parse_json
from spec.errors import Fault, error
from spec.layout import Field, Layout
from spec.regular_rows import parse_regular
from spec.strings import Strings

NAME = "index.json"
DTYPES = {float: np.dtype(np.float64), int: np.dtype(np.int64)}


@dataclass(frozen=True)
class Index:
    """Columns of equal length: `columns[name]` is float64, int64 or `Strings`, `shard` the shard of each row (int32).

    `extra[name]` holds the JSON text of a field that the layout does not know ("" where a row lacks it).
    """

    columns: dict[str, np.ndarray | Strings]
    shard: np.ndarray
    extra: dict[str, Strings] = dataclass_field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.shard)

    def numbers(self, name: str) -> np.ndarray:
        """A numeric column: float64 or int64 [rows]."""
        found = self.columns[name]
        assert isinstance(found, np.ndarray)
        return found

    def texts(self, name: str) -> Strings:
        """A text column."""
        found = self.columns[name]
        assert isinstance(found, Strings)
        return found

    def row(self, i: int) -> dict[str, Any]:
        """One row as the JSON object that `index.json` holds."""
        found = {name: column[i] if isinstance(column, Strings) else column[i].item() for name, column in self.columns.items()}
        if found.get("recording") == "":
            del found["recording"]
        return found | {name: json.loads(texts[i]) for name, texts in self.extra.items() if texts[i]}

    def take(self, rows: np.ndarray | slice) -> Index:
        """The index of some rows, in that order."""
        return Index({k: c[rows] if isinstance(c, np.ndarray) else c.take(rows) for k, c in self.columns.items()},
                     self.shard[rows], {k: c.take(rows) for k, c in self.extra.items()})


def dump(index: Index) -> bytes:
    """The bytes of one shard's `index.json`."""
    return dump_json([index.row(i) for i in range(len(index))])


def parse(data: bytes | memoryview, layout: Layout, shard: int = 0, file: str = NAME) -> Index:
    """The index of one shard.

    Raises FormatError: "json", or "index" for a row with a missing field, a wrong type or a number that is not finite.
    """
    columns = parse_regular(data, layout.fields)
    if columns is not None:
        return Index(columns, np.full(len(next(iter(columns.values()))), shard, np.int32))
    return of_rows(parse_json(data, file), layout, shard, file)


def of_rows(rows: Any, layout: Layout, shard: int = 0, file: str = NAME) -> Index:
    """The index of one shard from JSON objects. Raises FormatError, kind "index", for the first fault of `faults`."""
    for fault in faults(rows, layout, file):
        raise error(fault)
    columns: dict[str, np.ndarray | Strings] = {}
    for field in layout.fields:
        if not field.required and not any(field.name in row for row in rows):
            continue
        values = [row.get(field.name, "") for row in rows]
        columns[field.name] = Strings.of(values) if field.type is str else np.array(values, DTYPES[field.type])
    known = {field.name for field in layout.fields}
    unknown = list(dict.fromkeys(key for row in rows for key in row if key not in known))
    extra = {key: Strings.of([dump_json(row[key]).decode() if key in row else "" for row in rows]) for key in unknown}
    return Index(columns, np.full(len(rows), shard, np.int32), extra)


def faults(rows: Any, layout: Layout, file: str = NAME) -> Iterator[Fault]:
    """Everything that is wrong with the rows of an `index.json`, kind "index"."""
    if not isinstance(rows, list):
        yield Fault("index", file, expected="a JSON list of objects", found=type(rows).__name__)
        return
    for i, row in enumerate(rows):
        if not isinstance(row, dict):
            yield Fault("index", file, row=i, expected="a JSON object", found=type(row).__name__)
            continue
        sample_id = row.get("sample_id")
        name = sample_id if isinstance(sample_id, str) else ""
        for field in layout.fields:
            if field.name not in row:
                if field.required:
                    yield Fault("index", file, row=i, sample_id=name, expected=f"the field {field.name!r}", found="nothing")
            elif not _fits(row[field.name], field):
                yield Fault("index", file, row=i, sample_id=name, expected=f"{field.name}: a finite {field.type.__name__}",
                            found=repr(row[field.name])[:80])


def concat(indexes: Sequence[Index]) -> Index:
    """One index of several, in order; shard numbers stay as they are. A text field that only some have is "" in the others."""
    if len(indexes) == 1:
        return indexes[0]
    names = list(dict.fromkeys(name for index in indexes for name in index.columns))
    unknown = list(dict.fromkeys(name for index in indexes for name in index.extra))
    columns: dict[str, np.ndarray | Strings] = {}
    for name in names:
        parts = [index.columns.get(name) for index in indexes]
        if all(isinstance(p, np.ndarray) for p in parts):
            columns[name] = np.concatenate(parts)  # type: ignore[arg-type]
        else:
            columns[name] = _joined(parts, indexes)
    extra = {name: _joined([index.extra.get(name) for index in indexes], indexes) for name in unknown}
    return Index(columns, np.concatenate([index.shard for index in indexes]), extra)


def _joined(parts: Iterable[Any], indexes: Sequence[Index]) -> Strings:
    return Strings.concat([p if p is not None else Strings.empty(len(i)) for p, i in zip(parts, indexes, strict=True)])


def _fits(value: object, field: Field) -> bool:
    if field.type is str:
        return isinstance(value, str) and not re.search("[\x00\ud800-\udfff]", value)
    if field.type is int:
        return type(value) is int and -(1 << 63) <= value < 1 << 63
    return type(value) in (int, float) and abs(value) < 1e308  # type: ignore[arg-type, operator]
