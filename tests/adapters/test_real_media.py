"""Real videos through the commands: packed, checked, mirrored and read back."""
from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import asdstore
from adapters import prepare
from asdstore import check, mirror

FRAMES = {"silence_0": 74, "silence_2": 83, "silence_3": 255, "silence_5": 71, "silence_7": 255, "silence_9": 114,
          "silence_10": 83, "silence_12": 203, "silence_14": 73, "speaking_0": 255, "speaking_1": 181, "speaking_2": 128,
          "speaking_4": 74, "speaking_6": 83}
CHANGES = {0: (0, [24, 141, 290, 301, 313]), 1: (1, [20]), 2: (1, [24, 141, 283, 308, 319, 361, 381])}  # first label, then


def same_tracks(one: Path, other: Path) -> bool:
    pairs = zip(asdstore.open(one, verify="deep"), asdstore.open(other), strict=True)
    return all(a.id == b.id and np.array_equal(a.faces, b.faces) and np.array_equal(a.audio, b.audio)
               and np.array_equal(a.labels, b.labels) for a, b in pairs)


@pytest.fixture
def face_clips(shared, tmp_path) -> Path:
    folder = shared / "data" / "msdwild" / "demo1"
    assert sorted(path.stem for path in folder.glob("*.mp4")) == sorted(FRAMES)
    rows = ["sample_id\tvisual_path\taudio_path\tsource_fps\tlabels\tvisual_kind"]
    for name, frames in FRAMES.items():
        clip = folder / f"{name}.mp4"
        rows.append(f"{name}\t{clip}\t{clip}\t25\t{[int(name.startswith('speaking'))] * frames}\tvideo")
    (tmp_path / "clips.tsv").write_text("\n".join(rows))
    assert prepare.main(["avcc", "--loader", str(tmp_path / "clips.tsv"), "--workers", "2", "--max-shard-gb", "0.01"]) == 0
    return tmp_path / "packed" / "clips"


def test_fourteen_face_clips(face_clips, capsys):
    pack = asdstore.open(face_clips)
    assert [(track.id, track.frames) for track in pack] == list(FRAMES.items())
    assert all(track.labels.mean() == track.id.startswith("speaking") for track in pack)
    assert all(20 < track.faces.mean() < 220 and track.faces.std() > 15 and track.audio.any() for track in pack)
    assert all(len(track.audio) == track.frames * 640 for track in pack)
    report = json.loads((face_clips / "report.json").read_text())
    assert report["audio"]["padded_more"]["tracks"] == 0
    assert check.main([str(face_clips), "--deep"]) == 0, capsys.readouterr().out


def test_fourteen_face_clips_mirrored(face_clips):
    assert mirror.main([str(face_clips)]) == 0
    assert same_tracks(face_clips, face_clips / "mirror.zarr")
    assert check.main([str(face_clips), "--deep"]) == 0


def test_the_video_with_boxes_and_rttm(shared, tmp_path, capsys):
    home = shared / "data" / "msdwild"
    (tmp_path / "in").mkdir()
    for name in ("00001.mp4", "00001.csv"):
        (tmp_path / "in" / name).symlink_to(home / name)
    assert prepare.main(["msdwild", "--input", str(tmp_path / "in"), "--rttm", str(home / "00001.rttm"), "--tail", "keep",
                         "--overlap-seconds", "0"]) == 0
    target = tmp_path / "packed" / "all"
    pack = asdstore.open(target)
    assert len(pack) == 3 and {track.recording for track in pack} == {"00001"}
    for track, (first, changes) in zip(pack, CHANGES.values(), strict=True):
        assert track.labels[0] == first and (np.flatnonzero(np.diff(track.labels.astype(int))) + 1).tolist() == changes
        assert len(track.audio) == 388480 and abs(track.audio_rms - 0.155937) < 1e-3
    assert [int(track.labels.sum()) for track in pack] == [422, 20, 197]
    assert mirror.main([str(target)]) == 0 and same_tracks(target, target / "mirror.zarr")
    assert check.main([str(target), "--deep"]) == 0, capsys.readouterr().out
