"""HTK features and labels: files built here from the description of the format."""
from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from asdstore.errors import FormatError, InputError, MissingError
from asdstore.formats.htk import open_htk, read_htk
from asdstore.formats.htk_labels import Segment, frame_labels, parse_labels, read_mlf

X = np.arange(12, dtype=np.float32).reshape(6, 2)
MFCC = 6
MLF = """#!MLF!#
"*/a.lab"
0 200000 sil -10.5
200000 400000 "ah"
400000 600000 sil
.
"train/b.rec"
0 300000 ah
300000 600000 sil
.
"""


def htk(path: Path, x: np.ndarray = X, kind: int = MFCC, order: str = ">", frames: int | None = None) -> Path:
    data = x.astype(order + ("f4" if x.dtype.kind == "f" else "i2")).tobytes()
    path.write_bytes(struct.pack(order + "iihH", len(x) if frames is None else frames, 100000,
                                 x.shape[1] * (4 if x.dtype.kind == "f" else 2), kind) + data)
    return path


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    htk(tmp_path / "a.mfc")
    htk(tmp_path / "b.mfc", X + 100)
    (tmp_path / "all.mlf").write_text(MLF)
    (tmp_path / "names").write_text("sil\nah\n")
    return tmp_path


def test_features(tmp_path):
    found, period = read_htk(htk(tmp_path / "a.mfc"))
    assert found.dtype == ">f4" and found.tolist() == X.tolist() and period == 100000 and not found.flags.owndata
    with_checksum = htk(tmp_path / "k.mfc", kind=MFCC | 0o10000)
    with_checksum.write_bytes(with_checksum.read_bytes() + b"\x12\x34")
    assert read_htk(with_checksum)[0].tolist() == X.tolist()
    shorts = np.array([[0, 32767], [-32767, 16384]], np.int16)
    np.testing.assert_allclose(read_htk(htk(tmp_path / "i.mfc", shorts, 5))[0], shorts / 32767.0, rtol=1e-6)


def test_compressed_features(tmp_path):
    scale, shift = np.array([100, 10], np.float32), np.array([5, -7], np.float32)
    stored = np.round(X * scale - shift).astype(">i2")
    path = tmp_path / "c.mfc"
    path.write_bytes(struct.pack(">iihH", 6 + 4, 100000, 4, MFCC | 0o2000) + scale.astype(">f4").tobytes()
                     + shift.astype(">f4").tobytes() + stored.tobytes())
    np.testing.assert_allclose(read_htk(path)[0], X, atol=0.06)


@pytest.mark.parametrize("make,kind,said", [
    (lambda p: p.write_bytes(b"123"), "htk-truncated", "3"), (lambda p: htk(p, order="<"), "htk-header", "little-endian"),
    (lambda p: htk(p, frames=7), "htk-truncated", "60"), (lambda p: htk(p, frames=-1), "htk-header", "-1"),
    (lambda p: htk(p, X.astype(np.int16), 0), "htk-header", "WAVEFORM"), (lambda p: htk(p, kind=50), "htk-header", "unknown"),
    (lambda p: p.write_bytes(struct.pack(">iihH", 1, 100000, 6, MFCC) + bytes(6)), "htk-header", "frame_bytes=6")])
def test_broken_features(tmp_path, make, kind, said):
    make(tmp_path / "a.mfc")
    with pytest.raises(FormatError) as e:
        read_htk(tmp_path / "a.mfc")
    assert e.value.kind == kind and said in str(e.value) and "a.mfc" in str(e.value)


def test_a_corpus_with_an_mlf(corpus):
    source = open_htk(f"{corpus}/*.mfc", corpus / "all.mlf", corpus / "names")
    assert source.ids == ["a", "b"] and source.offsets.tolist() == [0, 6, 12] and source.label_columns == 1
    assert source.read(0, 12).labels.ravel().tolist() == [0, 0, 1, 1, 0, 0, 1, 1, 1, 0, 0, 0]
    assert source["b"].features.tolist() == (X + 100).tolist()
    assert open_htk(f"{corpus}/a.mfc").label_columns == 0


def test_a_folder_of_lab_files_with_numbers(corpus):
    (corpus / "a.lab").write_text("0 300000 7\n300000 600000 12\n")
    source = open_htk(f"{corpus}/a.mfc", corpus)
    assert source.read(0, 6).labels.ravel().tolist() == [7, 7, 7, 12, 12, 12]
    with pytest.raises(InputError) as e:
        open_htk(f"{corpus}/*.mfc", corpus)
    assert e.value.kind == "alignment" and "the first is b" in str(e.value)
    source = open_htk(f"{corpus}/*.mfc", corpus, strict=False)
    assert source.ids == ["a"] and source.notes == {"utterances without labels, left out": ["b"]}
    with pytest.raises(InputError, match="label-list"):
        open_htk(f"{corpus}/a.mfc", corpus / "all.mlf")
    (corpus / "names").write_text("sil\n")
    with pytest.raises(InputError, match="'ah'") as e:
        open_htk(f"{corpus}/a.mfc", corpus / "all.mlf", corpus / "names")
    assert e.value.fault.file.endswith("all.mlf") and e.value.fault.sample_id == "a" and e.value.fault.row


@pytest.mark.parametrize("text,line", [("", 1), ("hello\n", 1), ("#!MLF!#\na.lab\n0 1 x\n.\n", 2),
                                       ("#!MLF!#\n\"a.lab\"\n0 1 x\n", 2),
                                       ("#!MLF!#\n\"a.lab\"\n.\n\"b/a.rec\"\n.\n", 4), ("#!MLF!#\n\"a.lab\"\nx\n.\n", 3),
                                       ("#!MLF!#\n\"a.lab\"\n5 1 x\n.\n", 3)])
def test_broken_mlfs_name_the_line(tmp_path, text, line):
    (tmp_path / "a.mlf").write_text(text)
    with pytest.raises(FormatError) as e:
        read_mlf(tmp_path / "a.mlf")
    assert e.value.fault.row == line and e.value.fault.file.endswith("a.mlf")


def test_every_frame_has_one_label():
    def laid(*spans: tuple[int, int], frames: int = 10) -> list[int]:
        segments = [Segment(a * 100000, b * 100000, str(k), k) for k, (a, b) in enumerate(spans)]
        return frame_labels(segments, frames, 100000, int, "a.lab", "a").tolist()

    assert laid((0, 4), (4, 10)) == [0] * 4 + [1] * 6
    assert laid((0, 4), (4, 8)) == [0] * 4 + [1] * 6  # two frames behind the last segment are its own
    assert laid((0, 4), (4, 12), (12, 15)) == [0] * 4 + [1] * 6
    assert laid((0, 4), (4, 4), (4, 10)) == [0] * 4 + [2] * 6
    for wrong in (((0, 4), (5, 10)), ((0, 4), (3, 10)), ((1, 10),), ((0, 7),), ()):
        with pytest.raises(InputError) as e:
            laid(*wrong)
        assert e.value.kind == "htk-cover"
    assert [s.name for s in parse_labels(["0 5 'x' -1.5", "", "5 9 y"], "a.lab")] == ["x", "y"]


def test_files_that_do_not_agree(corpus):
    htk(corpus / "c.mfc", X[:, :1].copy())
    with pytest.raises(FormatError) as e:
        open_htk(f"{corpus}/*.mfc")
    assert e.value.kind == "dimension" and e.value.fault.sample_id == "c"
    with pytest.raises(MissingError):
        open_htk(f"{corpus}/*.fbank")
