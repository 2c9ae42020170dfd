"""Corpora that the original program packed: the same index, and the same data by digest where audio is not resampled."""
from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

import asdstore
from adapters import prepare

LEVELS = ("audio_mean", "audio_rms", "audio_peak")


def sha256(array: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def prepared(arguments: list[str], target: Path) -> Path:
    assert prepare.main([*arguments, "--output", str(target)]) == 0
    return target


def clip_tree(corpora: Path, dataset: str, split: str) -> list[str]:
    root = corpora / dataset
    return [dataset, "--loader", str(root / "csv" / f"{split}_loader.csv"), "--visual-root", str(root / "clips_videos"),
            "--audio-root", str(root / "clips_audios"), "--split", split]


CASES = {
    "ava_train": ("ava", "train", ()),
    "ava_train_small_shards": ("ava", "train", ("--max-shard-gb", "0.008", "--workers", "2")),
    "ava_val_full": ("ava", "val", ("--max-shard-gb", "0.0012")), "wasd_train": ("wasd", "train", ()), "avcc": ("avcc", "", ())}


@pytest.mark.parametrize("name", CASES)
def test_golden_pack(golden, tmp_path, name):
    dataset, split, more = CASES[name]
    corpora = golden / "corpora"
    arguments = clip_tree(corpora, dataset, split) if split else ["avcc", "--loader", str(corpora / "avcc" / "manifest.tsv")]
    pack = prepared([*arguments, *more], tmp_path / name)
    said = json.loads((golden / "packs" / name / "arrays.json").read_text())
    entries = {entry["sample_id"]: entry for entry in said["entries"]}
    manifest = (golden / "packs" / name / "dataset.json").read_bytes()
    assert (pack / "dataset.json").read_bytes() == manifest
    assert sorted(path.name for path in pack.glob("shard-*")) == sorted(said["arrays"])
    for shard, arrays in said["arrays"].items():
        rows = json.loads((pack / shard / "index.json").read_text())
        expected = json.loads((golden / "packs" / name / shard / "index.json").read_text())
        for row, told in zip(rows, expected, strict=True):
            exact = entries[told["sample_id"]]["audio"] == "exact"
            assert list(row)[:len(told)] == list(told)  # the order of the keys too
            for key, value in told.items():
                if key in LEVELS:
                    assert abs(row[key] - value) < (1e-6 if exact else 1e-2), (told["sample_id"], key)
                else:
                    assert row[key] == value, (told["sample_id"], key)
        for stream, facts in arrays.items():
            data = np.load(pack / shard / f"{stream}.npy")
            assert list(data.shape) == facts["shape"] and data.dtype == facts["dtype"]
            if stream != "audio" or all(entries[row["sample_id"]]["audio"] == "exact" for row in rows):
                assert sha256(data) == facts["data_sha256"], (shard, stream)


@pytest.mark.parametrize("name", ["ava_train", "wasd_train", "avcc"])
def test_golden_audio_track_by_track(golden, tmp_path, name):
    dataset, split, _ = CASES[name]
    corpora = golden / "corpora"
    arguments = clip_tree(corpora, dataset, split) if split else ["avcc", "--loader", str(corpora / "avcc" / "manifest.tsv")]
    pack = asdstore.open(prepared(arguments, tmp_path / name), verify="deep")
    peer = np.load(golden / "packs" / name / "shard-000000" / "audio.npy")
    for n, entry in enumerate(json.loads((golden / "packs" / name / "arrays.json").read_text())["entries"]):
        track = pack[entry["sample_id"]]
        assert sha256(track.faces) == entry["faces_sha256"] and sha256(track.labels) == entry["labels_sha256"]
        if entry["audio"] == "exact":
            assert sha256(track.audio) == entry["audio_sha256"], entry["sample_id"]
        else:
            at = pack.index["audio_offset"][n]
            told = peer[at:at + len(track.audio)].astype(float)
            noise = float(np.sum((told - track.audio) ** 2))
            assert 10 * np.log10(np.sum(told ** 2) / noise) >= 24, entry["sample_id"]


def test_golden_report_of_ava(golden, tmp_path):
    pack = prepared(clip_tree(golden / "corpora", "ava", "train"), tmp_path / "p")
    report = json.loads((pack / "report.json").read_text())
    told = json.loads((golden / "tracks.json").read_text())["ava_train"]
    assert report["gaps"]["samples"] == [track["sample_id"] for track in told if track["gap"]]
    assert report["audio"]["padded_up_to_one_frame"]["tracks"] == sum(track["gap"] is None for track in told)
    assert report["notes"]["audio_resampled_tracks"] == sum(track["wav_rate"] != 16000 for track in told)
    assert set(report["without_model_frames"]) == {"QCLQYnt3aMo_0900_0960:2", "QCLQYnt3aMo_0900_0960:10"}
    assert report["time_stamps_at_another_rate"] == report["time_stamps_uneven"] == []
    assert report["audio"]["padded_more"]["tracks"] == 0


def test_golden_recordings(golden, tmp_path):
    wasd = asdstore.open(prepared(clip_tree(golden / "corpora", "wasd", "train"), tmp_path / "w"))
    assert [track.recording for track in wasd] == ["0BRxm7G1acw", "0BRxm7G1acw", "Zk_-h7Lq0wE", "-aXx9Jt1S2k"]
