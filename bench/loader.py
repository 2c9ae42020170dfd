"""The ratios that the loader must keep, in one run: `python -m bench.loader [--json] [--only PART ...]`.

One corpus of about 400 MB of noise, with lengths as in AVA and WASD, is written to a temporary folder and read warm. memcpy is
np.copyto from the maps into a reused buffer: the same bytes as each batch has in the pack, uint8 faces and int16 audio, in one
piece. Peers get the same chunks and batches. Times per epoch; the shares that are asked for are the inverse of these ratios.
"""
from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import asdstore
import pipelines
from asdstore.pack import Pack
from asdstore.records import Media, Record
from bench.opening import anonymous_bytes
from bench.ratios import Ratio, in_turn, run_parts
from bench.sparse import make_sparse_pack
from pipelines.batching import Limits, compose
from pipelines.keys import Key
from pipelines.loader import Loader

ROUNDS = 9
FRAMES = 96_000
STEP = 0.020  # seconds that the consumer takes over a batch
TRACKS = 930_000  # about 1,000,000 chunks


def lengths(frames: int, seed: int = 0) -> list[int]:
    """Track lengths in frames, two thirds of all frames in long tracks, as AVA and WASD together have them."""
    draw, found = np.random.default_rng(seed), []
    while sum(found) < frames:
        short = np.clip(draw.lognormal(3.875, 1.1, 30), 25, 300).astype(int).tolist()
        found += [*short, *draw.choice([250, 500, 750, 750, 750, 875], 9).tolist()]
    return found


def _noise(record: Record) -> Media:
    draw = np.random.default_rng(record.source)  # type: ignore[arg-type]
    faces = draw.integers(0, 256, (record.frames, 112, 112), np.uint8)
    audio = draw.uniform(-0.5, 0.5, record.frames * 640).astype(np.float32)
    return Media(faces, audio, draw.integers(0, 2, record.frames, np.uint8))


def noise_pack(folder: Path) -> Pack:
    records = [Record("ava", f"n{i}", 25.0, count, 0.0, f"r{i}", i) for i, count in enumerate(lengths(FRAMES))]
    return asdstore.open(asdstore.write_pack(folder / "noise", records, _noise, max_shard_bytes=100_000_000))


# --- speed ---------------------------------------------------------------------------------------------------------------


def drain(batches: Any) -> None:
    for _ in batches:
        pass


def memcpy(pack: Pack, frames: list[int]) -> Callable[[], None]:
    """Copies as many bytes as the batches of an epoch have, batch by batch, from the maps into one buffer."""
    arrays = [pack.storage.array(slot) for slot in range(len(pack.storage.sources))]
    pictures, sounds = [a for a in arrays if a.ndim == 3], [a for a in arrays if a.dtype == np.int16]
    faces, audio = np.zeros((max(frames), 112, 112), np.uint8), np.zeros(max(frames) * 640, np.int16)

    def epoch() -> None:
        shard = at = 0
        for count in frames:
            done = 0
            while done < count:
                part = min(count - done, len(pictures[shard]) - at)
                np.copyto(faces[done:done + part], pictures[shard][at:at + part])
                np.copyto(audio[done * 640:(done + part) * 640], sounds[shard][at * 640:(at + part) * 640])
                done, at = done + part, at + part
                if at == len(pictures[shard]):
                    shard, at = (shard + 1) % len(pictures), 0

    return epoch


class PerSample:
    """The plain way: one float32 sample at a time, padded and stacked by a collator."""

    def __init__(self, pack: Pack, loader: Loader):
        self.pack, self.chunks = pack, loader.chunks
        ids, offsets = loader.batches()
        self.batches = [ids[a:b].tolist() for a, b in zip(offsets, offsets[1:], strict=False)]

    def __len__(self) -> int:
        return len(self.chunks)

    def __getitem__(self, number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        chunk = self.chunks[number]
        track, start, count = self.pack[int(chunk.track)], int(chunk.predict_start - chunk.prefix), int(chunk.fed_length)
        faces = track.faces[start:start + count].astype(np.float32) / 255
        audio = track.audio[start * 640:(start + count) * 640].astype(np.float32) / 32768
        return faces, audio - track.audio_mean, track.labels[start:start + count].astype(np.float32)

    @staticmethod
    def collate(samples: list[tuple]) -> list[Any]:
        import torch

        return [torch.nn.utils.rnn.pad_sequence([torch.from_numpy(array) for array in arrays], batch_first=True)
                for arrays in zip(*samples, strict=True)]


def speed(folder: Path) -> Iterator[Ratio]:
    """An epoch of `train` in several ways, and of the others, each beside memcpy."""
    pack = noise_pack(folder)
    plain = pipelines.train(pack, threads=0)
    ids, offsets = plain.batches()
    frames = np.add.reduceat(plain.chunks.fed_length[ids], offsets[:-1]).tolist()
    copy = memcpy(pack, frames)
    ways: dict[str, tuple[Callable[[], None], float | None]] = {
        "train, gathered in the loop": (partial(drain, plain), 1 / 0.55),
        "train, 1 thread ahead": (partial(drain, pipelines.train(pack, threads=1)), None),
        "train, 2 threads ahead": (partial(drain, pipelines.train(pack)), 1 / 0.7),
        "train, 2 threads ahead, int16": (partial(drain, pipelines.train(pack, audio="int16")), 1 / 0.85),
        "train, 2 processes": (partial(drain, pipelines.train(pack, processes=2)), None),
        **_bridges(pack)}
    for way, _ in ways.values():
        way()  # maps touched, buffers made, processes started
    times: dict[str, list[float]] = {name: [] for name in ways}
    copies: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(ROUNDS):
        for name, (way, _) in list(ways.items())[::1 if number % 2 else -1]:
            for work, into in ((copy, copies[name]), (way, times[name])):
                began = time.perf_counter()
                work()
                into.append(time.perf_counter() - began)
    memory = statistics.median(t for found in copies.values() for t in found)
    size = sum(frames) * (112 * 112 + 2 * 640)
    yield Ratio(f"memcpy {size / 1e6:.0f} MB in {len(frames)} batches, seconds for 10 GB", memory, size / 10e9, "s", None)
    for name, (_, most) in ways.items():
        yield Ratio(f"{name} / memcpy", statistics.median(times[name]), statistics.median(copies[name]), "s", most)
    yield from _naive(pack, plain)


def _bridges(pack: Pack) -> dict[str, tuple[Callable[[], None], float | None]]:
    found: dict[str, tuple[Callable[[], None], float | None]] = {}
    for name in ("torch", "grain"):
        try:
            bridged = getattr(pipelines, f"to_{name}")(pipelines.train(pack))
        except (ImportError, AttributeError) as why:
            print(f"to_{name} left out: {why}", file=sys.stderr)
            continue
        found[f"to_{name}"] = (partial(drain, bridged), 1 / 0.5)
    return found


def _naive(pack: Pack, plain: Loader) -> Iterator[Ratio]:
    try:
        from torch.utils.data import DataLoader
    except ImportError as why:
        print(f"the per-sample loader left out: {why}", file=sys.stderr)
        return
    samples = PerSample(pack, plain)
    ours: list[float] = []
    others: dict[int, list[float]] = {0: [], 2: []}
    for number in range(5):
        for workers in (0, 2)[::1 if number % 2 else -1]:
            loader = DataLoader(samples, batch_sampler=samples.batches, collate_fn=PerSample.collate,  # type: ignore[arg-type]
                                num_workers=workers)
            for work, into in ((partial(drain, plain), ours), (partial(drain, loader), others[workers])):
                began = time.perf_counter()
                work()
                into.append(time.perf_counter() - began)
    for workers, times in others.items():
        yield Ratio(f"train / per-sample float32 DataLoader, {workers} workers", statistics.median(ours),
                    statistics.median(times), "s", 1 / 15)


# --- waiting and memory ---------------------------------------------------------------------------------------------------


def stall(folder: Path) -> Iterator[Ratio]:
    """How long a loop waits whose step takes STEP, which it sleeps as it would for a device."""
    pack = noise_pack(folder)
    for name, threads in (("gathered in the loop", 0), ("1 thread ahead", 1), ("2 threads ahead", 2)):
        loader = pipelines.train(pack, threads=threads)
        drain(loader)
        waits = []
        for _ in range(3):
            batches = iter(loader)
            next(batches)  # the first one of an epoch cannot be made ahead
            for _ in range(len(loader) - 1):
                time.sleep(STEP)
                began = time.perf_counter()
                next(batches)
                waits.append(time.perf_counter() - began)
            drain(batches)
        yield Ratio(f"wait for a batch, {name} / step of {STEP * 1000:.0f} ms", statistics.fmean(waits), STEP, "s",
                    0.02 if name == "2 threads ahead" else None)


def memory(folder: Path) -> Iterator[Ratio]:
    """Anonymous memory after 10 epochs, and after the second."""
    loader, sizes = pipelines.train(noise_pack(folder)), []
    for _ in range(10):
        drain(loader)
        gc.collect()
        sizes.append(anonymous_bytes() / 1e6)
    yield Ratio("anonymous memory after 10 epochs / after 2", sizes[-1], sizes[1], "MB", 1.05)


# --- planning -------------------------------------------------------------------------------------------------------------


def _median(work: Callable[[], object], rounds: int = 5) -> float:
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def planning(folder: Path) -> Iterator[Ratio]:
    """Planning beside one sort of the same lengths, and resuming at the ends of an epoch of a million chunks."""
    drawn = np.minimum(lengths(2_000_000), 250)
    for count in (50_000, 1_000_000):
        some = np.random.default_rng(0).choice(drawn, count)
        sort = _median(partial(np.lexsort, (some,)))
        yield Ratio(f"compose {count:,} chunks / np.lexsort", _median(partial(compose, some, Limits(2048), Key.of(0))), sort,
                    "s", 10)
    pack = asdstore.open(make_sparse_pack(folder / "large", TRACKS, sealed=True))
    loader = pipelines.train(pack, threads=0)
    fed, last = loader.chunks.fed_length, len(loader)
    epochs = iter(range(1, 100))
    yield Ratio(f"plan an epoch of {len(fed):,} chunks / np.lexsort", _median(lambda: loader.batches(next(epochs))),
                _median(partial(np.lexsort, (fed,))), "s", 10)

    def resume(batches: int) -> None:
        fresh = loader.at(0)
        fresh.recipe._plans.clear()  # as in a new process
        fresh.load_state_dict({**loader.state_dict(), "epoch": next(epochs), "batches": batches})
        next(iter(fresh))

    yield Ratio("resume at the last step / at the first", *in_turn(lambda _: resume(last - 1), lambda _: resume(0), 6), "s",
                1.5)


PARTS = {"speed": speed, "stall": stall, "memory": memory, "planning": planning}


def main(argv: list[str] | None = None) -> int:
    """Exit code 0 if every ratio holds, 1 if not."""
    return run_parts("python -m bench.loader", "The ratios that the loader must keep.", PARTS, argv)


if __name__ == "__main__":
    sys.exit(main())
