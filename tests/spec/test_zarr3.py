"""Zarr v3 documents and shard indexes: the standard's worked example byte for byte, other readers, hostile bytes."""
from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec import npy, zarr3
from spec.document import dump_json
from spec.errors import FormatError, IntegrityError, MissingError
from spec.layout import ASD

LABELS, FACES, AUDIO = ASD.stream("labels"), ASD.stream("faces"), ASD.stream("audio")


def shard(stream, values: np.ndarray, chunk_rows: int) -> bytes:
    """A whole file of ours."""
    head = npy.header(stream.dtype, values.shape)
    return (head + values.astype(stream.dtype).tobytes() + bytes(zarr3.padding_bytes(len(values), stream.row_bytes, chunk_rows))
            + zarr3.shard_tail(len(head), len(values), stream.row_bytes, chunk_rows))


def test_the_worked_example_byte_for_byte():
    found = shard(LABELS, np.array([0, 1, 1, 0, 1]), 4)
    assert hashlib.sha256(found).hexdigest() == "ec40f68a1531e16f6ad8f244f686e7f3ea415d7d30ac3d189c44830e1e1da996"
    assert len(found) == 172 == zarr3.file_bytes(128, 5, 1, 4)
    assert zarr3.parse_shard_index(found[136:], 2, begin=0, end=136).tolist() == [[128, 4], [132, 4]]


def test_the_other_sizes_of_the_reference():
    assert zarr3.file_bytes(128, 607, 12544, 64) == 8_028_452
    assert zarr3.file_bytes(128, 388_480, 2, 16384) == 786_948
    assert zarr3.padding_bytes(388_480, 2, 16384) == 9_472


@given(st.integers(0, 300), st.sampled_from([1, 2, 6]), st.sampled_from([1, 4, 64]))
def test_size_index_and_padding_agree(rows, row_bytes, chunk_rows):
    tail = zarr3.shard_tail(128, rows, row_bytes, chunk_rows)
    data = rows * row_bytes + zarr3.padding_bytes(rows, row_bytes, chunk_rows)
    assert 128 + data + len(tail) == zarr3.file_bytes(128, rows, row_bytes, chunk_rows)
    if not rows:
        assert tail == b"" and data == 0
        return
    index = zarr3.parse_shard_index(tail, zarr3.chunk_count(rows, chunk_rows), begin=128, end=128 + data)
    assert index[0, 0] == 128 and (index.sum(axis=1)[:-1] == index[1:, 0]).all() and index[-1].sum() == 128 + data


def index(*extents: tuple[int, int]) -> bytes:
    return zarr3.shard_index(np.array(extents, np.uint64))


@pytest.mark.parametrize("extents", [
    [(128, 4), (132, 5)], [(128, 4), (136, 1)], [(100, 4), (132, 4)], [(128, 4), (2**64 - 2, 4)], [(128, 2**64 - 2), (132, 4)],
    [(128, 4), (130, 4)], [(128, 4), (128, 4)], [(128, 4)], [(2**64 - 1, 4), (132, 4)], [(128, 2**64 - 1), (132, 4)]])
def test_hostile_indexes_are_refused(extents):
    with pytest.raises(FormatError) as caught:
        zarr3.parse_shard_index(index(*extents), 2, begin=128, end=136, file="labels.npy")
    assert caught.value.kind == "zarr-index"


ABSENT = (2**64 - 1, 2**64 - 1)


def test_absent_chunks_are_not_zeros():
    with pytest.raises(MissingError, match="1 absent, the first is 1") as caught:
        zarr3.parse_shard_index(index((128, 4), ABSENT), 2, begin=128, end=136)
    assert caught.value.kind == "missing"
    needed = np.array([True, False])
    assert zarr3.parse_shard_index(index((128, 4), ABSENT), 2, begin=128, end=136, needed=needed)[0].tolist() == [128, 4]
    with pytest.raises(MissingError):
        zarr3.parse_shard_index(index((128, 4), ABSENT), 2, begin=128, end=136, needed=~needed)


def test_a_wrong_checksum_is_an_integrity_error():
    tail = bytearray(index((128, 4), (132, 4)))
    for at in range(len(tail)):
        tail[at] ^= 1
        with pytest.raises(IntegrityError, match="zarr-index"):
            zarr3.parse_shard_index(bytes(tail), 2, end=136)
        tail[at] ^= 1


def test_chunks_may_be_in_any_order_with_gaps():
    tail = index((200, 4), (128, 4), (0, 4))
    assert zarr3.parse_shard_index(tail, 3, end=300)[:, 0].tolist() == [200, 128, 0]


@pytest.mark.parametrize("stream", ASD.streams, ids=lambda s: s.name)
@pytest.mark.parametrize("rows", [1, 3, 70])
def test_zarr_and_tensorstore_read_a_file_of_ours(tmp_path, stream, rows):
    import tensorstore
    import zarr

    values = np.random.default_rng(rows).integers(0, 100, (rows, *stream.item_shape)).astype(stream.dtype)
    chunk_rows = stream.chunk_rows(rows)
    document = zarr3.array_document(stream, rows, chunk_rows)
    (tmp_path / "zarr.json").write_bytes(dump_json(document))
    path = tmp_path / zarr3.parse_array_document(dump_json(document)).chunk_key((0,) * values.ndim)
    path.parent.mkdir(parents=True)
    path.write_bytes(shard(stream, values, chunk_rows))
    np.testing.assert_array_equal(zarr.open_array(str(tmp_path), mode="r")[:], values)
    store = tensorstore.open({"driver": "zarr3", "kvstore": f"file://{tmp_path}/"}, read=True).result()
    np.testing.assert_array_equal(store.read().result(), values)
    np.testing.assert_array_equal(np.load(path), values)


def facts(document: object) -> zarr3.ArrayDocument:
    return zarr3.parse_array_document(json.dumps(document).encode(), "zarr.json")


def test_our_own_document_is_read_back():
    found = facts(zarr3.array_document(FACES, 607, 64))
    assert found == ((607, 112, 112), "|u1", (640, 112, 112), (64, 112, 112), "end", True, ("c", "/"), {})
    assert found.grid == (1, 1, 1) and found.chunk_key((0, 0, 0)) == "c/0/0/0"
    packed = facts(zarr3.array_document(AUDIO, 9, 4, {"name": "zstd", "configuration": {"level": 3, "checksum": False}}))
    assert packed.dtype == "<i2" and packed.index == "end" and not packed.raw
    assert facts(zarr3.array_document(FACES, 0, 64)).grid == (0, 1, 1)


def named(name: str, **configuration: object) -> dict:
    return {"name": name, "configuration": configuration}


LITTLE, BIG = named("bytes", endian="little"), named("bytes", endian="big")


@pytest.mark.parametrize("codecs, raw, dtype", [
    ([LITTLE], True, "<i2"), ([BIG], True, ">i2"), ([LITTLE, named("gzip", level=1)], False, "<i2"),
    ([LITTLE, "crc32c"], False, "<i2"), ([named("transpose", order=[0]), BIG], False, ">i2")])
def test_foreign_codecs(codecs, raw, dtype):
    found = facts({**zarr3.array_document(AUDIO, 9, 4), "codecs": codecs})
    assert (found.raw, found.dtype, found.inner, found.index) == (raw, dtype, found.chunk, "")


def test_foreign_indexes_and_keys():
    document = zarr3.array_document(AUDIO, 9, 4)
    configuration = document["codecs"][0]["configuration"]  # type: ignore[index]
    configuration["index_location"] = "start"
    assert facts(document).index == "start" and facts(document).raw
    configuration["index_codecs"] = [{"name": "bytes", "configuration": {"endian": "little"}}]
    assert facts(document).index == "other" and not facts(document).raw
    for encoding, key in (({"name": "v2"}, "0"), ({"name": "default"}, "c/0"), ("default", "c/0"),
                          ({"name": "default", "configuration": {"separator": "."}}, "c.0")):
        assert facts({**document, "chunk_key_encoding": encoding}).chunk_key((0,)) == key


def sharding(**configuration: object) -> list[dict]:
    return [named("sharding_indexed", **{"chunk_shape": [4], "codecs": ["bytes"], "index_codecs": [LITTLE], **configuration})]


BROKEN = {
    "zarr_format": [2, "3", None, True, 3.5], "node_type": ["group", 1],
    "shape": [[-1], [2**63], [1.5], [True], "9", [9, 9], [1] * 40, None],
    "data_type": ["string", "int3", 5, {"name": "struct"}, None],
    "chunk_key_encoding": [{"name": "odd"}, 3, {}, named("default", separator="-")],
    "chunk_grid": [{"name": "rectilinear"}, {"name": "regular"}, {"name": "regular", "configuration": []},
                   named("regular", chunk_shape=[0]), named("regular", chunk_shape=[4, 4])],
    "codecs": [[3], "bytes", [{"configuration": {}}], [{"name": "bytes"}], [named("bytes", endian="odd")],
               sharding(chunk_shape=[5]), sharding(codecs=None), sharding(index_codecs=3), sharding(index_location="middle")],
    "storage_transformers": [[{"name": "x"}], {}], "attributes": [[], 3], "surprise": [1, {"must_understand": True}],
}


@pytest.mark.parametrize("key, value", [(k, v) for k, values in BROKEN.items() for v in values], ids=str)
def test_broken_documents_are_refused_by_name(key, value):
    with pytest.raises(FormatError, match="zarr.json: expected .*") as caught:
        facts({**zarr3.array_document(AUDIO, 9, 4), key: value})
    assert caught.value.kind == "zarr-document"


@pytest.mark.parametrize("key", ["zarr_format", "node_type", "shape", "data_type", "chunk_grid", "codecs", "fill_value"])
def test_missing_members_are_refused_by_name(key):
    document = zarr3.array_document(AUDIO, 9, 4)
    del document[key]
    with pytest.raises(FormatError, match=f"expected {key}: present, found no {key}"):
        facts(document)


def test_extensions_that_need_no_understanding_are_passed_over():
    assert facts({**zarr3.array_document(AUDIO, 9, 4), "more": {"must_understand": False}}).shape == (9,)


@pytest.mark.parametrize("data", [
    b"", b"[1]", b"3", b'{"shape": NaN}', b'{"a": 1, "a": 2}', b"\xff", b"[" * 100_000, b"{" + b" " * (1 << 20) + b"}"])
def test_bytes_that_are_no_document_are_refused(data):
    with pytest.raises(FormatError):
        zarr3.parse_array_document(data)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=4),
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(
                        ["name", "configuration", "chunk_shape", "endian", "codecs"]), inner, max_size=3), max_leaves=8),
       st.sampled_from(["shape", "data_type", "chunk_grid", "chunk_key_encoding", "codecs", "attributes"]))
def test_no_document_makes_it_raise_anything_else(value, key):
    try:
        facts({**zarr3.array_document(AUDIO, 9, 4), key: value})
    except FormatError as error:
        assert error.kind == "zarr-document"
