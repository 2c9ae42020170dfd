"""A JSON list of flat objects in one regular form, parsed into columns by array operations.

Programs write `index.json` compactly, every row with the same keys in the same order. Then the positions of the quotes tell
everything: they are checked against the keys, and numbers and texts are cut out between them. Whatever is not in that form
(blanks, escapes, other keys, nesting) is for the JSON parser: `parse_regular` answers None and decides nothing.
"""
from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from spec.layout import Field
from spec.strings import Strings

WINDOW = 1 << 20  # bytes parsed at a time: bounds the memory of the position arrays
_QUOTE, _COLON, _COMMA, _OPEN, _CLOSE = (ord(c) for c in '":,{}')


def parse_regular(data: bytes | memoryview, fields: Sequence[Field]) -> dict[str, np.ndarray | Strings] | None:
    """Columns of the rows, or None where they are not in the regular form or a known field has another type.

    Numeric fields become float64 or int64 as `fields` say; texts become `Strings`. Rows with keys outside `fields`, or
    without a required one, are not regular.
    """
    data = bytes(data)
    kinds = _kinds(data, fields)
    if kinds is None:
        return None
    parts: list[dict[str, np.ndarray | Strings]] = []
    at = 1
    while at < len(data):
        cut = len(data) - 1 if len(data) - at <= WINDOW else data.rfind(b"},{", at, at + WINDOW) + 1
        part = _parse_window(np.frombuffer(data, np.uint8, cut - at, at), kinds) if cut > at else None
        if part is None:
            return None
        parts.append(part)
        at = cut + 1
    return {name: Strings.concat([p[name] for p in parts]) if type_ is str  # type: ignore[misc]
            else np.concatenate([p[name] for p in parts]) for name, type_ in kinds.items()}  # type: ignore[misc]


def _kinds(data: bytes, fields: Sequence[Field]) -> dict[str, type] | None:
    """The keys of the first row with their types, if it is regular and knows just the fields of the layout."""
    if data[:2] != b"[{" or data[-2:] != b"}]" or b"\\" in data or not data.isascii():
        return None
    try:
        first, _ = json.JSONDecoder().raw_decode(data[1:1 + 65536].decode())
    except (ValueError, RecursionError):
        return None
    kinds = {field.name: field.type for field in fields if field.name in first or field.required}
    return kinds if list(first) == list(kinds) else None


def _parse_window(text: np.ndarray, kinds: dict[str, type]) -> dict[str, np.ndarray | Strings] | None:
    """Columns of whole rows `{...},{...}`, or None."""
    width = 2 * (len(kinds) + sum(t is str for t in kinds.values()))
    quotes = np.flatnonzero(text == _QUOTE)
    if len(quotes) == 0 or len(quotes) % width:
        return None
    quotes = quotes.reshape(-1, width)
    ends = np.append(quotes[1:, 0] - 3, len(text) - 1)  # of each row: the place of its "}"
    if not (np.all(text[quotes[:, 0] - 1] == _OPEN) and quotes[0, 0] == 1 and np.all(text[ends] == _CLOSE)
            and np.all(text[ends[:-1] + 1] == _COMMA)):
        return None
    found: dict[str, np.ndarray | Strings] = {}
    at = 0
    for number, (name, type_) in enumerate(kinds.items()):
        opened, closed = quotes[:, at], quotes[:, at + 1]
        key = np.frombuffer(name.encode(), np.uint8)
        if not (np.all(closed - opened == len(key) + 1) and np.all(text[closed + 1] == _COLON)
                and np.all(text[opened[:, None] + 1 + np.arange(len(key))] == key)):
            return None
        at += 2
        start, after = closed + 2, at + (2 if type_ is str else 0)
        stop = ends if number == len(kinds) - 1 else quotes[:, after] - 1  # the place of "," or "}" behind the value
        if np.any(stop <= start) or (number < len(kinds) - 1 and not np.all(text[stop] == _COMMA)):
            return None
        if type_ is str:
            if np.any(quotes[:, at] != start) or np.any(quotes[:, at + 1] != stop - 1):
                return None
            found[name] = Strings(*_pieces(text, start + 1, stop - 1))
            if np.any(found[name].blob < 32):  # type: ignore[union-attr]
                return None
        else:
            column = _numbers(text, start, stop, type_)
            if column is None:
                return None
            found[name] = column
        at = after
    return found


def _pieces(text: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """text[starts[i]:stops[i]] of all rows behind one another, and the offsets of each."""
    lengths = stops - starts
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    return text[np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)], offsets


def _numbers(text: np.ndarray, starts: np.ndarray, stops: np.ndarray, type_: type) -> np.ndarray | None:
    """The numbers of one column, or None where one is not a JSON number of that type."""
    digits, offsets = _pieces(text, starts, stops + 1)  # each with the delimiter behind it
    digits[offsets[1:] - 1] = _COMMA
    joined = digits[:-1].tobytes()
    if b"t" in joined or b"f" in joined:  # true and false are no numbers, though numpy takes them
        return None
    try:
        values = json.loads(b"[" + joined + b"]")
        found = np.array(values, np.float64 if type_ is float else None)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None
    if found.dtype != (np.float64 if type_ is float else np.int64) or found.shape != starts.shape:
        return None
    return found if np.all(np.isfinite(found)) else None
