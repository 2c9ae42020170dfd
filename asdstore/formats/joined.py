"""Several sources of one kind as one, in order, without the utterances that have no frames."""
from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from asdstore.formats.source import Frames, Source, check_alike, ends


def short_names(paths: Sequence[str]) -> list[str]:
    """The names of files, with as many of their folders as tell them apart.

    >>> short_names(["/x/a.pfile", "/y/b.pfile"]), short_names(["/x/one/a.pfile", "/x/two/a.pfile"])
    (['a.pfile', 'b.pfile'], ['one/a.pfile', 'two/a.pfile'])
    """
    names = [os.path.basename(path) for path in paths]
    if len(set(names)) == len(names):
        return names
    whole = [os.path.abspath(path) for path in paths]
    return [os.path.relpath(path, os.path.commonpath(list(map(os.path.dirname, whole)))) for path in whole]


class Joined(Source):
    """The utterances of `sources`. Where their ids are not unique, the name of the file stands before each: `file:id`.

    >>> from asdstore.formats.source import Memory
    >>> one = Memory(["a", "b"], [np.zeros((2, 3)), np.zeros((0, 3))], path="one")
    >>> joined = Joined([one, Memory(["a"], [np.ones((1, 3))], path="two")])
    >>> joined.ids, joined.offsets.tolist(), joined.notes
    (['one:a', 'two:a'], [0, 2, 3], {'utterances without frames, left out': ['one:b']})
    """

    format = "joined"

    def __init__(self, sources: Sequence[Source]):
        """Raises InputError, kind "dimension", for files that do not go together."""
        first = sources[0]
        for source in sources[1:]:
            check_alike(source, first)
        self.path = ", ".join(source.path for source in sources)
        self.dim, self.label_columns, self.sources = first.dim, first.label_columns, list(sources)
        self.notes = {name: items for source in sources for name, items in source.notes.items() if items}
        names = [name for source in sources for name in source.ids]
        long = len(set(names)) < len(names)
        self._places: list[tuple[int, int]] = []
        self.ids: list[str] = []
        for k, (source, short) in enumerate(zip(sources, short_names([source.path for source in sources]), strict=True)):
            for i, (name, frames) in enumerate(zip(source.ids, np.diff(source.offsets).tolist(), strict=True)):
                full = f"{short}:{name}" if long else name
                if frames:
                    self._places.append((k, i))
                    self.ids.append(full)
                else:
                    self.notes.setdefault("utterances without frames, left out", []).append(full)
        self.offsets = ends([int(sources[k].offsets[i + 1] - sources[k].offsets[i]) for k, i in self._places])

    @property
    def files(self) -> list[str]:
        return [name for source in self.sources for name in source.files]

    def release(self) -> None:
        for source in self.sources:
            source.release()

    def read(self, start: int, stop: int, into: np.ndarray | None = None) -> Frames:
        """The frames from `start` to `stop`, as the sources read them: what they check then is checked. Raises: as they do."""
        features = np.empty((stop - start, self.dim), np.float32) if into is None else into
        labels = np.empty((stop - start, self.label_columns), np.int32)
        for i, rows, part in self._spans(start, stop):
            k, own = self._places[i]
            first = int(self.sources[k].offsets[own])
            features[rows], labels[rows] = self.sources[k].read(first + part.start, first + part.stop, features[rows])
        return Frames(features, labels)

    def _features(self, i: int) -> np.ndarray:
        k, own = self._places[i]
        return self.sources[k]._features(own)

    def _labels(self, i: int) -> np.ndarray:
        k, own = self._places[i]
        return self.sources[k]._labels(own)
