"""Kaldi archives and scripts, read in place.

    for key, value in kaldi.read_ark("feats.ark"): ...       # one after the other
    for key, value in kaldi.read_scp("feats.scp"): ...
    kaldi.read_object("feats.ark:15213[0:9]")                 # one object by its name
    source = kaldi.open_kaldi("feats.scp", label="train.ali") # all utterances: views of the archives, and their labels

Paths in an scp are relative to the folder in which the program runs, as in Kaldi.
"""
from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from asdstore.errors import FormatError, InputError
from asdstore.formats import compressed
from asdstore.formats.alignments import read_alignments
from asdstore.formats.kaldi_archives import LONGEST_KEY, Archives, Heads, entry_head
from asdstore.formats.kaldi_names import Entry, parse_name, parse_scp, slices
from asdstore.formats.kaldi_objects import BLANKS, Object, Place, head, value, wave
from asdstore.formats.open import kind_of
from asdstore.formats.scattered import read_into
from asdstore.formats.source import Frames, Source, dimension, ends

USUAL_KEY = 64  # bytes
SHOWN = 20  # utterances that an error names


def read_ark(path: str | os.PathLike[str], kind: str = "") -> Iterator[tuple[str, Any]]:
    """Key and value of every object of an archive (plain, gz, bz2), binary or text.

    Values are views where the bytes allow it: float32 or float64 [rows, columns] or [n], int32 [n], or a `Wave`.
    `kind` "matrix", "vector", "integers" or "wav" refuses everything else; without it each object says what it is.

    Raises: MissingError "missing"; FormatError "kaldi-object", "kaldi-kind", "kaldi-key", "kaldi-truncated", "kaldi-text".
    """
    data, file = compressed.read(path), compressed.found(path)
    for key, found in scan(data, file):
        yield key, _checked_value(data, found, Place(file, key), kind)


def read_scp(path: str | os.PathLike[str], kind: str = "", allow_commands: bool = False) -> Iterator[tuple[str, Any]]:
    """Key and value of every line of a script, objects of any shape. Raises: as `read_ark`; "kaldi-scp", "kaldi-range".

    `allow_commands` runs `command |` through the shell: only for scripts that you wrote yourself.
    """
    archives = Archives(allow_commands, os.fspath(path))
    for entry in _script(os.fspath(path)):
        yield entry.key, _read(entry, archives, kind)


def read_object(name: str, kind: str = "", allow_commands: bool = False) -> Any:
    """The object of an extended file name: `path`, `path:offset`, `path:offset[0:9,0:12]`. Raises: as `read_scp`."""
    return _read(parse_name(name), Archives(allow_commands, "the name"), kind)


def _read(entry: Entry, archives: Archives, kind: str) -> Any:
    data, file = archives.bytes(entry)
    place = Place(file, entry.key)
    got = _checked_value(data, entry_head(data, entry, place), place, kind)
    return got[slices(entry, got.shape, archives.script)] if entry.rows or entry.columns else got


def _checked_value(data: np.ndarray, found: Object, place: Place, kind: str) -> Any:
    found = _as_kind(found, kind)
    if kind and found.kind != kind:
        raise place.wrong("kaldi-kind", found.at, f"a {kind}", f"{found.kind} {list(found.shape)}",
                          f"Read it as {found.kind}.")
    return wave(data, found, place) if found.kind == "wav" else value(data, found, place)


def _as_kind(found: Object, kind: str) -> Object:
    """Text that reads as another kind too: `[ 1 2 ]` is also a matrix of one row."""
    if found.token == "text" and found.kind == "vector" and kind == "matrix":
        return found._replace(kind=kind, shape=(1, *found.shape) if found.shape[0] else (0, 0))
    return found


def scan(data: np.ndarray, file: str) -> Iterator[tuple[str, Object]]:
    view, at = data.data, 0
    while True:
        start = bytes(view[at:at + USUAL_KEY])
        if not start[:1].strip() or len(start.split(None, 1)) < 2:
            start = bytes(view[at:at + LONGEST_KEY])
            at += len(start) - len(start.lstrip(BLANKS))
            if at >= len(data):
                return
            start = bytes(view[at:at + LONGEST_KEY])
        word = start.split(None, 1)[0]
        key = _key(word, start, at, file)
        at += len(word)
        if start[len(word):len(word) + 1] in (b" ", b"\t"):
            at += 1
        found = head(data, at, Place(file, key))
        yield key, found
        at = found.end


def _key(word: bytes, start: bytes, at: int, file: str) -> str:
    try:
        if len(word) == LONGEST_KEY or b"\0" in word or word == start:
            raise ValueError
        return word.decode()
    except ValueError as why:
        raise FormatError("kaldi-key", file=file, offset=at, expected="a key and the object that belongs to it",
                          found=repr(word[:24])) from why


class Labels(NamedTuple):
    """The labels of each utterance of a script: those of utterance i begin at `starts[i]` of `labels`; none where it is -1."""

    labels: np.ndarray
    starts: np.ndarray


class Kaldi(Source):
    """The utterances of an scp or an archive, with the labels of an alignment. Made by `open_kaldi`; pickles as its paths."""

    format = "kaldi"

    def __init__(self, path: str, entries: list[Entry], objects: list[Object], shapes: list[tuple[int, ...]],
                 archives: Archives, labels: Labels | None, notes: dict[str, list[str]], recipe: tuple):
        self.path, self.entries, self._objects, self._archives = path, entries, objects, archives
        self.ids = [entry.key for entry in entries]
        self.offsets = ends([shape[0] for shape in shapes])
        self.dim = next((shape[1] for shape in shapes if shape[0]), 0)
        self.label_columns = int(labels is not None)
        self.notes, self._all_labels, self._recipe = notes, labels, recipe

    def _features(self, i: int) -> np.ndarray:
        entry = self.entries[i]
        data, file = self._archives.bytes(entry)
        got = value(data, self._objects[i], Place(file, entry.key))
        if not len(got):
            return np.empty((0, self.dim), np.float32)
        return got[slices(entry, got.shape, self.path)] if entry.rows or entry.columns else got

    def read(self, start: int, stop: int, into: np.ndarray | None = None) -> Frames:
        """The frames from `start` to `stop`; `into` is memory for their features. Plain float32 matrices are read, not mapped.

        Raises: as the readers, where a file changed since it was opened.
        """
        features = np.empty((stop - start, self.dim), np.float32) if into is None else into
        bytes_, row = features.data.cast("B") if features.size else memoryview(b""), 4 * self.dim
        wanted: dict[str, list[tuple[int, memoryview]]] = {}
        for i, rows, part in self._spans(start, stop):
            entry, found = self.entries[i], self._objects[i]
            if found.token == "FM" and not (entry.rows or entry.columns) and self._archives.is_plain(entry):
                stretch = bytes_[rows.start * row:rows.stop * row]
                wanted.setdefault(entry.path, []).append((found.at + part.start * row, stretch))
            else:
                features[rows] = self._features(i)[part]
        for path, stretches in wanted.items():
            read_into(path, stretches)
        return Frames(features, self.read_labels(start, stop))

    def _labels(self, i: int) -> np.ndarray:
        frames = int(self.offsets[i + 1] - self.offsets[i])
        if self._all_labels is None:
            return np.empty((frames, 0), np.int32)
        start = int(self._all_labels.starts[i])
        return self._all_labels.labels[start:start + frames, None]

    @property
    def files(self) -> list[str]:
        label = self._recipe[1]
        archives = dict.fromkeys(entry.path for entry in self.entries if not entry.command)
        return [self.path, *archives, *([os.fspath(label)] if label is not None else [])]

    def release(self) -> None:
        self._archives.release()

    def __reduce__(self):
        return open_kaldi, self._recipe


def open_kaldi(path: str | os.PathLike[str], label: str | os.PathLike[str] | None = None, strict: bool = True,
               allow_commands: bool = False) -> Kaldi:
    """Opens the feature matrices of an scp, or of an archive (`.ark`) itself; every head is measured, no value is read.

    Args:
        label: an alignment, text or archive, that has a label for each frame. Without it the utterances have none.
        strict: refuse utterances without labels, or with another number of labels than frames. Otherwise they are left out,
            and listed in `notes`.
        allow_commands: run `command |` lines through the shell. They do what they say with your rights: only for a script
            that you wrote yourself.

    Raises: MissingError "missing"; FormatError "kaldi-scp", "kaldi-range", "kaldi-kind", "dimension" and those of `read_ark`;
        InputError "alignment", "kaldi-command".
    """
    name = os.fspath(path)
    archives = Archives(allow_commands, name)
    entries, objects = _archive_entries(name) if kind_of(name) == "ark" else _script_entries(name, archives)
    shapes = [_shape(entry, found, name) for entry, found in zip(entries, objects, strict=True)]
    dim = next((shape[1] for shape in shapes if shape[0]), 0)
    for i, shape in enumerate(shapes):
        if shape[1] != dim and shape[0]:
            raise dimension(name, entries[i].key, dim, shape, objects[i].at)
    notes = _notes("utterances without frames", [entries[i].key for i, shape in enumerate(shapes) if not shape[0]])
    twice = [key for key, count in Counter(entry.key for entry in entries).items() if count > 1]
    notes |= _notes("ids that occur more than once", twice)
    labels = None
    if label is not None:
        labels, keep, more = _joined(os.fspath(label), entries, [shape[0] for shape in shapes], strict)
        entries, objects, shapes = [entries[i] for i in keep], [objects[i] for i in keep], [shapes[i] for i in keep]
        notes |= more
    recipe = (name, label, strict, allow_commands)
    return Kaldi(name, entries, objects, shapes, archives, labels, notes, recipe)


def _shape(entry: Entry, found: Object, name: str) -> tuple[int, ...]:
    """Rows and columns that an entry takes of its object."""
    if found.shape[0] and (entry.rows or entry.columns):
        return tuple(taken.stop - taken.start for taken in slices(entry, found.shape, name))
    return found.shape if found.shape[0] else (0, 0)


def _notes(text: str, keys: list[str]) -> dict[str, list[str]]:
    return {text: keys} if keys else {}


def _archive_entries(name: str) -> tuple[list[Entry], list[Object]]:
    data, file = compressed.read(name), compressed.found(name)
    entries, objects = [], []
    for key, found in scan(data, file):
        entries.append(Entry(key, name, found.at, True))
        objects.append(_matrix(found, Place(file, key)))
    return entries, objects


def _script(name: str) -> list[Entry]:
    file = compressed.found(name)
    try:
        return parse_scp(compressed.read(file).tobytes().decode(), file)
    except UnicodeDecodeError as why:
        raise FormatError("kaldi-scp", file=file, offset=why.start, expected="a script in UTF-8",
                          found=repr(why.object[why.start:why.start + 16])) from why


def _script_entries(name: str, archives: Archives) -> tuple[list[Entry], list[Object]]:
    entries, objects = _script(name), []
    with Heads(archives) as heads:
        for entry in entries:
            found = heads.matrix(entry)
            if found is None:
                data, archive = archives.bytes(entry)
                place = Place(archive, entry.key)
                found = _matrix(entry_head(data, entry, place), place)
            objects.append(found)
    return entries, objects


def _matrix(found: Object, place: Place) -> Object:
    found = _as_kind(found, "matrix")
    if found.kind != "matrix":
        raise place.wrong("kaldi-kind", found.at, "a matrix of features", f"{found.kind} {list(found.shape)}",
                          "Read it with asdstore.formats.kaldi.read_ark.")
    return found


def _joined(label: str, entries: list[Entry], frames: list[int],
            strict: bool) -> tuple[Labels, list[int], dict[str, list[str]]]:
    """The labels of utterances, the utterances that have them, and notes about the others."""
    found = read_alignments(label)
    at = {key: i for i, key in enumerate(found.ids)}  # of a key that occurs twice the last one counts, as in PDNN
    keep, starts, absent, unequal = [], [], [], []
    for i, (entry, count) in enumerate(zip(entries, frames, strict=True)):
        where = at.get(entry.key)
        labels = int(found.offsets[where + 1] - found.offsets[where]) if where is not None else 0
        if labels == count:
            keep.append(i)
            starts.append(int(found.offsets[where]) if where is not None else 0)
        elif where is None:
            absent.append(entry.key)
        else:
            unequal.append(f"{entry.key}: {count} frames, {labels} labels")
    if strict and (absent or unequal):
        shown = "; ".join([*(f"{key}: none" for key in absent), *unequal][:SHOWN])
        raise InputError("alignment", file=label, expected=f"a label for every frame of {len(entries)} utterances",
                         found=f"{len(absent)} utterances without labels, {len(unequal)} with another number: {shown}",
                         cure="Complete it; or leave them out, counted and listed, with strict=False (--skip-unlabelled).")
    twice = len(found.ids) - len(at)
    notes = _notes("utterances without labels, left out", absent) | _notes("utterances of another length, left out", unequal) \
        | _notes("alignments of one id, of which the last counts", [str(twice)] if twice else [])
    return Labels(found.labels, np.array(starts, np.int64)), keep, notes
