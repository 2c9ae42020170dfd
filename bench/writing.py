"""Work W from JPEG and WAV: the prepare command as it is, with 1 and with 2 workers, and decoding and resizing of the same
pictures alone."""
from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bench.corpora import COPIES, Tree, prepare

ROUNDS = 3


def writing(folder: Path, copies: int = COPIES) -> dict[str, Any]:
    """Median seconds by name, each measured in turn."""
    import cv2

    tree = Tree(folder, copies)
    command = [*tree.command, "--max-shard-gb", "0.05", "--output", str(folder / "pack")]
    paths = [str(path) for faces, _ in tree.tracks for path in sorted(faces.glob("*.jpg"))]

    def decode() -> None:
        for path in paths:
            cv2.resize(cv2.imread(path, cv2.IMREAD_GRAYSCALE), (112, 112))  # type: ignore[arg-type]

    ways: dict[str, Callable[[], None]] = {"no option": lambda: prepare(command),
                                           "one worker": lambda: prepare([*command, "--workers", "1"]),
                                           "two workers": lambda: prepare([*command, "--workers", "2"]),
                                           "decoding and resizing": decode}
    for way in ways.values():
        way()  # imports, and the files in the page cache
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(ROUNDS):
        for name, way in list(ways.items())[::1 if number % 2 else -1]:
            shutil.rmtree(folder / "pack", ignore_errors=True)
            began = time.perf_counter()
            way()
            times[name].append(time.perf_counter() - began)
    return {"pictures": len(paths), **{name: float(np.median(values)) for name, values in times.items()}}
