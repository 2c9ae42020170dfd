"""Alignments: lines `utterance label label ...`, as text (plain, gz, bz2) or as the integer vectors of a Kaldi archive.

Text is parsed by array operations: a token of up to 8 digits is one word of 64 bits (of up to 4 one of 32), which a few shifts
and multiplications turn into a number, all digits at once. Other tokens are read one by one.
"""
from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from asdstore.errors import AsdError, FormatError, InputError
from asdstore.formats import compressed
from asdstore.formats.kaldi_objects import Place, find
from asdstore.formats.source import INT32, ends

PIECE = 3 << 16  # bytes of text that are parsed at a time: what is computed from them stays in the cache
_NEWLINE = 10


class _Word(NamedTuple):
    """Constants for tokens of up to `size` digits: their last bytes are a little-endian word, the first digit lowest."""

    size: int
    dtype: Any
    zeros: Any  # "0" in every byte
    low: Any  # 0x7F in every byte
    solid: Any  # what carries a byte above a blank, of 7 bits, into its highest bit
    above: Any  # what carries a byte above "9" there
    high: Any  # the highest bit of every byte

    @classmethod
    def of(cls, size: int) -> _Word:
        dtype = np.dtype(f"<u{size}")
        filled = [dtype.type(int.from_bytes(bytes([byte]) * size, "little")) for byte in (0x30, 0x7F, 0x5F, 0x46, 0x80)]
        return cls(size, dtype, filled[0], filled[1], filled[2], filled[3], filled[4])


_WORDS = _Word.of(4), _Word.of(8)


class Alignments(NamedTuple):
    """Labels of utterance i: `labels[offsets[i]:offsets[i + 1]]`, int32. Of ids that occur twice the last one counts."""

    ids: Sequence[str]
    offsets: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.ids)

    def of(self, i: int) -> np.ndarray:
        return self.labels[self.offsets[i]:self.offsets[i + 1]]


def read_alignments(path: str | os.PathLike[str]) -> Alignments:
    """The alignments of a file.

    Raises: MissingError "missing"; FormatError "alignment" (not an integer: file, line, byte, utterance), those of archives;
        InputError "label-range" for labels that int32 does not hold.
    """
    data, file = compressed.read(path), compressed.found(path)
    if b"\0B" in data[:1 << 16].tobytes().split(b"\n")[0]:
        return _archive(data, file)
    try:
        parts = [_parse(data[a:b], file, a) for a, b in _pieces(data)]
    except AsdError as error:
        line = 1 + int(np.count_nonzero(data[:error.fault.offset] == _NEWLINE))
        raise type(error)(error.fault._replace(row=line)) from None
    lengths = np.concatenate([np.diff(p.offsets) for p in parts]) if parts else np.empty(0, np.int64)
    return Alignments([key for p in parts for key in p.ids], ends(lengths),
                      np.concatenate([p.labels for p in parts]) if parts else np.empty(0, np.int32))


def _archive(data: np.ndarray, file: str) -> Alignments:
    """The integer vectors of an archive, which all have the form that `kaldi_objects` describes."""
    from asdstore.formats.kaldi import scan

    ids, spans = [], []
    for key, found in scan(data, file):
        if found.kind != "integers" or found.token:
            raise Place(file, key).wrong("kaldi-kind", found.at, "integers", f"{found.kind} {list(found.shape)}")
        ids.append(key)
        spans.append((found.at, found.end))
    view = data.data
    pairs = np.frombuffer(b"".join(view[a:b] for a, b in spans), [("size", "i1"), ("value", "<i4")])
    wrong = np.flatnonzero(pairs["size"] != 4)
    offsets = ends([(b - a) // 5 for a, b in spans])
    if len(wrong):
        i = int(np.searchsorted(offsets, wrong[0], "right")) - 1
        raise Place(file, ids[i]).wrong("kaldi-object", spans[i][0] + 5 * int(wrong[0] - offsets[i]), r"\4 before each integer",
                                        f"the byte {pairs['size'][wrong[0]]}")
    return Alignments(ids, offsets, pairs["value"].astype(np.int32))


def _pieces(data: np.ndarray) -> list[tuple[int, int]]:
    """Spans of whole lines of about PIECE bytes."""
    spans, at = [], 0
    while at < len(data):
        stop = min(find(data, _NEWLINE, min(at + PIECE, len(data))) + 1, len(data))
        spans.append((at, stop))
        at = stop
    return spans


def _parse(data: np.ndarray, file: str, first: int) -> Alignments:
    """Whole lines; `first` is the byte of the file at which they begin."""
    text = np.empty(len(data) + 9, np.uint8)  # 8 bytes before, so that every token has a word that ends with it
    text[:8] = text[-1] = _NEWLINE
    text[8:-1] = data
    solid = text > 32
    lasts = np.flatnonzero(solid[:-1] > solid[1:])  # the last byte of each token
    newlines = np.flatnonzero(text == _NEWLINE)
    keys = lasts.searchsorted(newlines)  # the first token behind each newline
    once = np.append(keys[1:] != keys[:-1], False)  # the last before a token, and not the one at the end
    keys, begins = keys[once], newlines[once] + 1
    whole = text.tobytes()
    ids = [whole[a:b + 1].strip() for a, b in zip(begins.tolist(), lasts[keys].tolist(), strict=True)]
    is_label = np.ones(len(lasts), bool)
    is_label[keys] = False
    word = _WORDS[0]
    longer = _longer(solid, lasts, is_label, word.size)
    if len(longer):
        word = _WORDS[1]
        longer = _longer(solid, lasts, is_label, word.size)
    labels, wrong = _numbers(text, lasts, word)
    wrong[longer] = True
    wrong &= is_label
    for i in np.flatnonzero(wrong).tolist():
        line = int(keys.searchsorted(i, "right")) - 1
        begin = int(lasts[i - 1]) + 1
        token = text[begin:lasts[i] + 1].tobytes().lstrip()
        labels[i] = _slow(token, file, ids[line].decode(errors="replace"), first + int(lasts[i]) + 1 - len(token) - 8)
    return Alignments(_decoded(ids, file, first + begins - 8), ends(np.diff(np.append(keys, len(lasts))) - 1), labels[is_label])


def _decoded(keys: list[bytes], file: str, begins: np.ndarray) -> list[str]:
    try:
        return [key.decode() for key in keys]
    except UnicodeDecodeError as why:
        raise FormatError("alignment", file=file, offset=int(begins[keys.index(why.object)]), expected="utterance ids in UTF-8",
                          found=repr(why.object[:40])) from why


def _longer(solid: np.ndarray, lasts: np.ndarray, is_label: np.ndarray, size: int) -> np.ndarray:
    """Which labels have more than `size` bytes."""
    far = np.flatnonzero((lasts[1:] - lasts[:-1] > size + 1) & is_label[1:]) + 1  # all others have a blank within
    return far[[solid[last - size:last].all() for last in lasts[far].tolist()]]


def _numbers(text: np.ndarray, lasts: np.ndarray, word: _Word) -> tuple[np.ndarray, np.ndarray]:
    """The tokens that end at `lasts`, of what the word holds of them, as int32; which of these are no digits."""
    size, unit = word.size, word.dtype.type
    all_words = np.ndarray((len(text) - size + 1,), word.dtype, text, 0, (1,))  # type: ignore[arg-type]
    words = all_words.take(lasts - (size - 1), mode="clip")  # copies them to be aligned first, which is faster than it sounds
    before = words & word.low  # becomes the bytes up to the last blank: what stands before the token
    before += word.solid
    before |= words
    before = ~before & word.high
    for shift in (8, 16, 32)[:size // 4 + 1]:
        before |= before >> unit(shift)
    before = (before >> unit(7)) * unit(0xFF)
    words |= before
    words &= ~before | word.zeros  # "0" before the token
    digits = words - word.zeros
    words += word.above
    words |= digits
    words &= word.high
    wrong = words != 0
    pairs = digits * unit(10)
    digits >>= unit(8)
    pairs += digits  # two digits in every other byte
    if size == 4:
        return ((pairs & unit(0xFF)) * unit(100) + (pairs >> unit(16) & unit(0xFF))).astype(np.int32), wrong
    mask = unit(0x000000FF000000FF)
    low = (pairs & mask) * unit(0x000F424000000064)  # the first two at the weights 10^6 and 10^2
    pairs >>= unit(16)
    pairs &= mask
    pairs *= unit(0x0000271000000001)  # the others at 10^4 and 1
    pairs += low
    return (pairs >> unit(32)).astype(np.int32), wrong


def _slow(token: bytes, file: str, sample_id: str, at: int) -> int:
    try:
        found = int(token[:40]) if b"_" not in token else None
    except ValueError:
        found = None
    if found is None:
        raise FormatError("alignment", file=file, sample_id=sample_id, offset=at, expected="a whole number",
                          found=repr(token[:40]))
    if not INT32.min <= found <= INT32.max:
        raise InputError("label-range", file=file, sample_id=sample_id, offset=at, expected="labels that 32 bits hold",
                         found=str(found))
    return found
