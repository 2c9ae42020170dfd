"""TensorStore: Zarr v3 in chunks of 64 frames, no codec; the reads of a batch are in flight together."""
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bench.peers.common import SAMPLES, Corpus, Plan, Sample, collate, read_edges, span, write_edges

VENV, PACKAGES = "own", ("tensorstore",)
ABOUT = "zarr3, chunks of 64 frames, no codec; the futures of a batch together (its own threads, no fork)"
WORKERS = (0,)
CHUNK = 64


def write(corpus: Corpus, folder: Path, plan: Plan) -> None:
    import tensorstore as ts

    for name, chunk in (("faces", CHUNK), ("audio", CHUNK * SAMPLES), ("labels", 4096)):
        data = getattr(corpus, name)
        layout = ts.ChunkLayout(chunk_shape=[chunk, *data.shape[1:]])
        array = ts.open({"driver": "zarr3", "kvstore": {"driver": "file", "path": str(folder / name)}}, create=True,
                        dtype=data.dtype, shape=data.shape, chunk_layout=layout).result()
        array.write(data).result()
    write_edges(folder, corpus)


def warm() -> None:
    import tensorstore  # noqa: F401


def open(folder: Path) -> tuple:
    import tensorstore as ts

    context = ts.Context()
    opening = [ts.open({"driver": "zarr3", "kvstore": {"driver": "file", "path": str(folder / name)}}, context=context,
                       read=True) for name in ("faces", "audio", "labels")]
    return *(one.result() for one in opening), read_edges(folder)


def _futures(handle: tuple, track: int, start: int, stop: int) -> list[Any]:
    *arrays, edges = handle
    frames, samples = span(edges, track, start, stop)
    return [array[part].read() for array, part in zip(arrays, (frames, samples, frames), strict=True)]


def read(handle: tuple, track: int, start: int, stop: int) -> Sample:
    return tuple(np.asarray(future.result()) for future in _futures(handle, track, start, stop))  # type: ignore


class Epoch:
    def __init__(self, handle: tuple, plan: Plan):
        self.handle, self.plan = handle, plan

    def __iter__(self) -> Iterator[Sample]:
        for batch in self.plan.batches:
            chunks = [self.plan.chunk(n) for n in batch]
            asked = [_futures(self.handle, *chunk) for chunk in chunks]
            yield collate((*(future.result() for future in futures), *self.plan.level(chunk[0]))
                          for futures, chunk in zip(asked, chunks, strict=True))


def epoch(handle: tuple, plan: Plan, workers: int) -> Epoch:
    return Epoch(handle, plan)
