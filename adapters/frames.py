"""`prepare frames SPEC --output DIR`: frame features of other programs become a pack.

A specification names the files as `pipelines.frames` does, with the options that belong to them (`label`); what is done to
the frames in training (context, labels left out ...) is said when they are loaded.
"""
from __future__ import annotations

import argparse
import glob
import hashlib
import json
import os
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from adapters.survey import fingerprint
from asdstore.errors import InputError, MissingError
from asdstore.formats.joined import short_names
from asdstore.formats.open import open_source
from asdstore.formats.source import Source, check_alike
from asdstore.frame_tracks import FrameMedia, frame_layout
from asdstore.records import Record
from asdstore.writer import write_pack
from spec.layout import SHARD_NAME, Layout
from spec.plan import plan_shards, track_bytes

FINE = 0
NAMED = 5  # items of each kind that are shown; report.json has all
FRAME_RATE = 100.0  # Hz, what most features have; no file of these kinds says it, and a pack of frames does not keep it


class Place(NamedTuple):
    """Where an utterance is: what opens its file, and its number there."""

    path: str
    label: str | None
    strict: bool
    number: int


class Survey(NamedTuple):
    """All that is known before anything is packed."""

    records: tuple[Record, ...]
    layout: Layout
    report: dict[str, Any]
    sources: str  # sizes and times of the files: another text, another content


def survey_frames(spec: str, strict: bool = True) -> Survey:
    """The utterances of all files that a specification names, in order.

    An utterance is named as in its file; where several files, or files without names, are packed, as `file:name`, with as much
    of the path of the file as tells it from the others.

    Raises: MissingError for a pattern that matches nothing; InputError "spec", "dimension"; what the readers raise.
    """
    pattern, label = _read_spec(spec)
    paths = [pattern] if os.path.exists(pattern) else sorted(glob.glob(pattern))
    if not paths:
        raise MissingError("missing", file=pattern, expected="a file of that name or pattern", found="none")
    records: list[Record] = []
    notes: dict[str, list[str]] = {}
    first: Source | None = None
    stamps = hashlib.sha256()
    for path, short in zip(paths, short_names(paths), strict=True):
        source = open_source(path, label, strict)
        first = source if first is None else first
        check_alike(source, first)
        named = len(paths) == 1 and source.format in ("kaldi", "frames")
        records += _records(source, Place(path, label, strict, 0), "" if named else f"{short}:")
        for name, items in source.notes.items():
            notes.setdefault(name, []).extend(f"{short}: {item}" for item in items)
        stamps.update(f"{source.digest} {fingerprint(source.files)}\n".encode())
        source.release()
    assert first is not None
    report = {"spec": spec, "files": short_names(paths), "left_out": notes}
    return Survey(tuple(records), frame_layout(first.dim, first.label_columns), report, stamps.hexdigest())


def _read_spec(spec: str) -> tuple[str, str | None]:
    """The pattern and the alignment. Other options belong to loading."""
    pattern, *options = spec.split(",")
    label = None
    for option in options:
        if not option.startswith("label="):
            raise InputError("spec", file=spec, expected="a file or pattern and label=", found=repr(option),
                             cure="A pack keeps all frames as they are: give the other options to pipelines.frames.")
        label = option.removeprefix("label=")
    return pattern, label


def _records(source: Source, place: Place, before: str) -> list[Record]:
    found = enumerate(zip(source.ids, np.diff(source.offsets).tolist(), strict=True))
    return [Record(source.format, before + name, FRAME_RATE, frames, 0.0, "", place._replace(number=i))
            for i, (name, frames) in found if frames]


@lru_cache(maxsize=1)
def _opened(path: str, label: str | None, strict: bool) -> Source:
    return open_source(path, label, strict)


def load_frames(record: Record) -> FrameMedia:
    """The frames of a record that `survey_frames` made: native float32 and int32."""
    place: Place = record.source  # type: ignore[assignment]
    source = _opened(place.path, place.label, place.strict)
    return FrameMedia(*source.read(int(source.offsets[place.number]), int(source.offsets[place.number + 1])))


def run(options: argparse.Namespace) -> int:
    """`prepare frames`, done. Returns the exit code."""
    survey = survey_frames(options.spec, not options.skip_unlabelled)
    if options.dry_run:
        sizes = [track_bytes(record.frames, record.fps, survey.layout) for record in survey.records]
        shards = len(plan_shards(sizes, round(options.max_shard_gb * 1e9)))
        plan = {"output": options.output, "shards": shards, "bytes": sum(sizes), "tracks": len(sizes),
                "frames": sum(record.frames for record in survey.records), **survey.report}
        print(json.dumps(plan, indent=2) if options.json else
              f"would write {options.output}: {shards} shards, {sum(sizes) / 1e9:.3f} GB\n{_table(plan)}")
        return FINE
    pack = _written(survey, options)
    report = json.loads((pack / "report.json").read_bytes())
    print(json.dumps({"pack": str(pack), **report}, indent=2) if options.json else f"{pack}\n{_table(report)}")
    return FINE


def _written(survey: Survey, options: argparse.Namespace) -> Path:
    from adapters import engine
    from adapters.progress import Bar

    bar = Bar(f"packing {options.output}", sum(record.frames for record in survey.records))
    seen: set[str] = set()

    def progress(record: Record) -> None:
        if record.sample_id not in seen:  # a worker's record is heard of twice: when it is done, and with its shard
            seen.add(record.sample_id)
            bar.add(record.frames)

    work = engine.chosen(options.engine, options.workers, options.address, bar.say, progress,
                         lambda task: SHARD_NAME.format(task.number))
    try:
        return write_pack(options.output, survey.records, load_frames, layout=survey.layout, sources=survey.sources,
                          max_shard_bytes=round(options.max_shard_gb * 1e9), overwrite=options.overwrite, run=work,
                          progress=progress, report=survey.report)
    finally:
        bar.close()


def _table(report: dict[str, Any]) -> str:
    lines = [f"  {name:<38}{report[name]:,}" for name in ("tracks", "frames")]
    lines += [f"  {name:<38}{value:,}" for name, value in report.get("notes", {}).items()]
    for name, items in report["left_out"].items():
        lines += [f"  {name:<38}{len(items):,}", *(f"      {item}" for item in items[:NAMED])]
    return "\n".join(lines)
