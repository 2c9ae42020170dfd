"""The index: the parser for regular rows and the JSON path agree on whatever programs write, and nothing gets lost."""
from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spec import index, regular_rows
from spec.document import dump_json, parse_json
from spec.errors import FormatError
from spec.index import Index
from spec.layout import ASD
from spec.regular_rows import parse_regular
from spec.strings import Strings

LONG = (1 << 63) - 1
numbers = st.floats(-1e300, 1e300, allow_nan=False) | st.integers(-10**6, 10**6)
integers = st.integers(0, 10**6) | st.integers(-LONG - 1, LONG)
plain_texts = st.text(st.characters(min_codepoint=32, max_codepoint=126, exclude_characters='"\\'), max_size=12)
texts = plain_texts | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
TYPES = {float: numbers, int: integers}


def rows_of(texts_: st.SearchStrategy[str]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({f.name: TYPES.get(f.type, texts_) for f in ASD.fields if f.required},
                                 optional={"recording": texts_})


def same(one: Index, other: Index) -> bool:
    def equal(a: np.ndarray | Strings, b: np.ndarray | Strings) -> bool:
        if isinstance(a, Strings):
            return isinstance(b, Strings) and list(a) == list(b)
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and a.tobytes() == b.tobytes()

    return all(x.keys() == y.keys() and all(equal(x[k], y[k]) for k in x)
               for x, y in ((one.columns, other.columns), (one.extra, other.extra))) and np.array_equal(one.shard, other.shard)


@given(st.lists(rows_of(plain_texts), min_size=1, max_size=6), st.booleans(), st.integers(60, 4000))
def test_regular_rows_are_parsed_as_the_json_path_does(rows, has_recording, window):
    rows = [{f.name: row[f.name] for f in ASD.fields if f.required} for row in rows]
    for row in rows if has_recording else []:
        row["recording"] = "video"
    data = dump_json(rows)
    before, regular_rows.WINDOW = regular_rows.WINDOW, window
    try:
        columns = parse_regular(data, ASD.fields)
    finally:
        regular_rows.WINDOW = before
    plain = index.of_rows(parse_json(data), ASD)
    if columns is not None:
        assert same(Index(columns, np.zeros(len(rows), np.int32)), plain)
    elif window >= len(data) and all(abs(row[f.name]) < 10**15 for row in rows for f in ASD.fields if f.type is int):
        pytest.fail("rows in the regular form were not taken")


@given(st.lists(rows_of(texts), min_size=1, max_size=5), st.sampled_from([None, 1]), st.booleans(), st.data())
def test_any_rows_are_parsed_as_the_json_path_does(rows, indent, ascii_only, data):
    order = data.draw(st.permutations(list(rows[0])))
    rows = [{key: row[key] for key in [*order, *row] if key in row} for row in rows]
    text = json.dumps(rows, indent=indent, ensure_ascii=ascii_only, separators=None if indent else (",", ":")).encode()
    assert same(index.parse(text, ASD, 3), index.of_rows(json.loads(text), ASD, 3))


@settings(max_examples=300)
@given(st.lists(rows_of(plain_texts), min_size=1, max_size=3), st.data())
def test_damaged_rows_are_refused_or_read_as_json_reads_them(rows, data):
    good = bytearray(dump_json(rows))
    for _ in range(data.draw(st.integers(1, 3))):
        at, length = data.draw(st.integers(0, len(good) - 1)), data.draw(st.integers(0, 2))
        good[at:at + length] = data.draw(st.binary(max_size=2) | st.sampled_from([b'"', b",", b"}", b"0", b"-"]))
    try:
        plain: Index | None = index.of_rows(parse_json(bytes(good)), ASD)
    except FormatError:
        plain = None
    try:
        found: Index | None = index.parse(bytes(good), ASD)
    except FormatError:
        found = None
    assert (found is None) == (plain is None) and (found is None or plain is None or same(found, plain))


@given(st.lists(rows_of(texts), min_size=1, max_size=4),
       st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), min_size=1).map("x-".__add__),
                       st.none() | st.booleans() | st.integers() | st.lists(st.text(max_size=3), max_size=2), max_size=3))
def test_unknown_fields_survive_a_round_trip(rows, extra):
    rows[-1] |= extra
    found = index.parse(dump_json(rows), ASD)
    again = json.loads(index.dump(found))
    for row, back in zip(rows, again, strict=True):
        assert back == {key: value for key, value in row.items() if (key, value) != ("recording", "")}
    assert same(index.parse(index.dump(found), ASD), found) or any(row.get("recording") == "" for row in rows)


def test_dump_writes_the_bytes_of_the_original_program(golden):
    paths = list(golden.glob("packs/*/shard-*/index.json"))
    assert len(paths) > 10
    for path in paths:
        data = path.read_bytes()
        assert parse_regular(data, ASD.fields) is not None, "the fast way reads them"
        assert index.dump(index.parse(data, ASD)) == data


def good_row() -> dict[str, Any]:
    return {f.name: {str: "a", float: 1.5, int: 7}[f.type] for f in ASD.fields if f.required}


@pytest.mark.parametrize(("field", "value"), [
    ("sample_id", 7), ("sample_id", None), ("sample_id", "a\0b"), ("sample_id", "\ud800"), ("source_fps", "25"),
    ("source_fps", True), ("source_fps", None), ("source_fps", 10**400), ("source_fps", -10**400), ("source_frames", 7.0),
    ("source_frames", True), ("source_frames", 1 << 63), ("source_frames", -(1 << 63) - 1), ("audio_mean", [1.0]),
])
def test_wrong_types_name_row_sample_and_field(field, value):
    with pytest.raises(FormatError) as caught:
        index.of_rows([good_row(), good_row() | {field: value}], ASD, file="shard-000000/index.json")
    fault = caught.value.fault
    assert (fault.kind, fault.file, fault.row) == ("index", "shard-000000/index.json", 1)
    assert field in fault.expected and fault.sample_id in ("a", "a\0b", "\ud800", "")


@pytest.mark.parametrize("text", ['{"a":1}', "[1]", "[[]]", "[null]", "7", '["a"]'])
def test_other_documents_are_refused(text):
    with pytest.raises(FormatError) as caught:
        index.parse(text.encode(), ASD)
    assert caught.value.kind == "index"


def test_all_faults_are_told():
    rows = [good_row() | {"source_fps": "x", "audio_rms": None}, 5, {k: v for k, v in good_row().items() if k != "dataset"}]
    assert [(f.row, f.kind) for f in index.faults(rows, ASD)] == [(0, "index"), (0, "index"), (1, "index"), (2, "index")]


def test_take_and_concat_keep_rows():
    rows = [good_row() | {"sample_id": str(k), "model_frames": k} | ({"note": k} if k == 2 else {}) for k in range(4)]
    rows[3]["recording"] = "r"
    whole = index.of_rows(rows, ASD)
    parts = index.concat([index.of_rows(rows[:2], ASD, 0), index.of_rows(rows[2:], ASD, 1)])
    assert [parts.row(i) for i in range(4)] == rows == [whole.row(i) for i in range(4)]
    assert parts.shard.tolist() == [0, 0, 1, 1]
    assert [r["sample_id"] for r in map(whole.take(np.array([3, 1])).row, range(2))] == ["3", "1"]
