"""Alignments: lines `utterance label label ...`, as text (plain, gz, bz2) or as the integer vectors of a Kaldi archive.

Text is parsed by array operations: every byte gets the number that the digits up to it make, first of one digit, then of two,
of four and of eight, each from two of half that length. Other tokens are read one by one.
"""
from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from asdstore.errors import AsdError, FormatError, InputError
from asdstore.formats import compressed
from asdstore.formats.kaldi_objects import Place, find
from asdstore.formats.source import INT32, ends

PIECE = 3 << 16  # bytes of text that are parsed at a time: what is computed from them stays in the cache
_NEWLINE = 10
_MARGIN = 8  # blanks before the first line
_KEY = re.compile(rb"[\0-\x20]*([^\0-\x20]+)")


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
    text = np.empty(len(data) + _MARGIN + 1, np.uint8)
    text[:_MARGIN] = text[-1] = _NEWLINE
    text[_MARGIN:-1] = data
    whole, spans, at = text.tobytes(), [], 0
    while found := _KEY.match(whole, at):
        begin, end = found.span(1)
        text[begin:end] = _NEWLINE  # labels alone remain
        spans.append((begin, end))
        at = whole.find(b"\n", end)
    begins = np.array([begin for begin, _ in spans], np.int64)
    labels, lasts, unread = _numbers(text)
    for i in unread:
        line = int(begins.searchsorted(lasts[i])) - 1
        token = whole[:lasts[i] + 1].split()[-1] if i == 0 else whole[lasts[i - 1] + 1:lasts[i] + 1].split()[-1]
        labels[i] = _slow(token, file, whole[slice(*spans[line])].decode(errors="replace"),
                          first + int(lasts[i]) + 1 - len(token) - _MARGIN)
    ids = _decoded([whole[begin:end] for begin, end in spans], file, first + begins - _MARGIN)
    return Alignments(ids, np.append(lasts.searchsorted(begins), len(labels)), labels)


def _decoded(keys: list[bytes], file: str, begins: np.ndarray) -> list[str]:
    try:
        return [key.decode() for key in keys]
    except UnicodeDecodeError as why:
        raise FormatError("alignment", file=file, offset=int(begins[keys.index(why.object)]), expected="utterance ids in UTF-8",
                          found=repr(why.object[:40])) from why


def _numbers(text: np.ndarray) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """The tokens of a text as int32, their last bytes, and which of them are no 1 to 8 digits."""
    solid = text > 32
    lasts = np.flatnonzero(solid[:-1] > solid[1:])
    value = text - np.uint8(48)
    odd = (value > 9) & solid
    value *= solid.view(np.uint8)
    full = solid  # where so many bytes up to this one are all solid
    for size, weight, wider in ((1, 10, np.uint8), (2, 100, np.uint16), (4, 10_000, np.uint32)):
        if size > 1 and not (full[size:] & solid[:-size]).any():
            break  # no token is longer
        upper = value[:-size] * full[size:].view(np.uint8)
        value, upper = value.astype(wider), upper.astype(wider)  # by themselves: numpy is slow where it casts and computes
        upper *= wider(weight)
        value[size:] += upper
        full = np.concatenate([np.zeros(size, bool), full[size:] & full[:-size]])
    else:
        odd[8:] |= full[8:] & solid[:-8]
    unread = np.unique(lasts.searchsorted(np.flatnonzero(odd))).tolist() if odd.any() else []
    return value.take(lasts).astype(np.int32), lasts, unread


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
