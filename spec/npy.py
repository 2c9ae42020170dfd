"""The header of a npy file, bytes <-> facts. The dictionary is parsed here, by a grammar of its own, and never evaluated.

    0..5   93 'NUMPY'
    6..7   version: 1 0, 2 0 or 3 0
    8..    length of the dictionary, little-endian: u16 (version 1) or u32
    ..     {'descr': '<i2', 'fortran_order': False, 'shape': (388480,), } blanks, newline

Only what a pack may hold is accepted: numbers and booleans in C order, no objects, no records.
"""
from __future__ import annotations

import math
import re
from typing import NamedTuple

from spec.errors import FormatError

MAGIC = b"\x93NUMPY"
MAX_DICTIONARY = 10_000  # bytes, numpy's own limit
MAX_HEAD = 12 + MAX_DICTIONARY  # reading this much of a file is always enough
MAX_AXES = 32
MAX_BYTES = 2**63 - 1

_TOKEN = re.compile(r"""[ \n]*(?:'([^'"\\\n]*)'|(True|False)|(\d{1,20})|([{}():,]))""", re.ASCII)
_DTYPE = re.compile(r"([<>|])(b1|[iu][1248]|f[248]|c8|c16)", re.ASCII)


class Header(NamedTuple):
    """What a npy header says."""

    dtype: str  # numpy descr with byte order, "|" for one byte: "|u1", "<i2"
    shape: tuple[int, ...]
    nbytes_header: int  # where the data begins

    @property
    def nbytes_data(self) -> int:
        """Bytes of the data.

        >>> Header("<i2", (3, 4), 128).nbytes_data
        24
        """
        return int(self.dtype[2:]) * math.prod(self.shape)


def parse_header(head: bytes, file: object = "") -> Header:
    """Facts of the npy header that `head` begins with; `head` is the first MAX_HEAD bytes of the file, or all of a shorter one.

    Raises: FormatError "npy-magic", "npy-version" or "npy-header", with the byte where the header stops making sense.

    >>> parse_header(header("|u1", (5,)) + b"data")
    Header(dtype='|u1', shape=(5,), nbytes_header=128)
    """
    if head[:6] != MAGIC:
        raise FormatError("npy-magic", file=file, offset=0, expected=f"a npy file, beginning with {MAGIC!r}",
                          found=repr(head[:6]) if head else "an empty file")
    version = tuple(head[6:8])
    if version not in ((1, 0), (2, 0), (3, 0)):
        raise FormatError("npy-version", file=file, offset=6, expected="npy version 1.0, 2.0 or 3.0", found=repr(version))
    start = 10 if version == (1, 0) else 12
    size = int.from_bytes(head[8:start], "little")
    if len(head) < start or size > MAX_DICTIONARY or start + size > len(head):
        raise FormatError("npy-header", file=file, offset=8, found=f"{size} in a file that goes on for {len(head) - start}",
                          expected=f"a dictionary of at most {MAX_DICTIONARY} bytes inside the file")
    dtype, shape = _facts(_Dictionary(head[start:start + size], file, start))
    return Header(dtype, shape, start + size)


class _Dictionary:
    """The tokens of a header dictionary, read one after the other."""

    def __init__(self, data: bytes, file: object, start: int):
        self.text = data.decode("latin1")  # the grammar is ASCII: anything else is no token
        self.file, self.start, self.at = file, start, 0

    def wrong(self, expected: str, found: str = "") -> FormatError:
        found = found or repr(self.text[self.at:self.at + 20])
        return FormatError("npy-header", file=self.file, offset=self.start + self.at, expected=expected, found=found)

    def next(self, group: int, expected: str) -> str:
        """The next token, which must be a string (1), a boolean (2), a number (3) or a sign (4)."""
        match = _TOKEN.match(self.text, self.at)
        if match is None or match[group] is None:
            raise self.wrong(expected)
        self.at = match.end()
        return match[group]

    def sign(self, *signs: str) -> str:
        before = self.at
        found = self.next(4, expected := " or ".join(repr(s) for s in signs))
        if found not in signs:
            self.at = before
            raise self.wrong(expected)
        return found

    def peek(self, sign: str) -> bool:
        match = _TOKEN.match(self.text, self.at)
        return match is not None and match[4] == sign

    def shape(self) -> tuple[int, ...]:
        """`()`, `(n,)` or `(n, m ...)` with or without a last comma; no negative numbers, since `-` is no token."""
        lengths: list[int] = []
        self.sign("(")
        while not self.peek(")"):
            number = self.next(3, "a length")
            if number != str(int(number)):
                raise self.wrong("a length without leading zeros", number)
            lengths.append(int(number))
            if len(lengths) == 1 or not self.peek(")"):
                self.sign(",")
        self.sign(")")
        return tuple(lengths)


def _facts(text: _Dictionary) -> tuple[str, tuple[int, ...]]:
    found: dict[str, object] = {}
    text.sign("{")
    while not text.peek("}"):
        key = text.next(1, "a key in single quotes")
        if key in found or key not in ("descr", "fortran_order", "shape"):
            raise text.wrong("the keys descr, fortran_order and shape, each once", repr(key))
        text.sign(":")
        if key == "shape":
            found[key] = text.shape()
        else:
            found[key] = text.next(1, "a plain dtype in single quotes") if key == "descr" else text.next(2, "True or False")
        if not text.peek("}"):
            text.sign(",")
    text.sign("}")
    if text.text[text.at:].strip(" \n"):
        raise text.wrong("nothing but blanks after the dictionary")
    if len(found) != 3:
        raise text.wrong("the keys descr, fortran_order and shape, each once", f"only {', '.join(found) or 'none'}")
    if found["fortran_order"] != "False":
        raise text.wrong("C order (fortran_order False)", str(found["fortran_order"]))
    return _checked(text, str(found["descr"]), found["shape"])  # type: ignore[arg-type]


def _checked(text: _Dictionary, descr: str, shape: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    match = _DTYPE.fullmatch(descr)
    if match is None or (match[1] == "|" and match[2][1:] != "1"):
        raise text.wrong("a boolean, integer, float or complex dtype with its byte order", repr(descr))
    item = int(match[2][1:])
    # a zero length hides the others from the product, yet no reader could hold them
    if len(shape) > MAX_AXES or item * math.prod(max(n, 1) for n in shape) > MAX_BYTES:
        raise text.wrong(f"at most {MAX_AXES} axes and {MAX_BYTES} bytes", str(shape))
    return ("|" if item == 1 else match[1]) + match[2], shape


def header(dtype: str, shape: tuple[int, ...]) -> bytes:
    """The version 1.0 header that numpy.save writes for a C-order array of `dtype` (numpy descr) and `shape`.

    >>> len(header("|u1", (607, 112, 112))), header("<i2", (5,))[10:67]
    (128, b"{'descr': '<i2', 'fortran_order': False, 'shape': (5,), }")
    """
    text = f"{{'descr': {dtype!r}, 'fortran_order': False, 'shape': {tuple(shape)!r}, }}"
    if shape:
        text += " " * (21 - len(repr(shape[0])))  # numpy leaves room for the first axis to grow
    size = len(MAGIC) + 4 + len(text) + 1
    text += " " * (64 - size % 64) + "\n"
    return MAGIC + b"\x01\x00" + len(text).to_bytes(2, "little") + text.encode("ascii")
