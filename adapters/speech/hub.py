"""A dataset of a Hugging Face hub, streamed: its rows are put aside as Arrow files, as many as the workers take, and no more.

The parts are those that a local copy would give: `rows_per_file` rows each, in the order of the stream. A local copy of a
repository is read the same way, without a word to any hub. A run that was stopped streams again, and leaves finished parts out.
"""
from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from adapters.speech import rows, sources
from adapters.speech.ingest import Plan
from adapters.speech.parts import Options, PartTask, finished_part
from adapters.speech.sources import Given, Names
from asdstore import files
from asdstore.errors import DependencyError, InputError
from spec.document import dump_json

BATCH = 100  # rows of a record batch that is put aside
ASIDE = "building-rows"  # folder of the rows that are put aside, in the work folder


class Hub(NamedTuple):
    """What is asked of a hub. No splits: all that a configuration has."""

    name: str
    configurations: tuple[str, ...]
    splits: tuple[str, ...]
    revision: str | None
    names: Names
    language: str  # of all rows, "" where a configuration or column says it
    languages: dict[str, str]  # of configurations
    any_language: bool


class _Stream(NamedTuple):
    """The rows of one configuration and split."""

    configuration: str
    split: str
    rows: Any  # a datasets.IterableDataset, its audio not decoded


def plan(hub: Hub, options: Options, rows_per_file: int, workers: int) -> Plan:
    """The plan of a dataset that is streamed; its parts come in rounds of as many as there are workers."""
    rows_per_file = max(rows_per_file, options.shuffle_window)
    digest = hashlib.sha256(dump_json([*options, rows_per_file, *hub])).hexdigest()

    def rounds(work: Path) -> Iterator[list[PartTask]]:
        tasks = _tasks(hub, options, rows_per_file, work, digest)
        while held := list(itertools.islice(tasks, workers)):
            yield held
            for task in held:
                for span in task.spans:
                    files.remove(Path(span.piece.path))

    return Plan(options, rows_per_file, digest, rounds)


def _tasks(hub: Hub, options: Options, rows_per_file: int, work: Path, digest: str) -> Iterator[PartTask]:
    """The parts in the order of the stream, each when its rows are put aside. The end of a split ends its parts."""
    numbers: dict[tuple[str, str], int] = {}
    for stream in _streams(hub):
        shelves: dict[tuple[str, str], _Shelf] = {}
        for key, table in _parted(hub, stream):
            while len(table):
                if key not in shelves:
                    numbers[key] = numbers.get(key, -1) + 1
                    shelves[key] = _Shelf(PartTask(*key, numbers[key], (), options, work, digest), hub)
                room = rows_per_file - shelves[key].rows
                shelves[key].add(table.slice(0, room))
                table = table.slice(room)
                if shelves[key].rows == rows_per_file:
                    yield shelves.pop(key).task()
        for key in sorted(shelves):
            yield shelves[key].task()


class _Shelf:
    """The rows of a part that wait for their worker; of a part that is finished nothing but their number."""

    def __init__(self, task: PartTask, hub: Hub):
        self.rows = 0
        self._task, self._names, self._writer = task, hub.names, None
        self._finished = finished_part(task) is not None
        self._path = task.work / ASIDE / f"{task.split}-{task.language}-{task.number:05d}.arrow"

    def add(self, table: Any) -> None:
        import pyarrow as pa

        self.rows += len(table)
        if self._finished:
            return
        if self._writer is None:
            files.make_folder(self._path.parent)
            self._writer = pa.ipc.new_stream(str(self._path), table.schema)
        self._writer.write_table(table, BATCH)

    def task(self) -> PartTask:
        if self._writer is None:
            return self._task
        self._writer.close()
        piece, = sources.find(self._path, Given(self._task.split, self._task.language, self._names))
        return self._task._replace(spans=(rows.Span(piece, range(self.rows)),))


def _streams(hub: Hub) -> Iterator[_Stream]:
    try:
        import datasets
    except ImportError as why:
        raise DependencyError("dependency", expected="the package datasets", found=str(why),
                              cure="pip install 'asdstore[speech]'") from why
    for configuration in hub.configurations:
        with _hub_errors(hub, configuration):
            found = datasets.load_dataset(hub.name, configuration or None, revision=hub.revision, streaming=True)
        for split in hub.splits or tuple(found):
            if split not in found:
                raise InputError("hub", file=hub.name, sample_id=configuration, expected=f"the split {split}",
                                 found=", ".join(map(str, found)))
            stream = found[split]
            for column, feature in (stream.features or {}).items():
                if isinstance(feature, datasets.Audio):
                    stream = stream.cast_column(column, datasets.Audio(decode=False))
            yield _Stream(configuration, str(split), stream)


def _parted(hub: Hub, stream: _Stream) -> Iterator[tuple[tuple[str, str], Any]]:
    """The rows of a stream as Arrow tables, each of one partition."""
    with _hub_errors(hub, stream.configuration):
        for table in stream.rows.with_format("arrow").iter(BATCH):
            language = hub.language or (stream.configuration if stream.configuration in hub.languages else "")
            piece = sources.of_table(table, f"{hub.name}/{stream.configuration}", Given(stream.split, language, hub.names))
            found, faults = rows.partition([piece], hub.languages, hub.any_language)
            if faults:
                raise InputError(faults[0])
            for key, spans in found.items():
                yield key, table if len(spans[0].rows) == len(table) else table.take(spans[0].rows)


@contextmanager
def _hub_errors(hub: Hub, configuration: str) -> Iterator[None]:
    """InputError "hub" for what goes wrong while a dataset is opened or read."""
    try:
        yield
    except InputError:
        raise
    except (OSError, ValueError, RuntimeError) as why:
        raise InputError("hub", file=hub.name, sample_id=configuration, expected="a dataset that can be streamed",
                         found=f"{type(why).__name__}: {why}"[:300],
                         cure="Are its name, configuration and revision right?") from why
