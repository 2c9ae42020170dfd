"""Small packs whose arrays tell where they come from, for the tests of pipelines."""
from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import asdstore
import pipelines
from asdstore.records import Media, Record
from spec.layout import ASD


class Kind(NamedTuple):
    """What a made track is like."""

    frames: int
    fps: float = 25.0
    recording: str | None = None  # None: one of its own
    level: float = 0.1


def load(record: Record, face_shape: tuple[int, int]) -> Media:
    """Faces whose pixels tell track and frame, a seeded waveform, seeded labels."""
    name, level = record.source  # type: ignore[misc]
    draw = np.random.default_rng(name)
    faces = np.empty((record.frames, *face_shape), np.uint8)
    faces[:] = (np.arange(record.frames) % 251).astype(np.uint8)[:, None, None]
    faces[:, 0, 0] = name % 256
    seconds = record.frames / record.fps
    audio = (draw.standard_normal(round(seconds * 16000)) * level).clip(-1, 1).astype(np.float32)
    labels = np.repeat(draw.integers(0, 2, record.frames // 5 + 1), 5)[:record.frames].astype(np.uint8)
    return Media(faces, audio, labels)


def write(target: Path, kinds: Sequence[Kind], name: str = "t", face_shape: tuple[int, int] = (8, 6)) -> Path:
    records = [Record("made", f"{name}{i}", kind.fps, kind.frames, 0.0,
                      f"{name}-video{i}" if kind.recording is None else kind.recording, (i, kind.level))
               for i, kind in enumerate(kinds)]
    return asdstore.write_pack(target, records, partial(load, face_shape=face_shape), layout=ASD.with_face_shape(face_shape),
                               max_shard_bytes=200_000)


def varied(count: int = 40, seed: int = 0) -> list[Kind]:
    """Tracks of many lengths and rates, two to a recording."""
    draw = np.random.default_rng(seed)
    rates = [15, 23.976, 24, 25, 25, 25, 29.97, 30, 50, 60]
    return [Kind(int(draw.integers(3, 160)), float(draw.choice(rates)), f"video{i // 2}") for i in range(count)]


SETTINGS: dict[str, Any] = {"window": 60, "context": 15, "frame_budget": 500, "threads": 0}


def small(*packs: Any, **changes: Any) -> Any:
    """A loader for training with small windows and batches."""
    return pipelines.train(*packs, **(SETTINGS | changes))


def ids(batch: dict) -> tuple:
    """What tells a batch apart."""
    return tuple(zip(batch["sample_ids"].tolist(), batch["starts"].tolist(), batch["valid"].tolist(), strict=True))


def flat(loader, epoch: int) -> list[tuple]:
    """The global order of an epoch, from the plan alone."""
    found, chunks = loader.batches(epoch), loader.at(epoch).chunks
    rows = [(loader.recipe.tracks.sample_id(track), start, True)
            for track, start in zip(chunks.track.tolist(), (chunks.predict_start - chunks.prefix).tolist(), strict=True)]
    return [tuple(rows[i] for i in found.ids[a:b]) for a, b in zip(found.offsets, found.offsets[1:], strict=False)]
