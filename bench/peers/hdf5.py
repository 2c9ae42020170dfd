"""h5py: contiguous datasets, `read_direct` into arrays of the right size."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from bench.peers.common import Corpus, Plan, Sample, Samples, span, torch_loader

VENV, PACKAGES = "peers", ("h5py", "torch")
ABOUT = "contiguous datasets, read_direct; torch DataLoader"
WORKERS = (0, 2, 4, 8)


def write(corpus: Corpus, folder: Path, plan: Plan) -> None:
    import h5py

    with h5py.File(folder / "corpus.h5", "w") as file:
        for name in ("faces", "audio", "labels", "edges"):
            file.create_dataset(name, data=getattr(corpus, name))


def warm() -> None:
    import h5py  # noqa: F401


def open(folder: Path) -> tuple:
    import h5py

    file = h5py.File(folder / "corpus.h5", "r")
    return file["faces"], file["audio"], file["labels"], file["edges"][:].tolist(), folder


def read(handle: tuple, track: int, start: int, stop: int) -> Sample:
    *datasets, edges, _ = handle
    frames, samples = span(edges, track, start, stop)
    found = []
    for dataset, part in zip(datasets, (frames, samples, frames), strict=True):
        array = np.empty((part.stop - part.start, *dataset.shape[1:]), dataset.dtype)
        dataset.read_direct(array, part)
        found.append(array)
    return tuple(found)  # type: ignore[return-value]


def epoch(handle: tuple, plan: Plan, workers: int) -> Any:
    return torch_loader(Samples(plan, read, opener=lambda: open(handle[-1])), workers)  # each process opens the file
