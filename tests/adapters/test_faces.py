from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest

from adapters.media.faces import Listing, jpeg_folder_names, read_jpegs, read_npy
from asdstore.errors import InputError, MissingError

cv2 = pytest.importorskip("cv2")

SHAPE = (112, 112)


def picture(seed: int, height: int = 90, width: int = 70) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return cv2.resize(rng.integers(0, 256, (9, 7, 3), np.uint8), (width, height), interpolation=cv2.INTER_CUBIC)


def jpeg(seed: int, **size: int) -> bytes:
    return cv2.imencode(".jpg", picture(seed, **size))[1].tobytes()


def sha256(array: np.ndarray) -> str:
    return hashlib.sha256(array.tobytes()).hexdigest()


# ---- names

def test_names_are_sorted_as_numbers(tmp_path):
    for name in ("10.00.jpg", "9.96.jpg", "9.9.jpg", "100.jpg", "0.04.jpeg", "-3.jpg"):
        (tmp_path / name).touch()
    names = ("-3.jpg", "0.04.jpeg", "9.9.jpg", "9.96.jpg", "10.00.jpg", "100.jpg")
    assert jpeg_folder_names(tmp_path) == Listing(names, (-3, 0.04, 9.9, 9.96, 10, 100), 0)


def test_plain_names_are_sorted_as_numbers(tmp_path):
    for name in ("10.00.jpg", "9.96.jpg", "007.jpg", "100.jpg"):
        (tmp_path / name).touch()
    assert jpeg_folder_names(tmp_path) == Listing(("007.jpg", "9.96.jpg", "10.00.jpg", "100.jpg"), (7, 9.96, 10, 100), 0)


def test_a_name_of_two_lines_is_foreign(tmp_path):
    (tmp_path / "1.00.jpg\n2.00.jpg").touch()
    with pytest.raises(InputError, match="faces-foreign"):
        jpeg_folder_names(tmp_path)


def test_system_files_are_ignored_and_counted(tmp_path):
    for name in (".DS_Store", "Thumbs.db", "._1.00.jpg", "desktop.ini", "1.00.jpg"):
        (tmp_path / name).touch()
    assert jpeg_folder_names(tmp_path) == Listing(("1.00.jpg",), (1.0,), 4)


@pytest.mark.parametrize("name", ["thumb.jpg", "nan.jpg", "inf.jpg", "1_0.jpg", " 1.jpg", "1.00.png", "1.00", "a.txt", "x/"])
def test_foreign_files_are_named(tmp_path, name):
    (tmp_path / "1.00.jpg").touch()
    if name.endswith("/"):
        (tmp_path / name).mkdir()
    else:
        (tmp_path / name).touch()
    with pytest.raises(InputError, match="sample 'a:1'") as error:
        jpeg_folder_names(tmp_path, "a:1")
    assert error.value.kind == "faces-foreign" and Path(error.value.fault.file) == tmp_path / name


def test_two_names_of_one_number(tmp_path):
    for name in ("1.0.jpg", "1.00.jpg"):
        (tmp_path / name).touch()
    with pytest.raises(InputError, match=r"'1\.0\.jpg' and '1\.00\.jpg'") as error:
        jpeg_folder_names(tmp_path)
    assert error.value.kind == "faces-duplicate"


def test_a_folder_that_is_not_there(tmp_path):
    (tmp_path / "file").touch()
    for name in ("none", "file"):
        with pytest.raises(MissingError) as error:
            jpeg_folder_names(tmp_path / name)
        assert error.value.kind == "faces-missing"
    assert jpeg_folder_names(tmp_path.joinpath("empty").mkdir() or tmp_path / "empty") == Listing((), (), 0)


# ---- pixels

@pytest.mark.parametrize("shape", [(112, 112), (96, 64), (90, 70), (200, 300)])
def test_pixels_are_those_of_imread_and_resize(tmp_path, shape):
    names = []
    for i, size in enumerate([{}, {"height": 33, "width": 200}, {"height": 500, "width": 500}, {"height": 1, "width": 1}]):
        names.append(f"{i}.jpg")
        (tmp_path / names[-1]).write_bytes(jpeg(i, **size))
    (tmp_path / "9.jpg").write_bytes(turned(jpeg(9)))
    names.append("9.jpg")
    found = read_jpegs(tmp_path, names, shape)
    assert found.dtype == np.uint8 and found.shape == (5, *shape)
    for name, face in zip(names, found, strict=True):
        gray = cv2.imread(str(tmp_path / name), cv2.IMREAD_GRAYSCALE)
        np.testing.assert_array_equal(face, cv2.resize(gray, (shape[1], shape[0]), interpolation=cv2.INTER_LINEAR))


def turned(data: bytes) -> bytes:
    """The JPEG with an EXIF orientation of 6: to be shown turned by a quarter."""
    exif = b"Exif\0\0MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"
    return data[:2] + b"\xff\xe1" + (len(exif) + 2).to_bytes(2, "big") + exif + data[2:]


def test_turned_by_exif_as_imread_does(tmp_path):
    (tmp_path / "1.jpg").write_bytes(turned(jpeg(1)))
    assert cv2.imread(str(tmp_path / "1.jpg"), cv2.IMREAD_GRAYSCALE).shape == (70, 90)


@pytest.mark.parametrize("size", [65_535, 65_536, 65_537, 131_072, 200_000])
def test_large_files_are_read_whole(tmp_path, size):
    data = jpeg(1)
    missing = size - len(data)
    while missing:  # comments of at most 64 KiB, and what remains is never too small for one
        part = min(missing, 60_000) if missing > 120_000 else missing - missing // 2 if missing > 60_000 else missing
        data, missing = data[:2] + b"\xff\xfe" + (part - 2).to_bytes(2, "big") + bytes(part - 4) + data[2:], missing - part
    (tmp_path / "1.jpg").write_bytes(data)
    (tmp_path / "2.jpg").write_bytes(jpeg(2))
    assert len(data) == size
    whole = cv2.resize(cv2.imdecode(np.frombuffer(jpeg(1), np.uint8), cv2.IMREAD_GRAYSCALE), (112, 112))
    np.testing.assert_array_equal(read_jpegs(tmp_path, ["1.jpg", "2.jpg"], SHAPE)[0], whole)
    (tmp_path / "3.jpg").write_bytes(data[:-2])
    with pytest.raises(InputError, match=f"{size - 2} bytes that do not"):
        read_jpegs(tmp_path, ["2.jpg", "3.jpg"], SHAPE)


def test_order_is_that_of_the_names(tmp_path):
    for i in range(3):
        (tmp_path / f"{i}.jpg").write_bytes(cv2.imencode(".jpg", np.full((20, 20), 80 * i, np.uint8))[1].tobytes())
    assert read_jpegs(tmp_path, ("2.jpg", "0.jpg", "1.jpg"), (4, 4))[:, 0, 0].tolist() == [160, 0, 80]
    assert read_jpegs(tmp_path, (), (4, 4)).shape == (0, 4, 4)


@pytest.mark.parametrize("content", [b"", b"no picture", jpeg(0)[:-2], jpeg(0)[:700], jpeg(0)[:2]], ids=len)
def test_a_jpeg_that_does_not_decode_whole(tmp_path, content):
    (tmp_path / "1.00.jpg").write_bytes(jpeg(0))
    (tmp_path / "1.04.jpg").write_bytes(content)
    with pytest.raises(InputError, match="sample 'a:1'") as error:
        read_jpegs(tmp_path, ["1.00.jpg", "1.04.jpg"], SHAPE, "a:1")
    assert error.value.kind == "faces-corrupt" and Path(error.value.fault.file) == tmp_path / "1.04.jpg"


def test_an_absurd_size_is_refused(tmp_path):
    data = jpeg(0)
    at = data.index(b"\xff\xc0") + 5
    (tmp_path / "1.jpg").write_bytes(data[:at] + b"\xff\xdc\xff\xdc" + data[at + 4:])
    with pytest.raises(InputError) as error:
        read_jpegs(tmp_path, ["1.jpg"], SHAPE)
    assert error.value.kind == "faces-corrupt"


def test_a_jpeg_that_is_not_there(tmp_path):
    with pytest.raises(MissingError, match=r"1\.00\.jpg"):
        read_jpegs(tmp_path, ["1.00.jpg"], SHAPE)
    (tmp_path / "1.00.jpg").mkdir()
    with pytest.raises(InputError):
        read_jpegs(tmp_path, ["1.00.jpg"], SHAPE)


@pytest.mark.parametrize("folder", ["-5KQ66BBWC4", "HV0H:1", "ü 語", os.fsdecode(b"\xff")])
def test_unusual_folder_names(tmp_path, monkeypatch, folder):
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "0.00.jpg").write_bytes(jpeg(3))
    monkeypatch.chdir(tmp_path)
    assert read_jpegs(folder, jpeg_folder_names(folder).names, SHAPE).shape == (1, *SHAPE)


# ---- npy

def test_npy_is_mapped(tmp_path):
    faces = np.random.default_rng(0).integers(0, 256, (5, 30, 20), np.uint8)
    np.save(tmp_path / "a.npy", faces)
    found = read_npy(tmp_path / "a.npy", (30, 20))
    np.testing.assert_array_equal(found, faces)
    assert not found.flags.writeable and not found.flags.owndata


@pytest.mark.parametrize(("shape", "dtype"), [((5, 30, 20), "i1"), ((5, 20, 30), "u1"), ((30, 20), "u1"),
                                              ((5, 30, 20, 3), "u1"), ((5, 30, 20), "f4")])
def test_npy_of_another_layout(tmp_path, shape, dtype):
    np.save(tmp_path / "a.npy", np.zeros(shape, dtype))
    with pytest.raises(InputError, match="sample 's'") as error:
        read_npy(tmp_path / "a.npy", (30, 20), "s")
    assert error.value.kind == "faces-layout"


def test_npy_that_cannot_be_read(tmp_path):
    with pytest.raises(MissingError) as missing:
        read_npy(tmp_path / "a.npy", SHAPE)
    assert missing.value.kind == "faces-missing"
    np.save(tmp_path / "a.npy", np.array([{}]), allow_pickle=True)
    with pytest.raises(InputError) as error:
        read_npy(tmp_path / "a.npy", SHAPE)
    assert error.value.kind == "faces-npy"


# ---- golden

def test_golden_single_jpegs(golden):
    cases = json.loads((golden / "crop" / "jpeg_to_face.json").read_text())["cases"]
    assert len(cases) >= 10
    for case in cases:
        path = golden / "corpora" / case["jpeg"]
        face, = read_jpegs(path.parent, [path.name], SHAPE)
        assert sha256(face) == case["resized_sha256"], case["jpeg"]


@pytest.mark.parametrize(("pack", "folder"), [("ava_train", "ava/clips_videos/train"), ("ava_val_full", "ava/clips_videos/val"),
                                              ("wasd_train", "wasd/clips_videos/train")])
def test_golden_tracks(golden, pack, folder):
    entries = json.loads((golden / "packs" / pack / "arrays.json").read_text())["entries"]
    for entry in entries:
        name = entry["sample_id"]
        clip = name[:11] if pack.startswith("ava") else name.rsplit("_", 2)[0]
        track = golden / "corpora" / folder / clip / name
        names = jpeg_folder_names(track).names
        assert len(names) == len(entry["labels"])
        assert sha256(read_jpegs(track, names, SHAPE)) == entry["faces_sha256"], name


def test_golden_manifest_faces(golden):
    for entry in json.loads((golden / "packs" / "avcc" / "arrays.json").read_text())["entries"]:
        path = golden / "corpora" / "avcc" / "faces" / entry["sample_id"]
        faces = read_jpegs(path, jpeg_folder_names(path).names, SHAPE) if path.is_dir() else read_npy(f"{path}.npy", SHAPE)
        assert sha256(faces) == entry["faces_sha256"]
