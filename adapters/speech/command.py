"""`python -m adapters.prepare speech ...`: what the options ask for, done."""
from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from adapters import engine
from adapters.progress import Bar
from adapters.speech import ingest, rows, sources, tables
from adapters.speech.languages import fleurs_languages, mls_languages
from adapters.speech.parts import Options
from asdstore.errors import Fault, InputError

FINE = 0
SayFaults = Callable[[list[Fault], argparse.Namespace], int]


class Preset(NamedTuple):
    """A corpus that is known: its place on the hub, its columns, its configurations with their languages."""

    hub: str
    names: sources.Names
    languages: Mapping[str, str]
    splits: tuple[str, ...]
    short: tuple[str, str]


def presets() -> dict[str, Preset]:
    """FLEURS and MLS."""
    return {"fleurs": Preset("google/fleurs", sources.Names("audio", "raw_transcription", id=tables.NONE), fleurs_languages(),
                             ("train", "validation", "test"), ("en_us", "fr_fr")),
            "mls": Preset("facebook/multilingual_librispeech", sources.Names("audio", "transcript"), mls_languages(),
                          ("test", "dev", "train"), ("polish", "portuguese"))}


def run(options: argparse.Namespace, say_faults: SayFaults) -> int:
    """Prepare a corpus, a pack of it, or both. Returns the exit code."""
    sources.require_arrow()
    told: dict[str, Any] = {}
    if options.output or not (options.pack is not None and options.input):
        code = _parquet(options, say_faults, told)
        if code != FINE or options.dry_run:
            return code
    if options.pack is not None:
        _pack(options, told)
    if options.json:
        print(json.dumps(told, indent=1, ensure_ascii=False))
    return FINE


def _parquet(options: argparse.Namespace, say_faults: SayFaults, told: dict[str, Any]) -> int:
    preset = presets()[options.preset] if options.preset else None
    settings = _settings(options)
    root = Path(_required(options.output, "output", "the root of the dataset"))
    version = root / f"version={_plain(options.dataset_version)}"
    if options.input:
        partitions, faults = _partitions(options, preset)
        if faults:
            return say_faults(faults, options)
        plan = ingest.plan(partitions, settings, _at_least_one(options.rows_per_file, "rows-per-file"))
        total = sum(map(rows.count, partitions.values()))
        if options.dry_run:
            return _say_plan(partitions, plan, version, options)
    else:
        from adapters.speech import hub

        name = options.hub or (preset.hub if preset else "")
        waiting = options.workers or (os.cpu_count() or 1 if options.engine == "ray" else 1)
        plan = hub.plan(_hub(options, preset, name), settings, options.rows_per_file, waiting)
        total = 0
    report = _written(version, plan, total, options)
    told |= report
    if not options.json:
        print(f"{version}/corpus={settings.corpus}\n{ingest.describe(report)}")
    return FINE


def _written(version: Path, plan: ingest.Plan, total: int, options: argparse.Namespace) -> dict[str, Any]:
    bar = Bar(f"preparing corpus={plan.options.corpus}", total)
    done: dict[str, int] = {}

    def progress(word: tuple[str, int]) -> None:
        part, rows = word  # a part that is begun anew counts once
        if rows > done.get(part, 0):
            bar.add(rows - done.get(part, 0))
            done[part] = rows

    work = engine.chosen(options.engine, options.workers, options.address, bar.say, progress, lambda task: task.name)
    try:
        return ingest.write_corpus(version, plan, overwrite=options.overwrite, run=work, progress=progress)
    finally:
        bar.close()


def _settings(options: argparse.Namespace) -> Options:
    corpus = options.corpus_name or options.preset
    if not corpus:
        raise InputError("corpus", expected="--corpus, or a preset", found="neither")
    if options.shuffle_window < 0:
        raise InputError("shuffle-window", expected="0 or more rows", found=str(options.shuffle_window))
    return Options(_plain(corpus), options.audio_format, options.rules, not options.keep_case, not options.keep_numbers,
                   options.remove_brackets, options.shuffle_window, options.seed)


def _partitions(options: argparse.Namespace, preset: Preset | None) -> tuple[rows.Partitions, list[Fault]]:
    """What stands in the sources, and every fault of it."""
    languages = preset.languages if preset else {}
    asked = sources.Names(*(getattr(options, f"{name}_column") for name in sources.Names._fields))
    names = sources.Names(*(said or known for said, known in zip(asked, preset.names if preset else asked, strict=True)))
    pieces: list[sources.Piece] = []
    faults: list[Fault] = []
    for text in options.input:
        split, path = _input(text)
        given = sources.Given(split or options.split, options.language, names, tuple(languages),
                              Path(options.root) if options.root else None)
        try:
            pieces += sources.find(path, given)
        except InputError as error:
            faults.append(error.fault)
    if options.short and preset:
        kept = {*preset.short, *(preset.languages[name] for name in preset.short)}
        pieces = [piece for piece in pieces if not piece.language or piece.language in kept]
    partitions, more = rows.partition(pieces, languages, options.any_language)
    if not (faults or more or partitions):
        raise InputError("no-rows", file=", ".join(options.input), expected="at least one row", found="none")
    return partitions, faults + more


def _input(text: str) -> tuple[str, Path]:
    """Split and path of `[SPLIT=]PATH`; a path that is there may hold an equals sign itself."""
    split, equals, path = text.partition("=")
    return (split, Path(path)) if equals and rows.PLAIN.fullmatch(split) and not Path(text).exists() else ("", Path(text))


def _hub(options: argparse.Namespace, preset: Preset | None, name: str) -> Any:
    from adapters.speech import hub

    if not name:
        raise InputError("source", expected="--input, --hub or --preset", found="none of them")
    languages = dict(preset.languages) if preset else {}
    configs = options.config or (list(preset.short if options.short else preset.languages) if preset else [""])
    asked = sources.Names(*(getattr(options, f"{column}_column") for column in sources.Names._fields))
    names = sources.Names(*(said or known for said, known in zip(asked, preset.names if preset else asked, strict=True)))
    splits = (options.split,) if options.split else preset.splits if preset else ()
    return hub.Hub(name, tuple(configs), splits, options.revision, names, options.language, languages, options.any_language)


def _pack(options: argparse.Namespace, told: dict[str, Any]) -> None:
    from adapters.speech.pack import pack_corpus

    if options.output:
        corpus = options.corpus_name or options.preset
        source = Path(options.output) / f"version={options.dataset_version}" / f"corpus={corpus}"
        target = Path(options.pack or Path(options.output) / "packed" / corpus)
    else:
        source = Path(options.input[0])
        target = Path(_required(options.pack, "pack", "a folder for the pack"))
    bar = Bar(f"packing {target}", 0)

    def choose(progress: Callable[[Any], None], name: Callable[[Any], str]) -> engine.Run | None:
        return engine.chosen(options.engine, options.workers, options.address, bar.say, progress, name)

    try:
        report = pack_corpus(source, target, round(options.max_shard_gb * 1e9), options.overwrite, choose, bar)
    finally:
        bar.close()
    told["pack"] = {"path": str(target), **report}
    if not options.json:
        print(f"{target}\n  {report['tracks']:,} utterances, {report['hours']:,.3f} hours")


def _say_plan(partitions: rows.Partitions, plan: ingest.Plan, version: Path, options: argparse.Namespace) -> int:
    found = [{"split": split, "language": language, "rows": rows.count(spans)}
             for (split, language), spans in partitions.items()]
    if options.json:
        print(json.dumps({"output": f"{version}/corpus={plan.options.corpus}", "partitions": found}, indent=1))
    else:
        print(f"would write {version}/corpus={plan.options.corpus}")
        print("\n".join(f"  {one['split']:<8}{one['language']:<16}{one['rows']:>10,} rows" for one in found))
    return FINE


def _required(value: str | None, name: str, what: str) -> str:
    if not value:
        raise InputError(name, expected=f"--{name}, {what}", found="nothing")
    return value


def _plain(name: str) -> str:
    """A text that can be the name of a folder. Raises InputError "name"."""
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name):
        raise InputError("name", expected="letters, digits, '_', '.' and '-'", found=repr(name))
    return name


def _at_least_one(value: int, name: str) -> int:
    if value < 1:
        raise InputError(name, expected="at least 1", found=str(value))
    return value
