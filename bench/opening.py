"""One measurement in a process of its own: `python -m bench.opening json|open PACK` prints seconds and bytes as JSON.

Bytes are anonymous memory (RssAnon): what each process of a training run has for itself, unlike mapped files, which all share.
"""
from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path


def dictionaries(pack: str) -> list[list[dict]]:
    """What a reader without an index of its own does: every index.json into dictionaries."""
    found = []
    for path in sorted(Path(pack).glob("shard-*/index.json")):
        with open(path, encoding="utf-8") as file:
            found.append(json.load(file))
    return found


def anonymous_bytes() -> int:
    text = Path("/proc/self/status").read_text()
    return 1024 * int(next(line for line in text.splitlines() if line.startswith("RssAnon:")).split()[1])


def measure(work: Callable[[str], object], pack: str) -> dict[str, float]:
    gc.collect()
    before, started = anonymous_bytes(), time.perf_counter()
    kept = work(pack)
    seconds = time.perf_counter() - started
    gc.collect()
    after = anonymous_bytes()
    del kept
    return {"seconds": seconds, "bytes": after - before}


if __name__ == "__main__":
    import asdstore

    print(json.dumps(measure({"json": dictionaries, "open": asdstore.open}[sys.argv[1]], sys.argv[2])))
