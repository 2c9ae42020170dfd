"""HF datasets: a row is a frame, `with_format("arrow")`, slices (its numpy format is several times slower)."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from bench.peers.common import SAMPLES, Corpus, Plan, Sample, Samples, read_edges, torch_loader, write_edges

VENV, PACKAGES = "own", ("datasets", "pyarrow", "torch")
ABOUT = "a row is a frame, with_format(\"arrow\"), slices; torch DataLoader"
WORKERS = (0, 2, 4, 8)


def write(corpus: Corpus, folder: Path, plan: Plan) -> None:
    import datasets
    import pyarrow as pa

    width = int(np.prod(corpus.faces.shape[1:]))
    table = pa.table({"faces": pa.FixedSizeListArray.from_arrays(pa.array(np.ravel(corpus.faces)), width),
                      "audio": pa.FixedSizeListArray.from_arrays(pa.array(np.ravel(corpus.audio)), SAMPLES),
                      "labels": pa.array(np.ravel(corpus.labels))})
    datasets.disable_progress_bars()
    datasets.Dataset(table).save_to_disk(folder / "rows")
    write_edges(folder, corpus)


def warm() -> None:
    import datasets  # noqa: F401


def open(folder: Path) -> tuple:
    import datasets

    return datasets.load_from_disk(str(folder / "rows")).with_format("arrow"), read_edges(folder)


def view(handle: tuple, track: int, start: int, stop: int) -> Sample:
    rows, edges = handle
    table = rows[edges[track] + start:edges[track] + stop].combine_chunks()
    faces, audio, labels = (table.column(name).combine_chunks() for name in ("faces", "audio", "labels"))
    pixels = faces.flatten().to_numpy()
    side = round((len(pixels) / max(stop - start, 1)) ** 0.5)
    return pixels.reshape(-1, side, side), audio.flatten().to_numpy(), labels.to_numpy()


def read(handle: tuple, track: int, start: int, stop: int) -> Sample:
    return tuple(np.array(array) for array in view(handle, track, start, stop))  # type: ignore[return-value]


def epoch(handle: tuple, plan: Plan, workers: int) -> Any:
    return torch_loader(Samples(plan, view, handle), workers)
