"""Alignments: lines `utterance label label ...`, as text (plain, gz, bz2) or as the integer vectors of a Kaldi archive.

Text is parsed by array operations: a token of up to 8 digits is one 64-bit word, turned into a number by three multiplications
(the known trick of Johnny Lee and others for eight digits at once). Other tokens are read one by one.
"""
from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from asdstore.errors import FormatError, InputError
from asdstore.formats import compressed
from asdstore.formats.source import INT32, ends

PIECE = 1 << 18  # bytes of text that are parsed at a time: what is computed from them stays in the cache
_NEWLINE = 10
_ZEROS = np.uint64(0x3030303030303030)
_OTHERS = np.uint64(0xCFCFCFCFCFCFCFCF)  # all bits but those of "0"
_PAIRS = np.uint64(0x000000FF000000FF)
_OUTSIDE = np.array([(1 << 8 * (7 - n)) - 1 for n in range(8)] + [0], np.uint64)  # for a token of n + 1 bytes


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

    Raises: MissingError "missing"; FormatError "alignment" (not an integer: file, byte, utterance), those of archives;
        InputError "label-range" for labels that int32 does not hold.
    """
    from asdstore.formats.kaldi import read_ark

    data, file = compressed.read(path), os.fspath(path)
    start = data[:1 << 16].tobytes()
    if b"\0B" in start.split(b"\n")[0]:
        items = list(read_ark(path, kind="integers"))
        labels = [value for _, value in items]
        return Alignments([key for key, _ in items], ends([len(x) for x in labels]),
                          np.concatenate(labels).astype(np.int32) if labels else np.empty(0, np.int32))
    parts = [_parse(data[a:b], file, a) for a, b in _pieces(data)]
    lengths = np.concatenate([np.diff(p.offsets) for p in parts]) if parts else np.empty(0, np.int64)
    return Alignments([key for p in parts for key in p.ids], ends(lengths),
                      np.concatenate([p.labels for p in parts]) if parts else np.empty(0, np.int32))


def _pieces(data: np.ndarray) -> list[tuple[int, int]]:
    """Spans of whole lines of about PIECE bytes."""
    spans, at = [], 0
    while at < len(data):
        stop = at + PIECE
        while stop < len(data):
            newline = np.flatnonzero(data[stop:stop + PIECE] == _NEWLINE)
            stop = stop + int(newline[0]) + 1 if len(newline) else stop + PIECE
            if len(newline):
                break
        spans.append((at, min(stop, len(data))))
        at = stop
    return spans


def _parse(data: np.ndarray, file: str, first: int) -> Alignments:
    """Whole lines; `first` is the byte of the file at which they begin."""
    text = np.full(len(data) + 9, _NEWLINE, np.uint8)  # 8 bytes before, so that every token has a word that ends with it
    text[8:-1] = data
    solid = text > 32
    edges = np.flatnonzero(solid[1:] != solid[:-1])  # in turn: before a token begins, at its last byte
    begins, lasts = edges[::2] + 1, edges[1::2]
    keys = np.searchsorted(begins, np.flatnonzero(text == _NEWLINE))
    keys = np.unique(keys[keys < len(begins)])  # the first token of each line that has any
    ids = [text[a:b + 1].tobytes() for a, b in zip(begins[keys].tolist(), lasts[keys].tolist(), strict=True)]
    labels, wrong = _numbers(text, begins, lasts)
    is_label = np.ones(len(begins), bool)
    is_label[keys] = False
    for i in np.flatnonzero(wrong & is_label).tolist():
        line = int(np.searchsorted(keys, i, "right")) - 1
        token, sample_id = text[begins[i]:lasts[i] + 1].tobytes(), ids[line].decode(errors="replace")
        labels[i] = _slow(token, file, sample_id, first + int(begins[i]) - 8)
    return Alignments(_decoded(ids, file), ends(np.diff(np.append(keys, len(begins))) - 1), labels[is_label])


def _decoded(keys: list[bytes], file: str) -> list[str]:
    try:
        return [key.decode() for key in keys]
    except UnicodeDecodeError as why:
        raise FormatError("alignment", file=file, expected="utterance ids in UTF-8", found=repr(why.object[:40])) from why


def _numbers(text: np.ndarray, begins: np.ndarray, lasts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The tokens from `begins` to `lasts` as int32, and which of them are not 1 to 8 digits."""
    words = np.ndarray((len(text) - 7,), "<u8", text, 0, (1,))[lasts - 7]  # type: ignore[arg-type]
    length = lasts - begins
    outside = _OUTSIDE.take(length, mode="clip")  # the bits of a word that belong to what stands before the token
    words |= outside
    outside &= _OTHERS
    words ^= outside  # "0" there
    digits = words - _ZEROS
    wrong = ((words + np.uint64(0x4646464646464646)) | digits) & np.uint64(0x8080808080808080) != 0
    wrong |= length >= 8
    pairs = digits * np.uint64(10)
    digits >>= np.uint64(8)
    pairs += digits
    low = (pairs & _PAIRS) * np.uint64(0x000F424000000064)
    pairs >>= np.uint64(16)
    pairs &= _PAIRS
    pairs *= np.uint64(0x0000271000000001)
    pairs += low
    return (pairs >> np.uint64(32)).astype(np.int32), wrong


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
