"""One peer in a process of its own: `python -m bench.measure TASK PEER CORPUS STORE [PLAN]` prints what it measured as JSON.

Every round measures memcpy, np.memmap (R) and the peer in turn, each as often the first as the others, so that a ratio is of
one process and one minute. memcpy is np.copyto of the same bytes from the warm map into a buffer of a batch that is used again.
"""
from __future__ import annotations

import importlib
import json
import statistics
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from bench.peers.common import SAMPLES, Corpus, Plan, load_corpus, load_plan

WINDOW = 250
WINDOWS = 2000
BLOCK = 50  # windows between two turns
SLOW = 2.0  # seconds after which a pass over the windows is cut short
ROUNDS = 9  # of work R
EPOCHS = 60
EPOCHS_FOR = 5.0  # seconds after which no further epoch is begun, beyond the third (and three times that, beyond the first)


def main(argv: list[str]) -> int:
    task, name, corpus, store = argv[:4]
    peer = importlib.import_module(f"bench.peers.{name}")
    if task == "open":
        found: Any = opening(peer, Path(store))
    else:
        arrays = Path(store, peer.NPY) if hasattr(peer, "NPY") and task != "write" else None
        tracks, plan = load_corpus(Path(corpus), arrays), load_plan(Path(argv[4]))
        tasks = {"write": write, "read": read, "epoch": epoch}
        found = tasks[task](peer, tracks, plan, Path(store), *map(int, argv[5:]))
    print(json.dumps({"found": found, "versions": _versions(peer)}))
    sys.stdout.flush()
    return 0


def _versions(peer: Any) -> dict[str, str]:
    return {name: metadata.version(name) for name in peer.PACKAGES if name != "asdstore"}


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


# --- W -------------------------------------------------------------------------------------------------------------------

def write(peer: Any, corpus: Corpus, plan: Plan, store: Path) -> dict[str, float]:
    """Seconds to write the store from arrays in memory, beside np.save of the same, and its bytes."""
    memory = Corpus(*(np.array(array) for array in corpus))
    store.mkdir(parents=True)
    saves = []

    def save() -> None:
        for field in ("faces", "audio", "labels"):
            np.save(store.parent / f"saved_{field}.npy", getattr(memory, field))

    for _ in range(2):
        saves.append(_timed(save))
    for path in store.parent.glob("saved_*.npy"):
        path.unlink()
    seconds = _timed(lambda: peer.write(memory, store, plan))
    size = sum(path.stat().st_blocks * 512 if path.is_file() and not path.is_symlink() else 0 for path in store.rglob("*"))
    raw = sum(array.nbytes for array in memory[:3])
    return {"seconds": seconds, "save": min(saves), "bytes": size, "raw": raw}


# --- O -------------------------------------------------------------------------------------------------------------------

def opening(peer: Any, store: Path) -> dict[str, float]:
    """Seconds and anonymous bytes of opening, imports done."""
    from bench.opening import measure

    getattr(peer, "warm", lambda: None)()
    return measure(lambda folder: peer.open(Path(folder)), str(store))


# --- R -------------------------------------------------------------------------------------------------------------------

def read(peer: Any, corpus: Corpus, plan: Plan, store: Path) -> dict[str, Any]:
    """Seconds for the windows, beside memcpy and np.memmap: slice and copy."""
    if not hasattr(peer, "read"):
        return {}
    handle = peer.open(store)
    windows = draw_windows(corpus)
    plain = Corpus(*(np.asarray(array) for array in corpus))  # views without the subclass
    buffers = [np.zeros((WINDOW, *corpus.faces.shape[1:]), np.uint8), np.zeros(WINDOW * SAMPLES, np.int16),
               np.zeros(WINDOW, np.uint8)]

    def memcpy(window: tuple[int, int, int]) -> None:
        for view, buffer in zip(plain.window(*window), buffers, strict=True):
            np.copyto(buffer[:len(view)], view)

    def memmap(window: tuple[int, int, int]) -> tuple:
        return tuple(np.array(view) for view in corpus.window(*window))

    def theirs(window: tuple[int, int, int]) -> tuple:
        return peer.read(handle, *window)

    for window in windows[:25]:
        check_window(theirs(window), plain.window(*window))
    _each(memcpy, windows)  # both in the page cache, and mapped
    _each(theirs, windows[:40])
    each = _timed(lambda: _each(theirs, windows[:40])) / 40
    used = windows[:max(BLOCK, min(len(windows), int(SLOW / each) // BLOCK * BLOCK))]
    _each(theirs, used)
    ways, times, draw = [memcpy, memmap, theirs], [[], [], []], np.random.default_rng(1)
    began = time.perf_counter()
    while len(times[0]) < 3 or len(times[0]) < ROUNDS and time.perf_counter() - began < EPOCHS_FOR:
        sums = [0.0, 0.0, 0.0]
        for block in range(0, len(used), BLOCK):
            for which in draw.permutation(3).tolist():
                sums[which] += _timed(lambda way=ways[which], some=used[block:block + BLOCK]: _each(way, some))
        for total, into in zip(sums, times, strict=True):
            into.append(total)
    size = sum((b - a) * (corpus.faces[0].nbytes + 2 * SAMPLES + 1) for _, a, b in used)
    return {"windows": len(used), "bytes": size, "memcpy": times[0], "memmap": times[1], "peer": times[2]}


def _each(way: Callable[[tuple[int, int, int]], object], windows: list[tuple[int, int, int]]) -> None:
    for window in windows:
        way(window)


def draw_windows(corpus: Corpus) -> list[tuple[int, int, int]]:
    """WINDOWS spans of up to WINDOW frames, uniform over frames."""
    draw = np.random.default_rng(0)
    lengths = np.diff(corpus.edges)
    tracks = np.searchsorted(corpus.edges, draw.integers(0, corpus.edges[-1], WINDOWS), "right") - 1
    starts = [int(draw.integers(0, max(lengths[t] - WINDOW, 0) + 1)) for t in tracks]
    return [(int(t), a, a + min(WINDOW, int(lengths[t]))) for t, a in zip(tracks, starts, strict=True)]


def check_window(found: tuple, expected: tuple) -> None:
    """Right values in arrays of the reader's own. JPEG gives other pixels; they must be near."""
    for array, wanted in zip(found, expected, strict=True):
        array = np.asarray(array)
        assert array.shape == wanted.shape, (array.shape, wanted.shape)
        assert np.array_equal(array, wanted) or np.abs(array.astype(int) - wanted).mean() < 8, "other values than were written"
        assert array.flags.writeable, "a view of a map, not a copy"


# --- E -------------------------------------------------------------------------------------------------------------------

def epoch(peer: Any, corpus: Corpus, plan: Plan, store: Path, workers: int) -> dict[str, Any]:
    """Seconds for an epoch, beside memcpy of as many bytes in batches."""
    batches = peer.epoch(peer.open(store), plan, workers)
    frames = check_epoch(batches, corpus, plan)
    copy = memcpy_epoch(corpus, plan)
    copy()
    times: tuple[list[float], list[float]] = ([], [])
    began = time.perf_counter()
    for number in range(EPOCHS):
        if number >= 3 and time.perf_counter() - began > EPOCHS_FOR or number and time.perf_counter() - began > 3 * EPOCHS_FOR:
            break
        for which in ((0, 1), (1, 0))[number % 2]:
            times[which].append(_timed((copy, lambda: drain(batches))[which]))
    found = {"share": frames / plan.frames, "memcpy": times[0], "peer": times[1], "frames": frames}
    getattr(batches, "close", lambda: None)()
    return found


def drain(batches: Any) -> None:
    for _ in batches:
        pass


def check_epoch(batches: Any, corpus: Corpus, plan: Plan) -> int:
    """Sums of a first epoch, which also warms what there is to warm: how many frames it gave (padding is zeros)."""
    faces = labels = 0
    sound, frames = 0.0, 0
    for f, a, y in batches:
        f, a, y = (np.asarray(array) for array in (f, a, y))
        assert f.dtype == np.uint8 and a.dtype == np.float32 and a.shape[1] == f.shape[1] * SAMPLES and y.shape == f.shape[:2]
        faces, labels, sound = faces + int(f.sum(dtype=np.uint64)), labels + int(y.sum()), sound + float(np.abs(a).sum())
        frames += int(f.any(axis=(2, 3)).sum())
    total = int(np.asarray(corpus.faces).sum(dtype=np.uint64))
    expected = sum(float(np.abs((corpus.window(*plan.chunk(n))[1] / 32768 - m) * g).sum()) for n in range(len(plan.track))
                   for m, g in [plan.level(int(plan.track[n]))])
    share = frames / plan.frames
    assert 0.9 < share < 1.01 and abs(faces / total - share) < 0.03, (share, faces / total)
    assert abs(sound / expected - share) < 0.03 and abs(labels / int(corpus.labels.sum()) - share) < 0.03, (sound, expected)
    return frames


def memcpy_epoch(corpus: Corpus, plan: Plan) -> Callable[[], None]:
    """Copies the bytes of every batch, uint8 faces, int16 audio and labels in one piece, into a buffer that is used again."""
    plain = [np.asarray(array) for array in corpus[:3]]
    counts = np.add.reduceat(plan.stop - plan.start, plan.offsets[:-1]).tolist()
    most = max(counts)
    scales = (1, SAMPLES, 1)
    buffers = [np.zeros((most * s, *a.shape[1:]), a.dtype) for a, s in zip(plain, scales, strict=True)]

    def work() -> None:
        at = 0
        for count in counts:
            at = at if at + count <= len(plain[0]) else 0
            for array, buffer, scale in zip(plain, buffers, scales, strict=True):
                np.copyto(buffer[:count * scale], array[at * scale:(at + count) * scale])
            at += count

    return work


def median(values: list[float]) -> float:
    return statistics.median(values)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
