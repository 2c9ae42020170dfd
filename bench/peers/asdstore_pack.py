"""asdstore: a pack, `pack[i]`, and `pipelines.train` as it is."""
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import asdstore
from asdstore.records import Media, Record
from bench.peers.common import Corpus, Plan, Sample

VENV, PACKAGES = "own", ("asdstore", "numpy")
ABOUT = "pack[i].faces[a:b] copied; pipelines.train, 2 threads ahead (workers: its processes)"
WORKERS = (0, 2, 4, 8)
NPY = "pack/shard-000000"


def write(corpus: Corpus, folder: Path, plan: Plan) -> None:
    def load(record: Record) -> Media:
        faces, audio, labels = corpus.track(record.source)  # type: ignore[arg-type]
        return Media(faces, audio.astype(np.float32) / 32768, labels)

    records = [Record("ava", f"track{n:06d}", 25.0, int(count), 0.0, f"recording{n // 2:06d}", n)
               for n, count in enumerate(np.diff(corpus.edges))]
    asdstore.write_pack(folder / "pack", records, load)


def open(folder: Path) -> asdstore.Pack:
    return asdstore.open(folder / "pack" if (folder / "pack").is_dir() else folder)


def read(handle: asdstore.Pack, track: int, start: int, stop: int) -> Sample:
    found = handle[track]
    return (np.array(found.faces[start:stop]), np.array(found.audio[start * 640:stop * 640]),
            np.array(found.labels[start:stop]))


def loader(pack: asdstore.Pack, workers: int = 0, **settings: Any) -> Any:
    """The loader whose epoch 0 all peers get as their plan: spans of 250 frames without context."""
    import pipelines

    return pipelines.train(pack, window=250, context=0, processes=workers, **settings)


class Tuples:
    """Batches as the other peers give them."""

    def __init__(self, loader: Any):
        self.loader, self.close = loader, loader.close

    def __iter__(self) -> Iterator[Sample]:
        return ((batch["faces"], batch["audio"], batch["labels"]) for batch in self.loader)


def epoch(handle: asdstore.Pack, plan: Plan, workers: int) -> Tuples:
    return Tuples(loader(handle, workers))


def plan_of(pack: asdstore.Pack) -> Plan:
    """The chunks and batches of that loader's epoch 0."""
    found = loader(pack).recipe.plan(0)
    ids, levels = found.batches.ids, found.levels
    return Plan(found.track[ids], found.start[ids], found.start[ids] + found.length[ids], found.batches.offsets, levels.mean,
                levels.gain)
