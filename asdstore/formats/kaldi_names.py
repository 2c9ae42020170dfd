"""Lines of an scp, and what Kaldi calls extended file names: `path`, `path:offset`, `path:offset[0:9,0:12]`, `command |`.

Kaldi's own rules: a line is split at its first blanks and both ends are trimmed, so a path may hold blanks and a key may not;
a range is what stands in brackets at the very end; rows and columns are counted from 0, and both ends belong to it.
"""
from __future__ import annotations

import re
from typing import NamedTuple

from asdstore.errors import FormatError, InputError

OVERSHOOT = 3  # rows that the end of a range may lie beyond the last row, as in Kaldi; it is cut there
Span = tuple[int, int]  # first and last, both inside; None stands for all


class Entry(NamedTuple):
    """One line of an scp."""

    key: str
    path: str  # a file, or the command that prints an object, without its |
    offset: int = 0
    explicit: bool = False  # whether the line names an offset
    rows: Span | None = None
    columns: Span | None = None
    command: bool = False
    line: int = 0  # in the scp, from 1


def parse_scp(text: str, file: str = "") -> list[Entry]:
    """The entries of an scp.

    Raises FormatError, kind "kaldi-scp", with the number of the line.

    >>> parse_scp("utt01  a b.ark:15213[0:9] ")[0][:5]
    ('utt01', 'a b.ark', 15213, True, (0, 9))
    """
    entries = []
    lines = text.split("\n")
    for number, line in enumerate(lines[:-1] if lines[-1] == "" else lines, 1):
        words = line.split(None, 1)
        if len(words) < 2:
            raise FormatError("kaldi-scp", file=file, row=number, expected="a key and a file name",
                              found=f"only {words[0]!r}" if words else "an empty line", cure="Remove the line or complete it.")
        entries.append(parse_name(words[1].strip(), words[0], file, number))
    return entries


_NAME = re.compile(r"(?P<path>.*?)(?::(?P<offset>\d{1,18}))?(?:\[(?P<range>[^\[\]]*)\])?", re.DOTALL)


def parse_name(name: str, key: str = "", file: str = "", line: int = 0) -> Entry:
    """The entry of one extended file name. Raises FormatError, kinds "kaldi-scp" and "kaldi-range"."""
    path, _, offset = name.rpartition(":")
    if path and "|" not in name and offset.isdecimal() and len(offset) < 19:  # the most frequent form first
        return Entry(key, path, int(offset), True, None, None, False, line)

    def wrong(expected: str, kind: str = "kaldi-scp") -> FormatError:
        return FormatError(kind, file=file, row=line or None, sample_id=key, expected=expected, found=repr(name[:200]))

    if name.endswith("|"):
        return Entry(key, name[:-1].strip(), command=True, line=line)
    if name in ("", "-") or "|" in name:
        raise wrong("a file that can be read again and again, path or path:offset")
    found = _NAME.fullmatch(name)
    if found is None or not found["path"]:
        raise wrong("path, path:offset or path:offset[rows,columns]")
    rows = columns = None
    if found["range"] is not None:
        parts = found["range"].split(",")
        if len(parts) > 2:
            raise wrong("[first:last] or [first:last,first:last]", "kaldi-range")
        try:
            rows, columns = _span(parts[0]), _span(parts[1]) if len(parts) == 2 else None
        except ValueError as why:
            raise wrong("[first:last] or [first:last,first:last], counted from 0, with last not before first",
                        "kaldi-range") from why
    return Entry(key, found["path"], int(found["offset"] or 0), found["offset"] is not None, rows, columns, line=line)


def _span(text: str) -> Span | None:
    if text == ":":
        return None
    found = re.fullmatch(r"\s*\+?(\d{1,9}):\s*\+?(\d{1,9})", text)
    if found is None or int(found[1]) > int(found[2]):
        raise ValueError(text)
    return int(found[1]), int(found[2])


def slices(entry: Entry, shape: tuple[int, ...], file: str) -> tuple[slice, ...]:
    """What the range of an entry takes of an object of `shape`.

    Raises FormatError, kind "kaldi-range", for one that lies outside. The end of the rows may lie up to OVERSHOOT beyond.

    >>> slices(Entry("u", "a.ark", rows=(3, 5)), (10, 2), "a.scp")
    (slice(3, 6, None), slice(0, 2, None))
    """
    spans = (entry.rows, entry.columns)[:len(shape)]
    if len(shape) < 2 and entry.columns:
        raise _outside(entry, "columns", entry.columns, 1, file)
    found = []
    for axis, (name, span, size) in enumerate(zip(("rows", "columns"), spans, shape, strict=False)):
        if span is None:
            found.append(slice(0, size))
            continue
        slack = OVERSHOOT if axis == 0 else 0
        if span[0] >= size or span[1] >= size + slack:
            raise _outside(entry, name, span, size, file)
        found.append(slice(span[0], min(span[1] + 1, size)))
    return tuple(found)


def _outside(entry: Entry, name: str, span: Span, size: int, file: str) -> FormatError:
    return FormatError("kaldi-range", file=file, row=entry.line or None, sample_id=entry.key, found=f"{span[0]}:{span[1]}",
                       expected=f"{name} within 0 to {size - 1}", cure="Both ends of a range belong to it.")


def refused(entry: Entry, file: str) -> InputError:
    """The error for a command where none may run."""
    return InputError("kaldi-command", file=file, row=entry.line or None, sample_id=entry.key, expected="a file",
                      found=f"the command {entry.path[:120]!r}",
                      cure="Commands are not run. Write their output to an archive; or, if you trust the file, open it in "
                           "Python with allow_commands=True.")
