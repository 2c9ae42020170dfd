r"""One object of a Kaldi archive, bytes <-> facts. Little-endian; a binary object starts with "\0B" and a token.

    FM DM      \4 int32 rows, \4 int32 columns, float32 or float64, row after row
    FV DV      \4 int32 length, values
    (none)     \4 int32 length, then \4 int32 for each integer
    CM         float32 minimum, float32 range, int32 rows, int32 columns; for each column 4 uint16 (its percentiles 0, 25, 75
               and 100: minimum + range * u / 65535); uint8 column after column, linear between the percentiles
    CM2 CM3    the same 16 bytes; uint16 (minimum + range * v / 65535) or uint8 (/ 255), row after row

Text: `[` newline, rows, `]` is a matrix; `[ 1 2 ]` a vector; `1 2 3` integers. `RIFF` begins a WAV.
"""
from __future__ import annotations

import math
import struct
from typing import NamedTuple

import numpy as np

from asdstore.errors import FormatError

BLANKS = b" \t\n\r"
_FLOATS = {"F": np.dtype("<f4"), "D": np.dtype("<f8")}
_MATRICES = {b"\0BFM ": ("FM", 4), b"\0BDM ": ("DM", 8)}  # what a plain matrix begins with: its token, bytes of a value
_PLAIN = struct.Struct("<5sbibi")
PLAIN_HEAD = _PLAIN.size  # bytes before the values of such a matrix
_SIZE = struct.Struct("<i")
_PACKED = {"CM": np.dtype("|u1"), "CM2": np.dtype("<u2"), "CM3": np.dtype("|u1")}


class Place(NamedTuple):
    """Where an object lies, for messages."""

    file: str
    key: str = ""

    def wrong(self, kind: str, at: int, expected: str, found: str, cure: str = "") -> FormatError:
        return FormatError(kind, file=self.file, sample_id=self.key, offset=at, expected=expected, found=found, cure=cure)


class Object(NamedTuple):
    """What the head of an object says."""

    kind: str  # "matrix", "vector", "integers" or "wav"
    token: str  # "FM" ... "CM3", "" for integers and WAV, "text"
    shape: tuple[int, ...]
    at: int  # the byte where its values begin
    end: int  # the byte behind it


class Wave(NamedTuple):
    """A WAV of 16-bit PCM."""

    rate: int  # Hz
    samples: np.ndarray  # int16 [samples, channels]


def head(data: np.ndarray, at: int, place: Place) -> Object:
    """The object at byte `at` of `data` (uint8), measured and not read; text is read.

    Raises FormatError: "kaldi-object" (none that is known), "kaldi-truncated", "kaldi-text".
    """
    start = bytes(data.data[at:at + 24])
    found = plain_matrix(start, at, len(data))  # the most frequent one first
    if found is not None:
        return found
    if start[:4] == b"RIFF":
        return _wav(data, at, place)
    if start[:2] != b"\0B":
        return _text(data, at, place)
    if start[2:3] == b"\4":
        if len(start) < 7:
            raise truncated(place, at, at + 7, len(data))
        return _sized("integers", "", _SIZE.unpack_from(start, 3), at + 7, data, place, 5)
    token = start[2:6].partition(b" ")[0].decode("latin1") if b" " in start[2:6] else ""
    if token in _PACKED:
        return _packed(data, at, token, place)
    if token[1:] not in ("M", "V") or token[0] not in _FLOATS or len(token) != 2:
        raise place.wrong("kaldi-object", at, "a matrix, a vector, integers or a WAV", f"an object that begins {start[:12]!r}",
                          "Posteriors, lattices, models and examples are not features.")
    axes = 2 if token[1] == "M" else 1
    if len(start) < 5 + 5 * axes:
        raise truncated(place, at, at + 5 + 5 * axes, len(data))
    sizes = struct.unpack_from("<bibi" if axes == 2 else "<bi", start, 5)
    if set(sizes[::2]) != {4}:
        raise place.wrong("kaldi-object", at + 5, r"\4 before each size", repr(start[5:5 + 5 * axes]))
    kind, item = "matrix" if axes == 2 else "vector", _FLOATS[token[0]].itemsize
    return _sized(kind, token, sizes[1::2], at + 5 + 5 * axes, data, place, item)


def plain_matrix(start: bytes, at: int, size: int) -> Object | None:
    """A matrix FM or DM at byte `at` of a file of `size` bytes, of which `start` are the first; None for anything else."""
    if len(start) != PLAIN_HEAD:
        return None
    token, four, rows, again, columns = _PLAIN.unpack(start)
    if token not in _MATRICES or four != 4 or again != 4:
        return None
    kind, item = _MATRICES[token]
    end = at + PLAIN_HEAD + rows * columns * item
    if rows < 0 or columns < 0 or end > size:
        return None
    return Object("matrix", kind, (rows, columns), at + PLAIN_HEAD, end)


def _sized(kind: str, token: str, shape: tuple[int, ...], at: int, data: np.ndarray, place: Place, item: int,
           extra: int = 0) -> Object:
    """An object of `shape`, `extra` bytes and values of `item` bytes from `at` on; refuses sizes that the file cannot hold."""
    size = item * math.prod(shape) if min(shape) >= 0 else -1
    if size < 0 or at + extra + size > len(data):
        swapped = [int(np.int32(n).byteswap()) for n in shape]
        likely = min(swapped) >= 0 and swapped != list(shape) and at + item * math.prod(swapped) <= len(data)
        if size < 0 or likely:
            raise place.wrong("kaldi-object", at, "sizes of at least 0, little-endian",
                              f"{list(shape)}" + (f", which in big-endian order are {swapped}" if likely else ""))
        raise truncated(place, at, at + extra + size, len(data), f"{kind} {list(shape)}")
    return Object(kind, token, shape, at, at + extra + size)


def truncated(place: Place, at: int, expected: int, found: int, what: str = "an object") -> FormatError:
    return place.wrong("kaldi-truncated", at, f"{what} up to byte {expected}", f"a file of {found} bytes",
                       "The archive was cut short, or the offset belongs to another one: copy it again.")


def _packed(data: np.ndarray, at: int, token: str, place: Place) -> Object:
    body = at + 3 + len(token)
    start = data[body:body + 16].tobytes()
    if len(start) < 16:
        raise truncated(place, at, body + 16, len(data))
    rows, columns = struct.unpack_from("<ii", start, 8)
    extra = 8 * columns if token == "CM" else 0
    found = _sized("matrix", token, (rows, columns), body + 16, data, place, _PACKED[token].itemsize, extra)
    return found._replace(at=body)


def _wav(data: np.ndarray, at: int, place: Place) -> Object:
    size = int.from_bytes(data[at + 4:at + 8].tobytes(), "little")
    end = at + 8 + size + size % 2
    if size in (0, 0x7FFFFFFF, 0xFFFFFFFF):  # written to a pipe: the size was never filled in
        end = len(data)
    if end > len(data) + size % 2:
        raise truncated(place, at, end, len(data), "a WAV")
    return Object("wav", "", (), at, min(end, len(data)))


def value(data: np.ndarray, found: Object, place: Place) -> np.ndarray:
    """The values of an object: a view of `data` where they lie there as they are, in their own type. WAV: see `wave`."""
    if found.token == "text":
        return text_value(data, found, place)
    if found.kind == "integers":
        return _integer_view(data, found, place)
    if found.token in _PACKED:
        return _unpacked(data, found)
    return np.ndarray(found.shape, _FLOATS[found.token[0]], data, found.at)  # type: ignore[arg-type]


def _integer_view(data: np.ndarray, found: Object, place: Place) -> np.ndarray:
    count, = found.shape
    if not count:
        return np.empty(0, np.int32)
    wrong = np.flatnonzero(data[found.at:found.end:5] != 4)
    if len(wrong):
        raise place.wrong("kaldi-object", found.at + 5 * int(wrong[0]), r"\4 before each integer",
                          repr(data[found.at + 5 * wrong[0]:][:5].tobytes()))
    return np.ndarray((count,), "<i4", data, found.at + 1, (5,))  # type: ignore[arg-type]


def _unpacked(data: np.ndarray, found: Object) -> np.ndarray:
    """float32 [rows, columns] of a compressed matrix, as Kaldi computes it."""
    low, span = (np.float32(x) for x in struct.unpack_from("<ff", data[found.at:found.at + 8].tobytes()))
    rows, columns = found.shape
    at = found.at + 16
    if found.token != "CM":
        step = np.float32(float(span) * (1 / (65535 if found.token == "CM2" else 255)))
        stored = np.ndarray((rows, columns), _PACKED[found.token], data, at)  # type: ignore[arg-type]
        return low + step * stored.astype(np.float32)
    percentiles = np.ndarray((columns, 4), "<u2", data, at)  # type: ignore[arg-type]
    p0, p25, p75, p100 = (low + span * np.float32(1 / 65535.0) * percentiles.astype(np.float32)).T
    stored = np.ndarray((columns, rows), "|u1", data, at + 8 * columns)  # type: ignore[arg-type]
    x = stored.T.astype(np.float32)
    # float32 products, float64 sums, rounded once: Kaldi's C++ gives the same bits
    below = p0 + ((p25 - p0) * x).astype(np.float64) * (1 / 64.0)
    inside = p25 + ((p75 - p25) * (x - 64)).astype(np.float64) * (1 / 128.0)
    above = p75 + ((p100 - p75) * (x - 192)).astype(np.float64) * (1 / 63.0)
    return np.ascontiguousarray(np.where(x <= 64, below, np.where(x <= 192, inside, above)), np.float32)


def wave(data: np.ndarray, found: Object, place: Place) -> Wave:
    """The samples of a WAV object: views of `data`. Raises FormatError, kind "kaldi-wav", for anything but 16-bit PCM."""
    at, rate, channels = found.at + 12, 0, 0
    while at + 8 <= found.end:
        name, size = data[at:at + 4].tobytes(), int.from_bytes(data[at + 4:at + 8].tobytes(), "little")
        body = at + 8
        if name == b"fmt ":
            code, channels, rate, _, _, bits = struct.unpack("<HHIIHH", data[body:body + 16].tobytes().ljust(16, b"\0"))
            if code not in (1, 0xFFFE) or bits != 16 or not channels:
                raise place.wrong("kaldi-wav", body, "PCM of 16 bits", f"format {code} of {bits} bits, {channels} channels")
        elif name == b"data" and channels:
            count = min(size, found.end - body) // (2 * channels)  # a header written to a pipe claims more than there is
            return Wave(rate, np.ndarray((count, channels), "<i2", data, body))  # type: ignore[arg-type]
        at = body + size + size % 2
    raise place.wrong("kaldi-wav", found.at, "a WAV with a format and data", "none in the object")


# Text ----------------------------------------------------------------------------------------------------------------------

def find(data: np.ndarray, byte: int, at: int) -> int:
    """Where `byte` is next, from `at` on; the end of the data where it is not."""
    step = 1 << 12
    while at < len(data):
        found = np.flatnonzero(data[at:at + step] == byte)
        if len(found):
            return at + int(found[0])
        at, step = at + step, min(2 * step, 1 << 22)
    return len(data)


def _text(data: np.ndarray, at: int, place: Place) -> Object:
    """The extent of a text object. A line without brackets is integers; with them, rows on lines of their own are a matrix."""
    line_end = find(data, 10, at)
    line = data[at:line_end].tobytes()
    opened = line.find(b"[")
    if opened < 0:
        if not line and line_end == len(data):
            raise truncated(place, at, at + 1, len(data))
        if not _is_numbers(line):
            raise place.wrong("kaldi-object", at, "a binary object, or numbers", f"bytes {line[:24]!r}",
                              "An archive in an scp needs :offset behind its name, and the offset must be its own.")
        return Object("integers", "text", (len(line.split()),), at, min(line_end + 1, len(data)))
    closed = find(data, ord("]"), at + opened)
    if line[:opened].strip(BLANKS) or closed == len(data):
        raise place.wrong("kaldi-text", at, "numbers between [ and ]", "no ]" if closed == len(data) else repr(line[:24]))
    end = min(find(data, 10, closed) + 1, len(data))
    if data[closed + 1:end].tobytes().strip(BLANKS):
        raise place.wrong("kaldi-text", closed + 1, "the end of the line behind ]", repr(data[closed + 1:end].tobytes()[:24]))
    rows = [len(row.split()) for row in data[at + opened + 1:closed].tobytes().split(b"\n") if row.strip(BLANKS)]
    if closed < line_end:  # all on the line of the bracket
        return Object("vector", "text", (sum(rows),), at + opened + 1, end)
    if len(set(rows)) > 1:
        raise place.wrong("kaldi-text", at, "rows of equal length", f"rows of {min(rows)} to {max(rows)} numbers")
    return Object("matrix", "text", (len(rows), rows[0] if rows else 0), at + opened + 1, end)


def _is_numbers(line: bytes) -> bool:
    return not line.strip(b"0123456789+- \t\r")


def text_value(data: np.ndarray, found: Object, place: Place) -> np.ndarray:
    """The numbers of a text object: int32, or float32 with nan, inf and exponents as Kaldi reads them."""
    words = data[found.at:found.end].tobytes().split(b"]")[0].split()
    try:
        if found.kind == "integers":
            return np.array([int(word) for word in words], np.int32)
        return np.array(words or (), np.float64).astype(np.float32).reshape(found.shape)
    except (ValueError, OverflowError) as why:
        raise place.wrong("kaldi-text", found.at, "numbers", str(why)[:120]) from why
