"""Zarr mirrors of other programs: zarr-python writes the arrays again in many forms, and opening gives equal tracks."""
from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import asdstore
from asdstore.check import check
from asdstore.errors import AsdError
from asdstore.mirror import mirror
from asdstore.mirror_facts import gather_mirror
from spec.layout import ASD

BIG = {"name": "bytes", "configuration": {"endian": "big"}}
FORMS = {  # what zarr.create_array is told, and whether the rows can be mapped
    "plain": ({"chunks": 7, "compressors": None}, True), "one chunk": ({"chunks": 10**6, "compressors": None}, True),
    "sharded": ({"chunks": 8, "shards": 64, "compressors": None}, True), "zstd": ({"chunks": 16}, False),
    "sharded zstd": ({"chunks": 8, "shards": 64}, False),
    "big endian": ({"chunks": 7, "compressors": None, "serializer": BIG}, False),
    "checksums": ({"chunks": 7, "compressors": [{"name": "crc32c"}]}, False),
}


@pytest.fixture
def pack(make_pack) -> Path:
    return make_pack(frames=(12, 5, 70), fps=(60.0, 50.0), max_shard_bytes=60_000, face_shape=(20, 30)).path


def rewritten(pack: Path, target: Path, form: dict) -> Path:
    """A mirror whose groups are kept and whose arrays zarr-python writes again."""
    import zarr

    own = mirror(pack)
    (target / "shard-000000").mkdir(parents=True)
    document = json.loads((own / "zarr.json").read_bytes())
    del document["consolidated_metadata"]
    (target / "zarr.json").write_text(json.dumps(document, indent=2))
    for shard in sorted(p.name for p in own.glob("shard-*")):
        (target / shard).mkdir(exist_ok=True)
        shutil.copy(own / shard / "zarr.json", target / shard / "zarr.json")
        for stream in ASD.streams:
            data = np.load(pack / shard / stream.file)
            options = dict(form)
            for key in {"chunks", "shards"} & set(options):
                rows = form[key] * (1 if data.ndim > 1 or form[key] > 10**5 else 64)
                options[key] = (min(rows, len(data)) if "shards" not in form else rows, *data.shape[1:])
            array = zarr.create_array(str(target / shard / stream.name), shape=data.shape, dtype=data.dtype, fill_value=0,
                                      config={"write_empty_chunks": True}, **options)
            array[...] = data
    shutil.rmtree(own)
    return target


def equal(one: asdstore.Pack, other: asdstore.Pack) -> bool:
    return len(one) == len(other) and all(
        a.id == b.id and a.fps == b.fps and np.array_equal(a.faces, b.faces) and np.array_equal(a.audio, b.audio)
        and np.array_equal(a.labels, b.labels) and a.audio.dtype == b.audio.dtype for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("form", FORMS)
def test_mirrors_of_another_program_give_equal_tracks(form, pack, tmp_path):
    options, mapped = FORMS[form]
    target = rewritten(pack, tmp_path / "other", options)
    facts = gather_mirror(str(target))
    assert facts.mirror and facts.seal and facts.faults == ()
    assert all((array.pieces is not None) is mapped for shard in facts.arrays for array in shard if array.dtype == "<i2")
    assert equal(asdstore.open(pack), asdstore.open(target))
    report = check(target, deep=True)
    assert report.exit_code == 0 and report.packs[0].faults == ()


@pytest.mark.parametrize("form", ["plain", "zstd", "sharded"])
def test_lost_and_altered_chunks_are_found(form, pack, tmp_path):
    target = rewritten(pack, tmp_path / "other", FORMS[form][0])
    chunk = next(p for p in sorted((target / "shard-000001/audio").rglob("*")) if p.is_file() and p.name != "zarr.json")
    data = chunk.read_bytes()
    chunk.unlink()
    with pytest.raises(AsdError) as caught:
        asdstore.open(target)
    assert caught.value.kind == "missing" and str(chunk) in caught.value.fault.file
    assert [(f.rule, f.file) for f in check(target).packs[0].faults] == [("R010", str(chunk.relative_to(target)))]
    chunk.write_bytes(data[:20] + bytes([data[20] ^ 1]) + data[21:])
    found = {f.rule for f in check(target, deep=True).packs[0].faults}
    assert found & {"R035", "R060"}, "the sealed sha256 is not that of the rows, or they cannot be decoded"


@pytest.mark.parametrize(("change", "kind"), [
    (lambda d: d["attributes"].clear(), "zarr-document"), (lambda d: d.update(attributes=[]), "zarr-document"),
    (lambda d: d["attributes"].update(asdstore=5), "zarr-document"), (lambda d: d.update(zarr_format=2), "zarr-document"),
    (lambda d: d.update(node_type="array"), "zarr-document"), (lambda d: d["attributes"]["asdstore"].update(seal={}), "seal"),
    (lambda d: d["attributes"]["asdstore"].update(manifest=None), "manifest"),
    (lambda d: d["attributes"]["asdstore"]["manifest"].update(version=5), "version"),
    (lambda d: d["attributes"]["asdstore"]["manifest"].update(face_shape=[20, 31]), "shape"),
    (lambda d: d["attributes"]["asdstore"]["manifest"].update(shards=1), "extra-shard"),
    (lambda d: d["attributes"]["asdstore"]["manifest"].update(shards=9), "missing"),
])
def test_documents_that_say_something_else(change, kind, pack):
    path = mirror(pack) / "zarr.json"
    document = json.loads(path.read_bytes())
    change(document)
    path.write_text(json.dumps(document))
    with pytest.raises(AsdError) as caught:
        asdstore.open(path.parent)
    assert caught.value.kind == kind
    assert check(path.parent).exit_code == check(pack).exit_code == 1


def test_exchanged_chunks_of_a_sealed_mirror_are_found_at_open(make_pack):
    pack = make_pack(frames=(5, 5), fps=(50.0,), max_shard_bytes=1, face_shape=(20, 30)).path
    target = mirror(pack, pack.with_name("copy.zarr"), link="copy")
    one, other = (target / f"shard-00000{k}/faces/c/0/0/0" for k in (0, 1))
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)
    with pytest.raises(AsdError) as caught:
        asdstore.open(target)
    assert caught.value.kind == "digest"
