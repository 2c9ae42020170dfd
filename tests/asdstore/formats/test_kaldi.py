"""Kaldi archives and scripts: bytes built by hand, every kind of object, every broken one; the goldens of Kaldi's reader."""
from __future__ import annotations

import bz2
import gzip
import hashlib
import json
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest

from asdstore.errors import AsdError, FormatError, InputError, MissingError
from asdstore.formats import kaldi
from asdstore.formats.kaldi_names import Entry, parse_name, parse_scp, slices
from asdstore.formats.kaldi_write import write_alignments, write_ark
from asdstore.formats.source import Utterance

A = np.array([[1, 10], [2, 20], [3, 30]], np.float32)
B = np.array([[4, 40], [5, 50]], np.float32)


def fm(x: np.ndarray, token: str = "FM ") -> bytes:
    return b"\0B" + token.encode() + b"".join(b"\4" + struct.pack("<i", n) for n in x.shape) + x.tobytes()


def ints(*values: int) -> bytes:
    return b"\0B\4" + struct.pack("<i", len(values)) + b"".join(b"\4" + struct.pack("<i", v) for v in values)


def ark(path: Path, **objects: bytes) -> dict[str, int]:
    """Writes an archive and gives the offsets of its objects."""
    data, offsets = b"", {}
    for key, found in objects.items():
        data += f"{key} ".encode()
        offsets[key] = len(data)
        data += found
    path.write_bytes(data)
    return offsets


def scp(path: Path, *lines: str) -> Path:
    path.write_text("".join(line + "\n" for line in lines))
    return path


def _labels(utterance: Utterance) -> list[int]:
    assert utterance.labels is not None
    return utterance.labels.tolist()


@pytest.fixture
def two(tmp_path: Path) -> Path:
    at = ark(tmp_path / "a.ark", u1=fm(A), u2=fm(B))
    return scp(tmp_path / "a.scp", f"u1 {tmp_path}/a.ark:{at['u1']}", f"u2 {tmp_path}/a.ark:{at['u2']}")


# Objects -------------------------------------------------------------------------------------------------------------------

OBJECTS = {
    "FM": (fm(A), A), "DM": (fm(A.astype(np.float64), "DM "), A.astype(np.float64)), "FV": (fm(A[0], "FV "), A[0]),
    "DV": (fm(A[:, 1].astype(np.float64), "DV "), A[:, 1].astype(np.float64)),
    "integers": (ints(3, -1, 2**31 - 1), np.array([3, -1, 2**31 - 1], np.int32)),
    "no integers": (ints(), np.array([], np.int32)),
    "no rows": (fm(np.empty((0, 2), np.float32)), np.empty((0, 2), np.float32)),
    "text matrix": (b" [\n  1 2.5 \n  -3 1e-05 ]\n", np.array([[1, 2.5], [-3, 1e-5]], np.float32)),
    "text vector": (b" [ 1 0.5 nan inf -inf ]\n", np.array([1, 0.5, np.nan, np.inf, -np.inf], np.float32)),
    "empty text": (b" [ ]\n", np.empty(0, np.float32)), "text integers": (b"1 2 -3 \n", np.array([1, 2, -3], np.int32)),
    "text without integers": (b"\n", np.empty(0, np.int32)),
    "crlf": (b" [\r\n 1 2\r\n 3 4 ]\r\n", np.array([[1, 2], [3, 4]], np.float32)),
}


@pytest.mark.parametrize("name", OBJECTS)
@pytest.mark.parametrize("suffix,pack", [("", bytes), (".gz", gzip.compress), (".bz2", bz2.compress)])
def test_every_kind_of_object(tmp_path, name, suffix, pack):
    data, expected = OBJECTS[name]
    path = tmp_path / f"a.ark{suffix}"
    path.write_bytes(pack(b"u1 " + data + b"u2 " + data))
    found = list(kaldi.read_ark(path))
    assert [key for key, _ in found] == ["u1", "u2"]
    for _, got in found:
        assert got.shape == expected.shape and got.dtype == expected.dtype
        np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(kaldi.read_object(f"{tmp_path}/a.ark:3"), expected)  # found with .gz behind it too


def test_values_are_views(tmp_path):
    ark(tmp_path / "a.ark", u=fm(A), v=ints(1, 2))
    for _, found in kaldi.read_ark(tmp_path / "a.ark"):
        assert found.base is not None and not found.flags.writeable and not found.flags.owndata


def packed(token: str, rows: int, columns: int, body: bytes) -> bytes:
    return b"\0B" + token.encode() + b" " + struct.pack("<ffii", -1.0, 4.0, rows, columns) + body


def test_compressed_matrices(tmp_path):
    shorts = np.array([[0, 65535, 30000], [1, 2, 40000]], "<u2")
    small = np.array([[0, 64, 65], [192, 193, 255]], "|u1")
    percentiles = np.array([[0, 100, 5000, 65535]] * 3, "<u2")
    ark(tmp_path / "a.ark", cm=packed("CM", 2, 3, percentiles.tobytes() + small.T.tobytes()),
        cm2=packed("CM2", 2, 3, shorts.tobytes()), cm3=packed("CM3", 2, 3, small.tobytes()), after=fm(A))
    found = dict(kaldi.read_ark(tmp_path / "a.ark"))
    np.testing.assert_allclose(found["cm2"], -1 + 4.0 * shorts / 65535, atol=1e-6)
    np.testing.assert_allclose(found["cm3"], -1 + 4.0 * small / 255, atol=1e-6)
    p = -1 + 4.0 * percentiles[0] / 65535
    curve = np.interp(small, [0, 64, 192, 255], p)
    np.testing.assert_allclose(found["cm"], curve, atol=1e-6)
    assert all(found[k].dtype == np.float32 and found[k].flags.c_contiguous for k in ("cm", "cm2", "cm3"))
    np.testing.assert_array_equal(found["after"], A)


def wav(samples: np.ndarray, size: int | None = None) -> bytes:
    data = samples.astype("<i2").tobytes()
    channels = samples.shape[1]
    head = b"WAVEfmt " + struct.pack("<IHHIIHH", 16, 1, channels, 8000, 16000 * channels, 2 * channels, 16)
    body = head + b"LIST" + struct.pack("<I", 3) + b"abc\0" + b"data" + struct.pack("<I", size or len(data)) + data
    return b"RIFF" + struct.pack("<I", size or len(body)) + body


def test_wav_in_archives(tmp_path):
    one, two = np.arange(6).reshape(6, 1), np.arange(8).reshape(4, 2)
    ark(tmp_path / "a.ark", u1=wav(one), u2=wav(two))
    found = dict(kaldi.read_ark(tmp_path / "a.ark", kind="wav"))
    assert found["u1"].rate == 8000 and found["u1"].samples.tolist() == one.tolist()
    assert found["u2"].samples.tolist() == two.tolist()
    ark(tmp_path / "b.ark", u=wav(two, size=0x7FFFFFFF))  # written to a pipe
    assert next(kaldi.read_ark(tmp_path / "b.ark"))[1].samples.tolist() == two.tolist()
    ark(tmp_path / "c.ark", u=wav(one).replace(struct.pack("<HH", 2, 16), struct.pack("<HH", 2, 24)))
    with pytest.raises(FormatError) as e:
        list(kaldi.read_ark(tmp_path / "c.ark"))
    assert e.value.kind == "kaldi-wav" and "24 bits" in str(e.value)


BIG = b"\0BFM " + b"\4" + struct.pack(">i", 3) + b"\4" + struct.pack(">i", 2) + A.astype(">f4").tobytes()
BROKEN = [
    ("token", b"\0BXY \4\3\0\0\0", "kaldi-object", "XY"), ("no token", b"\0B", "kaldi-object", ""),
    ("posterior", b"\0B\4\2\0\0\0\4\2\0\0\0\4", "kaldi-truncated", ""),
    ("size byte", fm(A).replace(b"\4", b"\x08", 1), "kaldi-object", r"\x08"), ("cut head", fm(A)[:9], "kaldi-truncated", ""),
    ("cut values", fm(A)[:-1], "kaldi-truncated", "file of"), ("big-endian", BIG, "kaldi-object", "big-endian"),
    ("negative", b"\0BFM \4" + struct.pack("<i", -3) + b"\4" + struct.pack("<i", 2), "kaldi-object", "-3"),
    ("absurd", b"\0BFM \4" + struct.pack("<i", 2**31 - 1) + b"\4" + struct.pack("<i", 2**31 - 1), "kaldi-truncated", ""),
    ("nothing", b"", "kaldi-truncated", "file of"), ("cut integers", ints(1, 2)[:-2], "kaldi-truncated", ""),
    ("integers", ints(1, 2).replace(b"\4\2", b"\5\2"), "kaldi-object", r"\x05"),
    ("cut compressed", packed("CM", 2, 3, b"1234"), "kaldi-truncated", ""), ("no bracket", b" [ 1 2 3\n", "kaldi-text", "no ]"),
    ("ragged", b" [\n 1 2\n 3 ]\n", "kaldi-text", "1 to 2"), ("word", b" [ 1 x ]\n", "kaldi-text", "x"),
    ("behind", b" [ 1 ] 2\n", "kaldi-text", "2"), ("words", b"hello world\n", "kaldi-object", "hello"),
    ("huge integer", b"99999999999\n", "kaldi-text", ""), ("cut wav", wav(A.astype(int))[:-2], "kaldi-truncated", ""),
]


@pytest.mark.parametrize("data,kind,found", [b[1:] for b in BROKEN], ids=[b[0] for b in BROKEN])
def test_broken_objects_name_key_and_byte(tmp_path, data, kind, found):
    path = tmp_path / "a.ark"
    path.write_bytes(b"first " + fm(A) + b"u1 " + data)
    with pytest.raises(FormatError) as e:
        list(kaldi.read_ark(path))
    fault = e.value.fault
    assert fault.kind == kind and found in fault.found and fault.file == str(path)
    assert fault.sample_id == "u1" and fault.offset is not None and fault.offset >= len(b"first ") + len(fm(A))


@pytest.mark.parametrize("data", [b"key-without-object", b"\0\0\0\0 \0\0", b"\xff\xfe " + fm(A), b"k" * 9000])
def test_what_is_no_archive(tmp_path, data):
    (tmp_path / "a.ark").write_bytes(data)
    with pytest.raises(FormatError) as e:
        list(kaldi.read_ark(tmp_path / "a.ark"))
    assert e.value.kind == "kaldi-key"


def test_the_kind_that_was_asked_for(tmp_path):
    ark(tmp_path / "a.ark", u=fm(A[0], "FV "))
    with pytest.raises(FormatError, match=r"sample 'u'.*matrix.*vector \[2\]"):
        list(kaldi.read_ark(tmp_path / "a.ark", kind="matrix"))
    ark(tmp_path / "b.ark", u=b" [ 1 2 ]\n")
    assert next(kaldi.read_ark(tmp_path / "b.ark", kind="matrix"))[1].tolist() == [[1, 2]]


# Names ---------------------------------------------------------------------------------------------------------------------

def test_scp_lines():
    assert parse_scp("  u1 \t a b.ark:6 \nu2\tC:/x.ark:51[0:2]\n") == [
        Entry("u1", "a b.ark", 6, True, line=1), Entry("u2", "C:/x.ark", 51, True, (0, 2), line=2)]
    assert parse_name("a.ark") == Entry("", "a.ark") and parse_name("a:b.ark:7").path == "a:b.ark"
    assert parse_name("cat x |").command and parse_scp("") == []


@pytest.mark.parametrize("text,line", [("u1\n", 1), ("u1 a.ark:1\n\nu2 a.ark:2\n", 2), ("u1 -\n", 1), ("u1 | cat\n", 1),
                                       ("u1 a|b\n", 1), ("u1 :5\n", 1)])
def test_scp_lines_that_are_wrong(text, line):
    with pytest.raises(FormatError) as e:
        parse_scp(text, "a.scp")
    assert (e.value.kind, e.value.fault.row, e.value.fault.file) == ("kaldi-scp", line, "a.scp")


# What Kaldi's own reader takes of a matrix of 4 rows and 2 columns
RANGES = {"[0:3]": (4, 2), "[0:4]": (4, 2), "[0:6]": (4, 2), "[3:6]": (1, 2), "[:]": (4, 2), "[:,:]": (4, 2), "[0:1,:]": (2, 2),
          "[:,0:1]": (4, 2), "[:,1:1]": (4, 1), "[3:3,0:0]": (1, 1), "[0: 1]": (2, 2), "[00:01]": (2, 2)}
NO_RANGES = ["[0:7]", "[4:5]", "[5:6]", "[,0:0]", "[0:1,]", "[:,0:2]", "[2]", "[0:1:1]", "[2:1]", "[-1:1]", "[ 0:1 ]", "[]",
             "[0:]", "[:1]", "[0:1,0:1,0:1]", "[1e1:2]"]


@pytest.mark.parametrize("text", RANGES)
def test_ranges(text):
    x = np.arange(8).reshape(4, 2)
    assert x[slices(parse_name(f"a.ark:6{text}"), x.shape, "a.scp")].shape == RANGES[text]


@pytest.mark.parametrize("text", NO_RANGES)
def test_ranges_that_kaldi_refuses(text):
    with pytest.raises(FormatError) as e:
        slices(parse_name(f"a.ark:6{text}", "u1"), (4, 2), "a.scp")
    assert e.value.kind == "kaldi-range" and "u1" in str(e.value)


def test_range_of_a_vector(tmp_path):
    at = ark(tmp_path / "a.ark", u=ints(5, 6, 7, 8))
    assert kaldi.read_object(f"{tmp_path}/a.ark:{at['u']}[1:2]").tolist() == [6, 7]
    with pytest.raises(FormatError):
        kaldi.read_object(f"{tmp_path}/a.ark:{at['u']}[1:2,0:0]")


# Sources -------------------------------------------------------------------------------------------------------------------

def test_a_script_as_a_source(two, tmp_path):
    write_alignments(tmp_path / "a.ali", [("u2", np.array([3, 2])), ("u1", np.array([1, 0, 2]))])
    source = kaldi.open_kaldi(two, tmp_path / "a.ali")
    assert (list(source.ids), source.offsets.tolist(), source.dim, source.label_columns) == (["u1", "u2"], [0, 3, 5], 2, 1)
    features, labels = source.read(1, 4)
    assert features.tolist() == [[2, 20], [3, 30], [4, 40]] and labels.ravel().tolist() == [0, 2, 3]
    assert source["u2"].features.tolist() == B.tolist() and _labels(source["u2"]) == [3, 2]
    again = pickle.loads(pickle.dumps(source))
    assert np.array_equal(again.read(0, 5).features, source.read(0, 5).features) and len(pickle.dumps(source)) < 1000
    alone = kaldi.open_kaldi(tmp_path / "a.ark")
    assert np.array_equal(alone.read(0, 5).features, source.read(0, 5).features) and alone[0].labels is None


def test_archives_found_compressed(two, tmp_path):
    data = (tmp_path / "a.ark").read_bytes()
    (tmp_path / "a.ark").unlink()
    (tmp_path / "a.ark.gz").write_bytes(gzip.compress(data))
    assert kaldi.open_kaldi(two).read(0, 5).features.tolist() == [*A.tolist(), *B.tolist()]


def test_utterances_without_labels_are_an_error_or_counted(two, tmp_path):
    (tmp_path / "a.ali").write_text("u1 1 0\n\nu3 5\n")
    with pytest.raises(InputError) as e:
        kaldi.open_kaldi(two, tmp_path / "a.ali")
    assert e.value.kind == "alignment" and "u2: none" in str(e.value) and "u1: 3 frames, 2 labels" in str(e.value)
    source = kaldi.open_kaldi(two, tmp_path / "a.ali", strict=False)
    assert len(source) == 0 and source.frames == 0
    assert source.notes == {"utterances without labels, left out": ["u2"],
                            "utterances of another length, left out": ["u1: 3 frames, 2 labels"]}
    (tmp_path / "b.ali").write_text("u1 9 9 9\nu1\t1  0 2 \r\n")
    source = kaldi.open_kaldi(two, tmp_path / "b.ali", strict=False)
    assert _labels(source[0]) == [1, 0, 2] and len(source) == 1  # of two lines the last one counts


def test_empty_utterances_are_kept_and_counted(tmp_path):
    ark(tmp_path / "a.ark", u0=fm(np.empty((0, 0), np.float32)), u1=fm(A), u2=fm(np.empty((0, 2), np.float32)))
    (tmp_path / "a.ali").write_text("u1 1 0 2\nu2\n")
    source = kaldi.open_kaldi(tmp_path / "a.ark", tmp_path / "a.ali")
    assert source.offsets.tolist() == [0, 0, 3, 3] and source.notes == {"utterances without frames": ["u0", "u2"]}
    assert source[2].features.shape == (0, 2) and _labels(source[2]) == []
    assert source.read(0, 3).labels.ravel().tolist() == [1, 0, 2]


def test_the_dimension_must_not_change(tmp_path):
    at = ark(tmp_path / "a.ark", u1=fm(A), u2=fm(A.T.copy()))
    with pytest.raises(FormatError) as e:
        kaldi.open_kaldi(tmp_path / "a.ark")
    assert e.value.kind == "dimension" and e.value.fault.sample_id == "u2" and (e.value.fault.offset or 0) > at["u2"]


def test_scripts_that_point_wrong(tmp_path):
    at = ark(tmp_path / "a.ark", u1=fm(A), v=fm(A[0], "FV "))
    for behind, kind, said in (("", "kaldi-object", "key"), (f":{at['u1'] + 7}", "kaldi-object", "bytes"),
                               (":99999", "kaldi-truncated", "99999"), (f":{at['v']}", "kaldi-kind", "vector"),
                               (f":{at['u1']}[0:9]", "kaldi-range", "0:9")):
        with pytest.raises(FormatError) as e:
            kaldi.open_kaldi(scp(tmp_path / "a.scp", f"u1 {tmp_path}/a.ark{behind}"))
        assert e.value.kind == kind and said in str(e.value) and e.value.fault.sample_id == "u1"
    with pytest.raises(MissingError, match="in which the program runs"):
        kaldi.open_kaldi(scp(tmp_path / "a.scp", "u1 nowhere.ark:5"))
    (tmp_path / "a.scp").write_bytes(b"u\xff a.ark:5\n")
    with pytest.raises(FormatError, match="UTF-8"):
        kaldi.open_kaldi(tmp_path / "a.scp")
    single = tmp_path / "one.mat"
    single.write_bytes(fm(A))  # a file that is one object needs no offset
    assert kaldi.open_kaldi(scp(tmp_path / "a.scp", f"u1 {single}")).frames == 3


def test_commands_do_not_run(tmp_path):
    path = scp(tmp_path / "a.scp", f"u1 touch {tmp_path}/ran; cat {tmp_path}/one.mat |")
    (tmp_path / "one.mat").write_bytes(fm(A))
    for read in (lambda: kaldi.open_kaldi(path), lambda: list(kaldi.read_scp(path)), lambda: kaldi.read_object("echo 1 |")):
        with pytest.raises(InputError) as e:
            read()
        assert e.value.kind == "kaldi-command" and "allow_commands=True" in str(e.value)
    assert not (tmp_path / "ran").exists()
    assert kaldi.open_kaldi(path, allow_commands=True).read(0, 3).features.tolist() == A.tolist()
    assert (tmp_path / "ran").exists()
    with pytest.raises(InputError, match="ends with 0, found 3"):
        kaldi.open_kaldi(scp(tmp_path / "b.scp", f"u1 cat {tmp_path}/one.mat; exit 3 |"), allow_commands=True)


# Writing -------------------------------------------------------------------------------------------------------------------

def test_written_bytes(tmp_path):
    items = [("u1", A), ("u2", A[0]), ("u3", np.array([1, -2])), ("u4", A.astype(np.float64))]
    write_ark(tmp_path / "a.ark", items, scp=tmp_path / "a.scp")
    assert (tmp_path / "a.ark").read_bytes() == b"u1 " + fm(A) + b"u2 " + fm(A[0], "FV ") + b"u3 " + ints(1, -2) \
        + b"u4 " + fm(A.astype(np.float64), "DM ")
    for (key, given), (found_key, found) in zip(items, kaldi.read_scp(tmp_path / "a.scp"), strict=True):
        assert key == found_key and np.array_equal(given, found)
    write_ark(tmp_path / "b.ark", items, text=True)
    text = (tmp_path / "b.ark").read_text().split("\n")
    assert text[:2] == ["u1  [", "  1 10 "] and text[4] == "u2  [ 1 10 ]" and text[5] == "u3 1 -2"
    for (_, given), (_, found) in zip(items, kaldi.read_ark(tmp_path / "b.ark"), strict=True):
        assert np.array_equal(given, found)


def test_text_reads_back_exactly(tmp_path):
    x = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32) * np.float32(1e-20)
    write_ark(tmp_path / "a.ark", [("u", x), ("e", np.empty((0, 0), np.float32))], text=True)
    found = dict(kaldi.read_ark(tmp_path / "a.ark", kind="matrix"))
    assert np.array_equal(found["u"], x) and found["e"].shape == (0, 0)


@pytest.mark.parametrize("key,given,kind", [
    ("a b", A, "kaldi-key"), ("", A, "kaldi-key"), ("u", A.astype(np.float16), "kaldi-value"), ("u", A[None], "kaldi-value"),
    ("u", np.array([2**31]), "label-range"), ("u", np.array([[1]]), "kaldi-value"), ("u", np.array(["x"]), "kaldi-value")])
def test_what_cannot_be_written(tmp_path, key, given, kind):
    with pytest.raises(InputError) as e:
        write_ark(tmp_path / "a.ark", [(key, given)], scp=tmp_path / "a.scp")
    assert e.value.kind == kind and not list(tmp_path.iterdir())
    with pytest.raises(InputError):
        write_ark(tmp_path / "a.ark", [("u", A), ("u", A)])
    with pytest.raises(InputError):
        write_ark(tmp_path / "a.ark", [("u", A)], scp=tmp_path / "a.ark")


# Goldens -------------------------------------------------------------------------------------------------------------------

def test_kaldis_own_reader(shared, monkeypatch):
    golden = shared / "golden" / "pdnn"
    monkeypatch.chdir(golden / "data")
    kinds = {"float matrix": "matrix", "int32 vector": "integers", "float vector": "vector"}
    for case in json.loads((golden / "kaldi_reads.json").read_bytes())["cases"]:
        mode, path = case["read"].split(":", 1)
        read = kaldi.read_ark if mode == "ark" else kaldi.read_scp
        found = list(read(path, kinds[case["kind"]]))
        if case.get("raises"):  # Kaldi refuses a matrix of 0 rows and 2 columns; here it has no frames
            assert [value.shape for _, value in found] == [(3, 2), (0, 2), (3, 2)]
            continue
        assert [key for key, _ in found] == [item["key"] for item in case["items"]]
        for (_, value), item in zip(found, case["items"], strict=True):
            stored = np.ascontiguousarray(value, np.float32 if value.dtype.kind == "f" else np.int32)
            assert list(stored.shape) == item["shape"]
            assert hashlib.sha256(stored.tobytes()).hexdigest() == item["sha256"], (path, item["key"])


def test_real_archives(shared, monkeypatch):
    monkeypatch.chdir(shared / "data" / "kaldi")
    source = kaldi.open_kaldi("tests/data/feats.ark")
    assert (len(source), source.frames, source.dim) == (10, 2395, 13)
    np.testing.assert_allclose([u.features.sum(dtype=np.float64) for u in source[:3]], [12351.4826, 15666.0904, 23258.6978])
    np.testing.assert_array_equal(kaldi.open_kaldi("tests/data/feats_compressed.ark").read(0, 2395).features,
                                  source.read(0, 2395).features)
    with pytest.raises(FormatError, match="7:13"):
        kaldi.open_kaldi("tests/data/feats_ascii.scp")
    for name in ("1.cnet", "1.cntime"):
        with pytest.raises(AsdError, match="tests/data/1.cn"):
            list(kaldi.read_ark(f"tests/data/{name}", kind="matrix"))
    assert len(list(kaldi.read_ark("tests/data/conf_ascii.ark", kind="vector"))) == 10


def test_what_a_source_reads(two, tmp_path):
    (tmp_path / "b.ark.scp").write_text(two.read_text() + two.read_text().split("\n")[0] + "\n")
    source = kaldi.open_kaldi(tmp_path / "b.ark.scp")  # a script, whatever stands before .scp
    assert source.notes == {"ids that occur more than once": ["u1"]} and len(source) == 3
    (tmp_path / "a.ali").write_text("u1 1 0 2\nu2 3 2\n")
    assert kaldi.open_kaldi(two, tmp_path / "a.ali").files == [str(two), f"{tmp_path}/a.ark", f"{tmp_path}/a.ali"]


def test_reading_across_archives_and_kinds(tmp_path):
    """Plain matrices are read by few calls, all others through their own readers, and both stand where they belong."""
    random = np.random.default_rng(0)
    x = [random.normal(size=(n, 2)).astype(np.float32) for n in (5, 1, 300, 7, 20)]
    at = ark(tmp_path / "a.ark", u0=fm(x[0]), u1=fm(x[1].astype(np.float64), "DM "), u2=fm(x[2]))
    other = ark(tmp_path / "b.ark", u3=fm(x[3]), u4=fm(x[4]))
    path = scp(tmp_path / "a.scp", f"u4 {tmp_path}/b.ark:{other['u4']}", f"u0 {tmp_path}/a.ark:{at['u0']}",
               f"u1 {tmp_path}/a.ark:{at['u1']}", f"u2 {tmp_path}/a.ark:{at['u2']}[10:19]", f"u2b {tmp_path}/a.ark:{at['u2']}",
               f"u3 {tmp_path}/b.ark:{other['u3']}")
    source = kaldi.open_kaldi(path)
    whole = np.concatenate([x[4], x[0], x[1], x[2][10:20], x[2], x[3]])
    assert np.array_equal(source.read(0, source.frames).features, whole)
    for a, b in ((0, 0), (3, 30), (19, 27), (36, 343), (200, 201)):
        into = np.empty((b - a, 2), np.float32)
        assert np.array_equal(source.read(a, b, into).features, whole[a:b])
    source.release()
    assert np.array_equal(np.concatenate([u.features for u in source]), whole)
    (tmp_path / "b.ark").write_bytes((tmp_path / "b.ark").read_bytes()[:-9])
    with pytest.raises(FormatError, match="b.ark"):
        source.read(0, source.frames)
