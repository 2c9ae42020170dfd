"""Pickles: every protocol gives its arrays, and nothing that a file asks for is done."""
from __future__ import annotations

import bz2
import gzip
import json
import os
import pickle
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from asdstore.errors import AsdError, FormatError, InputError
from asdstore.formats import pickle_parser
from asdstore.formats.pickles import open_pickle

X = np.array([[.2, .3, .5, 1.4], [1.3, 2.1, .3, .1], [.3, .5, .5, 1.4]], np.float32)
Y = np.array([2, 0, 1])

# What CPython 2.7 with numpy 1.16 writes for (X, Y), protocol 0 and 2, byte for byte
PY2_HEAD = b"cnumpy.core.multiarray\n_reconstruct\np1\n(cnumpy\nndarray\np2\n(I0\ntS'b'\ntRp3\n"
PY2_0 = (b"(" + PY2_HEAD + b"(I1\n(I3\nI4\ntcnumpy\ndtype\np4\n(S'f4'\nI0\nI1\ntRp5\n(I3\nS'<'\nNNNI-1\nI-1\nI0\ntbI00\n"
         + b"S" + repr(X.tobytes())[1:].encode() + b"\ntb" + b"g1\n(g2\n(I0\ntS'b'\ntRp6\n(I1\n(I3\ntg4\n(S'i8'\nI0\nI1\ntRp7\n"
         + b"(I3\nS'<'\nNNNI-1\nI-1\nI0\ntbI00\nS" + repr(Y.tobytes())[1:].encode() + b"\ntbtp8\n.")
PY2_2 = (b"\x80\x02cnumpy.core.multiarray\n_reconstruct\nq\x01cnumpy\nndarray\nq\x02K\x00\x85U\x01b\x87Rq\x03(K\x01K\x03"
         b"K\x04\x86cnumpy\ndtype\nq\x04U\x02f4K\x00K\x01\x87Rq\x05(K\x03U\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89U\x30"
         + X.tobytes() + b"tbh\x01h\x02K\x00\x85U\x01b\x87Rq\x06(K\x01K\x03\x85h\x04U\x02i8K\x00K\x01\x87Rq\x07(K\x03U\x01<NNN"
         b"J\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89U\x18" + Y.tobytes() + b"tb\x86q\x08.")


def save(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def check(path: Path, x: np.ndarray = X, y: np.ndarray = Y) -> None:
    source = open_pickle(path)
    found = source.read(0, source.frames)
    assert np.array_equal(found.features, x.astype(np.float32)) and found.labels.ravel().tolist() == y.tolist()


@pytest.mark.parametrize("data", [PY2_0, PY2_2], ids=["protocol 0", "protocol 2"])
def test_python_2(tmp_path, data):
    check(save(tmp_path / "a.pkl", data))
    check(save(tmp_path / "b.pickle.gz", gzip.compress(data)))
    check(save(tmp_path / "c.pkl.bz2", bz2.compress(data)))


PAIRS = {
    "plain": (X, Y), "list": [X, Y], "float64 big-endian": (X.astype(">f8"), Y.astype(">i4")),
    "fortran": (np.asfortranarray(X), Y),
    "strided": (X[:, ::2], Y[::-1]), "float16": (X.astype(np.float16), Y.astype(np.uint8)), "empty": (X[:0], Y[:0]),
    "one object twice": (X, np.arange(3, dtype=np.int16)), "bytes like escapes": (X, np.array([0x270A5C, 0x0D0A, -1])),
}


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("protocol", range(6))
def test_python_3(tmp_path, name, protocol):
    pair = PAIRS[name]
    path = save(tmp_path / "a.pkl", pickle.dumps(pair, protocol))
    check(path, *pair)
    assert open_pickle(path)[0].features.dtype == pair[0].dtype
    assert (open_pickle(path).notes == {}) == (pair[0].dtype.newbyteorder("=") == np.float32)


def test_arrays_are_views_and_the_source_pickles(tmp_path):
    source = open_pickle(save(tmp_path / "train.pkl.gz", gzip.compress(pickle.dumps((X, Y), 4))))
    assert source.ids == ["train"] and not source[0].features.flags.owndata and not source[0].features.flags.writeable
    again = pickle.loads(pickle.dumps(source))
    assert np.array_equal(again[0].features, X) and len(pickle.dumps(source)) < 500


def test_a_large_pickle_is_not_copied(tmp_path):
    x, y = np.zeros((200_000, 20), np.float32), np.zeros(200_000, np.int32)
    path = save(tmp_path / "a.pkl", pickle.dumps((x, y), 2))
    tracemalloc.start()
    open_pickle(save(tmp_path / "b.pkl", pickle.dumps((x, y), 5)))
    used = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert used < 40_000_000  # the pickle that is written here, and no more than that
    assert open_pickle(path).frames == 200_000


class Runs:
    """Pickled, it is a call: what a hostile file holds."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


HOSTILE = {
    "os.system": lambda p: Runs(os.system, f"touch {p}"), "open": lambda p: Runs(open, str(p), "w"),
    "eval": lambda p: Runs(eval, f"open({str(p)!r}, 'w')"), "memmap": lambda p: Runs(np.memmap, str(p), "uint8", "w+", 0, 10),
    "in a pair": lambda p: (Runs(os.system, f"touch {p}"), Y), "path": lambda p: (X, Runs(Path, str(p))),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("protocol", range(6))
def test_hostile_pickles_are_refused_and_nothing_happens(tmp_path, monkeypatch, name, protocol):
    ran = tmp_path / "ran"
    data = pickle.dumps(HOSTILE[name](ran), protocol)
    monkeypatch.setattr(os, "system", lambda command: pytest.fail("a pickle ran a command"))
    with pytest.raises(InputError) as e:
        open_pickle(save(tmp_path / "a.pkl", data))
    assert e.value.kind == "pickle" and "Nothing of it was executed" in str(e.value) and e.value.fault.offset is not None
    assert not ran.exists()
    monkeypatch.undo()
    if name == "os.system":  # the proof that the file is dangerous
        pickle.loads(data)
        assert ran.exists()


FORGED = {
    "dotted name": b"\x80\x04\x8c\x05numpy\x8c\x0ff2py.os.system.x\x93\x8c\x04true\x85R.",
    "getattr": b"c__builtin__\ngetattr\n(S'a'\nS'b'\ntR.", "inst": b"(S'x'\nios\nsystem\n.", "obj": b"(cos\nsystem\nS'x'\no.",
    "newobj": b"\x80\x02cnumpy\nndarray\n)\x81.", "persistent": b"Pabc\n.", "extension": b"\x80\x02\x82\x01.",
    "called ndarray": b"cnumpy\nndarray\n((I3\nttR.", "subclass": PY2_0.replace(b"cnumpy\nndarray", b"cnumpy\nmemmap", 1),
    "object dtype": PY2_0.replace(b"S'f4'", b"S'O8'"), "void dtype": PY2_0.replace(b"S'f4'", b"S'V4'"),
    "text dtype": PY2_0.replace(b"S'i8'", b"S'S8'"), "fields": PY2_0.replace(b"S'<'\nNNN", b"S'<'\nNN(tp99\n", 1),
    "wrong order": PY2_0.replace(b"S'<'", b"S'?'"), "dictionary": pickle.dumps({"a": 1}), "number": pickle.dumps(3),
    "three": pickle.dumps((X, Y, Y)), "one": pickle.dumps((X,)), "strings": pickle.dumps((X, np.array(["a", "b", "c"]))),
    "objects": pickle.dumps((X, np.array([1, None, "x"], object))), "scalars": pickle.dumps((X, [np.int64(1), np.int64(2)])),
    "complex": pickle.dumps((X.astype(complex), Y)), "floats as labels": pickle.dumps((X, Y.astype(float))),
    "flat features": pickle.dumps((X[0], Y)), "integers as features": pickle.dumps((X.astype(int), Y)),
    "columns of labels": pickle.dumps((X, Y[:, None])), "never ends": b"\x80\x02" + b"N" * 200_000, "no operand": b"R.",
    "no operands": b"t.", "append": b"N)a.", "reference": b"g5\n.", "unknown": b"\xff.", "not a number": b"Ixyz\n.",
    "huge number": b"L" + b"9" * 5000 + b"L\n.", "negative shape": PY2_0.replace(b"I3\nI4\n", b"I-3\nI-4\n"),
    "shape of texts": PY2_0.replace(b"I3\nI4\nt", b"S'a'\nt"), "text file": b"hello world, this is no pickle\n",
    "html": b"<html><body>404</body></html>", "second memo": b"\x94.",
    "bad escape": b"S'\\M'\n.", "dtype state": PY2_0.replace(b"NNNI-1\nI-1\nI0\ntb", b"tb"),
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_pickles(tmp_path, name):
    with pytest.raises(AsdError) as e:
        open_pickle(save(tmp_path / "a.pkl", FORGED[name]))
    assert e.value.kind in ("pickle", "pickle-truncated", "labels") and e.value.fault.file.endswith("a.pkl")
    assert e.value.fault.expected and e.value.fault.found


@pytest.mark.parametrize("data", [PY2_0, PY2_2], ids=["protocol 0", "protocol 2"])
def test_every_cut_is_found(tmp_path, data):
    for size in range(0, len(data), 7):
        with pytest.raises(AsdError):
            open_pickle(save(tmp_path / "a.pkl", data[:size]))


def test_any_changed_byte_gives_arrays_or_an_error(tmp_path):
    random = np.random.default_rng(0)
    for data in (PY2_0, PY2_2, pickle.dumps((X, Y), 4), pickle.dumps((X, Y), 5)):
        for _ in range(400):
            changed = bytearray(data)
            changed[random.integers(len(data))] = random.integers(256)
            try:
                value = pickle_parser.parse(bytes(changed))
            except AsdError:
                continue
            assert isinstance(value, (tuple, list, pickle_parser.Array, pickle_parser.Raw, int, float, bool, type(None),
                                      pickle_parser.Dtype, pickle_parser.Global))


def test_sizes_and_lengths_are_checked(tmp_path):
    with pytest.raises(FormatError) as e:
        open_pickle(save(tmp_path / "a.pkl", PY2_0.replace(b"I3\nI4\n", b"I3\nI5\n")))
    assert e.value.kind == "pickle-size" and "60 bytes" in str(e.value)
    with pytest.raises(FormatError) as e:  # a length that no file has
        open_pickle(save(tmp_path / "a.pkl", b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7f"))
    assert e.value.kind == "pickle-truncated"
    with pytest.raises(InputError) as e:
        open_pickle(save(tmp_path / "a.pkl", pickle.dumps((X, Y[:2]))))
    assert e.value.kind == "labels" and "3 frames" in str(e.value)
    with pytest.raises(InputError) as e:
        open_pickle(save(tmp_path / "a.pkl", pickle.dumps((X, Y + 2**31))))
    assert e.value.kind == "label-range"


def test_a_bomb_stops_at_its_bound(tmp_path):
    bomb = save(tmp_path / "a.pkl.gz", gzip.compress(bytes(200_000_000), 1))
    tracemalloc.start()
    with pytest.raises(FormatError) as e:
        open_pickle(bomb, limit=10_000_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert e.value.kind == "too-large" and peak < 40_000_000


def test_real_pickles(shared, monkeypatch, tmp_path):
    golden = shared / "golden" / "pdnn"
    monkeypatch.chdir(tmp_path)
    for case in json.loads((golden / "pickle_cases.json").read_bytes())["cases"]:
        path = golden / "data" / case["file"]
        if case["expected"] == "refused":
            with pytest.raises(InputError):
                open_pickle(path)
            continue
        source = open_pickle(path)
        if "features" in case:
            check(path, np.array(case["features"], np.float32), np.array(case["labels"]))
            assert case.get("feature_dtype", source[0].features.dtype.name) == source[0].features.dtype.name
    assert not list(tmp_path.iterdir())
    for name in ("evil.pkl", "evil.pkl.gz"):
        with pytest.raises(InputError, match="system"):
            open_pickle(shared / "data" / "pickle_py2" / name)
    assert not list(tmp_path.iterdir())
