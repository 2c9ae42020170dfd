"""Gathering facts: whatever the bytes of a pack are, it ends with facts, and each of their faults breaks a rule of `open`."""
from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from asdstore.errors import MissingError
from asdstore.facts import changed_blocks, gather, open_file, read_document
from spec import npy, seal
from spec.rules import OPEN_RULES, faults
from tests.vectors.make import HOME
from tests.vectors.tools import reseal

JUNK = [b'"', b"[", b"{", b"}", b"-1", b"1e999", b"null", b"NaN", b"9" * 20, b"\xff", b"\\ud800", b".5", b"\\u0000"]
BASES = ("good/sealed-shards", "good/unknown-fields", "good/mirror-alone", "good/mirror-of-another-program")


def copy(name: str, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    return Path(shutil.copytree(HOME / name, target, symlinks=True))


def test_facts_of_a_sealed_pack():
    facts = gather(str(HOME / "good/sealed-shards"))
    assert facts.manifest and facts.index is not None and facts.seal
    assert facts.shards == ("shard-000000", "shard-000001", "shard-000002") and not facts.mirror and facts.faults == ()
    assert [[a.rows for a in shard] for shard in facts.arrays] == [[3, 480, 3], [2, 320, 2], [70, 11200, 70]]
    assert facts.sizes == {f.name: f.bytes for f in facts.seal.files}
    assert [facts.rows_of(k) for k in range(3)] == [slice(0, 1), slice(1, 2), slice(2, 3)]
    assert facts.index_file(2) == ("shard-000002/index.json", 0)
    for shard in facts.arrays:
        for array in shard:
            assert array.pieces and array.header == npy.header(array.dtype, array.shape)
            data = np.memmap(array.pieces[0].path, array.dtype, "r", array.pieces[0].offset, array.shape)
            assert np.array_equal(data, np.load(os.path.join(facts.root, array.file)))


def test_columns_give_the_index_that_the_documents_give(tmp_path):
    path = copy("good/sealed-shards", tmp_path / "pack")
    from_columns = gather(str(path)).index
    (path / "seal.json").unlink()
    from_documents = gather(str(path)).index
    assert from_columns is not None and from_documents is not None
    assert [from_columns.row(k) for k in range(3)] == [from_documents.row(k) for k in range(3)]


@pytest.mark.parametrize("path", ["nowhere", "a\0b", "file", "file/below"])
def test_no_pack_at_all(path, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(MissingError) as caught:
        gather(f"{tmp_path}/{path}")
    assert caught.value.kind == "missing"


def test_an_empty_folder_has_no_manifest(tmp_path):
    assert [(f.rule, f.kind) for f in faults(OPEN_RULES, gather(str(tmp_path)))] == [("R001", "missing")]


@pytest.mark.parametrize("name", ["dataset.json", "seal.json", "shard-000000/index.json", "shard-000001/audio.npy",
                                  "report.json"])
@pytest.mark.parametrize("kind", ["folder", "pipe", "dangling", "loop"])
def test_what_is_no_file_is_a_fault_and_is_not_waited_for(name, kind, tmp_path):
    path = copy("good/sealed-shards", tmp_path / "pack") / name
    path.unlink()
    {"folder": path.mkdir, "pipe": lambda: os.mkfifo(path), "dangling": lambda: path.symlink_to("nowhere"),
     "loop": lambda: path.symlink_to(path.name)}[kind]()
    found = list(faults(OPEN_RULES, gather(str(tmp_path / "pack"))))
    assert found and all(f.kind in ("missing", "size") for f in found) and name in {f.file for f in found}


def test_documents_are_read_within_bounds(tmp_path):
    (tmp_path / "big").write_bytes(b"x" * 5000)
    assert len(read_document(str(tmp_path), "big", 100)) == 101
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        open_file(str(tmp_path / "pipe"))


@pytest.mark.parametrize("block_bytes", [4096, 8192, 262144])
def test_checksums_follow_the_block_size_of_the_seal(block_bytes, tmp_path):
    path = copy("good/sealed-shards", tmp_path / "pack")
    reseal(path, block_bytes)
    assert list(faults(OPEN_RULES, gather(str(path)))) == []
    sealed = seal.parse((path / "seal.json").read_bytes()).named()["shard-000002/audio.npy"]
    audio = path / sealed.name
    seen: list[bytes] = []
    assert list(changed_blocks(str(audio), sealed, block_bytes, seen.append)) == []
    assert b"".join(seen) == audio.read_bytes()
    data = bytearray(audio.read_bytes())
    data[-1] ^= 1
    audio.write_bytes(bytes(data))
    last = (len(data) - 1) // block_bytes * block_bytes
    assert [f.offset for f in changed_blocks(str(audio), sealed, block_bytes)] == [last]
    audio.unlink()
    assert [f.kind for f in changed_blocks(str(audio), sealed, block_bytes)] == ["digest"]


@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.data())
def test_any_damage_gives_facts_that_open_or_break_a_rule(tmp_path, data):
    """Bytes changed, cut, doubled or removed anywhere: gathering ends, and where facts are missing a rule says why."""
    path = copy(data.draw(st.sampled_from(BASES)), tmp_path / "pack")
    names = sorted(str(p.relative_to(path)) for p in path.rglob("*") if p.is_file() and p.name != "report.json")
    for _ in range(data.draw(st.integers(1, 2))):
        file = path / data.draw(st.sampled_from(names))
        if not file.exists():
            continue
        content, how = file.read_bytes(), data.draw(st.sampled_from(["bytes", "cut", "more", "gone", "text"]))
        at = data.draw(st.integers(0, min(len(content), 600)))
        if how == "gone":
            file.unlink()
        elif how == "cut":
            file.write_bytes(content[:at])
        elif how == "more":
            file.write_bytes(content + content[:at] + b"\0")
        else:
            junk = data.draw(st.binary(min_size=1, max_size=4) if how == "bytes" else st.sampled_from(JUNK))
            file.write_bytes(content[:at] + junk + content[at + len(junk):])
    facts = gather(str(path))
    found = list(faults(OPEN_RULES, facts))
    whole = facts.manifest is not None and facts.index is not None and not any(a.fault for shard in facts.arrays for a in shard)
    assert whole or found
    assert len(found) >= len(set(facts.faults)) or not facts.faults
    assert {f._replace(rule="", level="MUST") for f in found} >= set(facts.faults)
