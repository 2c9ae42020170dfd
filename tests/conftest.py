"""Shared test data: `shared` is the folder that ASDSTORE_SHARED names, or the test is skipped with that reason.

`make_pack` makes small sealed packs of random tracks."""
from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from asdstore.records import Media, Record
from asdstore.writer import write_pack
from spec.layout import ASD, FACE_SHAPE


@pytest.fixture(scope="session")
def shared() -> Path:
    folder = os.environ.get("ASDSTORE_SHARED")
    if not folder or not Path(folder).is_dir():
        pytest.skip("ASDSTORE_SHARED names no folder with the shared media")
    return Path(folder).resolve()


@pytest.fixture(scope="session")
def golden(shared: Path) -> Path:
    """Outputs of the original programs on known inputs, for the active-speaker packs."""
    return shared / "golden" / "asd"


class Made(NamedTuple):
    """A pack made for a test, with the media that went into it."""

    path: Path
    records: list[Record]
    media: dict[str, Media]


def _load(media: dict[str, Media], record: Record) -> Media:
    return media[record.sample_id]


@pytest.fixture
def make_pack(tmp_path: Path) -> Callable[..., Made]:
    """Makes sealed packs of random tracks: `make_pack("name", frames=(30, 12), fps=(25.0, 30.0), ...)`."""
    def make(name: str = "pack", frames: Sequence[int] = (30, 12, 70, 1, 45), fps: Sequence[float] = (25.0, 30.0, 23.976),
             max_shard_bytes: int = 1_000_000, seed: int = 0, dataset: str = "ava",
             face_shape: tuple[int, int] = FACE_SHAPE) -> Made:
        random = np.random.default_rng(seed)
        records, media = [], {}
        for k, count in enumerate(frames):
            rate = fps[k % len(fps)]
            video = f"video{k // 2:06d}"
            record = Record(dataset, f"{video}_0000_0060:{k}", rate, count, 0.0, video, None)
            audio = (random.normal(0, 0.05 + 0.02 * k % 0.1, round(count / rate * 16000)) + 0.01).astype(np.float32)
            labels = ((np.arange(count) + k) // 5 % 2).astype(np.uint8)
            media[record.sample_id] = Media(random.integers(0, 256, (count, *face_shape), np.uint8), audio, labels)
            records.append(record)
        path = write_pack(tmp_path / name, records, partial(_load, media), layout=ASD.with_face_shape(face_shape),
                          max_shard_bytes=max_shard_bytes)
        return Made(path, records, media)
    return make
