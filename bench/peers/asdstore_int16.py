"""asdstore with `audio="int16"`: stored PCM with a mean and a gain for each row, to be applied on the device.

More than the others need do is left to the device, so this row stands outside the comparison, for information.
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from bench.peers import asdstore_pack
from bench.peers.asdstore_pack import NPY, open, write  # noqa: F401
from bench.peers.common import Plan, Sample

VENV, PACKAGES = "own", asdstore_pack.PACKAGES
ABOUT = "the same with audio=\"int16\", normalised on the device (not compared: less work)"
WORKERS = (0,)


class Int16:
    """Batches; the first epoch, which is checked, is normalised here."""

    def __init__(self, loader: Any):
        self.loader, self.checked = loader, False

    def __iter__(self) -> Iterator[Sample]:
        checked, self.checked = self.checked, True
        for b in self.loader:
            audio = b["audio"]
            if not checked:
                audio = (audio / np.float32(32768) - b["audio_mean"][:, None]) * b["audio_gain"][:, None]
                for row, length in enumerate(b["lengths"]):
                    audio[row, length * 640:] = 0
                audio = audio.astype(np.float32)
            yield b["faces"], audio, b["labels"]


def epoch(handle: Any, plan: Plan, workers: int) -> Int16:
    return Int16(asdstore_pack.loader(handle, audio="int16"))
