"""LitData: whole tracks with TemporalArrayLoader, `StreamingDataset.read_window`."""
from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.peers.common import SAMPLES, Corpus, Plan, Sample, Samples, torch_loader

VENV, PACKAGES = "peers", ("litdata", "torch")
ABOUT = "TemporalArrayLoader, read_window; torch DataLoader"
WORKERS = (0, 2, 4, 8)


def _record(corpus: Corpus, number: int) -> dict[str, np.ndarray]:
    faces, audio, labels = corpus.track(number)
    return {"faces": faces, "audio": audio.reshape(-1, SAMPLES), "labels": labels}


def warm() -> None:
    import litdata  # noqa: F401


def write(corpus: Corpus, folder: Path, plan: Plan) -> None:
    from litdata import optimize
    from litdata.streaming import TemporalArrayLoader

    optimize(partial(_record, corpus), list(range(corpus.count)), str(folder / "lit"), chunk_bytes="64MB", num_workers=1,
             item_loader=TemporalArrayLoader(), start_method="fork", reorder_files=False)


def open(folder: Path) -> Any:
    from litdata import StreamingDataset
    from litdata.streaming import TemporalArrayLoader

    return StreamingDataset(str(folder / "lit"), item_loader=TemporalArrayLoader()), folder


def read(handle: Any, track: int, start: int, stop: int) -> Sample:
    found = handle[0].read_window(track, start, stop - start)
    return found["faces"], found["audio"].reshape(-1), found["labels"]


def epoch(handle: Any, plan: Plan, workers: int) -> Any:
    return torch_loader(Samples(plan, read, opener=partial(open, handle[1])), workers)
