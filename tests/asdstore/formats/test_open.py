"""Which reader a file belongs to, and `asdstore.open` on each."""
from __future__ import annotations

import gzip
import pickle
from typing import Any

import numpy as np
import pytest

import asdstore
import pipelines
from asdstore.errors import FormatError, InputError, MissingError
from asdstore.formats.joined import Joined
from asdstore.formats.kaldi_write import write_ark
from asdstore.formats.open import kind_of, open_source
from asdstore.formats.pfile import write_pfile
from asdstore.formats.scattered import read_into
from asdstore.formats.source import Memory

SOURCE = Memory(["a", "b"], [np.arange(6, dtype=np.float32).reshape(3, 2), np.ones((2, 2), np.float32)],
                [np.array([1, 2, 3]), np.array([4, 5])])


@pytest.mark.parametrize("name,kind", [("a.pfile", "pfile"), ("train.pfile.1.gz", "pfile"), ("x.pfile.bz2", "pfile"),
                                       ("a.scp", "scp"), ("raw.1.scp", "scp"), ("a.ark.gz", "ark"), ("a.pkl", "pickle"),
                                       ("a.pickle.gz", "pickle"), ("b.pkl/a.scp", "scp"), ("a.txt", ""), ("pfile", ""),
                                       ("a.pfiles", ""), ("a.scpx", "")])
def test_names(name, kind):
    assert kind_of(name) == kind


def test_every_file_opens(tmp_path):
    write_pfile(tmp_path / "a.pfile", SOURCE)
    (tmp_path / "b.pfile.gz").write_bytes(gzip.compress((tmp_path / "a.pfile").read_bytes()))
    write_ark(tmp_path / "a.ark", [(u.id, u.features) for u in SOURCE], scp=tmp_path / "a.scp")
    whole = SOURCE.read(0, 5)
    (tmp_path / "a.pkl").write_bytes(pickle.dumps((whole.features, whole.labels[:, 0])))
    for name in ("a.pfile", "b.pfile.gz", "a.scp", "a.ark", "a.pkl"):
        opened = asdstore.open(tmp_path / name)
        assert np.array_equal(opened.read(0, 5).features, whole.features), name  # type: ignore[attr-defined]
        assert opened[0].features[1].tolist() == [2, 3]
        assert name in repr(opened)


def test_several_files_are_one(tmp_path):
    for name in "ab":
        write_pfile(tmp_path / f"{name}.pfile", SOURCE)
    both: Any = asdstore.open([tmp_path / "a.pfile", tmp_path / "b.pfile"])
    assert both.ids == ["a.pfile:0", "a.pfile:1", "b.pfile:0", "b.pfile:1"] and both.read(2, 7).labels[:, 0].tolist() == \
        [3, 4, 5, 1, 2]
    assert both.files == [str(tmp_path / "a.pfile"), str(tmp_path / "b.pfile")]
    loader = pipelines.frames(both, batch=3)  # PDNN cuts partitions in each file
    assert [len(p["features"]) for p in loader.partitions()] == [5, 5] and len(loader) == 2
    assert pickle.loads(pickle.dumps(both)).offsets.tolist() == [0, 3, 5, 8, 10]


def test_what_belongs_to_scripts(tmp_path):
    write_ark(tmp_path / "a.ark", [(u.id, u.features) for u in SOURCE], scp=tmp_path / "a.scp")
    (tmp_path / "a.ali").write_text("a 7 8 9\n")
    found: Any = asdstore.open(tmp_path / "a.scp", label=tmp_path / "a.ali", strict=False)
    assert found.ids == ["a"] and found[0].labels.tolist() == [7, 8, 9]
    (tmp_path / "c.scp").write_text(f"a cat {tmp_path}/a.ark | tail -c +3 |\n")
    with pytest.raises(InputError, match="allow_commands=True"):
        asdstore.open(tmp_path / "c.scp")
    assert asdstore.open(tmp_path / "c.scp", allow_commands=True)[0].features.tolist() == SOURCE[0].features.tolist()


def test_what_does_not_open(tmp_path, make_pack):
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(FormatError) as e:
        open_source(tmp_path / "a.txt")
    assert e.value.kind == "format" and "a.txt" in str(e.value)
    with pytest.raises(MissingError):
        asdstore.open(tmp_path / "none.pfile")
    write_pfile(tmp_path / "a.pfile", SOURCE)
    with pytest.raises(FormatError):
        open_source(tmp_path / "a.pfile", label="a.ali")
    pack = make_pack().path
    with pytest.raises(FormatError, match="label="):
        asdstore.open(pack, label="a.ali")
    with pytest.raises(FormatError, match="asdstore-frames"):
        open_source(pack)


def test_digests_tell_sources_apart():
    others = (Memory(["a", "c"], [u.features for u in SOURCE], [np.asarray(u.labels) for u in SOURCE]),
              Memory(["a", "b"], [u.features for u in SOURCE]),
              Memory(["a", "b"], [SOURCE[1].features, SOURCE[0].features], [np.array([4, 5]), np.array([1, 2, 3])]))
    assert len({SOURCE.digest, *(other.digest for other in others)}) == 4


def test_memory_refuses_what_does_not_fit():
    for ids, x, y, kind in ((["a"], [np.ones((2, 2)), np.ones((2, 2))], None, "utterances"),
                            (["a", "b"], [np.ones((2, 2)), np.ones((2, 3))], None, "dimension"),
                            (["a"], [np.ones((2, 2))], [np.ones(3, int)], "labels")):
        with pytest.raises((InputError, FormatError)) as e:
            Memory(ids, x, y)
        assert e.value.kind == kind
    with pytest.raises(InputError):
        Joined([SOURCE, Memory(["x"], [np.ones((1, 3))])])


def test_scattered_reads(tmp_path, monkeypatch):
    data = bytes(range(256)) * 100
    (tmp_path / "a").write_bytes(data)
    random = np.random.default_rng(0)
    for most in (1000, 3):
        monkeypatch.setattr("asdstore.formats.scattered.MOST", most)
        starts = np.sort(random.integers(0, len(data) - 300, 40)).tolist() + [5, 20000, 7]  # overlaps and steps back too
        places = [(a, bytearray(int(random.integers(1, 300)))) for a in starts]
        read_into(str(tmp_path / "a"), [(a, memoryview(into)) for a, into in places])
        assert all(bytes(into) == data[a:a + len(into)] for a, into in places)
    read_into(str(tmp_path / "a"), [])
    with pytest.raises(FormatError) as e:
        read_into(str(tmp_path / "a"), [(len(data) - 5, memoryview(bytearray(10)))])
    assert e.value.kind == "truncated" and e.value.fault.offset == len(data)
