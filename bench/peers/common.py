"""What all peers share: the corpus, the batches of an epoch, and how samples become a padded batch. numpy only.

A peer is a module here with VENV ("own", "peers" or "mosaic": where it is installed), ABOUT (how it is used), and

    write(corpus, folder, plan)           the corpus in its form
    open(folder)                          a handle
    read(handle, track, start, stop)      a window, as arrays of its own: faces, audio int16, labels; none: no random access
    epoch(handle, plan, workers)          an iterable of batches: faces uint8 [B, T, 112, 112], audio float32 [B, T * 640],
                                          labels float32 [B, T]
    WORKERS                               the counts of worker processes that it can have
    NPY                                   where its store has faces.npy, audio.npy and labels.npy, if it does: there memcpy
                                          and np.memmap read these very files, so that where a file lies in memory (up to
                                          16 % between two copies of one) is the same for both

The pixels may lie on another grid than 112 x 112 in the small corpus that task O opens.
"""
from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

SAMPLES = 640  # of a frame: 16 kHz at 25 frames per second
Sample = tuple[np.ndarray, np.ndarray, np.ndarray]


class Corpus(NamedTuple):
    """Tracks one after another: faces uint8 [frames, h, w], audio int16 [frames * 640], labels uint8 [frames], 25 fps."""

    faces: np.ndarray
    audio: np.ndarray
    labels: np.ndarray
    edges: np.ndarray  # int64 [tracks + 1], where each track begins

    @property
    def count(self) -> int:
        """Tracks."""
        return len(self.edges) - 1

    def track(self, number: int) -> Sample:
        """Views of one track."""
        return self.window(number, 0, int(self.edges[number + 1] - self.edges[number]))

    def window(self, number: int, start: int, stop: int) -> Sample:
        """Views of a span of frames of one track."""
        a, b = int(self.edges[number]) + start, int(self.edges[number]) + stop
        return self.faces[a:b], self.audio[a * SAMPLES:b * SAMPLES], self.labels[a:b]


class Plan(NamedTuple):
    """An epoch: the chunks of all batches, batch after batch, and how each track's audio is scaled."""

    track: np.ndarray  # int64 [chunks]
    start: np.ndarray
    stop: np.ndarray
    offsets: np.ndarray  # int64 [batches + 1]
    mean: np.ndarray  # float32 [tracks], on full scale 1
    gain: np.ndarray  # float32 [tracks]

    @property
    def batches(self) -> list[list[int]]:
        """The chunks of every batch."""
        return [list(range(a, b)) for a, b in zip(self.offsets, self.offsets[1:], strict=False)]

    @property
    def frames(self) -> int:
        return int((self.stop - self.start).sum())

    def chunk(self, number: int) -> tuple[int, int, int]:
        return int(self.track[number]), int(self.start[number]), int(self.stop[number])

    def level(self, track: int) -> tuple[np.float32, np.float32]:
        return self.mean[track], self.gain[track]


def load_corpus(folder: Path, arrays: Path | None = None) -> Corpus:
    """A corpus as `bench.corpus` wrote it, mapped; from npy files of the same arrays in another folder, where one is given."""
    mapped = [np.load((arrays or folder) / f"{name}.npy", mmap_mode="r") for name in ("faces", "audio", "labels")]
    return Corpus(*mapped, np.load(folder / "edges.npy"))


def load_plan(path: Path) -> Plan:
    with np.load(path) as file:
        return Plan(*(file[name] for name in Plan._fields))


def scaled(audio: np.ndarray, mean: np.float32, gain: np.float32) -> np.ndarray:
    """float32 of int16, mean 0 and of the wanted loudness."""
    found = audio * np.float32(1 / 32768)
    found -= mean
    found *= gain
    return found


def collate(samples: Iterable[tuple]) -> Sample:
    """A batch of samples (faces, audio, labels, mean, gain), padded with zeros to the longest."""
    samples = list(samples)
    rows, frames = len(samples), max(len(sample[0]) for sample in samples)
    faces = np.zeros((rows, frames, *samples[0][0].shape[1:]), np.uint8)
    audio = np.zeros((rows, frames * SAMPLES), np.float32)
    labels = np.zeros((rows, frames), np.float32)
    for row, (f, a, y, mean, gain) in enumerate(samples):
        faces[row, :len(f)], labels[row, :len(y)] = f, y
        audio[row, :len(a)] = scaled(a, mean, gain)
    return faces, audio, labels


def to_torch(samples: Iterable[tuple]) -> list[Any]:
    import torch

    return [torch.from_numpy(array) for array in collate(samples)]


class Samples:
    """A map-style dataset of chunks, for a torch DataLoader. A handle that cannot be shared is opened in each process."""

    def __init__(self, plan: Plan, view: Callable[[Any, int, int, int], Sample], handle: Any = None,
                 opener: Callable[[], Any] | None = None):
        self.plan, self.view, self.handle, self.opener = plan, view, handle, opener

    def __len__(self) -> int:
        return len(self.plan.track)

    def __getitem__(self, number: int) -> tuple:
        if self.handle is None:
            self.handle = self.opener()  # type: ignore[misc]
        track, start, stop = self.plan.chunk(number)
        return *self.view(self.handle, track, start, stop), *self.plan.level(track)


def torch_loader(samples: Samples, workers: int, context: str | None = None) -> Any:
    """A torch DataLoader over the plan's batches. Workers stay from one epoch to the next."""
    from torch.utils.data import DataLoader

    return DataLoader(samples, batch_sampler=samples.plan.batches, collate_fn=to_torch, num_workers=workers,  # type: ignore
                      persistent_workers=workers > 0, multiprocessing_context=context if workers else None)


class Records:
    """Where windows of tracks lie in stores whose records are the chunks of a plan, in the plan's order."""

    def __init__(self, plan: Plan):
        self.order = np.lexsort((plan.start, plan.track))
        self.plan = plan
        self.first = np.searchsorted(plan.track[self.order], np.arange(int(plan.track.max(initial=0)) + 2))

    def read(self, record: Callable[[int], Sample], track: int, start: int, stop: int) -> Sample:
        """A window, of the one or two records that hold it."""
        parts = []
        for number in self.order[self.first[track]:self.first[track + 1]].tolist():
            _, a, b = self.plan.chunk(number)
            if a < stop and start < b:
                lo, hi = max(start, a) - a, min(stop, b) - a
                faces, audio, labels = record(number)
                parts.append((faces[lo:hi], audio[lo * SAMPLES:hi * SAMPLES], labels[lo:hi]))
        return tuple(np.concatenate(arrays) for arrays in zip(*parts, strict=True))  # type: ignore[return-value]


def chunks(corpus: Corpus, plan: Plan) -> Iterator[tuple[int, Sample]]:
    """Every chunk of the plan with its number."""
    for number in range(len(plan.track)):
        yield number, corpus.window(*plan.chunk(number))


def save_plan(path: Path, plan: Plan) -> None:
    np.savez(path, **plan._asdict())


def keep_plan(folder: Path, plan: Plan) -> None:
    """The plan beside the records, which are its chunks."""
    save_plan(folder / "plan.npz", plan)


def kept_records(folder: Path) -> Records:
    return Records(load_plan(folder / "plan.npz"))


def write_edges(folder: Path, corpus: Corpus) -> None:
    """Where tracks begin, as flat formats need it beside them."""
    (folder / "edges.json").write_text(json.dumps(corpus.edges.tolist()))


def read_edges(folder: Path) -> list[int]:
    return json.loads((folder / "edges.json").read_text())


def span(edges: list[int], track: int, start: int, stop: int) -> tuple[slice, slice]:
    """Where a window lies in flat arrays: frames, and samples."""
    a, b = edges[track] + start, edges[track] + stop
    return slice(a, b), slice(a * SAMPLES, b * SAMPLES)
