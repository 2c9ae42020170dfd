"""The Parquet writer: what it writes is what Arrow reads, and the bytes of a row lie in the file as they are."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")
import pyarrow.parquet as pq  # noqa: E402

from asdstore.files import StreamFile  # noqa: E402
from asdstore.formats.parquet_writer import BYTES, NUMBER, TEXT, Column, ParquetWriter  # noqa: E402

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NUMBERS = st.integers(-(1 << 63), (1 << 63) - 1)
COLUMNS = (Column("text", TEXT), Column("audio_bytes", BYTES), Column("audio_size", NUMBER))


def write(path: Path, rows: list[tuple], columns: tuple[Column, ...] = COLUMNS, group_rows: int = 100) -> list[int]:
    with StreamFile(path, path.name) as file:
        writer = ParquetWriter(file, columns, group_rows)
        places = [writer.add(row) for row in rows]
        writer.finish()
        file.finish()
    return places


def octets(column: Any) -> list[bytes]:
    return [np.asarray(cell.values).tobytes() for cell in column]


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(st.tuples(TEXTS, st.binary(min_size=1, max_size=40), NUMBERS), max_size=25), group_rows=st.integers(1, 9))
def test_arrow_reads_what_was_written(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple], group_rows: int) -> None:
    path = tmp_path_factory.mktemp("written") / "a.parquet"
    places = write(path, rows, group_rows=group_rows)
    file = pq.ParquetFile(path)
    table = file.read()
    table.validate(full=True)
    texts, numbers = table["text"].to_pylist(), table["audio_size"].to_pylist()
    assert list(zip(texts, octets(table["audio_bytes"]), numbers, strict=True)) == rows
    groups = [file.metadata.row_group(n).num_rows for n in range(file.metadata.num_row_groups)]
    assert sum(groups) == len(rows) and all(count == group_rows for count in groups[:-1])
    data = path.read_bytes()
    assert [data[at:at + len(row[1])] for at, row in zip(places, rows, strict=True)] == [row[1] for row in rows]


@pytest.mark.parametrize("length", [1, 7, 8, 9, 127, 128, 255, 256, 16383, 16384, 300_000])
def test_lengths_at_the_edges_of_the_encoding(tmp_path: Path, length: int) -> None:
    data = np.random.default_rng(length).bytes(length)
    write(tmp_path / "a.parquet", [("x", data, length), ("y", bytes(range(256)), 256)])
    assert octets(pq.read_table(tmp_path / "a.parquet")["audio_bytes"]) == [data, bytes(range(256))]


def test_the_schema_is_that_of_the_original(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", [("x", b"abc", 3)])
    pq.write_table(pa.table({"text": ["x"], "audio_bytes": pa.array([[97, 98, 99]], pa.list_(pa.int8())),
                             "audio_size": pa.array([3], pa.int64())}), tmp_path / "b.parquet")
    ours, theirs = (pq.read_table(tmp_path / name) for name in ("a.parquet", "b.parquet"))
    assert ours.schema.equals(theirs.schema) and ours.equals(theirs)
    assert pa.concat_tables([ours, theirs]).num_rows == 2


def test_columns_by_themselves_and_row_groups_by_themselves(tmp_path: Path) -> None:
    rows = [(f"t{n}", bytes([n]) * (n + 1), n * n) for n in range(25)]
    write(tmp_path / "a.parquet", rows, group_rows=10)
    file = pq.ParquetFile(tmp_path / "a.parquet")
    assert file.read(["audio_size"])["audio_size"].to_pylist() == [row[2] for row in rows]
    assert octets(file.read_row_group(1, ["audio_bytes"])["audio_bytes"]) == [row[1] for row in rows[10:20]]
    streamed = [cell for batch in pq.ParquetFile(tmp_path / "a.parquet", buffer_size=64, pre_buffer=False).iter_batches(3)
                for cell in octets(batch.column("audio_bytes"))]
    assert streamed == [row[1] for row in rows]


def test_columns_without_bytes_and_no_rows(tmp_path: Path) -> None:
    columns = (Column("id", TEXT), Column("at", NUMBER))
    assert write(tmp_path / "a.parquet", [("é", -1), ("", 1 << 62)], columns) == [-1, -1]
    assert pq.read_table(tmp_path / "a.parquet").to_pylist() == [{"id": "é", "at": -1}, {"id": "", "at": 1 << 62}]
    write(tmp_path / "b.parquet", [])
    assert pq.read_table(tmp_path / "b.parquet").schema.names == ["text", "audio_bytes", "audio_size"]


def test_the_same_rows_are_the_same_bytes(tmp_path: Path) -> None:
    rows = [("a", b"xyz", 1)] * 7
    for name in ("a", "b"):
        write(tmp_path / name, rows)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
