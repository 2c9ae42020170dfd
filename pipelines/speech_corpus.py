"""Utterances of Parquet sets and speech packs as one corpus: columns of what is known of them, and their audio by position."""
from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

import asdstore
from asdstore.errors import InputError
from asdstore.formats.parquet import ParquetSet
from asdstore.pack import Pack
from pipelines.row_groups import RowGroups
from spec.layout import SPEECH
from spec.strings import Strings

_CHUNK = 1 << 16  # texts whose characters are counted at a time
LOCAL = 100  # rows of a row group in the sets' format


class Coded(NamedTuple):
    """A column of few values: value i is names[codes[i]]. `codes` int32 [rows]."""

    names: tuple[str, ...]
    codes: np.ndarray

    def __getitem__(self, i: int) -> str:
        return self.names[self.codes[i]]

    def among(self, wanted: Iterable[str] | None) -> np.ndarray:
        """Which rows have one of the values; all where there is no choice: bool [rows]."""
        chosen = np.array([wanted is None or name in wanted for name in self.names], bool)
        return chosen[self.codes]

    @staticmethod
    def join(columns: Sequence[Coded]) -> Coded:
        """One column of several, in order."""
        names = tuple(sorted({name for column in columns for name in column.names}))
        codes = [np.array([names.index(name) for name in column.names], np.int32)[column.codes] for column in columns]
        return Coded(names, np.concatenate([np.empty(0, np.int32), *codes]))


class Utterances:
    """The utterances of sets and packs, one after the other. Made by `open_speech`; pickles as its sources.

    `samples` int64 [utterances], -1 where a foreign set does not say; `corpus`, `language` and `split` as `Coded` columns.
    """

    def __init__(self, parts: Sequence[ParquetSet | Pack]):
        self.parts = tuple(parts)
        self.first = np.cumsum([0, *map(len, self.parts)])
        self._rows = [np.asarray(part.rows, np.int64) for part in self.parts]
        self.samples = np.concatenate([_samples(part)[rows] for part, rows in zip(self.parts, self._rows, strict=True)])
        self.corpus, self.language, self.split = (
            Coded.join([_coded(part, name, rows) for part, rows in zip(self.parts, self._rows, strict=True)])
            for name in ("corpus", "language", "split"))
        self._groups = [RowGroups(part) if isinstance(part, ParquetSet) else None for part in self.parts]
        self._levels = [None if isinstance(part, ParquetSet) else
                        (part.all.numbers("audio_mean"), part.all.numbers("audio_rms")) for part in self.parts]

    def __reduce__(self):
        return Utterances, (self.parts,)

    def __len__(self) -> int:
        return int(self.first[-1])

    @cached_property
    def digest(self) -> str:
        """64 hexadecimal digits that identify the content."""
        return hashlib.sha256("".join(part.digest for part in self.parts).encode()).hexdigest()

    @property
    def local(self) -> int:
        """Rows that should be drawn near one another: those of a row group, where one can only be decoded whole; else 1."""
        return LOCAL if any(groups is not None and not groups.mapped for groups in self._groups) else 1

    @cached_property
    def characters(self) -> np.ndarray:
        """Characters of each text: int64 [utterances]."""
        found = [_characters(_texts(part))[rows] for part, rows in zip(self.parts, self._rows, strict=True)]
        return np.concatenate([np.empty(0, np.int64), *found])

    def text(self, i: int) -> str:
        part, row = self._place(i)
        return _texts(self.parts[part])[row]

    def id(self, i: int) -> str:
        part, row = self._place(i)
        found = self.parts[part]
        return found.ids[row] if isinstance(found, ParquetSet) else found.all.texts("sample_id")[row]

    def partition(self, i: int) -> str:
        """What messages call the corpus and language of an utterance."""
        return f"{self.corpus[i]}/{self.language[i]}"

    def audio(self, i: int) -> np.ndarray:
        """[samples] mono 16 kHz: int16 of a pack, a view; float32 of a set, decoded.

        Raises: InputError, kinds of `asdstore.audio.decode` and "audio-size", another number of samples than the set says;
        what reading the set raises.
        """
        number, row = self._place(i)
        part, groups = self.parts[number], self._groups[number]
        if groups is None:
            return part.view("audio", row)  # type: ignore[union-attr]
        from asdstore.audio import decode_bytes

        where = os.path.join(part.root, part.part(row).name)  # type: ignore[union-attr]
        found = decode_bytes(groups.audio_bytes(row), file=where, sample_id=self.id(i)).samples
        if len(found) != self.samples[i]:
            raise InputError("audio-size", file=where, sample_id=self.id(i), expected=f"{self.samples[i]} samples, as "
                             "audio_size says", found=str(len(found)), cure="Prepare the set again.")
        return found

    def level(self, i: int) -> tuple[float, float] | None:
        """Mean and standard deviation of the audio on full scale 1, where a pack knows them."""
        number, row = self._place(i)
        levels = self._levels[number]
        return None if levels is None else (float(levels[0][row]), float(levels[1][row]))

    def stage(self, rows: np.ndarray) -> None:
        """Say which utterances will be asked for soon, so that a row group that must be decoded whole is decoded once."""
        for number, groups in enumerate(self._groups):
            if groups is not None and not groups.mapped:
                own = rows[(rows >= self.first[number]) & (rows < self.first[number + 1])]
                groups.stage(self._rows[number][own - self.first[number]])

    def _place(self, i: int) -> tuple[int, int]:
        """The source of an utterance, and its row there."""
        part = int(np.searchsorted(self.first, i, "right")) - 1 if len(self.parts) > 1 else 0
        return part, int(self._rows[part][i - self.first[part]])


def open_speech(sources: Any) -> Utterances:
    """The utterances of a Parquet set, a speech pack, a path of one, or a list of such.

    Raises: InputError "speech" for what is neither; what `asdstore.open` raises.
    """
    parts = list(sources) if isinstance(sources, (list, tuple)) else [sources]
    found = [opened(part) for part in parts]
    for given, part in zip(parts, found, strict=True):
        if not is_speech(part):
            raise InputError("speech", file=str(given), expected="a Parquet set of utterances or a pack of speech",
                             found=part.layout.format if isinstance(part, Pack) else type(part).__name__)
    if not found:
        raise InputError("speech", expected="at least one set or pack", found="none")
    return Utterances(found)


def is_speech(source: Any) -> bool:
    """Whether an open source holds utterances."""
    return isinstance(source, ParquetSet) or (isinstance(source, Pack) and source.layout.format == SPEECH.format)


def opened(source: Any) -> Any:
    """A source, opened if it is a path."""
    return asdstore.open(source) if isinstance(source, (str, os.PathLike)) else source


def _samples(part: ParquetSet | Pack) -> np.ndarray:
    return part.sizes if isinstance(part, ParquetSet) else part.all.numbers("audio_samples")


def _texts(part: ParquetSet | Pack) -> Strings:
    return part.texts if isinstance(part, ParquetSet) else part.all.texts("text")


def _coded(part: ParquetSet | Pack, name: str, rows: np.ndarray) -> Coded:
    if isinstance(part, ParquetSet):
        values = np.array([getattr(one, name) for one in part.parts], object)
        names, inverse = np.unique(values, return_inverse=True) if len(values) else (values, np.empty(0, np.int64))
        of_file = np.searchsorted(part.first, rows, "right") - 1
        return Coded(tuple(names.tolist()), inverse[of_file].astype(np.int32))
    texts = part.all.texts(name).fixed()  # runs of one value are long, so that few are sorted
    heads = np.flatnonzero(np.append(True, texts[1:] != texts[:-1])) if len(texts) else np.empty(0, np.int64)
    names, inverse = np.unique(texts[heads], return_inverse=True)
    codes = np.repeat(inverse, np.diff(np.append(heads, len(texts))))
    return Coded(tuple(value.decode() for value in names.tolist()), codes.astype(np.int32)[rows])


def _characters(texts: Strings) -> np.ndarray:
    """Characters of each text: the bytes that do not go on with one."""
    found = np.zeros(len(texts), np.int64)
    for start in range(0, len(texts), _CHUNK):
        ends = texts.offsets[start:start + _CHUNK + 1]
        begins = texts.blob[ends[0]:ends[-1]] & 0xC0 != 0x80
        some = np.flatnonzero(np.diff(ends))
        if len(some):
            found[start + some] = np.add.reduceat(begins, ends[some] - ends[0], dtype=np.int64)
    return found
