"""PDNN's data specification: a file or pattern, and options behind commas, as one value.

    train.pfile,context=5,ignore-label=0:3-9,map-label=1:0/2:1,partition=1000m,random=true

Options are read from left to right and later ones win. Keys and defaults:

    partition=600m       bytes of a partition in MiB, "m" may be left out
    stream=false         with random: mix inside each partition and not over the whole file
    random=false         mix the frames
    context=5, 5:1       frames before and behind each, or both; lcxt=5,rcxt=1 is the same
    ignore-label=0:3-9   labels whose frames are left out, once they have been context
    map-label=1:0/4-6:2  labels replaced, all at the same time
    label=train.ali      the alignment that belongs to an scp
    label-column=0       which label column, of files with several
"""
from __future__ import annotations

import difflib
import glob
import os
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from asdstore.errors import InputError, MissingError
from asdstore.formats.open import kind_of
from asdstore.formats.source import INT32

MIB = 1 << 20
Ranges = tuple[tuple[int, int], ...]  # first and last label, both inside
Mapping = tuple[tuple[int, int, int], ...]  # first and last label, and what they become


class FrameSpec(NamedTuple):
    """What a specification says."""

    pattern: str
    left: int = 0
    right: int = 0
    ignore: Ranges = ()
    mapping: Mapping = ()
    partition: int = 600 * MIB
    stream: bool = False
    random: bool = False
    label: str | None = None
    label_column: int | None = None
    notes: tuple[str, ...] = ()  # what was read otherwise than one may think


def parse_spec(text: str) -> FrameSpec:
    """The value of a specification.

    Raises InputError, kind "spec", for unknown keys and for values that make no sense.

    >>> spec = parse_spec("train.pfile,context=5:1,ignore-label=0:3-9,map-label=1:0/2:1,partition=1000m")
    >>> spec.left, spec.right, spec.ignore, spec.mapping, spec.partition >> 20
    (5, 1, ((0, 0), (3, 9)), ((1, 1, 0), (2, 2, 1)), 1000)
    """
    pattern, *options = text.split(",")
    if not pattern:
        raise _wrong(text, "a file or a pattern before the first comma", "nothing")
    spec = FrameSpec(pattern)
    for option in options:
        key, equals, value = option.partition("=")
        if key not in _KEYS:
            near = difflib.get_close_matches(key, _KEYS, 1)
            raise _wrong(text, f"one of {', '.join(_KEYS)}", repr(key), f"Did you mean {near[0]!r}?" if near else "")
        if not equals:
            raise _wrong(text, f"{key}=value", repr(option))
        spec = spec._replace(**_KEYS[key](value, f"{text}: {key}"))
    return spec


def _wrong(where: str, expected: str, found: str, cure: str = "") -> InputError:
    return InputError("spec", file=where, expected=expected, found=found, cure=cure)


def _number(value: str, where: str, largest: int = 10**9 - 1) -> int:
    if not re.fullmatch(r"[0-9]{1,10}", value) or int(value) > largest:
        raise _wrong(where, f"a whole number from 0 to {largest}", repr(value))
    return int(value)


def _label(value: str, where: str) -> int:
    return _number(value, where, INT32.max)


def _context(value: str, where: str) -> dict[str, Any]:
    sides = value.split(":")
    if len(sides) > 2:
        raise _wrong(where, "one number, or two with a colon between", repr(value))
    return {"left": _number(sides[0], where), "right": _number(sides[-1], where)}


def _partition(value: str, where: str) -> dict[str, Any]:
    size = _number(value.removesuffix("m"), where)
    if not size:
        raise _wrong(where, "at least 1 MiB", repr(value))
    return {"partition": size * MIB}


def _switch(name: str) -> Callable[[str, str], dict[str, Any]]:
    """True where the first letter is one of TtYy1. Others are false, as in PDNN; those that do not look like it are noted."""
    def read(value: str, where: str) -> dict[str, Any]:
        on = value[:1] in tuple("TtYy1")
        odd = not on and value.lower() not in ("false", "f", "no", "n", "0")
        return {name: on} | ({"notes": (f"{name}={value} is false, as in PDNN; write {name}=true",)} if odd else {})
    return read


def parse_ranges(text: str, where: str = "") -> Ranges:
    """Labels and ranges of labels.

    Raises InputError, kind "spec"; a range that falls is one, too.

    >>> parse_ranges("0:3-9")
    ((0, 0), (3, 9))
    """
    return tuple(_range(part, where) for part in text.split(":"))


def _range(text: str, where: str) -> tuple[int, int]:
    first, dash, last = text.partition("-")
    if not first:
        raise _wrong(where, "a label, or first-last", repr(text), "Negative labels: ignore_labels and map_labels take them.")
    low, high = _label(first, where), _label(last if dash else first, where)
    if low > high:
        raise _wrong(where, "first-last, the smaller one first", repr(text))
    return low, high


def parse_mapping(text: str, where: str = "") -> Mapping:
    """Labels, or ranges of them, and what they become.

    Raises InputError, kind "spec".

    >>> parse_mapping("1:0/4-6:2")
    ((1, 1, 0), (4, 6, 2))
    """
    found = []
    for pair in text.split("/"):
        sources, colon, target = pair.partition(":")
        if not colon:
            raise _wrong(where, "label:label, with slashes between", repr(pair))
        found.append((*_range(sources, where), _label(target, where)))
    return tuple(found)


_KEYS: dict[str, Callable[[str, str], dict[str, Any]]] = {
    "context": _context,
    "lcxt": lambda value, where: {"left": _number(value, where)},
    "rcxt": lambda value, where: {"right": _number(value, where)},
    "ignore-label": lambda value, where: {"ignore": parse_ranges(value, where)},
    "map-label": lambda value, where: {"mapping": parse_mapping(value, where)},
    "partition": _partition,
    "stream": _switch("stream"),
    "random": _switch("random"),
    "label": lambda value, where: {"label": value},
    "label-column": lambda value, where: {"label_column": _number(value, where)},
}


def files(pattern: str) -> list[str]:
    """The files, or packs, that a pattern matches, in the order of their names.

    Raises MissingError "missing", where there is none; InputError "spec" for files of different kinds.
    """
    found = [pattern] if os.path.exists(pattern) else sorted(glob.glob(pattern))
    if not found:
        folder = os.path.dirname(pattern) or "."
        there = os.path.isdir(folder) or glob.has_magic(folder)
        raise MissingError("missing", file=pattern, expected="a file of that name or pattern",
                           found="none" if there else f"no folder {folder}", cure=f"Names are relative to {os.getcwd()}.")
    kinds = {"pack" if os.path.isdir(name) else kind_of(name) for name in found}
    if len(kinds) > 1:
        names = ", ".join(sorted(kind or "others" for kind in kinds))
        raise InputError("spec", file=pattern, expected="files of one kind", found=names)
    return found
