"""`python -m asdstore.check PACK...`: every rule of the standard that a pack or mirror breaks, and where; then its levels.

Whatever is wrong with the input is a fault in the report and never the end of the run.
"""
from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from asdstore.formats.parquet_set import is_set
from asdstore.verb import make_callable
from spec.errors import AsdError, Fault

if TYPE_CHECKING:
    from asdstore.levels import Levels
    from spec.facts import Facts

SET = "Parquet set"
SHOWN = 10  # faults of one rule that the text shows; JSON has all
PathText = str | os.PathLike[str]


class Checked(NamedTuple):
    """One pack or mirror. `readable` is False where nothing was found that could be judged."""

    path: str
    readable: bool
    mirror: bool
    sealed: bool
    shards: int
    tracks: int | None  # None where the index cannot be read
    faults: tuple[Fault, ...]  # in order of the rules; level "MUST" or "SHOULD"
    what: str = "pack"  # or SET, whose files are its shards and whose utterances are its tracks

    @property
    def broken(self) -> bool:
        """Whether a rule is broken that must be kept."""
        return any(fault.level == "MUST" for fault in self.faults)


class Report(NamedTuple):
    """What `check` found: every pack, and the levels of all tracks together by dataset."""

    packs: tuple[Checked, ...]
    levels: Levels | None
    deep: bool

    @property
    def exit_code(self) -> int:
        """0 fine (warnings are), 1 faults, 3 unreadable."""
        return 3 if not all(p.readable for p in self.packs) else int(any(p.broken for p in self.packs))


def check(paths: PathText | Sequence[PathText], deep: bool = False,
          progress: Callable[[str], object] = lambda name: None) -> Report:
    """Everything that is wrong with packs and Zarr mirrors, ours and foreign, and the levels of what they hold.

    Arguments:
        paths: a folder, or a list of folders.
        deep: also read every byte: all checksums, the levels of the audio, the padding, whole copies in mirrors.
        progress: called with the path of each pack, and with the name of each file before all its bytes are read.

    >>> check("nowhere").exit_code
    3
    """
    roots = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    results = [_checked(os.fspath(root), deep, progress) for root in roots]
    return Report(tuple(one for one, _ in results), _levels([facts for _, facts in results]), deep)


def _checked(path: str, deep: bool, progress: Callable[[str], object]) -> tuple[Checked, Facts | None]:
    from asdstore.contents import read_contents
    from asdstore.facts import gather
    from spec.rules import faults
    from spec.rules_check import RULES

    facts, found = None, []
    progress(path)
    if is_set(path):
        return _checked_set(path, deep, progress), None
    try:
        facts = gather(os.path.abspath(path))
        facts = read_contents(facts, deep, lambda name: progress(f"{path}/{name}"))
        found = list(dict.fromkeys(faults(RULES, facts)))
    except AsdError as e:
        found = [e.fault]
    except Exception as e:  # a promise: no input ends the run. What comes here is a fault of this program as well.
        found = [Fault("unreadable", path, expected="a pack that can be judged", found=f"{type(e).__name__}: {e}"[:500],
                       cure="Please report this message.", rule="R060")]
    readable = facts is not None and not any(f.rule == "R001" and f.kind == "missing" for f in found)
    return Checked(path, readable, bool(facts and facts.mirror), bool(facts and facts.seal), len(facts.shards) if facts else 0,
                   len(facts.index) if facts and facts.index is not None else None, tuple(found)), facts


def _checked_set(path: str, deep: bool, progress: Callable[[str], object]) -> Checked:
    from asdstore.formats.parquet_check import check_set

    try:
        found = check_set(path, deep, lambda name: progress(f"{path}/{name}"))
    except AsdError as e:
        return Checked(path, False, False, False, 0, None, (e.fault,), SET)
    return Checked(path, True, False, found.sealed, found.files, found.rows, tuple(found.faults), SET)


def _levels(gathered: Sequence[Facts | None]) -> Levels | None:
    import numpy as np

    from asdstore.levels import COLUMNS, LEVELS, Levels, levels
    from spec.strings import Strings

    formats: dict[str, list[dict[str, np.ndarray]]] = {}
    for facts in gathered:
        if facts and facts.index is not None and all(name in facts.index.columns for name in LEVELS):
            columns = ((name, column) for name, column in facts.index.columns.items() if name in COLUMNS)
            formats.setdefault(facts.layout.format, []).append(
                {name: column.to_numpy() if isinstance(column, Strings) else column for name, column in columns})
    if not formats:
        return None
    found = [levels({name: np.concatenate([part[name] for part in parts]) for name in parts[0]}) for parts in formats.values()]
    return Levels(tuple(one for r in found for one in r.datasets), tuple(look for r in found for look in r.looks))


# ---- as text and as JSON

def text(report: Report) -> str:
    """The report to be read: each pack with its faults under the rules that they break, then the levels."""
    from asdstore.levels import text as levels_text

    blocks = ["\n".join(_pack_lines(one, report.deep)) for one in report.packs]
    return "\n\n".join([*blocks, *([levels_text(report.levels)] if report.levels else [])])


def _pack_lines(one: Checked, deep: bool) -> Iterator[str]:
    from asdstore.formats.parquet_check import RULES as SET_RULES
    from spec.rules_check import RULES

    texts = {rule.id: f"{rule.id} {rule.level}: {rule.text}" for rule in (*RULES, *SET_RULES)}
    shard, track = ("file", "utterance") if one.what == SET else ("shard", "track")
    broken = sum(fault.level == "MUST" for fault in one.faults)
    counts = [_many(n, noun) for n, noun in ((broken, "fault"), (len(one.faults) - broken, "warning")) if n]
    held = [f"{'mirror' if one.mirror else one.what} of {_many(one.shards, shard)}"] if one.readable else []
    held += [_many(one.tracks, track)] if one.tracks is not None else []
    held += ["sealed" if one.sealed else "not sealed", *(["every byte read"] if deep else [])] if one.readable else []
    yield f"{one.path}: {', '.join(counts) or 'clean'}" + (f" ({', '.join(held)})" if held else "")
    for rule in dict.fromkeys(fault.rule for fault in one.faults):
        own = [fault for fault in one.faults if fault.rule == rule]
        yield f"  {texts.get(rule, 'It cannot be read.')}"
        yield from (f"    {fault._replace(rule='').text()}" for fault in own[:SHOWN])
        if len(own) > SHOWN:
            yield f"    ... and {len(own) - SHOWN:,} more; --json lists all"


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def document(report: Report) -> dict[str, Any]:
    """The report as a JSON object."""
    from asdstore.levels import document as levels_document

    packs = [one._asdict() | {"faults": [_fault(fault) for fault in one.faults]} for one in report.packs]
    return {"exit_code": report.exit_code, "deep": report.deep, "packs": packs,
            "levels": levels_document(report.levels) if report.levels else None}


def _fault(fault: Fault) -> dict[str, Any]:
    shard = next((part for part in fault.file.split("/") if part.startswith("shard-")), None)
    return {"rule": fault.rule, "level": fault.level, "kind": fault.kind, "shard": shard} | {
        key: getattr(fault, key) for key in ("file", "row", "sample_id", "offset", "expected", "found", "cure")}


def main(argv: Sequence[str] | None = None) -> int:
    """Returns 0 fine (warnings are), 1 faults found, 2 usage, 3 unreadable."""
    parser = argparse.ArgumentParser(description="Report every fault of packs and Zarr mirrors, then their levels.")
    parser.add_argument("packs", metavar="PACK", nargs="+", help="the folder of a pack or of a mirror")
    parser.add_argument("--deep", action="store_true", help="read every byte: checksums, levels of the audio, padding, copies")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    arguments = parser.parse_args(argv)

    def progress(name: str) -> None:
        if sys.stderr.isatty():
            print(f"\r\033[K{ascii(name)[1:-1]}", end="", file=sys.stderr, flush=True)

    report = check(arguments.packs, arguments.deep, progress)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    said = json.dumps(document(report), indent=1) if arguments.json else text(report)
    encoding = sys.stdout.encoding or "utf-8"
    print(said.encode(encoding, "backslashreplace").decode(encoding))  # a path may hold bytes that are no text
    return report.exit_code


make_callable(__name__)

if __name__ == "__main__":
    sys.exit(main())
