"""Records in, a pack out: shards planned before decoding, written by any number of workers, published whole or not at all.

The bytes of a pack depend on its records, their media and `max_shard_bytes`, not on workers, order of work or interruptions.
"""
from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from asdstore import files, publish
from asdstore import report as reports
from asdstore.records import Record, check_records
from asdstore.shards import ShardFacts, ShardTask, finished_shard, write_shard
from spec import columns, index, manifest, seal
from spec.document import dump_json
from spec.errors import InputError
from spec.layout import ASD, SHARD_NAME, Layout
from spec.plan import plan_shards, track_bytes

MAX_SHARD_BYTES = 1_000_000_000
OWN_NAMES = {manifest.NAME, seal.NAME, reports.NAME, columns.FOLDER, "mirror.zarr"}
Run = Callable[[Callable[[ShardTask], ShardFacts], Sequence[ShardTask]], Generator[ShardFacts, None, None]]


def write_pack(target: str | os.PathLike[str], records: Iterable[Record], load: Callable[[Record], Any], *,
               layout: Layout = ASD, max_shard_bytes: int = MAX_SHARD_BYTES, sources: str = "", overwrite: bool = False,
               changed: Callable[[Record, int], bool] = lambda record, since: False, run: Run | None = None,
               progress: Callable[[Record], object] = lambda record: None,
               report: Mapping[str, Any] | None = None, extras: Mapping[str, bytes] | None = None) -> Path:
    """Writes a pack and returns where it is. Stopped in any way it leaves no new pack, and the same call continues the work.

    Arguments:
        target: the folder of the pack, new or empty.
        records: the tracks in their order.
        load: gives the media of a record; a top-level function or a functools.partial of one where `run` uses processes.
        layout: the layout of the pack, with the geometry of its faces.
        max_shard_bytes: a shard is closed before it exceeds this many bytes of faces, audio and labels.
        sources: a text that changes when the media do (sizes, times, digests): a stopped run continues only with the same one.
        changed: tells whether the media of a record changed at or after a time in ns, where `sources` would not show it: the
            shard that a stopped run made of it is made again.
        overwrite: replace a pack at `target`, once the new one is complete.
        run: gives `function(task)` for every task, in any order, as a generator. By default they are done one after the other,
            with a thread that encodes and writes a track while the next one is loaded.
        progress: called with each record that is packed, or with all those of a shard when it comes back from `run`.
        report: more keys for `report.json`: what was skipped and why.
        extras: more files for the pack, by name.

    Raises: InputError for records and media that cannot be packed ("no-tracks", "duplicate-id", "labels" ...);
        StoreError "exists", "locked", "disk-full", "io".
    """
    records, extras = list(records), dict(extras or {})
    check_records(records)
    _check_extras(extras)
    parts = plan_shards((track_bytes(r.frames, r.fps, layout) for r in records), max_shard_bytes)
    plan = _plan_digest(records, layout, max_shard_bytes, sources)
    with publish.workspace(Path(target)) as work:
        if publish.is_published(work, plan):
            return work.target
        publish.check_target(work.target, overwrite)
        publish.begin(work, plan)
        tasks = [ShardTask(number, tuple(records[part.start:part.stop]), load, layout, work.folder, plan)
                 for number, part in enumerate(parts)]
        facts = _write_shards(tasks, changed, run, progress)
        tally = reports.empty(layout)
        for shard in facts:
            tally = reports.add(tally, shard.tally)
        named = {manifest.NAME: manifest.dump(manifest.Manifest(layout, len(parts), len(records))),
                 reports.NAME: json.dumps(reports.document(tally) | dict(report or {}), indent=2).encode(),
                 **extras, **columns.dump(_read_index(work.pack, layout, len(parts)))}
        _seal(work.pack, facts, named)
        publish.publish(work, plan, overwrite)
    return work.target


def _write_shards(tasks: list[ShardTask], changed: Callable[[Record, int], bool], run: Run | None,
                  progress: Callable[[Record], object]) -> list[ShardFacts]:
    """The facts of all shards in order; those that an earlier run finished are not written again."""
    facts = {task.number: shard for task in tasks if (shard := finished_shard(task, changed))}
    for record in (record for number in facts for record in tasks[number].records):
        progress(record)
    waiting = [task for task in tasks if task.number not in facts]
    write = partial(write_shard, beside=run is None or len(waiting) == 1)  # else each shard has one core
    with closing((write(task, progress) for task in waiting) if run is None else run(write, waiting)) as results:
        for shard in results:
            facts[shard.number] = shard
            if run is not None:
                for record in tasks[shard.number].records:
                    progress(record)
    if len(facts) < len(tasks):
        raise RuntimeError(f"`run` gave {len(facts)} of {len(tasks)} shards")
    return [facts[number] for number in range(len(tasks))]


def _read_index(pack: Path, layout: Layout, shards: int) -> index.Index:
    """The index of all shards, read back from what was written."""
    paths = [pack / SHARD_NAME.format(n) / index.NAME for n in range(shards)]
    return index.concat([index.parse(path.read_bytes(), layout, n, str(path)) for n, path in enumerate(paths)])


def _seal(pack: Path, facts: list[ShardFacts], named: dict[str, bytes]) -> None:
    """Writes the files beside the shards, and the seal after everything else is on the disk."""
    sealed = [file for shard in facts for file in shard.files]
    for name, data in named.items():
        files.make_folder((pack / name).parent)
        sealed.append(files.write_file(pack / name, name, data))
    for folder in {(pack / name).parent for name in named}:
        files.fsync_folder(folder)
    files.write_file(pack / seal.NAME, seal.NAME, seal.dump(seal.Seal(seal.BLOCK_BYTES, tuple(sorted(sealed)))))
    files.fsync_folder(pack)


def _plan_digest(records: list[Record], layout: Layout, max_shard_bytes: int, sources: str) -> str:
    """Tells whether a stopped run may be continued: sha256 of what decides the bytes of a shard, before decoding."""
    shapes = [stream.item_shape for stream in layout.streams]
    digest = hashlib.sha256(dump_json([layout.format, layout.version, shapes, max_shard_bytes, sources]))
    for record in records:
        digest.update(repr(record).encode(errors="backslashreplace") + b"\n")
    return digest.hexdigest()


def _check_extras(extras: Mapping[str, bytes]) -> None:
    for name in extras:
        if name in OWN_NAMES or name.startswith("shard-") or not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", name):
            raise InputError("extra-name", expected="a plain file name that the pack does not use itself", found=repr(name))
