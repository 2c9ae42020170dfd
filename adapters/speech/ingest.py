"""A corpus of speech as partitioned Parquet: planned from metadata, written part by part, published whole.

The parts of a partition hold `rows_per_file` rows of the source each, in its order or shuffled within a window, so they do not
depend on one another: any number of workers writes the same bytes. A corpus comes into its place in one step, with the
manifest that names its files; a run that was stopped goes on where it was.
"""
from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from adapters.speech import rows
from adapters.speech.parts import Heard, Options, PartFacts, PartTask, finished_part, text_rules, write_part
from adapters.summary import LABELS, NAMED
from adapters.survey import fingerprint
from asdstore import files, publish, report
from asdstore.errors import InputError
from asdstore.formats.parquet_set import GROUP_ROWS, MANIFEST, Part, dump_manifest
from spec.document import dump_json
from spec.layout import SAMPLE_RATE

REPORT = "_report.json"
ROWS_PER_FILE = 10_000
CORPUS = publish.Kind(MANIFEST, MANIFEST, "split=")
Run = Callable[[Callable[[PartTask], PartFacts], Sequence[PartTask]], Iterator[PartFacts]]


class Plan(NamedTuple):
    """What shall be written. `rounds` gives the tasks in groups, each begun when the one before is done."""

    options: Options
    rows_per_file: int
    digest: str  # tells whether a stopped run may be continued
    rounds: Callable[[Path], Iterable[Sequence[PartTask]]]


def plan(partitions: rows.Partitions, options: Options, rows_per_file: int = ROWS_PER_FILE) -> Plan:
    """The plan of sources that are at hand. A window of the shuffle lies within a file, so files may become longer."""
    rows_per_file = max(rows_per_file, options.shuffle_window)
    digest = _digest(partitions, options, rows_per_file)

    def rounds(work: Path) -> Iterator[list[PartTask]]:
        yield [PartTask(*key, number, rows.take(spans), options, work, digest) for key, whole in partitions.items()
               for number, spans in enumerate(rows.cut(whole, rows_per_file))]

    return Plan(options, rows_per_file, digest, rounds)


def write_corpus(version: Path, wanted: Plan, *, overwrite: bool = False, run: Run | None = None,
                 progress: Heard = lambda done: None) -> dict[str, Any]:
    """Writes `<version>/corpus=<name>` and returns its report. Stopped in any way it leaves no new corpus there.

    Arguments:
        version: the folder of all corpora, such as `<root>/version=0`.
        overwrite: replace a corpus of that name, once the new one is complete.
        run: gives `function(task)` for every task, in any order; one after the other by default.
        progress: called with the name of a part and the number of its rows that are done.

    Raises: InputError "parquet" (a source that breaks while it is read), "no-rows" (none is left); StoreError "exists",
        "locked", "disk-full", "io".
    """
    with publish.workspace(version / f"corpus={wanted.options.corpus}", CORPUS) as work:
        if not publish.is_published(work, wanted.digest):
            publish.check_target(work.target, overwrite, CORPUS)
            publish.begin(work, wanted.digest)
            found = [facts for tasks in wanted.rounds(work.folder) for facts in _write(tasks, run, progress)]
            _finish(work.pack, wanted, sorted(found))
            publish.publish(work, wanted.digest, overwrite)
        return json.loads((work.target / REPORT).read_bytes())


def _write(tasks: Sequence[PartTask], run: Run | None, progress: Heard) -> Iterator[PartFacts]:
    waiting = []
    for task in tasks:
        facts = finished_part(task)
        if facts is None:
            waiting.append(task)
            continue
        progress((task.name, rows.count(task.spans)))
        yield facts
    with closing(run(write_part, waiting) if run else (write_part(task, progress) for task in waiting)) as results:  # type: ignore
        yield from results


def _finish(pack: Path, wanted: Plan, found: Sequence[PartFacts]) -> None:
    """Writes the report and, after everything else is on the disk, the manifest."""
    parts = [facts.part for facts in found if facts.part]
    rejected = [fault for facts in found for fault in facts.rejected]
    if not parts:
        raise InputError("no-rows", expected="at least one utterance that can be used", found=f"{len(rejected):,} that cannot",
                         file=rejected[0].file if rejected else "", cure=rejected[0].text() if rejected else "")
    notes: dict[str, Any] = {}
    for facts in found:
        notes = report.add(notes, facts.notes)
    decoded_by = sorted(notes.pop("decoded_by"))
    kinds = {kind: [fault for fault in rejected if fault.kind == kind] for kind in sorted({fault.kind for fault in rejected})}
    told = {"corpus": wanted.options.corpus, "utterances": sum(part.rows for part in parts), "hours": _hours(parts),
            "files": len(parts), "left_out": {kind: len(faults) for kind, faults in kinds.items()}, "notes": notes,
            "partitions": _partitions(parts), "rejected": [_brief(fault) for faults in kinds.values() for fault in faults]}
    files.write_file(pack / REPORT, REPORT, json.dumps(told, indent=1, ensure_ascii=False).encode(errors="backslashreplace"))
    document = {
        "corpus": wanted.options.corpus, "row_group_rows": GROUP_ROWS, "rows_per_file": wanted.rows_per_file,
        "shuffle": {"window": wanted.options.shuffle_window, "seed": wanted.options.seed}, "text": text_rules(wanted.options),
        "audio": {"format": wanted.options.audio_format, "sample_rate": SAMPLE_RATE, "decoded_by": decoded_by},
        "files": [_entry(part) for part in parts]}
    for folder in {pack / part.name for part in parts}:
        files.fsync_folder(folder.parent.parent)  # those of languages were put on the disk with their parts
    files.write_file(pack / MANIFEST, MANIFEST, dump_manifest(document))
    files.fsync_folder(pack)


def _entry(part: Part) -> dict[str, Any]:
    keys = ("name", "rows", "samples", "bytes", "sha256", "rows_bytes", "rows_sha256")
    return {key: getattr(part, key) for key in keys}


def _hours(parts: Iterable[Part]) -> float:
    return round(sum(part.samples for part in parts) / SAMPLE_RATE / 3600, 6)


def _partitions(parts: Iterable[Part]) -> list[dict[str, Any]]:
    groups: dict[tuple[str, str], list[Part]] = {}
    for part in parts:
        groups.setdefault((part.split, part.language), []).append(part)
    return [{"split": split, "language": language, "utterances": sum(part.rows for part in group), "hours": _hours(group)}
            for (split, language), group in groups.items()]


def _brief(fault: Any) -> dict[str, Any]:
    return {"id": fault.sample_id, "why": fault.kind, "file": fault.file, "row": fault.row, "found": fault.found}


def _digest(partitions: rows.Partitions, options: Options, rows_per_file: int) -> str:
    """Of what decides the bytes of every part before anything is decoded."""
    found = hashlib.sha256(dump_json([*options, rows_per_file]))
    seen: dict[str, str] = {}
    tables: set[str] = set()
    for key, spans in partitions.items():
        for piece, numbers in spans:
            if piece.path not in seen:
                seen[piece.path] = fingerprint([os.path.abspath(piece.path)])
            found.update(dump_json([*key, os.path.abspath(piece.path), seen[piece.path], *piece.names, len(numbers)]))
            found.update(repr(numbers).encode() if isinstance(numbers, range) else numbers.astype("<i8").tobytes())
            if piece.table is not None and piece.path not in tables:
                tables.add(piece.path)
                for batch in piece.table.to_batches():
                    found.update(dump_json(batch.to_pylist()))
                    found.update(fingerprint(path or "" for path in batch.column(piece.names.audio).to_pylist()).encode())
    return found.hexdigest()


def describe(told: Mapping[str, Any]) -> str:
    """The report as lines for people."""
    lines = [f"  {told['utterances']:,} utterances, {told['hours']:,.3f} hours, {told['files']:,} files"]
    for one in told["partitions"]:
        lines.append(f"  {one['split']:<8}{one['language']:<16}{one['utterances']:>10,}{one['hours']:>12,.3f} h")
    for kind, count in told["left_out"].items():
        named = [f"      {one['id']}: {one['found']}" for one in told["rejected"] if one["why"] == kind]
        lines += [f"  left out: {kind:<22}{count:>8,}", *named[:NAMED]]
        lines += [f"      and {count - NAMED:,} more, all in {REPORT}"] if count > NAMED else []
    for name, note in told["notes"].items():
        lines.append(f"  {LABELS.get(name, name)}: {len(note) if isinstance(note, list) else note:,}")
    return "\n".join(lines)
