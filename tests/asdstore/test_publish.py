"""asdstore.publish and the writer around it: the same bytes from any engine, stopped runs, targets, two writers."""
from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asdstore
from asdstore import shards, testing
from asdstore.errors import StoreError
from asdstore.records import Media, Record
from asdstore.testing import LAYOUT, digests, load
from asdstore.writer import write_pack
from spec.plan import plan_shards, track_bytes

RECORDS = testing.records()
SHARD_BYTES = 60_000


def write(target: Path, records: Sequence[Record] = RECORDS, load: Any = load, **options: Any) -> Path:
    return write_pack(target, records, load, **{"layout": LAYOUT, "max_shard_bytes": SHARD_BYTES} | options)


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("written") / "pack")


# --- the same bytes, whoever does the work ---

def backwards(function: Any, tasks: Sequence[Any]) -> Iterator[Any]:
    yield from map(function, reversed(tasks))


def in_processes(function: Any, tasks: Sequence[Any]) -> Iterator[Any]:
    with ProcessPoolExecutor(2) as pool:
        yield from pool.map(function, tasks)


@pytest.mark.parametrize("run", [backwards, in_processes])
def test_bytes_do_not_depend_on_the_engine(pack: Path, tmp_path: Path, run: Any):
    seen: list[Record] = []
    assert digests(write(tmp_path / "other", run=run, progress=seen.append)) == digests(pack)
    assert sorted(seen) == sorted(RECORDS)
    assert os.listdir(tmp_path) == ["other"]


def test_tasks_and_facts_pickle(tmp_path: Path):
    task = shards.ShardTask(0, tuple(RECORDS), load, LAYOUT, tmp_path, "plan")
    assert pickle.loads(pickle.dumps(task)) == task


def test_an_engine_that_loses_a_shard_is_an_error(tmp_path: Path):
    def lossy(function: Any, tasks: Sequence[Any]) -> Iterator[Any]:
        yield from map(function, tasks[1:])

    with pytest.raises(RuntimeError, match="4 of 5 shards"):
        write(tmp_path / "pack", run=lossy)
    assert not (tmp_path / "pack").exists()


def test_progress_is_told_of_every_track_as_it_is_written(tmp_path: Path):
    events: list[str] = []

    def loud(record: Record) -> Media:
        events.append(f"load {record.source}")
        return load(record)

    write(tmp_path / "pack", load=loud, progress=lambda record: events.append(f"done {record.source}"))
    assert [e for e in events if e.startswith("load")] == [f"load {n}" for n in range(7)]
    assert [e for e in events if e.startswith("done")] == [f"done {n}" for n in range(7)]
    for n in range(7):  # told before the track after the next is loaded: one is written while another is decoded
        later = events.index(f"load {n + 2}") if n < 5 else len(events)
        assert events.index(f"load {n}") < events.index(f"done {n}") < later


# --- resuming ---

class Stop(Exception):
    pass


def stopping(record: Record, at: int, loaded: list[int]) -> Media:
    if record.source == at:
        raise Stop
    loaded.append(int(str(record.source)))
    return load(record)


def interrupted(target: Path, at: int, **options: Any) -> None:
    with pytest.raises(Stop):
        write(target, load=partial(stopping, at=at, loaded=[]), **options)


def test_a_rerun_keeps_finished_shards(pack: Path, tmp_path: Path):
    interrupted(tmp_path / "pack", at=5)
    assert sorted(os.listdir(tmp_path)) == [".pack.partial"]
    first_left = next(part.start for part in plan_shards([track_bytes(r.frames, r.fps, LAYOUT) for r in RECORDS], SHARD_BYTES)
                      if 5 in part)
    assert first_left > 0
    loaded: list[int] = []
    seen: list[Record] = []
    write(tmp_path / "pack", load=partial(stopping, at=-1, loaded=loaded), progress=seen.append)
    assert loaded == list(range(first_left, 7)) and seen == RECORDS
    assert digests(tmp_path / "pack") == digests(pack)
    assert os.listdir(tmp_path) == ["pack"]


@pytest.mark.parametrize("change", [{"sources": "other"}, {"max_shard_bytes": SHARD_BYTES + 1}, {"records": RECORDS[:-1]},
                                    {"records": [*RECORDS[:-1], RECORDS[-1]._replace(source=99)]}])
def test_a_rerun_with_another_plan_starts_clean(tmp_path: Path, change: dict[str, Any]):
    interrupted(tmp_path / "pack", at=5, sources="one")
    loaded: list[int] = []
    changed: dict[str, Any] = {"sources": "one"} | change
    write(tmp_path / "pack", load=partial(stopping, at=-1, loaded=loaded), **changed)
    assert loaded[0] == 0
    assert digests(tmp_path / "pack") == digests(write(tmp_path / "fresh", **changed))


@pytest.mark.parametrize("damage", ["short", "long", "lost", "more", "facts lost", "facts broken", "other facts"])
def test_a_shard_that_does_not_fit_its_facts_or_the_plan_is_written_again(pack: Path, tmp_path: Path, damage: str):
    interrupted(tmp_path / "pack", at=5)
    shard, facts = tmp_path / ".pack.partial/pack/shard-000000", tmp_path / ".pack.partial/facts/000000.json"
    data = (shard / "faces.npy").read_bytes()
    if damage in ("short", "long"):
        (shard / "faces.npy").write_bytes(data[:-1] if damage == "short" else data + b"\0")
    elif damage == "lost":
        (shard / "labels.npy").unlink()
    elif damage == "more":
        (shard / "thumbs.db").touch()
    elif damage == "facts lost":
        facts.unlink()
    elif damage == "facts broken":
        facts.write_bytes(facts.read_bytes()[:-9])
    else:  # a power loss brought back a shard of an earlier plan
        facts.write_text(re.sub('"plan":"[0-9a-f]{64}"', f'"plan":"{0:064}"', facts.read_text()))
    loaded: list[int] = []
    assert digests(write(tmp_path / "pack", load=partial(stopping, at=-1, loaded=loaded))) == digests(pack)
    assert loaded[0] == 0


def test_leftovers_of_a_stopped_run_never_reach_the_pack(pack: Path, tmp_path: Path):
    interrupted(tmp_path / "pack", at=5, extras={"old.csv": b""})
    work = tmp_path / ".pack.partial"
    (work / "building-000000-1").mkdir()
    (work / "pack" / "old.csv").touch()
    (work / "pack" / "columns").mkdir()
    (work / "pack" / "columns" / "old.npy").touch()
    assert digests(write(tmp_path / "pack")) == digests(pack)


# --- targets ---

def test_an_empty_folder_or_a_new_one_deep_down_is_a_target(pack: Path, tmp_path: Path):
    (tmp_path / "empty").mkdir()
    assert digests(write(tmp_path / "empty")) == digests(pack)
    assert digests(write(tmp_path / "a" / "b" / "c")) == digests(pack)


def test_a_link_to_a_folder_is_followed(pack: Path, tmp_path: Path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to("elsewhere", target_is_directory=True)
    assert write(tmp_path / "link") == tmp_path / "elsewhere"
    assert (tmp_path / "link").is_symlink() and digests(tmp_path / "elsewhere") == digests(pack)


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("what", ["file", "folder"])
def test_what_is_no_pack_is_never_replaced(tmp_path: Path, what: str, overwrite: bool):
    target = tmp_path / "home"
    if what == "file":
        target.write_text("mine")
    else:
        (target / "photos").mkdir(parents=True)
    with pytest.raises(StoreError) as found:
        write(target, overwrite=overwrite)
    assert found.value.kind == "exists" and os.listdir(tmp_path) == ["home"]
    assert target.read_text() == "mine" if what == "file" else os.listdir(target) == ["photos"]


def test_a_pack_is_replaced_only_when_asked_and_only_when_the_new_one_is_complete(pack: Path, tmp_path: Path):
    target = write(tmp_path / "pack", RECORDS[:3])
    old = digests(target)
    with pytest.raises(StoreError) as found:
        write(target)
    assert found.value.kind == "exists" and digests(target) == old and os.listdir(tmp_path) == ["pack"]
    interrupted(target, at=6, overwrite=True)
    assert digests(target) == old
    mapped = np.load(target / "shard-000000" / "faces.npy", mmap_mode="r")
    before = mapped.copy()
    assert digests(write(target, overwrite=True)) == digests(pack)
    assert os.listdir(tmp_path) == ["pack"]
    np.testing.assert_array_equal(mapped, before)  # who has the old pack open keeps reading it


def test_a_target_that_appears_meanwhile_is_not_replaced(tmp_path: Path):
    def intrude(record: Record) -> Media:
        (tmp_path / "pack").mkdir(exist_ok=True)
        (tmp_path / "pack" / "mine").touch()
        return load(record)

    with pytest.raises(StoreError) as found:
        write(tmp_path / "pack", load=intrude)
    assert found.value.kind == "exists" and os.listdir(tmp_path / "pack") == ["mine"]


def test_a_second_writer_is_refused_and_the_first_one_is_not_disturbed(pack: Path, tmp_path: Path):
    refused: list[str] = []

    def meanwhile(record: Record) -> Media:
        if record.source == 5:
            code = "import sys; sys.path[:0] = [{!r}, {!r}]; import test_writer as t; t.write(t.Path({!r}))".format(
                str(Path(__file__).parent), str(Path(asdstore.__file__).parent.parent), str(tmp_path / "pack"))
            refused.append(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr)
        return load(record)

    assert digests(write(tmp_path / "pack", load=meanwhile)) == digests(pack)
    assert "StoreError" in refused[0] and "[locked]" in refused[0]
    assert os.listdir(tmp_path) == ["pack"]
