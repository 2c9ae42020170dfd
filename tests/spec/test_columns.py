"""The columnar sidecar: what is dumped is loaded, and a file that does not fit is refused before anybody reads by it."""
from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec import columns, index, npy
from spec.errors import FormatError
from spec.index import Index
from spec.layout import ASD


def rows(ids: list[str], recording: bool = True) -> list[dict]:
    found = []
    for k, one in enumerate(ids):
        row = {f.name: {str: one, float: k + 0.5, int: k}[f.type] for f in ASD.fields if f.required}
        found.append(row | ({"recording": one * 2} if recording else {}))
    return found


def made(ids: list[str], recording: bool = True, shards: int = 2) -> Index:
    half = len(ids) // 2
    parts = [ids] if shards == 1 else [ids[:half], ids[half:]]
    return index.concat([index.of_rows(rows(part, recording), ASD, k) for k, part in enumerate(parts)])


def read(files: dict[str, bytes]):
    return lambda name: np.load(io.BytesIO(files[name]))


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1), min_size=2, max_size=6),
       st.booleans())
def test_round_trip(ids, recording):
    one = made(ids, recording)
    files = columns.dump(one)
    back = columns.load(read(files), set(files), ASD, len(ids), 2)
    assert [back.row(i) for i in range(len(ids))] == rows(ids[:len(ids) // 2], recording) + rows(ids[len(ids) // 2:], recording)
    assert back.shard.tolist() == one.shard.tolist()


def test_files_are_what_numpy_writes():
    files = columns.dump(made(["a", "b"]))
    assert len(files) == 1 + 12 + 3 * 2
    for name, data in files.items():
        array, stream = np.load(io.BytesIO(data)), io.BytesIO()
        np.save(stream, array)
        assert stream.getvalue() == data and name.startswith("columns/")


def test_unknown_fields_have_no_columns():
    found = rows(["a", "b"])
    found[0]["more"] = 1
    assert columns.dump(index.of_rows(found, ASD)) == {}


def array(values, dtype: str) -> bytes:
    found = np.array(values, dtype)
    return npy.header(found.dtype.str, found.shape) + found.tobytes()


@pytest.mark.parametrize(("name", "data"), [
    ("source_frames.npy", array([1, 2, 3], "<i8")), ("source_frames.npy", array([1, 2], "<f8")),
    ("source_frames.npy", array([1, 2], "<i4")), ("source_frames.npy", array([[1, 2]], "<i8")),
    ("source_fps.npy", array([1, 2], "<f4")), ("source_fps.npy", array([1, 2], ">f8")),
    ("sample_id.offsets.npy", array([0, 1], "<i8")), ("sample_id.offsets.npy", array([0, 2, 1], "<i8")),
    ("sample_id.offsets.npy", array([1, 1, 2], "<i8")), ("sample_id.offsets.npy", array([0, 1, 3], "<i8")),
    ("sample_id.offsets.npy", array([0, 2**62, 2], "<i8")), ("sample_id.utf8.npy", array([[97], [98]], "|u1")),
    ("shard.npy", array([1, 0], "<i4")), ("shard.npy", array([0, 2], "<i4")), ("shard.npy", array([-1, 0], "<i4")),
    ("shard.npy", array([0, 1], "<i8")), ("sample_id.utf8.npy", array([97, 255], "|u1")),
])
def test_files_that_do_not_fit_are_refused(name, data):
    files = columns.dump(made(["a", "b"])) | {f"columns/{name}": data}
    with pytest.raises(FormatError) as caught:
        columns.load(read(files), set(files), ASD, 2, 2)
    assert caught.value.kind == "columns" and caught.value.fault.file == f"columns/{name}"
