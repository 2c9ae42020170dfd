"""Packs for the tests of pipelines: small ones that are made here, and those of the original program, made whole again."""
from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

import asdstore
from asdstore.pack import Pack
from tests.pipelines.made import Kind, varied, write
from tests.pipelines.made_speech import Spoken, clips, write_foreign, write_set


@pytest.fixture
def packed(tmp_path: Path) -> Callable[..., Pack]:
    """packed([Kind(...), ...], name) -> an open pack."""
    def made(kinds: Sequence[Kind], name: str = "t", face_shape: tuple[int, int] = (8, 6)) -> Pack:
        return asdstore.open(write(tmp_path / name, kinds, name, face_shape))
    return made


@pytest.fixture(scope="session")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Pack:
    """A varied pack of 40 tracks that tests only read."""
    return asdstore.open(write(tmp_path_factory.mktemp("packs") / "varied", varied()))


@pytest.fixture(scope="session")
def spoken(tmp_path_factory: pytest.TempPathFactory) -> Spoken:
    """One small corpus of speech as a set of another program, a set of this project, and packs; tests only read it."""
    pytest.importorskip("pyarrow")
    folder, found = tmp_path_factory.mktemp("speech"), clips()
    own = write_set(folder / "own", found, pack=True)
    return Spoken(found, write_foreign(folder / "foreign", found), own, sorted((own / "packed").iterdir()))


# The original's packs -------------------------------------------------------------------------------------------------------

CORPORA = {"ava_train_small_shards": ("ava", "train"), "ava_train": ("ava", "train"), "wasd_train": ("wasd", "train")}


@pytest.fixture(scope="session")
def golden_pack(golden: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Pack]:
    """golden_pack(name): a pack as the original wrote it; faces that are not stored are made again from the corpus."""
    opened: dict[str, Pack] = {}

    def pack(name: str) -> Pack:
        if name not in opened:
            complete = (golden / "packs" / name / "shard-000000" / "faces.npy").exists()
            target = golden / "packs" / name if complete else rebuilt(golden, name, tmp_path_factory.mktemp(name))
            opened[name] = asdstore.open(target)
        return opened[name]

    return pack


def rebuilt(golden: Path, name: str, target: Path) -> Path:
    source = golden / "packs" / name
    (target / "dataset.json").write_bytes((source / "dataset.json").read_bytes())
    said = {entry["sample_id"]: entry for entry in json.loads((source / "arrays.json").read_text())["entries"]}
    for folder in sorted(source.glob("shard-*")):
        rows = json.loads((folder / "index.json").read_text())
        (target / folder.name).mkdir()
        (target / folder.name / "index.json").write_bytes((folder / "index.json").read_bytes())
        labels = [np.array(list(said[row["sample_id"]]["labels"]), np.uint8) for row in rows]
        np.save(target / folder.name / "labels.npy", np.concatenate(labels))
        np.save(target / folder.name / "audio.npy", np.concatenate([audio_of(golden, name, row) for row in rows]))
        np.save(target / folder.name / "faces.npy", np.concatenate([faces_of(golden, name, row) for row in rows]))
    return target


def audio_of(golden: Path, name: str, row: dict) -> np.ndarray:
    if name.startswith("msdwild"):
        whole = np.load(golden / "packs" / "msdwild_00001_audio_16k_int16.npy")
        first = round(row["start_sec"] * 16000)
        part = whole[first:first + row["audio_samples"]]
        return np.pad(part, (0, row["audio_samples"] - len(part)))
    folder = golden / "packs" / name.removesuffix("_small_shards") / "shard-000000"
    stored = next(r for r in json.loads((folder / "index.json").read_text()) if r["sample_id"] == row["sample_id"])
    return np.load(folder / "audio.npy")[stored["audio_offset"]:][:row["audio_samples"]]


def faces_of(golden: Path, name: str, row: dict) -> np.ndarray:
    """Faces as the original decodes them; zeros for MSDWild, whose video decoder is not ours."""
    cv2 = pytest.importorskip("cv2")
    if name.startswith("msdwild"):
        return np.zeros((row["source_frames"], 112, 112), np.uint8)
    if name == "avcc":
        lines = (golden / "corpora" / "avcc" / "manifest.tsv").read_text().splitlines()
        path = next(line.split("\t")[1] for line in lines if line.split("\t")[0] == row["sample_id"])
        place = golden / "corpora" / "avcc" / path
        if place.suffix == ".npy":
            return np.load(place)
    else:
        dataset, split = CORPORA[name]
        entity = row["sample_id"]
        clip = entity[:11] if dataset == "ava" else "_".join(entity.split("_")[:-2])
        place = golden / "corpora" / dataset / "clips_videos" / split / clip / entity
    pictures = sorted(place.glob("*.jpg"), key=lambda path: float(path.stem))
    return np.stack([cv2.resize(cv2.imread(str(p), cv2.IMREAD_GRAYSCALE), (112, 112)) for p in pictures])
