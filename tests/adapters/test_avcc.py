"""Manifests: npy faces, JPEG folders, clips; shared recordings; only too short audio is a fault."""
from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import asdstore
from adapters import prepare

HEADER = "sample_id\tvisual_path\taudio_path\tsource_fps\tlabels\tstart_sec\tvisual_kind\taudio_sample_rate"


class Manifest:
    def __init__(self, root: Path, capsys):
        self.root, self.capsys, self.lines = root, capsys, [HEADER]
        self.path = root / "talks.tsv"

    def add(self, sample_id: str, visual: str, audio: str, frames: int, fps: float = 25.0, start: object = "", kind: str = "",
            rate: object = "") -> None:
        labels = json.dumps([n % 2 for n in range(frames)])
        self.lines.append("\t".join(map(str, (sample_id, visual, audio, fps, labels, start, kind, rate))))
        self.path.write_text("\n".join(self.lines) + "\n")

    def prepare(self, *arguments: str, code: int = 0) -> dict:
        self.capsys.readouterr()
        found = prepare.main(["avcc", "--loader", str(self.path), "--json", *arguments])
        out, err = self.capsys.readouterr()
        assert found == code, out + err
        return json.loads(out)

    @property
    def pack(self) -> Path:
        return self.root / "packed" / "talks"


@pytest.fixture
def manifest(tmp_path, capsys) -> Manifest:
    return Manifest(tmp_path, capsys)


def npy_faces(path: Path, frames: int) -> np.ndarray:
    faces = np.random.default_rng(frames).integers(0, 256, (frames, 112, 112), np.uint8)
    np.save(path, faces)
    return faces


def test_tracks_of_one_long_recording(manifest):
    ramp = np.arange(16000 * 20, dtype=np.int16)
    np.save(manifest.root / "talk.npy", ramp)
    starts = (0.0, 1.24, 2.00003, 18.0)
    faces = [npy_faces(manifest.root / f"{n}.npy", 50) for n in range(4)]
    for n, start in enumerate(starts):
        manifest.add(f"t{n}", f"{n}.npy", "talk.npy", 50, start=start)
    report = manifest.prepare()
    pack = asdstore.open(manifest.pack)
    assert {track.recording for track in pack} == {"talk.npy"} and not report["notes"]
    for track, start, face in zip(pack, starts, faces, strict=True):
        expected = np.rint(np.float32(ramp[round(start * 16000):][:32000] / np.float32(32768)) * np.float32(32767))
        assert np.array_equal(track.audio, expected) and np.array_equal(track.faces, face)
    assert pack.index["start_sec"].tolist() == list(starts)


def test_a_recording_outside_the_root_and_a_link_to_it(manifest, tmp_path_factory, media):
    outside = tmp_path_factory.mktemp("audio") / "talk.wav"
    media["wav"](outside, 3.0)
    (manifest.root / "link.wav").symlink_to(outside)
    npy_faces(manifest.root / "f.npy", 5)
    manifest.add("a", "f.npy", str(outside), 5)
    manifest.add("b", "f.npy", "link.wav", 5)
    manifest.prepare()
    assert {track.recording for track in asdstore.open(manifest.pack)} == {outside.resolve().as_posix()}


def test_a_face_clip_with_its_own_sound(manifest, media):
    media["video"](manifest.root / "clip.mp4", 40)
    manifest.add("v", "clip.mp4", "clip.mp4", 40, kind="video")
    manifest.prepare()
    track = asdstore.open(manifest.pack)[0]
    assert media["numbers"](track.faces).tolist() == list(range(40))
    assert len(track.audio) == 25600 and np.abs(track.audio.astype(int)).max() > 3000


def test_a_face_clip_of_another_length(manifest, media):
    media["video"](manifest.root / "clip.mp4", 39)
    manifest.add("v", "clip.mp4", "clip.mp4", 40, kind="video")
    (fault,) = manifest.prepare(code=1)["faults"]
    assert fault["sample_id"] == "v" and "39" in fault["found"] and "40" in fault["found"]
    assert (fault["kind"], fault["file"]) == ("faces", str(manifest.root / "clip.mp4"))
    assert not manifest.pack.exists()


def test_a_face_clip_at_another_rate_is_named(manifest, media):
    media["video"](manifest.root / "clip.mp4", 40, 50)
    media["wav"](manifest.root / "a.wav", 2.0)
    manifest.add("v", "clip.mp4", "a.wav", 40, fps=50.0, kind="video")
    assert "video_at_another_rate" not in manifest.prepare()["notes"]
    manifest.add("w", "clip.mp4", "a.wav", 40, kind="video")
    assert manifest.prepare("--overwrite")["notes"]["video_at_another_rate"] == {"w: 50 per second, 25 in the table": 1}


@pytest.mark.parametrize(("visual", "kind", "found"), [("f", "", "a folder"), ("f.npy", "jpeg_directory", "a file")])
def test_a_wrong_visual_kind_is_a_fault_of_the_row_and_never_skipped(manifest, media, visual, kind, found):
    npy_faces(manifest.root / "f.npy", 9)
    media["jpegs"](manifest.root / "f", [f"{n}" for n in range(9)])
    media["wav"](manifest.root / "a.wav", 1.0)
    manifest.add("a", visual, "a.wav", 9, kind=kind)
    (fault,) = manifest.prepare("--skip-missing", code=1)["faults"]
    assert (fault["kind"], fault["row"], fault["found"]) == ("visual-kind", 2, found)
    assert fault["file"] == str(manifest.root / visual) and "visual_kind" in fault["cure"]


@pytest.mark.parametrize("kind", ["npy", "jpeg_directory"])
def test_faces_against_labels_before_decoding(manifest, media, kind):
    if kind == "npy":
        npy_faces(manifest.root / "f", 9)
        (manifest.root / "f.npy").rename(manifest.root / "f")
    else:
        media["jpegs"](manifest.root / "f", [f"{n}" for n in range(9)])
    media["wav"](manifest.root / "a.wav", 1.0)
    manifest.add("a", "f", "a.wav", 10, kind=kind)
    (fault,) = manifest.prepare("--dry-run", code=1)["faults"]
    assert (fault["kind"], fault["row"], fault["found"]) == ("faces", 2, "9") and fault["expected"].startswith("10")


def test_a_jpeg_written_again_in_place_while_the_work_is_stopped(manifest, media):
    media["wav"](manifest.root / "a.wav", 1.0)
    for name in "ab":
        media["jpegs"](manifest.root / name, [f"{n}" for n in range(5)])
        manifest.add(name, name, "a.wav", 5, kind="jpeg_directory")
    broken, whole = manifest.root / "b" / "3.jpg", (manifest.root / "b" / "3.jpg").read_bytes()
    broken.write_bytes(b"")
    manifest.prepare("--max-shard-gb", "1e-6", code=1)  # the first shard is finished
    (manifest.root / "a" / "2.jpg").write_bytes(whole)
    manifest.prepare("--max-shard-gb", "1e-6", code=1)
    broken.write_bytes(whole)
    manifest.prepare("--max-shard-gb", "1e-6")
    first, second = asdstore.open(manifest.pack)
    np.testing.assert_array_equal(first.faces[2], second.faces[3])


def test_faces_of_another_form(manifest, media):
    np.save(manifest.root / "f.npy", np.zeros((5, 96, 96), np.uint8))
    np.save(manifest.root / "g.npy", np.zeros((5, 112, 112), np.float32))
    media["wav"](manifest.root / "a.wav", 1.0)
    manifest.add("a", "f.npy", "a.wav", 5)
    manifest.add("b", "g.npy", "a.wav", 5)
    assert [(fault["sample_id"], fault["kind"]) for fault in manifest.prepare(code=1)["faults"]] == [
        ("a", "faces-layout"), ("b", "faces-layout")]


def test_audio_too_short_is_refused_and_too_long_is_fine(manifest, media):
    npy_faces(manifest.root / "f.npy", 75)
    media["wav"](manifest.root / "long.wav", 60.0)
    manifest.add("long", "f.npy", "long.wav", 75)
    assert manifest.prepare()["audio"]["cropped"]["tracks"] == 0
    manifest.add("short", "f.npy", "long.wav", 75, start=59.5)
    (fault,) = manifest.prepare("--overwrite", code=1)["faults"]
    assert (fault["sample_id"], fault["kind"], fault["found"]) == ("short", "audio-length", "8000")


def test_a_start_beyond_the_recording_names_its_file(manifest, media):
    npy_faces(manifest.root / "f.npy", 5)
    media["wav"](manifest.root / "a.wav", 2.0)
    manifest.add("a", "f.npy", "a.wav", 5, start=2.5)
    (fault,) = manifest.prepare(code=1)["faults"]
    assert (fault["sample_id"], fault["kind"], fault["file"]) == ("a", "audio-empty", str(manifest.root / "a.wav"))


def test_audio_a_little_short_is_reported(manifest, media):
    npy_faces(manifest.root / "f.npy", 75)
    media["wav"](manifest.root / "a.wav", 2.0)
    manifest.add("a", "f.npy", "a.wav", 75)
    assert manifest.prepare()["audio"]["padded_more"] == {"tracks": 1, "seconds": 1.0, "samples": ["a"]}


def test_missing_files_are_listed_or_skipped(manifest, media):
    npy_faces(manifest.root / "f.npy", 5)
    media["wav"](manifest.root / "a.wav", 1.0)
    manifest.add("a", "f.npy", "a.wav", 5)
    manifest.add("b", "none.npy", "a.wav", 5)
    manifest.add("c", "f.npy", "none.wav", 5)
    manifest.add("d", "x" * 300, "a.wav", 5)
    assert [(f["sample_id"], f["kind"], f["row"]) for f in manifest.prepare(code=1)["faults"]] == [
        ("b", "faces-missing", 3), ("c", "audio-missing", 4), ("d", "faces-missing", 5)]
    assert manifest.prepare("--skip-missing")["skipped"] == {"faces-missing": ["b", "d"], "audio-missing": ["c"]}


def test_paths_are_relative_to_the_root(manifest, media):
    (manifest.root / "data").mkdir()
    npy_faces(manifest.root / "data" / "f.npy", 5)
    media["wav"](manifest.root / "data" / "a.wav", 1.0)
    manifest.add("a", "f.npy", "a.wav", 5)
    report = manifest.prepare("--root", str(manifest.root / "data"))
    assert report["pack"] == str(manifest.root / "data" / "packed" / "talks")


def test_a_video_without_sound(manifest, media):
    media["video"](manifest.root / "clip.mp4", 10, sound=None)
    manifest.add("v", "clip.mp4", "clip.mp4", 10, kind="video")
    (fault,) = manifest.prepare(code=1)["faults"]
    assert (fault["sample_id"], fault["kind"]) == ("v", "audio-missing-stream")
