"""HTK feature files, with the labels of a master label file or of `.lab` files as one label for each frame.

A feature file is a 12-byte header, big-endian: int32 frames, int32 period in 100 ns, int16 bytes of a frame, int16 kind with
its qualifiers; then the frames, float32, or with the qualifier _C (and for IREFC) int16.
"""
from __future__ import annotations

import glob
import os
import struct
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from asdstore.errors import FormatError, InputError, MissingError
from asdstore.formats import compressed
from asdstore.formats.htk_labels import Segment, frame_labels, numbering, parse_labels, read_mlf, read_text, stem
from asdstore.formats.source import Source, dimension, ends

HEAD = 12
KINDS = ("WAVEFORM", "LPC", "LPREFC", "LPCEPSTRA", "LPDELCEP", "IREFC", "MFCC", "FBANK", "MELSPEC", "USER", "DISCRETE", "PLP")
COMPRESSED, CHECKSUM = 0o2000, 0o10000  # the qualifiers _C and _K


class Header(NamedTuple):
    """What a feature file says of itself."""

    frames: int
    period: int  # of a frame, in 100 ns
    frame_bytes: int
    kind: int

    @property
    def name(self) -> str:
        return KINDS[self.kind & 0o77] if self.kind & 0o77 < len(KINDS) else "unknown"

    @property
    def short(self) -> bool:
        """Whether values are int16."""
        return bool(self.kind & COMPRESSED) or self.name == "IREFC"

    @property
    def dim(self) -> int:
        return self.frame_bytes // (2 if self.short else 4)

    @property
    def rows(self) -> int:
        """Frames without the two vectors that scale compressed ones, which are counted as four."""
        return self.frames - 4 if self.kind & COMPRESSED else self.frames


def parse_header(head: bytes, size: int, file: str) -> Header:
    """The header of a file of `size` bytes. Raises FormatError: "htk-header", "htk-truncated"."""
    if len(head) < HEAD:
        raise FormatError("htk-truncated", file=file, offset=len(head), expected=f"a header of {HEAD} bytes",
                          found=str(len(head)))
    found = Header(*struct.unpack(">iihH", head[:HEAD]))
    wanted = HEAD + found.frames * found.frame_bytes + (2 if found.kind & CHECKSUM else 0)
    little = Header(*struct.unpack("<iihH", head[:HEAD]))
    if size == HEAD + little.frames * little.frame_bytes != wanted:
        raise FormatError("htk-header", file=file, offset=0, expected="big-endian numbers",
                          found=f"little-endian ones: {little}", cure="Write it with NATURALWRITEORDER = F.")
    if found.rows < 0 or found.dim < 1 or found.frame_bytes % (2 if found.short else 4) or found.period < 1:
        raise FormatError("htk-header", file=file, offset=0, found=str(found),
                          expected="frames, a period, bytes of a frame and a kind")
    if found.name in ("WAVEFORM", "DISCRETE", "unknown"):
        raise FormatError("htk-header", file=file, offset=10, expected="features",
                          found=f"kind {found.kind & 0o77}, {found.name}")
    if size < wanted:
        raise FormatError("htk-truncated", file=file, offset=size, expected=f"{wanted} bytes", found=str(size),
                          cure="The file was cut short: copy or write it again.")
    return found


def read_htk(path: str | os.PathLike[str]) -> tuple[np.ndarray, int]:
    """The features of one file, [frames, dim], and the period of a frame in 100 ns. A view where they are stored as floats.

    Raises: MissingError "missing"; FormatError as `parse_header`.
    """
    data, file = compressed.read(path), os.fspath(path)
    head = parse_header(data[:HEAD].tobytes(), len(data), file)
    if not head.short:
        return np.ndarray((head.rows, head.dim), ">f4", data, HEAD), head.period  # type: ignore[arg-type]
    if not head.kind & COMPRESSED:
        stored = np.ndarray((head.rows, head.dim), ">i2", data, HEAD)  # type: ignore[arg-type]
        return stored.astype(np.float32) / np.float32(32767), head.period
    scale, shift = np.ndarray((2, head.dim), ">f4", data, HEAD).astype(np.float32)  # type: ignore[arg-type]
    stored = np.ndarray((head.rows, head.dim), ">i2", data, HEAD + 8 * head.dim)  # type: ignore[arg-type]
    return (stored.astype(np.float32) + shift) / scale, head.period


class Htk(Source):
    """Feature files as utterances, named like their files. Made by `open_htk`."""

    format = "htk"

    def __init__(self, paths: list[str], lengths: list[int], dim: int, labels: list[np.ndarray] | None,
                 notes: dict[str, list[str]]):
        self.paths, self.path, self.dim, self.notes = paths, f"{paths[0]} and {len(paths) - 1} more", dim, notes
        self.ids, self.offsets = [stem(path) for path in paths], ends(lengths)
        self._all_labels, self.label_columns = labels, int(labels is not None)

    def _features(self, i: int) -> np.ndarray:
        return read_htk(self.paths[i])[0]

    def _labels(self, i: int) -> np.ndarray:
        if self._all_labels is None:
            return np.empty((int(self.offsets[i + 1] - self.offsets[i]), 0), np.int32)
        return self._all_labels[i][:, None]


def open_htk(pattern: str | Sequence[str], labels: str | os.PathLike[str] | None = None,
             label_list: str | os.PathLike[str] | None = None, strict: bool = True) -> Htk:
    """Opens HTK feature files.

    Args:
        pattern: a file, a pattern, or a list of files.
        labels: an MLF, or the folder of the `.lab` files.
        label_list: the names of the labels, one on each line, the first of which is label 0. Without it names are numbers.
        strict: refuse files without labels; otherwise they are left out, and listed in `notes`.

    Raises: MissingError "missing"; FormatError of the readers, "dimension"; InputError "alignment" (files without labels),
        "htk-cover", "label-name" (one that the list does not have).
    """
    paths = _paths(pattern)
    number = numbering(label_list)
    all_labels = read_mlf(labels) if labels is not None and not os.path.isdir(labels) else None
    kept: list[str] = []
    lengths, found_labels, absent = [], [], []
    dim = 0
    for path in paths:
        features, period = read_htk(path)
        dim = dim or features.shape[1]
        if features.shape[1] != dim:
            raise dimension(path, stem(path), dim, features.shape)
        if labels is not None:
            segments, file = _segments(path, labels, all_labels)
            if segments is None:
                absent.append(stem(path))
                continue
            found_labels.append(frame_labels(segments, len(features), period, number, file, stem(path)))
        kept.append(path)
        lengths.append(len(features))
    if absent and (strict or not kept):
        raise InputError("alignment", file=labels or "", expected=f"labels of all {len(paths)} files",
                         found=f"{len(absent)} without, the first is {absent[0]}",
                         cure="Complete them; or leave the files out, counted, with strict=False (--skip-unlabelled).")
    notes = {"utterances without labels, left out": absent} if absent else {}
    return Htk(kept, lengths, dim, found_labels if labels is not None else None, notes)


def _paths(pattern: str | Sequence[str]) -> list[str]:
    if not isinstance(pattern, str):
        paths = list(pattern)
    else:
        paths = [pattern] if os.path.exists(pattern) else sorted(glob.glob(pattern))
    if not paths:
        raise MissingError("missing", file=pattern, expected="feature files of that name or pattern", found="none")
    return paths


def _segments(path: str, labels: str | os.PathLike[str],
              found: dict[str, list[Segment]] | None) -> tuple[list[Segment] | None, str]:
    """The segments of a feature file, None where there are none, and the file that they are in."""
    if found is not None:
        return found.get(stem(path)), os.fspath(labels)
    file = os.path.join(labels, f"{stem(path)}.lab")
    return (parse_labels(read_text(file).split("\n"), file), file) if os.path.isfile(file) else (None, file)
