"""MosaicML Streaming: MDS shards whose records are chunks of up to 250 frames, ndarray columns, `dataset[k]`."""
from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

from bench.peers.common import Corpus, Plan, Records, Sample, chunks, keep_plan, kept_records, torch_loader

VENV, PACKAGES = "mosaic", ("mosaicml-streaming", "torch")
ABOUT = "MDS, a record is a chunk, ndarray columns, dataset[k]; torch DataLoader"
WORKERS = (0, 2, 4, 8)


def warm() -> None:
    # torchvision from PyPI does not load beside torch for CPUs; streaming wants it for pictures only
    sys.modules.setdefault("streaming.vision", types.ModuleType("streaming.vision"))
    import streaming  # noqa: F401


def write(corpus: Corpus, folder: Path, plan: Plan) -> None:
    warm()
    from streaming import MDSWriter

    columns = {"faces": "ndarray:uint8", "audio": "ndarray:int16", "labels": "ndarray:uint8"}
    with MDSWriter(out=str(folder / "mds"), columns=columns) as writer:
        for _, sample in chunks(corpus, plan):
            writer.write(dict(zip(columns, sample, strict=True)))
    keep_plan(folder, plan)


def open(folder: Path) -> tuple[Any, Records]:
    warm()
    from streaming import StreamingDataset
    from streaming.base.util import clean_stale_shared_memory

    clean_stale_shared_memory()
    return StreamingDataset(local=str(folder / "mds"), shuffle=False, batch_size=1), kept_records(folder)


def _record(dataset: Any, number: int) -> Sample:
    found = dataset[number]
    return found["faces"], found["audio"], found["labels"]


def read(handle: tuple[Any, Records], track: int, start: int, stop: int) -> Sample:
    dataset, records = handle
    return records.read(lambda number: _record(dataset, number), track, start, stop)


class Chunks:
    def __init__(self, dataset: Any, plan: Plan):
        self.dataset, self.plan = dataset, plan

    def __len__(self) -> int:
        return len(self.plan.track)

    def __getitem__(self, number: int) -> tuple:
        return *_record(self.dataset, number), *self.plan.level(int(self.plan.track[number]))


def epoch(handle: tuple[Any, Records], plan: Plan, workers: int) -> Any:
    return torch_loader(Chunks(handle[0], plan), workers)  # type: ignore[arg-type]
