"""Loader TSVs and manifests: what is read, and every fault of a table at once."""
from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.tables import LoaderRow, parse_labels, parse_number, read_loader, read_manifest
from asdstore.errors import InputError, MissingError

MANIFEST = "sample_id\tvisual_path\taudio_path\tsource_fps\tlabels\tstart_sec\tvisual_kind\taudio_sample_rate\n"


def write(folder: Path, text: str) -> Path:
    path = folder / "table.csv"
    path.write_text(text, encoding="utf-8")
    return path


@given(st.lists(st.integers(0, 1), min_size=1))
def test_labels_come_back(labels):
    assert list(parse_labels(str(labels))) == labels
    assert list(parse_labels(str([float(label) for label in labels]))) == labels


@pytest.mark.parametrize("text", ["", "[]", "[ ]", "0, 1", "[0, 1", "[0, 2]", "[0.7]", "[nan]", "[0,,1]", "[[0, 1]]", "[-1]",
                                  "[0, __import__('os').getpid()]", "[1e0]", "{}"])
def test_labels_that_are_none(text):
    with pytest.raises(InputError) as caught:
        parse_labels(text)
    assert caught.value.kind == "labels"


def test_a_wrong_label_is_shown_with_its_frame():
    with pytest.raises(InputError, match="'0.7' for frame 2"):
        parse_labels("[0, 1, 0.7]")


@pytest.mark.parametrize("text", ["0", "-25", "2_5", "٢٥", "nan", "inf", "x", "", "1e400", "1e-300", "1e10"])
def test_rates_that_are_none(text):
    with pytest.raises(InputError) as caught:
        parse_number(text, "fps")
    assert caught.value.kind == "fps"


def test_four_and_five_columns_and_their_order(tmp_path):
    table = read_loader(write(tmp_path, "b:1\t2\t29.97\t[0, 1]\t9\n\na:1\t1\t25\t[1]\r\n"))
    assert table == ([LoaderRow(1, "b:1", 29.97, b"\0\1"), LoaderRow(3, "a:1", 25.0, b"\1")], [], [])


def test_all_faults_of_a_loader_are_found(tmp_path):
    path = write(tmp_path, "a\t99\t25\t[0, 1]\t0\n" "b\t1\t0\t[1]\n" "c\t1\t25\t[2]\n" "d\t1\t25\n" "e\t1\t25\t[1]\n"
                           "e\t1\t25\t[1]\n" "../f\t1\t25\t[1]\n" "\t1\t25\t[1]\n")
    table = read_loader(path)
    assert [row.sample_id for row in table.rows] == ["e"]
    assert [(fault.row, fault.kind) for fault in table.faults] == [
        (1, "frames"), (2, "fps"), (3, "labels"), (4, "columns"), (6, "duplicate"), (7, "id"), (8, "id")]
    assert all(fault.file == str(path) for fault in table.faults)
    assert "row 5" in table.faults[4].found and "99" in table.faults[0].found


def test_a_table_without_rows_is_named(tmp_path):
    for read, text in ((read_loader, "\n \n"), (read_manifest, MANIFEST)):
        (tmp_path / "t.tsv").write_text(text)
        (fault,) = read(tmp_path / "t.tsv").faults
        assert (fault.kind, fault.file) == ("no-tracks", str(tmp_path / "t.tsv"))


def test_a_manifest_given_as_a_loader_names_the_right_command(tmp_path):
    (fault,) = read_loader(write(tmp_path, MANIFEST)).faults
    assert "prepare avcc" in fault.cure


def test_manifest_defaults_and_order(tmp_path):
    path = write(tmp_path, MANIFEST + "b\tf.npy\ta.wav\t25\t[0,1]\t\t\t\n"
                           "a\tf\ta.npy\t23.976\t[1]\t1.5\tjpeg_directory\t48000\n" "c\tf.mp4\tf.mp4\t25\t[1]\t0\tvideo\n")
    table = read_manifest(path)
    assert not table.faults and [row.sample_id for row in table.rows] == ["b", "a", "c"]
    assert [row[6:] for row in table.rows] == [(0.0, "npy", 16000), (1.5, "jpeg_directory", 48000), (0.0, "video", 16000)]


def test_manifest_columns_in_another_order_and_unknown_ones(tmp_path):
    header = "labels\tsource_fps\tsample_id\taudio_path\tvisual_path\tstart_secs\n"
    table = read_manifest(write(tmp_path, header + "[1]\t25\ta\tw\tv\t3\n"))
    assert table.rows[0].visual_path == "v" and table.ignored == ["start_secs"]


@pytest.mark.parametrize(("row", "kind"), [
    ("a\tv\tw\t25\t[0, 7]", "labels"), ("a\tv\tw\tx\t[0]", "fps"), ("a\t\tw\t25\t[0]", "columns"),
    ("a\tv\tw\t25\t[0]\t-1", "start"), ("a\tv\tw\t25\t[0]\tnan", "start"), ("a\tv\tw\t25\t[0]\t0\tpng", "visual-kind"),
    ("a\tv\tw\t25\t[0]\t0\tnpy\t0", "audio-rate"), ("a\tv\tw\t25\t[0]\t0\tnpy\t1e15", "audio-rate"),
    ("a\tv\tw\t25\t[0]\t1e300", "start"), ("a\tv\tw\t25\t[0]\t0\tnpy\t0.5", "audio-rate"),
    ("a\tv\tw\t25\t[0]\t0\tnpy\t8000\tx", "columns"), ("a/b\tv\tw\t25\t[0]", "id"),
])
def test_faults_of_a_manifest_row(tmp_path, row, kind):
    table = read_manifest(write(tmp_path, MANIFEST + row + "\n"))
    assert [(fault.row, fault.kind) for fault in table.faults] == [(2, kind)] and not table.rows


@pytest.mark.parametrize("header", [
    "", "sample_id\tvisual_path\n", MANIFEST.replace("start_sec", "labels"), "a:1\t1\t25\t[1]\n"])
def test_a_header_that_is_none(tmp_path, header):
    with pytest.raises(InputError) as caught:
        read_manifest(write(tmp_path, header))
    assert caught.value.kind == "columns"


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(MissingError):
        read_loader(tmp_path / "none.csv")
    with pytest.raises(MissingError) as missing:
        read_loader(tmp_path)
    assert "directory" in missing.value.fault.found and missing.value.fault.file == str(tmp_path)
    (tmp_path / "latin.csv").write_bytes(b"a\t1\t25\t[1]\r\n" * 3000 + b"caf\xe9\t1\t25\t[1]\n")
    with pytest.raises(InputError) as caught:
        read_loader(tmp_path / "latin.csv")
    fault = caught.value.fault
    assert (fault.kind, fault.row, fault.offset) == ("encoding", 3001, 3000 * 12 + 3) and r"\xe9" in fault.found
    (tmp_path / "mark.csv").write_bytes(b"\xef\xbb\xbfcaf\xe9")
    with pytest.raises(InputError) as caught:
        read_loader(tmp_path / "mark.csv")
    assert caught.value.fault.offset == 6


def test_line_ends_of_windows(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"a\t1\t25\t[1]\r\n\r\nb\t1\t25\t[0]\t7\r\n")
    assert [row[:2] for row in read_loader(tmp_path / "t.csv").rows] == [(1, "a"), (3, "b")]


def test_a_byte_order_mark_is_no_part_of_an_id(tmp_path):
    assert read_loader(write(tmp_path, "\ufeffa\t1\t25\t[1]\n")).rows[0].sample_id == "a"
