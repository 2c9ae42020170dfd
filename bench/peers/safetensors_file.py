"""safetensors: three tensors for each track in one file, `get_slice`."""
from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.peers.common import SAMPLES, Corpus, Plan, Sample, Samples, torch_loader

VENV, PACKAGES = "peers", ("safetensors", "torch")
ABOUT = "3 tensors per track, safe_open and get_slice; torch DataLoader"
WORKERS = (0, 2, 4, 8)


def write(corpus: Corpus, folder: Path, plan: Plan) -> None:
    from safetensors.numpy import save_file

    save_file({f"{n}.{name}": array for n in range(corpus.count)
               for name, array in zip(("faces", "audio", "labels"), corpus.track(n), strict=True)},
              folder / "corpus.safetensors")


def warm() -> None:
    import safetensors  # noqa: F401


def open(folder: Path) -> Any:
    from safetensors import safe_open

    return safe_open(folder / "corpus.safetensors", framework="numpy").__enter__(), folder


def read(handle: Any, track: int, start: int, stop: int) -> Sample:
    file, _ = handle
    return (file.get_slice(f"{track}.faces")[start:stop], file.get_slice(f"{track}.audio")[start * SAMPLES:stop * SAMPLES],
            file.get_slice(f"{track}.labels")[start:stop])


def epoch(handle: Any, plan: Plan, workers: int) -> Any:
    return torch_loader(Samples(plan, read, opener=lambda: open(handle[-1])), workers)
