from __future__ import annotations

import csv
import hashlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from adapters.media.crop import crop_face
from adapters.media.video import container_facts, frames, read_face_clip
from asdstore.errors import InputError, MissingError

cv2 = pytest.importorskip("cv2")


def numbered(number: int) -> np.ndarray:
    """A frame that shows its number in binary: 10 gray bars, black or white."""
    bits = [255 * (number >> bit & 1) for bit in range(10)]
    return np.repeat(np.repeat(np.array([bits], np.uint8), 16, axis=1), 96, axis=0)[..., None].repeat(3, axis=2)


def number_of(frame: np.ndarray) -> int:
    return sum(int(frame[48, 16 * bit + 8].mean() > 127) << bit for bit in range(10))


@pytest.fixture(scope="module")
def film(tmp_path_factory) -> Path:
    """600 numbered frames at 29.97 fps with B-frames and one key frame in 250."""
    av = pytest.importorskip("av")
    path = tmp_path_factory.mktemp("film") / "numbered.mp4"
    with av.open(str(path), "w") as container:
        from fractions import Fraction

        stream = container.add_stream("mpeg4", rate=Fraction(30000, 1001), options={"g": "250", "bf": "2"})
        stream.width, stream.height, stream.pix_fmt, stream.bit_rate = 160, 96, "yuv420p", 2_000_000
        for i in range(600):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(numbered(i), format="bgr24")))
        container.mux(stream.encode(None))
    return path


def test_every_frame_in_order(film):
    found = list(frames(film))  # a list: frames do not share memory
    assert [number_of(frame) for frame in found] == list(range(600))
    assert found[0].shape == (96, 160, 3) and found[0].dtype == np.uint8


def test_facts(film):
    facts = container_facts(film)
    assert facts.fps == pytest.approx(30000 / 1001) and facts[1:] == (600, 160, 96)


def test_frames_can_be_left_early(film):
    reading = frames(film)
    assert isinstance(reading, Iterator)
    assert [number_of(next(reading)) for _ in range(3)] == [0, 1, 2]
    reading.close()  # type: ignore[attr-defined]


def test_a_face_clip_is_gray_and_stretched(film):
    faces = read_face_clip(film, (24, 20))
    assert faces.shape == (600, 24, 20) and faces.dtype == np.uint8 and faces.flags.c_contiguous
    for i, frame in enumerate(frames(film)):
        if i in (0, 255, 256, 257, 511, 512, 599):  # around the places where the array grows
            np.testing.assert_array_equal(faces[i], cv2.resize(cv2.cvtColor(frame, cv2.COLOR_BGR2GRAY), (20, 24)))


def test_a_container_that_claims_too_much(film, tmp_path):
    """The index at the front, the last third of the data gone."""
    av = pytest.importorskip("av")
    whole = tmp_path / "whole.mp4"
    with av.open(str(film)) as source, av.open(str(whole), "w", options={"movflags": "faststart"}) as target:
        stream = target.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(video=0):
            if packet.dts is not None:
                packet.stream = stream
                target.mux(packet)
    data = whole.read_bytes()
    (tmp_path / "cut.mp4").write_bytes(data[:len(data) * 2 // 3])
    decoded = [number_of(frame) for frame in frames(tmp_path / "cut.mp4")]
    assert container_facts(tmp_path / "cut.mp4").claimed_frames == 600
    assert 100 < len(decoded) < 500
    assert decoded[:100] == list(range(100))
    assert len(read_face_clip(tmp_path / "cut.mp4", (8, 8))) == len(decoded)


@pytest.mark.parametrize("content", [b"", b"no video" * 99, b"\0\0\0\x18ftypmp42" + b"\0" * 999])
def test_what_cannot_be_opened(tmp_path, content):
    path = tmp_path / "broken.mp4"
    path.write_bytes(content)
    for call in (container_facts, lambda p, s: list(frames(p, s)), lambda p, s: read_face_clip(p, (8, 8), s)):
        with pytest.raises(InputError, match=r"broken\.mp4, sample 'v'") as error:
            call(path, "v")
        assert error.value.kind == "video-corrupt"


def test_a_video_that_yields_no_frame(film, tmp_path):
    data = bytearray(film.read_bytes())
    media = data.index(b"mdat") + 4
    end = data.rindex(b"moov") - 4
    data[media:end] = bytes(end - media)  # the index is whole, every packet is zeros
    (tmp_path / "zeros.mp4").write_bytes(data)
    with pytest.raises(InputError, match=r"zeros\.mp4, sample 'v'") as error:
        read_face_clip(tmp_path / "zeros.mp4", (8, 8), "v")
    assert error.value.kind in ("video-empty", "video-corrupt")


def test_a_missing_video(tmp_path):
    for path in (tmp_path / "none.mp4", tmp_path):
        with pytest.raises(MissingError) as error:
            list(frames(path))
        assert error.value.kind == "video-missing"


@pytest.mark.parametrize("name", ["-a.mp4", "a:1.mp4", "ü 語.mp4", "frame%03d.mp4"])
def test_unusual_names(film, tmp_path, monkeypatch, name):
    (tmp_path / name).write_bytes(film.read_bytes())
    monkeypatch.chdir(tmp_path)
    assert number_of(next(frames(name))) == 0
    assert container_facts(name).claimed_frames == 600


def test_a_name_that_opencv_would_crash_on(film, tmp_path):
    name = tmp_path / os.fsdecode(b"\xff.mp4")
    name.write_bytes(film.read_bytes())
    with pytest.raises(InputError) as error:
        container_facts(name)
    assert error.value.kind == "video-name"


# ---- real material

def test_real_face_clips(shared):
    folder = shared / "data" / "msdwild"
    counts: dict[str, int] = {}
    table = (folder / "README.md").read_text()
    for names, numbers in re.findall(r"^\| ((?:silence|speaking)_[^|]+) \| ([\d, ]+) \|", table, re.MULTILINE):
        kind, first, *rest = re.findall(r"[a-z]+|\d+", names)
        counts |= {f"{kind}_{n}": int(c) for n, c in zip([first, *rest], numbers.split(", "), strict=True)}
    assert len(counts) == 14
    for name, count in counts.items():
        faces = read_face_clip(folder / "demo1" / f"{name}.mp4", (112, 112))
        assert faces.shape == (count, 112, 112), name
        assert container_facts(folder / "demo1" / f"{name}.mp4") == (25.0, count, 224, 224)
        assert 20 < faces.mean() < 235 and faces.std() > 10


def test_golden_faces_of_a_real_video(golden):
    folder = golden / "corpora" / "msdwild" / "in"
    with open(folder / "00001.csv", newline="") as file:
        boxes = {(int(row[0]), row[2]): tuple(map(float, row[3:7])) for row in csv.reader(file)}
    found = {speaker: np.empty((607, 112, 112), np.uint8) for speaker in "012"}
    count = 0
    for count, frame in enumerate(frames(folder / "00001.mp4"), start=1):
        for speaker, faces in found.items():
            faces[count - 1] = crop_face(frame, boxes.get((count - 1, speaker)), (112, 112))
    assert count == container_facts(folder / "00001.mp4").claimed_frames == 607
    for entry in json.loads((golden / "packs" / "msdwild_default" / "arrays.json").read_text())["entries"]:
        faces = found[entry["sample_id"][-1]]
        if hashlib.sha256(faces.tobytes()).hexdigest() != entry["faces_sha256"]:  # another H.264 decoder
            assert faces.mean() == pytest.approx(entry["faces_mean"], abs=0.5)
