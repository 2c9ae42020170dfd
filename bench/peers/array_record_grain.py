"""ArrayRecord with Grain: a record is a chunk, a batch is an element of a MapDataset (2 threads; mp_prefetch with workers)."""
from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np

from bench.peers.common import SAMPLES, Corpus, Plan, Records, Sample, chunks, collate, keep_plan, kept_records

VENV, PACKAGES = "own", ("array_record", "grain")
ABOUT = "a record is a chunk, group_size 1; Grain MapDataset of batches, 2 threads ahead; mp_prefetch"
WORKERS = (0, 2, 4, 8)


def write(corpus: Corpus, folder: Path, plan: Plan) -> None:
    from array_record.python.array_record_module import ArrayRecordWriter

    writer = ArrayRecordWriter(str(folder / "corpus.array_record"), "group_size:1,uncompressed")
    for _, arrays in chunks(corpus, plan):
        shape = arrays[0].shape
        writer.write(struct.pack("<III", *shape) + b"".join(array.tobytes() for array in arrays))
    writer.close()
    keep_plan(folder, plan)


def warm() -> None:
    import grain  # noqa: F401


def open(folder: Path) -> tuple[Any, Records]:
    import grain

    return grain.sources.ArrayRecordDataSource([str(folder / "corpus.array_record")]), kept_records(folder)


def _record(data: bytes) -> Sample:
    frames, height, width = struct.unpack_from("<III", data)
    pixels = frames * height * width
    return (np.frombuffer(data, np.uint8, pixels, 12).reshape(frames, height, width),
            np.frombuffer(data, np.int16, frames * SAMPLES, 12 + pixels),
            np.frombuffer(data, np.uint8, frames, 12 + pixels + 2 * frames * SAMPLES))


def read(handle: tuple[Any, Records], track: int, start: int, stop: int) -> Sample:
    source, records = handle
    return records.read(lambda number: _record(source[number]), track, start, stop)


class Collate:
    def __init__(self, source: Any, plan: Plan):
        self.source, self.plan = source, plan

    def __call__(self, batch: list[int]) -> Sample:
        return collate((*_record(self.source[n]), *self.plan.level(int(self.plan.track[n]))) for n in batch)


def epoch(handle: tuple[Any, Records], plan: Plan, workers: int) -> Any:
    import absl.flags
    import grain

    absl.flags.FLAGS.mark_as_parsed()  # mp_prefetch asks for it in a plain script
    batches = grain.MapDataset.source(plan.batches).map(Collate(handle[0], plan))
    ahead = batches.to_iter_dataset(grain.ReadOptions(num_threads=2, prefetch_buffer_size=2))
    return ahead.mp_prefetch(grain.MultiprocessingOptions(num_workers=workers)) if workers else ahead
