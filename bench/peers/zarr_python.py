"""zarr-python: Zarr v3 arrays in chunks of 64 frames without a compressor."""
from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.peers.common import SAMPLES, Corpus, Plan, Sample, Samples, span, torch_loader

VENV, PACKAGES = "own", ("zarr", "torch")
ABOUT = "Zarr v3, chunks of 64 frames, no compressor; torch DataLoader"
WORKERS = (0, 2, 4, 8)
CHUNK = 64


def write(corpus: Corpus, folder: Path, plan: Plan) -> None:
    import zarr

    group = zarr.create_group(folder / "corpus.zarr")
    for name, chunk in (("faces", CHUNK), ("audio", CHUNK * SAMPLES), ("labels", 4096), ("edges", 65536)):
        data = getattr(corpus, name)
        group.create_array(name, data=data, chunks=(chunk, *data.shape[1:]), compressors=None)


def warm() -> None:
    import zarr  # noqa: F401


def open(folder: Path) -> tuple:
    import zarr

    group: Any = zarr.open_group(folder / "corpus.zarr", mode="r")
    return group["faces"], group["audio"], group["labels"], group["edges"][:].tolist(), folder


def read(handle: tuple, track: int, start: int, stop: int) -> Sample:
    faces, audio, labels, edges, _ = handle
    frames, samples = span(edges, track, start, stop)
    return faces[frames], audio[samples], labels[frames]


def opened(folder: Path) -> Any:
    return open(folder)


def epoch(handle: tuple, plan: Plan, workers: int) -> Any:
    from functools import partial

    return torch_loader(Samples(plan, read, opener=partial(opened, handle[-1])), workers, "spawn")
