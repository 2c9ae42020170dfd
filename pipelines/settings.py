"""What settings may be: numbers that would be rounded or understood otherwise are errors that name the setting."""
from __future__ import annotations

import operator
from typing import Any

from asdstore.errors import InputError


def whole(name: str, value: Any, least: int | None = None, *, file: str = "", unit: str = "") -> int:
    """`value` as an int. Raises: InputError, of kind `name`, for what is no whole number, or below `least`.

    >>> whole("window", 2.5, 1, file="train", unit="frames")
    Traceback (most recent call last):
    spec.errors.InputError: train: expected a whole number of frames, at least 1, found 2.5 [window]
    """
    try:
        found = operator.index(value)
    except TypeError:
        found = None
    if found is None or (least is not None and found < least):
        wanted = "a whole number" + (f" of {unit}" if unit else "") + ("" if least is None else f", at least {least}")
        raise InputError(name, file=file, expected=wanted, found=repr(value))
    return found
