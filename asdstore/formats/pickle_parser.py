"""A parser of pickled numpy arrays, Python 2 and 3, protocols 0 to 5, that imports nothing and calls nothing that a file names.

A pickle is a program for a stack machine. This machine knows the instructions that lists, tuples, numbers, texts and plain
arrays need. A global is a pair of texts: a few exact pairs stand for inert placeholders, every other one is refused. Arrays
are views of the bytes of the file (of protocol 0, which escapes them, of decoded ones).
"""
from __future__ import annotations

import codecs
import math
import re
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from asdstore.errors import FormatError, InputError

MOST_STEPS = 100_000  # instructions; a pair of arrays takes about sixty
MOST_AXES = 32
_QUOTED = re.compile(rb"""(?:[^\\]++|\\(?:[\\'"abfnrtv]|x[0-9a-fA-F]{2}|[0-3][0-7]{2}))*+""")


class Global(NamedTuple):
    """What a file calls a function or a class: two texts, never looked up."""

    module: str
    name: str


class Raw(NamedTuple):
    """Bytes of the file: a byte string, or the UTF-8 of a text."""

    data: Any  # memoryview or bytes
    text: bool = False


class Dtype:
    """A dtype to be: `code` as "f4", `order` one of < > | =."""

    def __init__(self, code: str):
        self.code, self.order = code, "="

    def numpy(self) -> np.dtype:
        return np.dtype(self.order.replace("=", "<") + self.code)


class Array:
    """An array to be; `value` once its state is known."""

    value: np.ndarray | None = None


def parse(data: Any, file: str = "") -> Any:
    """The object that a pickle holds: numbers, None, `Raw`, lists, tuples and `Array`s.

    `data` is a buffer of bytes. Raises InputError, kind "pickle" (something that is neither), FormatError "pickle-truncated".
    """
    return _Machine(memoryview(data).cast("B"), file).run()


class _Machine:
    def __init__(self, data: memoryview, file: str):
        self.data, self.file, self.at = data, file, 0
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def run(self) -> Any:
        for _ in range(MOST_STEPS):
            code = self.take(1)[0]
            if code == ord("."):
                return self.pop()
            step = _STEPS.get(code)
            if step is None:
                raise self.refuse(f"the instruction {bytes([code])!r}")
            step(self)
        raise self.refuse(f"more than {MOST_STEPS} instructions")

    def refuse(self, found: str, expected: str = "a pickle of two plain arrays, (features, labels)") -> InputError:
        return InputError("pickle", file=self.file, offset=max(self.at - 1, 0), expected=expected, found=found,
                          cure="Nothing of it was executed. Save the arrays again, as numbers.")

    # Bytes -----------------------------------------------------------------------------------------------------------------
    def take(self, count: int) -> memoryview:
        if count < 0 or count > len(self.data) - self.at:
            raise FormatError("pickle-truncated", file=self.file, offset=self.at, expected=f"{count} more bytes",
                              found=str(len(self.data) - self.at), cure="The file was cut short, or is no pickle.")
        self.at += count
        return self.data[self.at - count:self.at]

    def number(self, format: str) -> int:
        return struct.unpack(format, self.take(struct.calcsize(format)))[0]

    def line(self) -> bytes:
        size = 64
        while True:  # most lines are short, and searching does not copy the rest of the file
            found = bytes(self.data[self.at:self.at + size])
            if b"\n" in found:
                return bytes(self.take(found.index(b"\n") + 1)[:-1])
            if self.at + size >= len(self.data):
                self.take(len(self.data) - self.at + 1)
            size *= 4

    def integer(self) -> int:
        text = self.line().removesuffix(b"L")
        if not re.fullmatch(rb"-?\d{1,20}", text):
            raise self.refuse(repr(text[:30]), "a whole number")
        return int(text)

    # The stack -------------------------------------------------------------------------------------------------------------
    def pop(self) -> Any:
        if not self.stack or (self.marks and self.marks[-1] == len(self.stack)):
            raise self.refuse("an instruction without its operand")
        return self.stack.pop()

    def pop_many(self, count: int) -> tuple:
        return tuple(reversed([self.pop() for _ in range(count)]))

    def pop_mark(self) -> list:
        if not self.marks:
            raise self.refuse("an instruction without its operands")
        at = self.marks.pop()
        found = self.stack[at:]
        del self.stack[at:]
        return found

    def append(self, values: list) -> None:
        if not self.stack or not isinstance(self.stack[-1], list):
            raise self.refuse("an append to what is not a list")
        self.stack[-1] += values

    def recall(self, key: int) -> None:
        if key not in self.memo:
            raise self.refuse(f"the unknown reference {key}")
        self.stack.append(self.memo[key])

    def remember(self, key: int) -> None:
        if not self.stack:
            raise self.refuse("an instruction without its operand")
        self.memo[key] = self.stack[-1]

    # Texts, globals, arrays ------------------------------------------------------------------------------------------------
    def text(self, value: Any, what: str = "a short text") -> str:
        if isinstance(value, Raw) and len(value.data) <= 100:
            try:
                return bytes(value.data).decode("ascii")
            except UnicodeDecodeError:
                pass
        raise self.refuse(_shown(value), what)

    def quoted(self) -> Raw:
        """A byte string of protocol 0: quoted, with Python's escapes."""
        text = self.line()
        quoted = len(text) > 1 and text[:1] in (b"'", b'"') and text[-1:] == text[:1]
        if not quoted or not _QUOTED.fullmatch(text, 1, len(text) - 1):
            raise self.refuse(repr(text[:30]), "a quoted text")
        return Raw(codecs.escape_decode(text[1:-1])[0])  # type: ignore[attr-defined]

    def escaped(self) -> Raw:
        """A text of protocol 0."""
        try:
            return Raw(self.line().decode("raw-unicode-escape").encode(), True)
        except (UnicodeDecodeError, UnicodeEncodeError) as why:
            raise self.refuse(str(why), "an escaped text") from why

    def name(self, module: str, name: str) -> Global:
        found = Global(module, name)
        if found not in _CALLS and found != NDARRAY:
            raise self.refuse(f"{module}.{name}"[:120], "arrays of numbers and nothing else")
        return found

    def call(self) -> Any:
        function, arguments = self.pop_many(2)
        if not isinstance(function, Global) or function not in _CALLS or not isinstance(arguments, tuple):
            raise self.refuse(f"a call of {_shown(function)}")
        return _CALLS[function](self, arguments)

    def build(self) -> None:
        target, state = self.pop_many(2)
        self.stack.append(target)
        if isinstance(target, Dtype) and isinstance(state, tuple) and len(state) in (8, 9):
            order = self.text(state[1])
            inner = (*state[2:5], *state[8:])  # a dtype inside, names, fields, metadata: of plain numbers none
            if order not in ("<", ">", "|", "=") or any(part is not None for part in inner):
                raise self.refuse(f"a dtype with {_shown(state)}", "a plain number type")
            target.order = order
        elif isinstance(target, Array) and isinstance(state, tuple) and len(state) == 5:
            target.value = self.array(state[4], state[2], state[1], bool(state[3]))
        else:
            raise self.refuse(f"a state for {_shown(target)}")

    def array(self, raw: Any, dtype: Any, shape: Any, fortran: bool) -> np.ndarray:
        if not isinstance(dtype, Dtype) or not isinstance(raw, Raw) or raw.text:
            raise self.refuse("an array of something else", "an array of numbers")
        if not isinstance(shape, tuple) or len(shape) > MOST_AXES or not all(type(n) is int and n >= 0 for n in shape):
            raise self.refuse(_shown(shape), "the shape of an array")
        found = dtype.numpy()
        if math.prod(shape) * found.itemsize != len(raw.data):
            raise FormatError("pickle-size", file=self.file, offset=self.at, found=f"{len(raw.data)}",
                              expected=f"{math.prod(shape) * found.itemsize} bytes for {found} {list(shape)}")
        value = np.frombuffer(raw.data, found).reshape(shape, order="F" if fortran else "C")
        value.flags.writeable = False
        return value


def _shown(value: Any) -> str:
    if isinstance(value, Raw):
        return repr(bytes(value.data[:30]))
    return f"{value.module}.{value.name}"[:120] if isinstance(value, Global) else type(value).__name__


# What the placeholders do in place of the functions of these names ---------------------------------------------------------

def _reconstruct(machine: _Machine, arguments: tuple) -> Array:
    if len(arguments) != 3 or arguments[0] != NDARRAY:
        raise machine.refuse(f"an array of the class {_shown(arguments[0]) if arguments else 'nothing'}", "numpy.ndarray")
    return Array()


def _dtype(machine: _Machine, arguments: tuple) -> Dtype:
    code = machine.text(arguments[0], "a number type") if arguments else ""
    if not re.fullmatch("[iuf][1248]|b1", code) or code == "f1":
        raise machine.refuse(f"the dtype {code!r}", "integers, floats or booleans")
    return Dtype(code)


def _encode(machine: _Machine, arguments: tuple) -> Raw:
    """`_codecs.encode(text, "latin1")`: how Python 3 writes bytes in protocols 0 to 2."""
    if len(arguments) != 2 or machine.text(arguments[1]) not in ("latin1", "latin-1") or not isinstance(arguments[0], Raw):
        raise machine.refuse("another encoding than latin1")
    try:
        return Raw(str(arguments[0].data, "utf-8").encode("latin1"))
    except UnicodeError as why:
        raise machine.refuse(str(why), "bytes written as latin1") from why


def _bytes(machine: _Machine, arguments: tuple) -> Raw:
    """`bytes()`: how Python 3 writes no bytes at all in protocols 0 to 2."""
    if arguments:
        raise machine.refuse("bytes of something")
    return Raw(b"")


def _frombuffer(machine: _Machine, arguments: tuple) -> Array:
    """How numpy writes an array in protocol 5: (bytes, dtype, shape, "C" or "F")."""
    if len(arguments) != 4 or machine.text(arguments[3]) not in ("C", "F"):
        raise machine.refuse("a buffer of another form")
    found = Array()
    found.value = machine.array(arguments[0], arguments[1], arguments[2], machine.text(arguments[3]) == "F")
    return found


NDARRAY = Global("numpy", "ndarray")
_CALLS: dict[Global, Callable[[_Machine, tuple], Any]] = {
    Global("numpy", "dtype"): _dtype, Global("_codecs", "encode"): _encode,
    Global("__builtin__", "bytes"): _bytes, Global("builtins", "bytes"): _bytes,
    **{Global(f"numpy.{core}.multiarray", "_reconstruct"): _reconstruct for core in ("core", "_core")},
    **{Global(f"numpy.{core}.numeric", "_frombuffer"): _frombuffer for core in ("core", "_core")},
}


# The instructions ----------------------------------------------------------------------------------------------------------

def _push(make: Callable[[_Machine], Any]) -> Callable[[_Machine], None]:
    return lambda m: m.stack.append(make(m))


def _sized(format: str, text: bool = False) -> Callable[[_Machine], None]:
    return _push(lambda m: Raw(m.take(m.number(format)), text))


def _int(m: _Machine) -> int | bool:
    start = bytes(m.data[m.at:m.at + 3])
    return {b"00\n": False, b"01\n": True}[bytes(m.take(3))] if start in (b"00\n", b"01\n") else m.integer()


def _float(m: _Machine) -> float:
    try:
        return float(m.line()[:60])
    except ValueError as why:
        raise m.refuse(str(why), "a number") from why


def _stack_global(m: _Machine) -> Global:
    module, name = m.pop_many(2)
    return m.name(m.text(module), m.text(name))


_STEPS: dict[int, Callable[[_Machine], Any]] = {
    ord("("): lambda m: m.marks.append(len(m.stack)),
    ord("N"): _push(lambda m: None), 0x88: _push(lambda m: True), 0x89: _push(lambda m: False),
    ord("I"): _push(_int), ord("L"): _push(_Machine.integer), ord("F"): _push(_float),
    ord("J"): _push(lambda m: m.number("<i")), ord("K"): _push(lambda m: m.number("<B")),
    ord("M"): _push(lambda m: m.number("<H")), ord("G"): _push(lambda m: m.number(">d")),
    0x8A: _push(lambda m: int.from_bytes(m.take(m.number("<B")), "little", signed=True)),
    ord("S"): _push(_Machine.quoted), ord("V"): _push(_Machine.escaped),
    ord("T"): _sized("<i"), ord("U"): _sized("<B"), ord("B"): _sized("<I"), ord("C"): _sized("<B"), 0x8E: _sized("<Q"),
    0x96: _sized("<Q"), ord("X"): _sized("<I", True), 0x8C: _sized("<B", True), 0x8D: _sized("<Q", True),
    ord(")"): _push(lambda m: ()), ord("]"): _push(lambda m: []),
    ord("t"): _push(lambda m: tuple(m.pop_mark())), ord("l"): _push(_Machine.pop_mark),
    0x85: _push(lambda m: m.pop_many(1)), 0x86: _push(lambda m: m.pop_many(2)), 0x87: _push(lambda m: m.pop_many(3)),
    ord("a"): lambda m: m.append([m.pop()]), ord("e"): lambda m: m.append(m.pop_mark()),
    ord("g"): lambda m: m.recall(m.integer()), ord("h"): lambda m: m.recall(m.number("<B")),
    ord("j"): lambda m: m.recall(m.number("<I")),
    ord("p"): lambda m: m.remember(m.integer()), ord("q"): lambda m: m.remember(m.number("<B")),
    ord("r"): lambda m: m.remember(m.number("<I")), 0x94: lambda m: m.remember(len(m.memo)),
    ord("c"): _push(lambda m: m.name(m.line().decode("latin1"), m.line().decode("latin1"))), 0x93: _push(_stack_global),
    ord("R"): _push(_Machine.call), ord("b"): _Machine.build,
    0x80: lambda m: m.take(1), 0x95: lambda m: m.take(8),  # protocol; frame
}
