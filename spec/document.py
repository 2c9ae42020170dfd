"""JSON documents, read strictly and within bounds: UTF-8, no duplicate keys, no NaN or infinity, no deep nesting."""
from __future__ import annotations

import json
import math
from typing import Any

from spec.errors import FormatError

LARGEST = 1 << 30  # bytes of one document


def parse_json(data: bytes | memoryview, file: str = "", limit: int = LARGEST) -> Any:
    """The value of a JSON document.

    Raises FormatError, kind "json", for anything that strict JSON forbids, with the byte offset where it is known.

    >>> parse_json(b'{"a": [1, 2.5]}')
    {'a': [1, 2.5]}
    """
    if len(data) > limit:
        raise FormatError("json", file=file, expected=f"at most {limit} bytes", found=f"{len(data)}")
    offset = None
    try:
        return json.loads(str(data, "utf-8"), object_pairs_hook=_object, parse_constant=_constant,
                          parse_float=_float)
    except RecursionError:
        found = "nesting too deep to read"
    except UnicodeDecodeError as e:
        found, offset = "bytes that are not UTF-8", e.start
    except json.JSONDecodeError as e:
        found, offset = e.msg, len(e.doc[:e.pos].encode())
    except ValueError as e:
        found = str(e)
    raise FormatError("json", file=file, offset=offset, expected="a JSON document", found=found)


def dump_json(value: object) -> bytes:
    """Compact JSON as the index of a v4 pack writes it: separators without blanks, ASCII only, no NaN."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(n for n in names if names.count(n) > 1)!r} twice")
    return found


def _float(text: str) -> float:
    found = float(text)
    if math.isinf(found):
        raise ValueError(f"{text[:40]}, which no 64-bit float holds")
    return found


def _constant(name: str) -> None:
    raise ValueError(f"{name}, which JSON does not have")
