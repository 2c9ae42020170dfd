"""Lance: a row is a frame, fixed-size lists, `LanceFileReader.read_range`."""
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bench.peers.common import SAMPLES, Corpus, Plan, Sample, collate, read_edges, write_edges

VENV, PACKAGES = "peers", ("pylance", "pyarrow")
ABOUT = "a row is a frame, LanceFileReader.read_range, collated in the loop (its own threads, no fork)"
WORKERS = (0,)
ROWS = 4096  # of a batch that is written


def write(corpus: Corpus, folder: Path, plan: Plan) -> None:
    import pyarrow as pa
    from lance.file import LanceFileWriter

    width = int(np.prod(corpus.faces.shape[1:]))
    with LanceFileWriter(str(folder / "frames.lance")) as writer:
        for a in range(0, len(corpus.labels), ROWS):
            faces, audio = corpus.faces[a:a + ROWS], corpus.audio[a * SAMPLES:(a + ROWS) * SAMPLES]
            writer.write_batch(pa.table({
                "faces": pa.FixedSizeListArray.from_arrays(pa.array(np.ravel(faces)), width),
                "audio": pa.FixedSizeListArray.from_arrays(pa.array(np.ravel(audio)), SAMPLES),
                "labels": pa.array(np.ravel(corpus.labels[a:a + ROWS]))}))
    write_edges(folder, corpus)


def warm() -> None:
    import lance.file  # noqa: F401


def open(folder: Path) -> tuple:
    from lance.file import LanceFileReader

    return LanceFileReader(str(folder / "frames.lance")), read_edges(folder)


def view(handle: tuple, track: int, start: int, stop: int) -> Sample:
    reader, edges = handle
    table = reader.read_range(edges[track] + start, stop - start, batch_size=stop - start).to_table().combine_chunks()
    faces, audio, labels = (table.column(name).combine_chunks() for name in ("faces", "audio", "labels"))
    pixels = faces.flatten().to_numpy()
    side = round((len(pixels) / (stop - start)) ** 0.5)
    return pixels.reshape(-1, side, side), audio.flatten().to_numpy(), labels.to_numpy()


def read(handle: tuple, track: int, start: int, stop: int) -> Sample:
    return tuple(np.array(array) for array in view(handle, track, start, stop))  # type: ignore[return-value]


class Epoch:
    def __init__(self, handle: tuple, plan: Plan):
        self.handle, self.plan = handle, plan

    def __iter__(self) -> Iterator[Sample]:
        for batch in self.plan.batches:
            chunks = [self.plan.chunk(n) for n in batch]
            yield collate((*view(self.handle, *chunk), *self.plan.level(chunk[0])) for chunk in chunks)


def epoch(handle: tuple, plan: Plan, workers: int) -> Epoch:
    return Epoch(handle, plan)
