"""Three npy files and np.load(mmap_mode="r"): what everything else is measured against."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from bench.peers.common import Corpus, Plan, Sample, Samples, read_edges, span, torch_loader, write_edges

VENV, PACKAGES = "own", ("numpy", "torch")
ABOUT = "np.load(mmap_mode=\"r\"), slice and copy; torch DataLoader that pads and stacks"
WORKERS = (0, 2, 4, 8)
NPY = "."


def write(corpus: Corpus, folder: Path, plan: Plan) -> None:
    for name in ("faces", "audio", "labels"):
        np.save(folder / f"{name}.npy", getattr(corpus, name))
    write_edges(folder, corpus)


def open(folder: Path) -> tuple:
    return *(np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("faces", "audio", "labels")), read_edges(folder)


def view(handle: tuple, track: int, start: int, stop: int) -> Sample:
    faces, audio, labels, edges = handle
    frames, samples = span(edges, track, start, stop)
    return faces[frames], audio[samples], labels[frames]


def read(handle: tuple, track: int, start: int, stop: int) -> Sample:
    return tuple(np.array(array) for array in view(handle, track, start, stop))  # type: ignore[return-value]


def epoch(handle: tuple, plan: Plan, workers: int) -> Any:
    return torch_loader(Samples(plan, view, handle), workers)
