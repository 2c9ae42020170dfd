"""Lhotse: a cut for each track, faces and labels as temporal arrays in HDF5, audio as WAV; dynamic buckets of 2048 frames."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from bench.peers.common import SAMPLES, Corpus, Plan, Sample, to_torch

VENV, PACKAGES = "peers", ("lhotse", "h5py", "soundfile", "torch")
ABOUT = "temporal arrays in HDF5 and WAV; DynamicBucketingSampler of chunks, 2048 frames and 16 cuts at most"
WORKERS = (0, 2, 4, 8)
SHIFT = 0.04  # seconds of a frame


def write(corpus: Corpus, folder: Path, plan: Plan) -> None:
    import soundfile
    from lhotse import CutSet, MonoCut, NumpyHdf5Writer, Recording

    cuts = []
    with NumpyHdf5Writer(str(folder / "arrays.h5")) as writer:
        for n in range(corpus.count):
            faces, audio, labels = corpus.track(n)
            soundfile.write(folder / f"{n}.wav", audio, 16000)
            stored = {name: writer.store_array(f"{n}.{name}", array, frame_shift=SHIFT, temporal_dim=0)
                      for name, array in (("faces", faces), ("labels", labels))}
            recording = Recording.from_file(folder / f"{n}.wav", recording_id=str(n))
            cuts.append(MonoCut(str(n), 0.0, len(faces) * SHIFT, 0, recording=recording, custom=stored))
    CutSet.from_cuts(cuts).to_file(folder / "cuts.jsonl")


def warm() -> None:
    import lhotse  # noqa: F401


def open(folder: Path) -> list[Any]:
    from lhotse import CutSet

    return list(CutSet.from_file(folder / "cuts.jsonl"))


def _span(cut: Any, start: int, stop: int) -> Any:
    return cut.truncate(offset=start * SHIFT, duration=(stop - start) * SHIFT)


def _load(cut: Any) -> Sample:
    audio = np.rint(cut.load_audio()[0] * 32768).astype(np.int16)
    return cut.load_faces(), audio, cut.load_labels()


def read(handle: list[Any], track: int, start: int, stop: int) -> Sample:
    return _load(_span(handle[track], start, stop))


class Batches:
    """What lhotse calls a dataset: it makes a batch of the cuts that the sampler groups."""

    def __init__(self, plan: Plan):
        self.plan = plan

    def __getitem__(self, cuts: Any) -> list[Any]:
        return to_torch((*self._sample(cut), *self.plan.level(int(cut.recording_id))) for cut in cuts)

    def _sample(self, cut: Any) -> Sample:
        faces, audio, labels = _load(cut)
        return faces, audio[:len(faces) * SAMPLES], labels


def epoch(handle: list[Any], plan: Plan, workers: int) -> Any:
    from lhotse import CutSet
    from lhotse.dataset import DynamicBucketingSampler
    from torch.utils.data import DataLoader

    cuts = CutSet.from_cuts(_span(handle[t], a, b).with_id(str(n)) for n in range(len(plan.track))
                            for t, a, b in [plan.chunk(n)])
    sampler = DynamicBucketingSampler(cuts, max_duration=2048 * SHIFT, max_cuts=16, num_buckets=10, shuffle=True)
    return DataLoader(Batches(plan), sampler=sampler, batch_size=None, num_workers=workers)  # type: ignore[arg-type]
