"""The writer and a power loss: what was not synced may be lost, in any part, and yet the target holds a whole pack or none.

A run's operations are recorded and replayed in a model of a disk. After a loss, a write survives for certain only if its
file was synced later, a new or changed name only if its folder was; of the others any subset survives.
"""
from __future__ import annotations

import os
import random
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from asdstore import files, testing
from asdstore.records import Record
from asdstore.testing import LAYOUT, load
from asdstore.writer import write_pack

RECORDS = testing.records([(9, 29.97), (40, 25.0), (1, 30.0)])  # two shards
OLD = [record._replace(source=int(str(record.source)) + 50) for record in RECORDS]  # the same sizes, other media
Contents = dict[str, bytes]


class Change(NamedTuple):
    """One change of a node: names that a folder has from now on (None: no more), or bytes at an offset of a file."""

    nodes: tuple[int, ...]  # all of them must be synced for it to be certain
    names: tuple[tuple[int, str, int | None], ...] = ()  # (folder, name, node)
    data: tuple[int, bytes] | None = None  # (offset, bytes); offset -1 empties the file


class Disk:
    """Folders as names of nodes, files as bytes; node 0 is the root, and a node without bytes is a folder."""

    def __init__(self, tree: Contents):
        self.names: dict[int, dict[str, int]] = defaultdict(dict)
        self.bytes: dict[int, bytearray] = {}
        self.count = 0
        for path, data in tree.items():
            *folders, name = path.split("/")
            node = 0
            for folder in folders:
                node = self.names[node].setdefault(folder, self.new())
            self.names[node][name] = file = self.new()
            self.bytes[file] = bytearray(data)

    def new(self) -> int:
        self.count += 1
        return self.count

    def find(self, path: str) -> int | None:
        node: int | None = 0
        for part in path.split("/") if path else []:
            node = self.names[node].get(part) if node is not None else None
        return node

    def apply(self, change: Change) -> None:
        for folder, name, node in change.names:
            if node is None:
                self.names[folder].pop(name, None)
            else:
                self.names[folder][name] = node
        if change.data:
            offset, data = change.data
            stored = self.bytes.setdefault(change.nodes[0], bytearray())
            if offset < 0:
                stored.clear()
            else:
                stored.extend(bytes(max(0, offset + len(data) - len(stored))))
                stored[offset:offset + len(data)] = data

    def tree(self, node: int | None) -> Contents:
        if node is None:
            return {}
        found: Contents = {}
        for name, inner in [*self.names[node].items()]:
            if inner in self.bytes:
                found[name] = bytes(self.bytes[inner])
            else:
                found |= {f"{name}/{deeper}": data for deeper, data in self.tree(inner).items()}
        return found


class Recorder:
    """Follows the operations of `asdstore.files` under a root folder: changes and syncs in order."""

    def __init__(self, root: Path):
        self.root, self.live = root, Disk(tree_of(root))
        self.events: list[Change | int] = []  # a number is a sync of that node
        self.open: dict[int, tuple[int, int]] = {}  # descriptor: node, offset

    def place(self, path: Any) -> tuple[int, str]:
        folder, _, name = str(Path(path).relative_to(self.root)).rpartition("/")
        node = self.live.find(folder)
        assert node is not None
        return node, name

    def add(self, change: Change) -> None:
        self.live.apply(change)
        self.events.append(change)

    def system(self, name: str, path: Path, function: Callable[..., Any], *arguments: Any) -> Any:
        result = function(*arguments)
        getattr(self, f"on_{name}", lambda *_: None)(arguments, result)
        return result

    def on_open(self, arguments: Any, descriptor: int) -> None:
        path, flags, _ = arguments
        if Path(path) == self.root or not flags & os.O_CREAT:
            node = self.live.find("" if Path(path) == self.root else str(Path(path).relative_to(self.root)))
        else:
            folder, name = self.place(path)
            node = self.live.names[folder].get(name)
            if node is None:
                node = self.live.new()
                self.add(Change((folder,), ((folder, name, node),)))
            elif flags & os.O_TRUNC:
                self.add(Change((node,), data=(-1, b"")))
        assert node is not None
        self.open[descriptor] = node, 0

    def on_write(self, arguments: Any, written: int) -> None:
        descriptor, data = arguments
        node, offset = self.open[descriptor]
        self.add(Change((node,), data=(offset, bytes(data[:written]))))
        self.open[descriptor] = node, offset + written

    def on_fsync(self, arguments: Any, _: None) -> None:
        self.events.append(self.open[arguments[0]][0])

    def on_mkdir(self, arguments: Any, _: None) -> None:
        folder, name = self.place(arguments[0])
        self.add(Change((folder,), ((folder, name, self.live.new()),)))

    def on_unlink(self, arguments: Any, _: None) -> None:
        folder, name = self.place(arguments[0])
        self.add(Change((folder,), ((folder, name, None),)))

    on_rmdir = on_unlink

    def on_rename(self, arguments: Any, _: None) -> None:
        (folder, name), (new_folder, new_name) = self.place(arguments[0]), self.place(arguments[1])
        node = self.live.names[folder][name]
        self.add(Change((new_folder,), ((folder, name, None), (new_folder, new_name, node))))

    def on_exchange(self, arguments: Any, _: None) -> None:
        one, other = self.place(arguments[0]), self.place(arguments[1])
        nodes = [self.live.names[folder][name] for folder, name in (one, other)]
        self.add(Change((one[0], other[0]), ((*one, nodes[1]), (*other, nodes[0]))))


@contextmanager
def recorded(root: Path) -> Iterator[Recorder]:
    recorder, real = Recorder(root), files._system
    files._system = recorder.system
    try:
        yield recorder
    finally:
        files._system = real
    assert recorder.live.tree(0) == tree_of(root), "the model follows the real disk"


def tree_of(root: Path) -> Contents:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def after_loss(start: Contents, events: list[Change | int], keep: Callable[[], bool]) -> Disk:
    """The disk after a power loss behind `events`: certain changes, and of the others those for which `keep()` is true."""
    disk, synced, survived = Disk(start), set(), []
    for event in reversed(events):
        if isinstance(event, int):
            synced.add(event)
        elif synced.issuperset(event.nodes) or keep():
            survived.append(event)
    for change in reversed(survived):
        disk.apply(change)
    return disk


def write(target: Path, records: list[Record], load: Any = load, **options: Any) -> Path:
    return write_pack(target, records, load, layout=LAYOUT, max_shard_bytes=60_000, **options)


@pytest.fixture(scope="module")
def packs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Contents, Contents]:
    folder = tmp_path_factory.mktemp("packs")
    return tree_of(write(folder / "old", OLD)), tree_of(write(folder / "new", RECORDS))


@pytest.mark.parametrize("before", ["nothing", "a pack", "a stopped run of another plan"])
def test_after_a_power_loss(tmp_path: Path, packs: tuple[Contents, Contents], before: str,
                            monkeypatch: pytest.MonkeyPatch):
    place, target = tmp_path / "place", tmp_path / "place/deep/pack"
    place.mkdir()
    if before == "a pack":
        write(target, OLD)
    elif before != "nothing":
        with pytest.raises(ZeroDivisionError):
            write(target, OLD, load=lambda record: load(record) if record != OLD[-1] else 1 / 0)
    start = tree_of(place)
    with recorded(place) as recorder:
        write(target, RECORDS, overwrite=True)
    old, new = packs if before == "a pack" else ({}, packs[1])
    count, draw = len(recorder.events), random.Random(0)
    publishing = max(n for n, event in enumerate(recorder.events) if isinstance(event, Change) and event.data) - 5
    moments = [(end, p) for end in range(count + 1) for p in (0.0, 1.0)]
    moments += [(draw.randrange(first, count + 1), draw.random()) for first in (0, publishing) for _ in range(250)]
    states, left = [], {}
    for end, p in moments:
        disk = after_loss(start, recorder.events[:end], lambda p=p: draw.random() < p)
        found = disk.tree(disk.find("deep/pack"))
        assert found in (old, new), f"after {end} operations, when {p:.2f} of what was not synced survived"
        states.append(found == new)
        tree = disk.tree(0)
        left[frozenset((name, data) for name, data in tree.items() if not name.startswith("deep/pack"))] = tree
    assert states[0] is False and states[2 * count] is True  # at the end nothing hangs on luck
    first = states[0:2 * count:2].index(True)
    assert all(states[2 * first:2 * count:2]), "a pack that is there for certain stays"
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    for tree in draw.sample(list(left.values()), 50):
        check_rerun(tmp_path / "again", tree, new)


def check_rerun(place: Path, tree: Contents, new: Contents) -> None:
    """The same command on what the power loss has left gives the same pack."""
    for path, data in tree.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_bytes(data)
    write(place / "deep/pack", RECORDS, overwrite=True)
    assert tree_of(place) == {f"deep/pack/{name}": data for name, data in new.items()}
    shutil.rmtree(place)
