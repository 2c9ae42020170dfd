"""Worker processes: the same batches as without, whatever happens to them, and nothing left behind."""
from __future__ import annotations

import gc
import itertools
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipelines
from asdstore.errors import InputError
from bench.sparse import make_sparse_pack
from pipelines.transforms import Transform
from tests.processes import runs

SETTINGS: dict[str, Any] = {"window": 60, "context": 15, "frame_budget": 500}
METHODS = ("fork", "forkserver", "spawn")


def heavy(batch, key):
    return {**batch, "noise": key.uniform(), "pid": os.getpid(), "names": np.array(["a", None], object)}


def broken(batch, key):
    if "t3" in batch["sample_ids"]:
        raise KeyError("t3 cannot be")
    return batch


def deadly(batch, key):
    if "t3" in batch["sample_ids"]:
        os.kill(os.getpid(), signal.SIGKILL)
    return batch


def same(first: dict, second: dict) -> bool:
    names = first.keys() - {"pid"}
    return first.keys() == second.keys() and all(np.array_equal(first[name], second[name]) for name in names)


def check(loader, plain) -> None:
    for first, second in zip(loader, plain, strict=True):
        assert same(first, second)


@pytest.mark.parametrize("method", METHODS)
def test_processes_read_what_threads_read(pack, method):
    augment = [pipelines.mix_voice(), Transform(apply=heavy)]
    loader = pipelines.train(pack, **SETTINGS, augment=augment, processes=2, start_method=method)
    plain = pipelines.train(pack, **SETTINGS, augment=augment)
    for _ in range(2):
        check(loader, plain)
    assert len({batch["pid"] for batch in loader}) == 2
    loader.close()


VALUES = ((1, 2, 3, 8), (0, 1, 4), METHODS, ("first", "one", "mid", "last"))
GRID = list(itertools.product(*VALUES))


def pairs(case: tuple) -> set:
    return set(itertools.combinations(enumerate(case), 2))


def pairwise() -> list[tuple]:
    """Cases in which any two values of two of the four stand together at least once."""
    missing = set().union(*map(pairs, GRID))
    found = []
    while missing:
        found.append(max(GRID, key=lambda case: len(pairs(case) & missing)))
        missing -= pairs(found[-1])
    return found


def run_grid(pack, world: int, processes: int, method: str, where: str) -> None:
    """A job of `world` ranks stops somewhere and is started again: every chunk once, equal steps, nothing twice."""
    def start(state: dict | None) -> list:
        found = [pipelines.train(pack, **SETTINGS, group=4, processes=processes, start_method=method, rank=rank, world=world)
                 for rank in range(world)]
        for loader in found:
            if state:
                loader.load_state_dict(state)
        return found

    loaders = start(None)
    total, steps = len(loaders[0].chunks), len(loaders[0])
    stop = {"first": 0, "one": min(1, steps), "mid": steps // 2, "last": steps}[where]
    read: list[tuple] = []

    def take(iteration) -> None:
        batch = next(iteration)
        rows = zip(batch["tracks"].tolist(), batch["starts"].tolist(), batch["valid"].tolist(), strict=True)
        read.extend((track, start) for track, start, valid in rows if valid)

    iterations = [iter(loader) for loader in loaders]
    for _ in range(stop):
        for iteration in iterations:
            take(iteration)
    state = loaders[0].state_dict()
    for loader in loaders:
        loader.close()
    if stop < steps:
        loaders = start(state)
        iterations = [iter(loader) for loader in loaders]
        for _ in range(steps - stop):
            for iteration in iterations:
                take(iteration)
        assert [next(iteration, None) for iteration in iterations] == [None] * world
        for loader in loaders:
            loader.close()
    assert len(read) == len(set(read)) == total


@pytest.mark.parametrize(("world", "processes", "method", "where"), pairwise())
def test_pairs_of_the_grid(pack, world, processes, method, where):
    run_grid(pack, world, processes, method, where)


@pytest.mark.soak
@pytest.mark.parametrize(("world", "processes", "method", "where"), GRID)
def test_the_whole_grid(pack, world, processes, method, where):
    run_grid(pack, world, processes, method, where)


def test_a_killed_worker_is_replaced(pack):
    loader = pipelines.train(pack, **SETTINGS, processes=2, start_method="fork", prefetch=2)
    plain = list(pipelines.train(pack, **SETTINGS))
    for step, batch in enumerate(loader):
        assert same(batch, plain[step])
        with suppress(ProcessLookupError):  # it may be dead already, with its answers still in the pipe
            os.kill(loader.pids[step % 2], signal.SIGKILL)
    loader.close()


def slow(batch, key):
    time.sleep(0.05)
    return batch


def test_what_a_killed_worker_had_still_to_do_is_done(pack):
    loader = pipelines.train(pack, **SETTINGS, augment=Transform(apply=slow), processes=2, start_method="fork", prefetch=3)
    plain = list(pipelines.train(pack, **SETTINGS))
    for step, batch in enumerate(loader):
        assert same(batch, plain[step])
        if step == 0:
            for pid in loader.pids:
                os.kill(pid, signal.SIGKILL)
    loader.close()


def test_a_batch_that_kills_every_worker_is_an_error(pack):
    loader = pipelines.train(pack, **SETTINGS, augment=Transform(apply=deadly), processes=1, start_method="fork")
    with pytest.raises(InputError) as error:
        list(loader)
    assert error.value.kind == "worker" and "-9" in str(error.value)
    loader.close()


@pytest.mark.parametrize("method", METHODS)
def test_an_error_in_a_worker_is_raised_in_its_turn(pack, method):
    loader = pipelines.train(pack, **SETTINGS, augment=Transform(apply=broken), processes=2, start_method=method)
    plain = pipelines.train(pack, **SETTINGS, threads=0)
    bad = next(step for step in range(len(plain)) if "t3" in plain[step]["sample_ids"])
    iteration = iter(loader)
    for step in range(bad):
        assert same(next(iteration), plain[step])
    with pytest.raises(KeyError, match="t3 cannot be") as error:
        next(iteration)
    assert "in broken" in "".join(error.value.__notes__)
    loader.close()


def test_functions_that_do_not_pickle_are_refused(pack):
    loader = pipelines.train(pack, **SETTINGS, augment=pipelines.map(lambda batch: batch), processes=1)
    with pytest.raises(InputError) as error:
        next(iter(loader))
    assert error.value.kind == "processes"
    with pytest.raises(InputError) as error:
        next(iter(pipelines.train(pack, **SETTINGS, processes=1, start_method="other")))
    assert error.value.kind == "start_method"


def test_batches_of_processes_stay_as_they_are(pack):
    loader = pipelines.train(pack, **SETTINGS, group=1, min_batch=1, max_batch=2, processes=2, start_method="fork")
    kept = [batch for _ in range(2) for batch in loader]
    assert len(kept) > 50  # more than there are shared files
    plain = pipelines.train(pack, **SETTINGS, group=1, min_batch=1, max_batch=2)
    expected = [batch for _ in range(2) for batch in plain]
    assert all(same(first, second) for first, second in zip(kept, expected, strict=True))
    loader.close()


def test_an_iteration_that_was_given_up_does_not_disturb_the_next(pack):
    loader = pipelines.train(pack, **SETTINGS, processes=2, start_method="fork", prefetch=3)
    first = iter(loader)
    next(first)
    check(loader, pipelines.train(pack, **SETTINGS).at(1))
    with pytest.raises(InputError) as error:
        next(first)
    assert error.value.kind == "iterator"
    loader.close()


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_nothing_is_left_behind(pack):
    def once() -> None:
        loader = pipelines.train(pack, **SETTINGS, processes=2, start_method="fork")
        iteration = iter(loader)
        next(iteration)
        pids.extend(loader.pids)
        if len(pids) % 4:
            loader.close()

    pids: list[int] = []
    once()
    gc.collect()
    before = open_files()
    for _ in range(10):
        once()
    gc.collect()
    assert open_files() <= before + 1
    assert not any(map(runs, pids))


PROGRAM = """
import os, sys, time
import pipelines
if __name__ == "__main__":
    loader = pipelines.train(sys.argv[1], window=60, context=15, frame_budget=500, processes=2, start_method=sys.argv[2])
    for batch in loader:
        print(*loader.pids, flush=True)
        time.sleep(60)
"""


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("blow", [signal.SIGINT, signal.SIGKILL])
def test_workers_end_with_their_parent(pack, tmp_path, method, blow):
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    with subprocess.Popen([sys.executable, script, pack.paths[0], method], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, env=environment) as process:
        assert process.stdout is not None
        pids = [int(pid) for pid in process.stdout.readline().split()]
        assert len(pids) == 2
        process.send_signal(blow)
        process.wait(20)
    until = time.monotonic() + 15
    while any(map(runs, pids)) and time.monotonic() < until:
        time.sleep(0.1)
    assert not any(map(runs, pids))


def test_the_index_is_not_copied_into_processes(pack, tmp_path):
    """A forked process that reads every entry of a large index dirties little memory: columns, not dictionaries."""
    import asdstore
    folder = make_sparse_pack(tmp_path / "large", 100_000, sealed=True)
    large = asdstore.open(folder)
    loader = pipelines.evaluate(large)
    tracks = loader.recipe.tracks
    gc.collect()
    gc.freeze()
    read, written = os.pipe()
    pid = os.fork()
    if not pid:
        before = dirty()
        total = sum(len(tracks.sample_id(i)) + int(tracks.frames[i]) for i in range(len(tracks)))
        os.write(written, f"{dirty() - before} {total}".encode())
        os._exit(0)
    os.waitpid(pid, 0)
    gc.unfreeze()
    grown, total = map(int, os.read(read, 100).split())
    os.close(read)
    os.close(written)
    assert total > 0 and grown < 10_000_000


def dirty() -> int:
    text = Path("/proc/self/smaps_rollup").read_text()
    return 1024 * sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Private_Dirty:"))
