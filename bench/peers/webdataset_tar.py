"""WebDataset: tar shards whose samples are chunks, shuffled when written; a pool is sorted by length and cut by the budget."""
from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.peers.common import Corpus, Plan, to_torch

VENV, PACKAGES = "peers", ("webdataset", "torch")
ABOUT = "tar shards, a sample is a chunk; WebLoader, pools of 64 sorted and cut by the budget; no random access"
WORKERS = (0, 2, 4, 8)
SHARDS, POOL, BUDGET, MOST = 8, 64, 2048, 16


def write(corpus: Corpus, folder: Path, plan: Plan) -> None:
    import webdataset as wds

    order = np.random.default_rng(0).permutation(len(plan.track))
    for shard, numbers in enumerate(np.array_split(order, SHARDS)):
        with wds.TarWriter(str(folder / f"corpus-{shard:06d}.tar")) as tar:
            for number in numbers.tolist():
                faces, audio, labels = corpus.window(*plan.chunk(number))
                level = np.array(plan.level(int(plan.track[number])), np.float32)
                tar.write({"__key__": f"{number:06d}", "faces.npy": faces, "audio.npy": audio, "labels.npy": labels,
                           "level.npy": level})


def warm() -> None:
    import webdataset  # noqa: F401


def open(folder: Path) -> Any:
    return sorted(map(str, folder.glob("*.tar")))


def _batches(samples: Iterable[tuple], budget: int = BUDGET) -> Iterator[list[Any]]:
    pool: list[tuple] = []
    for sample in samples:
        pool.append(sample)
        if len(pool) == POOL:
            yield from _cut(pool, budget)
            pool = []
    yield from _cut(pool, budget)


def _cut(pool: list[tuple], budget: int) -> Iterator[list[Any]]:
    pool.sort(key=lambda sample: -len(sample[0]))
    while pool:
        count = min(MOST, max(budget // len(pool[0][0]), 1))
        yield to_torch((f, a, y, *level) for f, a, y, level in pool[:count])
        del pool[:count]


def epoch(handle: list[str], plan: Plan, workers: int) -> Any:
    import webdataset as wds

    stages = (wds.SimpleShardList(handle), wds.split_by_worker, wds.tarfile_to_samples(), wds.decode(),
              wds.to_tuple("faces.npy", "audio.npy", "labels.npy", "level.npy"), partial(_batches))
    return wds.WebLoader(wds.DataPipeline(*stages), batch_size=None, num_workers=workers)
