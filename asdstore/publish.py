"""How a pack comes into its place: whole or not at all.

    .<name>.lock               held by the one writer; removed when it ends
    .<name>.partial/pack/      the pack that is being built
    .<name>.partial/facts/     what is known of its finished shards
    .<name>.partial/aside/     the old pack, for a moment, where the file system cannot exchange folders in one step
    .<name>.partial/state.json the plan that the folder belongs to; the digest of the new seal once the pack is complete

The pack is renamed to its place, or exchanged with the pack that is there, only when it is complete and on the disk.
A run that was stopped is continued by a run with the same plan; any other run starts clean.
"""
from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from asdstore import files
from spec import manifest, seal
from spec.document import dump_json, parse_json
from spec.errors import AsdError, StoreError


class State(NamedTuple):
    """What `state.json` says."""

    plan: str = ""
    seal: str = ""  # sha256 of the new pack's seal.json, "" as long as the pack is not complete


class Kind(NamedTuple):
    """What is published: the file by which it is known, the one that names all others, and how the names of its parts begin."""

    known_by: str
    seal: str
    parts: str


PACK = Kind(manifest.NAME, seal.NAME, "shard-")


class Work(NamedTuple):
    """The pack to be and the folder in which it is built."""

    target: Path
    folder: Path
    kind: Kind = PACK

    @property
    def pack(self) -> Path:
        return self.folder / "pack"


@contextmanager
def workspace(target: Path, kind: Kind = PACK) -> Iterator[Work]:
    """The locked work folder for a target, which may be a symbolic link to the real place.

    Raises StoreError "locked" if another writer has it.
    """
    target = Path(os.path.realpath(target))
    work = Work(target, target.with_name(f".{target.name}.partial"), kind)
    files.make_folder(target.parent)
    with files.lock(target.with_name(f".{target.name}.lock")):
        if (work.folder / "aside").exists() and not target.exists():
            files.rename(work.folder / "aside", target)
        yield work


def is_published(work: Work, plan: str) -> bool:
    """Whether an earlier run of the same plan was stopped after its pack came into its place; cleans up after it."""
    state = _state(work)
    published = bool(state.seal) and state.seal == _seal_digest(work, work.target)
    if published or not state.plan:  # without a state nothing can be continued
        files.remove_tree(work.folder)  # in the order of names: state.json goes last
    return published and state.plan == plan


def check_target(target: Path, overwrite: bool, kind: Kind = PACK) -> None:
    """Raises StoreError, kind "exists", if the target holds anything, unless it is a pack that may be overwritten."""
    if not os.path.lexists(target) or (target.is_dir() and not any(target.iterdir())):
        return
    if not (target / kind.known_by).is_file():
        raise StoreError("exists", file=target, expected="a new or empty folder", found="something that is not a pack",
                         cure="Name another target.")
    if not overwrite:
        raise StoreError("exists", file=target, expected="a new or empty folder", found="a pack",
                         cure="Name another target, or overwrite this one.")


def begin(work: Work, plan: str) -> None:
    """Makes the work folder ready for a plan: finished shards of the same plan stay, everything else goes."""
    if _state(work).plan != plan:
        files.remove_tree(work.folder)
    for folder in (work.folder, work.pack):
        if folder.is_dir():
            for name in sorted(os.listdir(folder)):
                if not name.startswith(work.kind.parts) and name not in ("pack", "facts", "state.json"):
                    files.remove_tree(folder / name)
    files.make_folder(work.pack)
    files.make_folder(work.folder / "facts")
    _write_state(work, State(plan))


def publish(work: Work, plan: str, overwrite: bool) -> None:
    """Puts the complete pack in its place and cleans up. Raises StoreError."""
    check_target(work.target, overwrite, work.kind)
    _write_state(work, State(plan, _seal_digest(work, work.pack)))
    if work.target.exists() and any(work.target.iterdir()):
        files.exchange(work.pack, work.target, work.folder / "aside")
        files.fsync_folder(work.folder)
    else:
        files.rename(work.pack, work.target)
    files.fsync_folder(work.target.parent)
    files.remove_tree(work.folder)


def _state(work: Work) -> State:
    try:
        return State(**parse_json((work.folder / "state.json").read_bytes()))
    except (OSError, AsdError, TypeError):
        return State()


def _write_state(work: Work, state: State) -> None:
    files.write_bytes(work.folder / "state.json", dump_json(state._asdict()))


def _seal_digest(work: Work, pack: Path) -> str:
    try:
        return hashlib.sha256((pack / work.kind.seal).read_bytes()).hexdigest()
    except OSError:
        return ""
