"""What a corpus of any size costs, in fresh processes: `python -m bench.growth open|json PACK` prints what it measured as JSON.

Packs are true in every document and hold no pixels (`bench.sparse`). A batch is read twice and measured the second time, so
that its pages are in the cache.
"""
from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench.opening import anonymous_bytes, dictionaries, measure
from bench.sparse import make_sparse_pack

SIZES = (10**3, 10**4, 10**5, 10**6)
STEPS = 40
REPEATS = 5


def growth(folder: Path, sizes: tuple[int, ...] = SIZES) -> list[dict[str, Any]]:
    """For each size medians of seconds and anonymous bytes: json.load of the index, open, plan, first batch, a later batch."""
    rows = []
    for size in sizes:
        pack = folder / f"tracks_{size}"
        if not pack.is_dir():
            make_sparse_pack(pack, size, sealed=True)
        found: dict[str, list[dict[str, float]]] = {"json": [], "open": []}
        for _ in range(REPEATS):
            for task, into in found.items():
                done = subprocess.run([sys.executable, "-m", "bench.growth", task, str(pack)], check=True, capture_output=True,
                                      text=True)
                into.append(json.loads(done.stdout.splitlines()[-1]))
        rows.append({"tracks": size, **{task: {key: statistics.median(one[key] for one in many) for key in many[0]}
                                        for task, many in found.items()}})
    return rows


def costs(pack: str) -> dict[str, float]:
    """Of one process: seconds to open, to plan, for the first batch and for a later one of 2048 frames; anonymous bytes."""
    import asdstore
    import pipelines

    opened: list[Any] = []
    found = measure(lambda path: opened.append(asdstore.open(path)), pack)
    began = time.perf_counter()
    loader = pipelines.train(opened[0], threads=0)
    planned = time.perf_counter()
    loader[0]
    first = time.perf_counter()
    anonymous = anonymous_bytes()
    later = []
    for step in np.random.default_rng(0).integers(0, len(loader), STEPS).tolist():
        loader[step]
        again = time.perf_counter()
        batch = loader[step]
        later.append((time.perf_counter() - again) / int(batch["lengths"].sum()) * 2048)
    return {"open": found["seconds"], "open_bytes": found["bytes"], "plan": planned - began, "first": first - planned,
            "all_bytes": anonymous, "batch": statistics.median(later), "chunks": len(loader.chunks)}


if __name__ == "__main__":
    print(json.dumps(costs(sys.argv[2]) if sys.argv[1] == "open" else measure(dictionaries, sys.argv[2])))
