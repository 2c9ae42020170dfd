"""Sections of a configuration as NamedTuples: unknown keys and values of another type are errors that say what was meant."""
from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from types import NoneType
from typing import Any, get_args, get_type_hints

from asdstore.errors import InputError

_TYPES: dict[Any, Any] = {int: int, float: (int, float), bool: bool, str: str}  # other values may be anything


def check_keys(given: Mapping[str, Any], names: Sequence[str], section: str) -> None:
    """Raises InputError "config" for a key that is none of `names`."""
    for key in given:
        if key not in names:
            close = difflib.get_close_matches(str(key), names, 1, 0.5)
            raise InputError("config", file=section, expected=f"one of {', '.join(names)}", found=repr(key),
                             cure=f"Did you mean {close[0]!r}?" if close else "Remove it.")


def read_section(kind: Any, given: Any, section: str) -> Any:
    """A mapping as a NamedTuple class `kind`, whose annotations say what values may be.

    Raises: InputError "config" for what is no mapping, an unknown key, or a value of another type.

    >>> from typing import NamedTuple
    >>> class Section(NamedTuple):
    ...     seed: int = 0
    >>> read_section(Section, {"seeed": 1}, "asd")
    Traceback (most recent call last):
    spec.errors.InputError: asd: expected one of seed, found 'seeed'. Did you mean 'seed'? [config]
    """
    if not isinstance(given, Mapping):
        raise InputError("config", file=section, expected="a mapping", found=repr(given)[:100])
    check_keys(given, kind._fields, section)
    hints = get_type_hints(kind)
    for key, value in given.items():
        either = [hint for hint in (get_args(hints[key]) or (hints[key],)) if hint is not NoneType]
        of = _TYPES.get(either[0])
        if of is None or (value is None and len(either) < len(get_args(hints[key]))):
            continue
        if not isinstance(value, of) or (isinstance(value, bool) and of is not bool):
            raise InputError("config", file=f"{section}.{key}", expected=f"{either[0].__name__}, as "
                             f"{kind._field_defaults.get(key)}", found=repr(value)[:100])
    return kind(**given)
