"""pfiles: QuickNet's bytes, every header variant, and one fault at a time."""
from __future__ import annotations

import bz2
import gzip
import json
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from asdstore.errors import AsdError, FormatError, InputError, MissingError, StoreError
from asdstore.formats.pfile import open_pfile, write_pfile
from asdstore.formats.pfile_header import SIZE, header, parse
from asdstore.formats.source import Memory

A = [np.array([[1, 10], [2, 20], [3, 30]], np.float32), np.array([[4, 40], [5, 50]], np.float32)]
LABELS = [np.array([1, 0, 2]), np.array([3, 2])]
WHOLE = np.concatenate(A)


def plain(labels: int = 1, table: bool = True) -> bytes:
    """The sample file, built here from the description of the format and by nothing of the module under test."""
    rows = b""
    for sentence, (x, y) in enumerate(zip(A, LABELS, strict=True)):
        for frame in range(len(x)):
            columns = [int(y[frame]) + 100 * k for k in range(labels)]
            rows += np.array([sentence, frame], ">i4").tobytes() + x[frame].astype(">f4").tobytes()
            rows += np.array(columns, ">i4").tobytes()
    columns = 4 + labels
    text = (f"-pfile_header version 0 size 32768\n-num_sentences 2\n-num_frames 5\n-first_feature_column 2\n-num_features 2\n"
            f"-first_label_column 4\n-num_labels {labels}\n-format ddff{'d' * labels}\n"
            f"-data size {5 * columns} offset 0 ndim 2 nrow 5 ncol {columns}\n")
    text += f"-sent_table_data size 3 offset {5 * columns} ndim 1\n" if table else ""
    return (text + "-end\n").encode().ljust(SIZE, b"\0") + rows + (np.array([0, 3, 5], ">i4").tobytes() if table else b"")


@pytest.fixture
def file(tmp_path: Path) -> Callable[..., Path]:
    def write(data: bytes, name: str = "a.pfile") -> Path:
        (tmp_path / name).write_bytes(data)
        return tmp_path / name
    return write


@pytest.mark.parametrize("labels", [0, 1, 2])
@pytest.mark.parametrize("table", [True, False])
def test_reads_and_writes(file, tmp_path, labels, table):
    data = plain(labels, table)
    source = open_pfile(file(data))
    assert source.offsets.tolist() == [0, 3, 5] and list(source.ids) == ["0", "1"]
    assert (source.dim, source.label_columns) == (2, labels)
    features, found = source.read(0, 5)
    assert features.dtype == np.float32 and features.dtype.isnative and np.array_equal(features, WHOLE)
    assert found.dtype == np.int32 and found.T.tolist() == [[y + 100 * k for y in (1, 0, 2, 3, 2)] for k in range(labels)]
    assert np.array_equal(source[1].features, A[1])
    write_pfile(tmp_path / "b.pfile", source, table)
    assert (tmp_path / "b.pfile").read_bytes() == data


def test_utterances_are_views(file):
    source = open_pfile(file(plain()))
    last = source[-1]
    assert last.id == "1" and last.frames == 2 and last.labels is not None and last.labels.tolist() == [3, 2]
    assert not last.features.flags.writeable and last.features.base is not None and last.features.dtype == ">f4"
    assert source["1"].features.tolist() == last.features.tolist()
    assert [u.id for u in source] == ["0", "1"] and len(source[0:2]) == 2
    with pytest.raises(KeyError):
        source["2"]
    with pytest.raises(IndexError):
        source.read(0, 6)


@pytest.mark.parametrize("suffix,pack", [(".gz", gzip.compress), (".bz2", bz2.compress)])
@pytest.mark.parametrize("table", [True, False])
def test_compressed(file, suffix, pack, table):
    path = file(pack(plain(table=table)), "a.pfile" + suffix)
    source = open_pfile(path)
    assert source.offsets.tolist() == [0, 3, 5] and np.array_equal(source.read(1, 4).features, WHOLE[1:4])
    assert source[0].labels is not None and source[0].labels.tolist() == [1, 0, 2]
    assert open_pfile(str(path).removesuffix(suffix)).offsets.tolist() == [0, 3, 5]  # found under the other name


def test_a_compressed_file_stops_at_its_bound(file):
    bomb = gzip.compress(header(1, 10**6, 1000, 1) + bytes(1 << 16))
    with pytest.raises(FormatError) as e:
        open_pfile(file(bomb, "a.pfile.gz"), limit=1 << 20)
    assert e.value.kind == "too-large"
    with pytest.raises(FormatError) as e:  # a header that claims 4 GB is no reason to take memory for them
        open_pfile(file(bomb, "a.pfile.gz"))
    assert e.value.kind == "pfile-truncated"
    with pytest.raises(FormatError) as e:
        open_pfile(file(gzip.compress(plain())[:-20], "a.pfile.gz"))
    assert e.value.kind == "compressed" and "a.pfile.gz" in str(e.value)


def test_pickles_as_its_path(file):
    source = open_pfile(file(plain()))
    _ = source.rows
    again = pickle.loads(pickle.dumps(source))
    assert len(pickle.dumps(source)) < 1000 and np.array_equal(again.read(0, 5).features, WHOLE)


def changed(old: bytes, new: bytes, data: bytes | None = None) -> bytes:
    data = plain() if data is None else data
    assert data.count(old) >= 1
    head = data[:SIZE].replace(old, new, 1)
    return head[:SIZE].ljust(SIZE, b"\0") + data[SIZE:]


ROW = 20  # bytes
FAULTS = [
    ("empty", b"", "pfile-magic", 0, "empty"),
    ("text", b"hello\n" * 9000, "pfile-magic", 0, "hello"),
    ("version", changed(b"version 0", b"version 1"), "pfile-header", 0, "version 1"),
    ("no size", changed(b" size 32768", b""), "pfile-header", 0, "another first line"),
    ("endless header", changed(b"size 32768", b"size 99999999"), "pfile-header", 0, "99999999"),
    ("header cut", plain()[:1000], "pfile-truncated", 1000, "1000 bytes"),
    ("rows cut", plain()[:SIZE + 3 * ROW], "pfile-truncated", SIZE + 3 * ROW, "32828"),
    ("table cut", plain()[:-4], "pfile-truncated", SIZE + 5 * ROW + 8, "32876"),
    ("frames", changed(b"-num_frames 5", b"-num_frames 6"), "pfile-header", 156, "nrow 5"),
    ("sentences", changed(b"-num_sentences 2", b"-num_sentences 3"), "pfile-header", None, "size 3"),
    ("number", changed(b"-num_frames 5", b"-num_frames x"), "pfile-header", None, "'x'"),
    ("huge number", changed(b"-num_frames 5", b"-num_frames " + b"9" * 5000), "pfile-header", None, "999"),
    ("no data line", changed(b"-data size", b"-dato size"), "pfile-header", None, "none"),
    ("offset", changed(b"offset 0", b"offset 5"), "pfile-header", 156, "offset 5"),
    ("two lines", changed(b"-num_frames 5\n", b"-num_frames 5\n-num_frames 5\n"), "pfile-header", None, "twice"),
    ("format", changed(b"ddffd", b"ddfff"), "pfile-header", 142, "ddfff"),
    ("short format", changed(b"ddffd", b"ddff"), "pfile-header", 142, "ddff"),
    ("no num_labels", changed(b"-num_labels 1\n", b""), "pfile-header", None, "none"),
    ("features from 1", changed(b"-first_feature_column 2", b"-first_feature_column 1"), "pfile-header", None, "column 1"),
    ("labels on features", changed(b"-first_label_column 4", b"-first_label_column 3"), "pfile-header", None, "ncol 5"),
    ("columns", changed(b"ncol 5", b"ncol 4"), "pfile-header", None, "ncol 4"),
    ("wide rows", changed(b"ncol 5", b"ncol 9000000000"), "pfile-header", 156, "9000000000"),
    ("many features", changed(b"-num_features 2", b"-num_features 9000000000"), "pfile-header", None, "ncol 5"),
    ("table end", plain()[:-4] + b"\0\0\0\4", "pfile-table", 32876, "4"),
    ("table falls", plain()[:-8] + b"\0\0\0\6\0\0\0\5", "pfile-table", 32876, "5"),
    ("table start", plain()[:-12] + b"\0\0\0\1\0\0\0\3\0\0\0\5", "pfile-table", 32868, "1"),
    ("little table", plain()[:-12] + np.array([0, 3, 5], "<i4").tobytes(), "pfile-table", 32876, "little-endian"),
    ("ids against the table", plain()[:-8] + b"\0\0\0\2\0\0\0\5", "pfile-ids", SIZE + 2 * ROW, "sentence 0 frame 2"),
    ("ids jump", plain(table=False)[:SIZE + 3 * ROW] + b"\0\0\0\5" + plain(table=False)[SIZE + 3 * ROW + 4:], "pfile-ids",
     SIZE + 3 * ROW, "sentence 5 frame 0"),
    ("too few sentences", changed(b"-num_sentences 2", b"-num_sentences 3", plain(table=False)), "pfile-ids", None, "2 in"),
]


@pytest.mark.parametrize("data,kind,offset,found", [f[1:] for f in FAULTS], ids=[f[0] for f in FAULTS])
@pytest.mark.parametrize("packed", [False, True])
def test_faults_name_file_byte_and_what_was_found(file, data, kind, offset, found, packed):
    path = file(gzip.compress(data), "a.pfile.gz") if packed else file(data)
    with pytest.raises(FormatError) as e:
        open_pfile(path)
    fault = e.value.fault
    assert fault.kind == kind and fault.file == str(path) and found in fault.found and fault.expected
    if offset is not None:
        assert fault.offset == offset


def test_ids_in_little_endian_order_are_found(file):
    data = bytearray(plain())
    for row in range(5):
        at = SIZE + row * ROW
        data[at:at + 8] = np.frombuffer(bytes(data[at:at + 8]), ">i4").astype("<i4").tobytes()
    with pytest.raises(FormatError, match="little-endian"):
        open_pfile(file(bytes(data)))


def test_an_id_in_the_middle_is_found_when_it_is_read(file):
    data = bytearray(plain())
    data[SIZE + ROW + 7] = 9  # the frame id of row 1
    source = open_pfile(file(bytes(data)))
    assert source.read(0, 1).features.tolist() == [[1, 10]]
    with pytest.raises(FormatError) as e:
        source.read(0, 5)
    assert (e.value.kind, e.value.fault.row, e.value.fault.offset) == ("pfile-ids", 1, SIZE + ROW)


TOLERATED = [
    ("crlf", lambda: plain()[:SIZE].replace(b"\n", b"\r\n")[:SIZE] + plain()[SIZE:]),
    ("tail", lambda: plain() + b"junk"),
    ("no end", lambda: changed(b"-end\n", b"")),
    ("no format", lambda: changed(b"-format ddffd\n", b"")),
    ("repeat counts", lambda: changed(b"ddffd", b"2d2f1d")),
    ("ndim", lambda: changed(b"ndim 2", b"ndim 1")),
    ("order", lambda: changed(b"-num_frames 5\n-first_feature_column 2\n", b"-first_feature_column 2\n-num_frames 5\n")),
    ("header size", lambda: changed(b"size 32768", b"size 65536")[:SIZE] + bytes(32768) + plain()[SIZE:]),
    ("no labels line", lambda: changed(b"-num_labels 0\n", b"", plain(0))),
]


@pytest.mark.parametrize("make", [t[1] for t in TOLERATED], ids=[t[0] for t in TOLERATED])
def test_harmless_variants(file, make):
    assert np.array_equal(open_pfile(file(make())).read(0, 5).features, WHOLE)


def test_an_empty_sentence_is_counted(file):
    head = plain()[:SIZE].replace(b"-num_sentences 2", b"-num_sentences 3").replace(b"data size 3 ", b"data size 4 ")
    rows = bytearray(plain()[SIZE:SIZE + 5 * ROW])
    rows[3 * ROW + 3] = rows[4 * ROW + 3] = 2  # sentence 1 has no frames
    source = open_pfile(file(head + bytes(rows) + np.array([0, 3, 3, 5], ">i4").tobytes()))
    assert source.notes == {"sentences without frames": ["1"]} and source[1].frames == 0
    assert source.read(2, 4).features.tolist() == [[3, 30], [4, 40]]


def test_more_rows_than_a_piece(tmp_path, monkeypatch):
    random = np.random.default_rng(0)
    lengths = [1, 700, 3, 900, 50]
    x = [random.normal(size=(n, 7)).astype(np.float32) for n in lengths]
    y = [random.integers(-5, 1 << 20, (n, 2)) for n in lengths]
    source = Memory([f"u{k}" for k in range(5)], x, y)
    monkeypatch.setattr("asdstore.formats.pfile.PIECE", 1000)
    write_pfile(tmp_path / "a.pfile", source)
    found = open_pfile(tmp_path / "a.pfile")
    assert np.array_equal(found.read(0, found.frames).features, np.concatenate(x))
    assert np.array_equal(found.read(3, 1601).labels, np.concatenate(y)[3:1601])


def test_what_cannot_be_written(tmp_path):
    with pytest.raises(InputError) as e:
        write_pfile(tmp_path / "a.pfile", Memory(["a"], [np.ones((1, 2))], [np.array([1 << 40])]))
    assert e.value.kind == "label-range" and not (tmp_path / "a.pfile").exists() and not list(tmp_path.iterdir())
    with pytest.raises(FormatError):
        write_pfile(tmp_path / "a.pfile", Memory(["a", "b"], [np.ones((1, 2)), np.ones((0, 2))]))
    with pytest.raises(FormatError):
        header(1, 1, 40_000, 1)
    write_pfile(tmp_path / "a.pfile", Memory(["a"], A[:1]))
    with pytest.raises(StoreError) as e:
        write_pfile(tmp_path / "a.pfile", Memory(["a"], A[1:]))
    assert e.value.kind == "exists" and open_pfile(tmp_path / "a.pfile").frames == 3
    with pytest.raises(MissingError):
        open_pfile(tmp_path / "none.pfile")


def test_sizes_beyond_31_bits():
    head = parse(header(3, 2_000_000_000, 40, 1))
    assert head.bytes == 32768 + 2_000_000_000 * 43 * 4 + 16


def test_quicknet_files(shared, tmp_path):
    for name, labels, table in (("qn_lab0", 0, True), ("qn_lab1", 1, True), ("qn_lab2", 2, True), ("qn_lab1_noidx", 1, False)):
        path = shared / "data" / "pfile" / f"{name}.pfile"
        assert path.read_bytes() == plain(labels, table)
        write_pfile(tmp_path / name, open_pfile(path), table)
        assert (tmp_path / name).read_bytes() == path.read_bytes()
    assert open_pfile(shared / "data" / "pfile" / "biglab.pfile").read(0, 2).labels.ravel().tolist() == [16777217, 2147483647]


def test_golden_faults(shared, tmp_path):
    golden = shared / "golden" / "pdnn"
    for case in json.loads((golden / "bad_pfiles.json").read_bytes())["cases"]:
        packed = golden / "data" / case["file"]
        path = tmp_path / packed.stem
        path.write_bytes(gzip.decompress(packed.read_bytes()))
        for which in (path, packed):
            try:
                source = open_pfile(which)
                assert np.array_equal(source.read(0, source.frames).features, WHOLE), which
                outcome = "reads"
            except AsdError as error:
                assert error.fault.file == str(which) and error.fault.expected and error.fault.found
                outcome = "error"
            assert outcome in case["expected"].split(" or "), which
