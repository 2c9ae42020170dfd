"""The one face of all frame features: utterances in order, each with features [frames, dim] and columns of integer labels.

    source = asdstore.open("train.pfile")
    source[0].features, source[0].labels          # views of the file where its bytes allow it
    source.ids, source.offsets, source.dim        # "0", "1" ...; where each utterance begins; values of a frame
    source.read(1000, 2000)                       # any span of frames, across utterances, as native float32 and int32
"""
from __future__ import annotations

import hashlib
import operator
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple, overload

import numpy as np

from asdstore.errors import FormatError, InputError, TrackError

INT32 = np.iinfo(np.int32)


class Utterance(NamedTuple):
    """One sequence of frames. A file without labels has None; one with several label columns [frames, columns]."""

    id: str
    features: np.ndarray  # [frames, dim], in the file's own float type and byte order
    labels: np.ndarray | None  # [frames] or [frames, columns], in the file's own integer type

    @property
    def frames(self) -> int:
        return len(self.features)


class Frames(NamedTuple):
    """A span of frames, native: features float32 [frames, dim], labels int32 [frames, columns]."""

    features: np.ndarray
    labels: np.ndarray


class Source(Sequence[Utterance]):
    """Frame features of one file. A format gives `_features` and `_labels` of an utterance, and `read` where it is faster."""

    path: str
    format: str  # "pfile", "kaldi", "pickle", "htk", "frames" or "memory"
    ids: Sequence[str]  # of the utterances, each once
    offsets: np.ndarray  # int64 [utterances + 1]: the first frame of each, and the end
    dim: int
    label_columns: int
    notes: dict[str, list[str]]  # what a reader should know: what was left out or converted, and where

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, which: int | str) -> Utterance: ...
    @overload
    def __getitem__(self, which: slice) -> list[Utterance]: ...
    def __getitem__(self, which: int | str | slice) -> Utterance | list[Utterance]:
        """An utterance by position or id. Raises IndexError; TrackError, kind "unknown-id"."""
        if isinstance(which, slice):
            return [self[i] for i in range(len(self))[which]]
        if isinstance(which, str):
            which = self._position(which)
        i = operator.index(which)
        i = i + len(self) if i < 0 else i
        if not 0 <= i < len(self):
            raise IndexError(i)
        labels = self._labels(i) if self.label_columns else None
        if labels is not None and self.label_columns == 1:
            labels = labels[:, 0]
        return Utterance(self.ids[i], self._features(i), labels)

    def __iter__(self) -> Iterator[Utterance]:
        return (self[i] for i in range(len(self)))

    @property
    def frames(self) -> int:
        """Frames of all utterances."""
        return int(self.offsets[-1])

    @property
    def files(self) -> list[str]:
        """Every file that is read."""
        return [self.path]

    def read(self, start: int, stop: int, into: np.ndarray | None = None) -> Frames:
        """The frames from `start` to `stop`, counted over all utterances: a copy, or a view that must not be changed.

        `into` is memory for the features, float32 [stop - start, dim], which is used where they have to be copied.
        Raises IndexError beyond the frames; what reading the file raises; InputError "label-range" for labels beyond int32.
        """
        features = np.empty((stop - start, self.dim), np.float32) if into is None else into
        for i, rows, part in self._spans(start, stop):
            features[rows] = self._features(i)[part]
        return Frames(features, self.read_labels(start, stop))

    def read_labels(self, start: int, stop: int) -> np.ndarray:
        """The labels from frame `start` to `stop`, int32 [frames, columns]. Raises: as `read`."""
        labels = np.empty((stop - start, self.label_columns), np.int32)
        for i, rows, part in self._spans(start, stop) if self.label_columns else ():
            labels[rows] = narrow(self._labels(i)[part], self.path, self.ids[i])
        return labels

    def release(self) -> None:
        """Lets go of what is held in memory and can be read again."""

    def _spans(self, start: int, stop: int) -> Iterator[tuple[int, slice, slice]]:
        """The utterances that the frames `start` to `stop` lie in: which, which of the frames, and which of its own."""
        self._check_span(start, stop)
        first = int(np.searchsorted(self.offsets, start, "right")) - 1
        for i in range(first, len(self)):
            begin, end = int(self.offsets[i]), int(self.offsets[i + 1])
            if begin >= stop:
                return
            low, high = max(begin, start), min(end, stop)
            if low < high:
                yield i, slice(low - start, high - start), slice(low - begin, high - begin)

    def _check_span(self, start: int, stop: int) -> None:
        if not 0 <= start <= stop <= self.frames:
            raise IndexError(f"frames {start} to {stop} of {self.frames}")

    @cached_property
    def digest(self) -> str:
        """sha256 of what a plan depends on: lengths, ids, dimension and label columns. The values are not read."""
        head = repr((self.format, self.dim, self.label_columns, len(self))).encode()
        return hashlib.sha256(head + self.offsets.astype("<i8").tobytes() + "\n".join(self.ids).encode()).hexdigest()

    def _position(self, which: str) -> int:
        try:
            return self._positions[which]
        except KeyError:
            raise TrackError("unknown-id", file=self.path, sample_id=which, expected="an utterance of that id",
                             found="none") from None

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.ids)}

    def _features(self, i: int) -> np.ndarray:
        raise NotImplementedError

    def _labels(self, i: int) -> np.ndarray:
        """[frames, columns]"""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path!r}, {len(self)} utterances, {self.frames} frames of {self.dim} values, " \
               f"{self.label_columns} label columns)"


class Numbers(Sequence[str]):
    """The ids "0", "1" ... of utterances that have no names."""

    def __init__(self, count: int):
        self._range = range(count)

    def __len__(self) -> int:
        return len(self._range)

    def __getitem__(self, i: int) -> str:  # type: ignore[override]
        return str(self._range[i])


class Memory(Source):
    """Utterances that lie in memory, to be written or tested.

    >>> source = Memory(["a", "b"], [np.zeros((3, 2)), np.ones((1, 2))], [np.array([0, 1, 2]), np.array([4])])
    >>> source.offsets.tolist(), source.read(2, 4).labels.ravel().tolist()
    ([0, 3, 4], [2, 4])
    """

    format = "memory"

    def __init__(self, ids: Sequence[str], features: Sequence[np.ndarray], labels: Sequence[np.ndarray] | None = None,
                 path: str = "memory"):
        """Raises InputError: "utterances" (of unequal number), "dimension", "labels" (other lengths than the features)."""
        self.path, self.ids, self.notes = path, list(ids), {}
        self._all = [np.asarray(x) for x in features]
        self._all_labels = [_columns(np.asarray(y)) for y in labels] if labels is not None else None
        found = {len(self._all), len(self.ids if self._all_labels is None else self._all_labels)}
        if found != {len(self.ids)}:
            raise InputError("utterances", file=path, expected=f"features and labels of {len(self.ids)} utterances",
                             found=str(found))
        self.offsets = ends([len(x) for x in self._all])
        self.dim = self._all[0].shape[1] if self._all else 0
        self.label_columns = self._all_labels[0].shape[1] if self._all_labels else 0
        for i, x in enumerate(self._all):
            if x.shape[1:] != (self.dim,):
                raise dimension(path, self.ids[i], self.dim, x.shape)
            if self._all_labels is not None and self._all_labels[i].shape != (len(x), self.label_columns):
                raise InputError("labels", file=path, sample_id=self.ids[i], found=str(self._all_labels[i].shape),
                                 expected=f"labels of {len(x)} frames in {self.label_columns} columns")

    def _features(self, i: int) -> np.ndarray:
        return self._all[i]

    def _labels(self, i: int) -> np.ndarray:
        return self._all_labels[i] if self._all_labels is not None else np.empty((len(self._all[i]), 0), np.int32)


def check_alike(source: Source, first: Source) -> None:
    """Raises InputError, kind "dimension", for two files that cannot be one corpus."""
    if (source.dim, source.label_columns) != (first.dim, first.label_columns):
        raise InputError("dimension", file=source.path, found=f"{source.dim} values, {source.label_columns} label columns",
                         expected=f"{first.dim} values and {first.label_columns} label columns, as in {first.path}")


def _columns(labels: np.ndarray) -> np.ndarray:
    return labels[:, None] if labels.ndim == 1 else labels


def ends(lengths: Sequence[int] | np.ndarray) -> np.ndarray:
    """Offsets of utterances of these lengths: int64 [utterances + 1].

    >>> ends([3, 2]).tolist()
    [0, 3, 5]
    """
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(np.asarray(lengths, np.int64))])


def narrow(labels: np.ndarray, file: str, sample_id: str = "") -> np.ndarray:
    """Labels of any integer type, to be stored as int32. Raises InputError, kind "label-range", where one does not fit."""
    if labels.size and labels.dtype.itemsize >= 4 and labels.dtype.newbyteorder("=") != np.int32:
        low, high = int(labels.min()), int(labels.max())
        if low < INT32.min or high > INT32.max:
            raise InputError("label-range", file=file, sample_id=sample_id, expected="labels that 32 bits hold",
                             found=str(high if high > INT32.max else low))
    return labels


def dimension(file: str, sample_id: str, expected: int, shape: tuple[int, ...], offset: int | None = None) -> FormatError:
    """Utterances of one file that do not agree in their dimension."""
    return FormatError("dimension", file=file, sample_id=sample_id, offset=offset, found=f"shape {list(shape)}",
                       expected=f"[frames, {expected}], as in the utterances before",
                       cure="Extract all with one configuration.")
