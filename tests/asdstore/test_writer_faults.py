"""The writer on a disk that fails and in a process that dies: the old pack or the new one, and a rerun that ends the same."""
from __future__ import annotations

import errno
import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from asdstore import files, testing
from asdstore.errors import StoreError
from asdstore.records import Media, Record
from asdstore.testing import LAYOUT, digests, load
from asdstore.writer import write_pack
from spec import seal

RECORDS = testing.records([(9, 29.97), (40, 25.0), (1, 30.0)])  # two shards
OLD = [record._replace(source=int(str(record.source)) + 50) for record in RECORDS]  # the same sizes, other media


def write(target: Path, records: list[Record] = RECORDS, load: Any = load, **options: Any) -> Path:
    return write_pack(target, records, load, **{"layout": LAYOUT, "max_shard_bytes": 60_000} | options)


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return digests(write(tmp_path_factory.mktemp("new") / "pack"))


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("old") / "pack", OLD)


Start = Callable[[], Path]
soak = pytest.mark.soak


@pytest.fixture(params=["fresh", "overwrite", pytest.param("overwrite without exchange", marks=soak)])
def start(request: pytest.FixtureRequest, old: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Makes the state before a run and returns the target. In memory and without syncs: killing a process loses no pages."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    if "without" in request.param:
        def refuse(one: Path, other: Path) -> None:
            raise OSError(errno.EINVAL, "Invalid argument")
        monkeypatch.setattr(files, "_rename_exchange", refuse)
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as folder:
        def prepare() -> Path:
            place = Path(folder, "place")
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            if "overwrite" in request.param:
                shutil.copytree(old, place / "pack")
            return place / "pack"

        yield prepare


def run(target: Path) -> None:
    write(target, overwrite=target.exists())


def trace_of(target: Path) -> list[testing.Operation]:
    with testing.faults() as trace:
        run(target)
    return trace


def is_whole(pack: Path) -> bool:
    sealed = {file.name: file.sha256 for file in seal.parse((pack / seal.NAME).read_bytes()).files}
    return sealed == {name: digest for name, digest in digests(pack).items() if name != seal.NAME}


def check_state(target: Path, new: dict[str, str], old: Path) -> str:
    """Which pack there is at a target after something went wrong: "old", "new" or "none", and never a part of one."""
    if not target.exists():
        aside = target.with_name(".pack.partial") / "aside"
        assert not aside.exists() or digests(aside) == digests(old)  # away for a moment; the next run puts it back
        return "aside" if aside.exists() else "none"
    found = digests(target)
    assert found in (new, digests(old)), "a part of a pack is published"
    return "new" if found == new else "old"


def check_rerun(target: Path, new: dict[str, str], overwrite: bool = True) -> None:
    """The same command again completes the work, or says that the pack is there; nothing else is left."""
    try:
        write(target, overwrite=overwrite)
    except StoreError as error:
        assert error.kind == "exists" and not overwrite
    assert digests(target) == new and is_whole(target)
    assert os.listdir(target.parent) == ["pack"]


def killed(function: Callable[[], object], fault: str, at: int) -> bool:
    """Runs in a forked child that kills itself at an operation."""
    pid = os.fork()
    if not pid:
        with suppress(BaseException), testing.faults(fault, at):
            function()
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(pid, 0)[1])


def test_killed_before_every_operation(start: Start, new: dict[str, str], old: Path):
    """After operation n is before operation n + 1: for the disk they are the same moment."""
    count = len(trace_of(start()))
    assert count > 100
    states = []
    for at in range(count + 1):
        target = start()
        assert killed(lambda target=target: run(target), "kill", at) == (at < count)
        states.append(check_state(target, new, old))
        if states[-1] == "aside":
            with pytest.raises(StoreError):  # also a run that may not overwrite puts the old pack back
                write(target)
            assert digests(target) == digests(old)
        check_rerun(target, new, overwrite=states[0] != "none")
    first, *others = dict.fromkeys(states)
    assert first in ("none", "old") and others in (["new"], ["aside", "new"])
    assert states == sorted(states, key=[first, *others].index), "once the new pack is there it stays"


@pytest.mark.parametrize(("fault", "after", "lasting"), [
    ("disk-full", False, True), ("io", True, False), pytest.param("quota", False, False, marks=soak),
    pytest.param("io", False, False, marks=soak)])
def test_every_operation_fails(start: Start, new: dict[str, str], old: Path, fault: str, after: bool, lasting: bool):
    silent = set()
    for at, operation in enumerate(trace_of(start())):
        target = start()
        try:
            with testing.faults(fault, at, after=after, lasting=lasting):
                run(target)
        except StoreError as error:
            assert error.kind == ("io" if fault == "io" else "disk-full")
            assert str(operation.path) in str(error) or lasting
        else:
            silent.add(operation.name)
        overwrite = check_state(target, new, old) in ("old", "aside")
        check_rerun(target, new, overwrite)
    assert silent <= {"exchange"}  # which may fail: then three renames do its work


@pytest.mark.parametrize("fault", ["interrupt", pytest.param("short-write", marks=soak)])
def test_interruptions_and_short_writes_change_nothing(start: Start, new: dict[str, str], fault: str):
    for at in range(len(trace_of(start()))):
        target = start()
        with testing.faults(fault, at):
            run(target)
        assert digests(target) == new and os.listdir(target.parent) == ["pack"]


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit, MemoryError])
def test_stopped_while_loading_any_track(start: Start, new: dict[str, str], old: Path, stop: type[BaseException]):
    for at in range(len(RECORDS)):
        def stopping(record: Record, at: int = at) -> Media:
            if record.source == at:
                raise stop
            return load(record)

        target = start()
        with pytest.raises(stop):
            write(target, load=stopping, overwrite=target.exists())
        assert check_state(target, new, old) in ("old", "none")
        check_rerun(target, new)


def test_real_kills_at_random_moments(tmp_path: Path, new: dict[str, str], old: Path):
    """Real SIGKILLs from outside, again and again on the same target until a run survives; syncing included."""
    target = tmp_path / "pack"
    shutil.copytree(old, target)
    started = time.monotonic()
    write(tmp_path / "measure")
    takes = time.monotonic() - started
    shutil.rmtree(tmp_path / "measure")
    for attempt in range(30):
        pid = os.fork()
        if not pid:
            with suppress(BaseException):
                write(target, overwrite=True)
            os._exit(0)
        time.sleep(takes * (attempt % 10 + 1) / 10)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        check_state(target, new, old)
    check_rerun(target, new)


# --- a real file system that is full ---

@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(place)], capture_output=True)
    if done.returncode:
        pytest.skip("mounting a small file system is not allowed here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_real_full_disk(small_disk: Path, new: dict[str, str], old: Path):
    target, filler = small_disk / "pack", small_disk / "filler"
    shutil.copytree(old, target)
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)):
            pass
    kinds = set()
    for _ in range(20):  # each time a little more room
        try:
            write(target, overwrite=True)
        except StoreError as error:
            kinds.add(error.kind)
        check_state(target, new, old)
        os.truncate(filler, max(0, filler.stat().st_size - 60_000))
    assert kinds == {"disk-full"}
    os.unlink(filler)
    check_rerun(target, new)


# --- what is on the disk when ---

def synced(trace: list[testing.Operation], name: str) -> int:
    """Where in the trace the file or folder with this name is synced."""
    return next(n for n, op in enumerate(trace) if op.name == "fsync" and str(op.path).endswith(name))


def test_order_of_syncs(tmp_path: Path):
    with testing.faults() as trace:
        write(tmp_path / "pack", extras={"ground_truth.csv": b"a"})
    shards = sorted(path.name for path in (tmp_path / "pack").glob("shard-*"))
    assert len(shards) > 1
    renamed = {op.path.name: n for n, op in enumerate(trace) if op.name == "rename"}
    for number, shard in enumerate(shards):
        building = next(op.path.parent.name for op in trace if op.path.parent.name.startswith(f"building-{number:06d}-"))
        order = [*(synced(trace, f"{building}/{name}") for name in ("faces.npy", "audio.npy", "labels.npy", "index.json")),
                 synced(trace, building), synced(trace, f"facts/.{number:06d}.json.partial"), renamed[shard]]
        assert order == sorted(order)
        assert any(op.name == "fsync" and op.path.name == "pack" for op in trace[renamed[shard]:synced(trace, "dataset.json")])
    last = trace[::-1]
    folder = len(trace) - 1 - next(n for n, op in enumerate(last) if op.name == "fsync" and op.path == tmp_path)
    order = [renamed[shards[-1]], synced(trace, "pack/dataset.json"), synced(trace, "pack/report.json"),
             synced(trace, "pack/ground_truth.csv"), synced(trace, "columns/shard.npy"), synced(trace, "pack/columns"),
             synced(trace, "pack/seal.json"), renamed["state.json"], renamed["pack"], folder]
    assert order == sorted(order)
    wrote = [n for n, op in enumerate(trace) if op.name == "write"]
    assert max(wrote) < renamed["state.json"] < renamed["pack"] < min(n for n, op in enumerate(trace) if op.name == "rmdir")


# --- readers meanwhile ---

def read_until(target: Path, until: float, old: str, new: str) -> tuple[int, int, int]:
    """Reads the pack again and again through its folder: how often it was whole, removed meanwhile, and anything else."""
    whole = removed = torn = 0
    while time.monotonic() < until:
        folder = os.open(target, os.O_RDONLY | os.O_DIRECTORY)
        try:
            pack = Path(f"/proc/self/fd/{folder}")
            sealed = (pack / seal.NAME).read_bytes()
            expected = {file.name: file.sha256 for file in seal.parse(sealed).files}
            found = {name: hashlib.sha256((pack / name).read_bytes()).hexdigest() for name in expected}
            good = found == expected and hashlib.sha256(sealed).hexdigest() in (old, new)
            whole, torn = whole + good, torn + (not good)
        except FileNotFoundError:
            removed += 1
        finally:
            os.close(folder)
    return whole, removed, torn


@soak
def test_readers_see_one_pack_or_the_other(tmp_path: Path, new: dict[str, str], old: Path):
    target = tmp_path / "pack"
    shutil.copytree(old, target)
    until = time.monotonic() + 15
    with ProcessPoolExecutor(8) as pool:
        readers = [pool.submit(read_until, target, until, digests(old)[seal.NAME], new[seal.NAME]) for _ in range(8)]
        rounds = 0
        while time.monotonic() < until:
            write(target, (RECORDS, OLD)[rounds % 2], overwrite=True)
            rounds += 1
        results = [reader.result() for reader in readers]
    assert rounds > 10 and all(whole > 10 for whole, _, _ in results)
    assert not any(torn for _, _, torn in results)
