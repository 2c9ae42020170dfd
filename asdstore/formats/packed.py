"""A pack of frames (asdstore-frames) with the face of all frame features. Everything in it is a view of the maps."""
from __future__ import annotations

import os
from functools import cached_property

import numpy as np

from asdstore.errors import FormatError
from asdstore.formats.source import Frames, Source, ends
from asdstore.pack import Pack, open_pack
from spec.layout import FRAMES


class Packed(Source):
    """The utterances of a pack of frames. Made by `open_packed` or from a pack; pickles as the pack does."""

    format = "frames"

    def __init__(self, pack: Pack):
        """Raises FormatError, kind "format", for a pack of something else."""
        if pack.layout.format != FRAMES.format:
            raise FormatError("format", file=", ".join(pack.paths), expected=f"a pack of the format {FRAMES.format}",
                              found=pack.layout.format, cure="Packs of face tracks are for pipelines.train.")
        self.pack, self.path, self.notes = pack, ", ".join(pack.paths), {}
        self.ids = pack.index["sample_id"].tolist()
        self.offsets = ends(pack.index["source_frames"])
        self.dim = pack.layout.stream("features").item_shape[0]
        self.label_columns = (*pack.layout.stream("labels").item_shape, 1)[0] if pack.layout.has("labels") else 0
        self._rows = np.asarray(pack.rows)

    @cached_property
    def digest(self) -> str:
        return self.pack.digest

    def _features(self, i: int) -> np.ndarray:
        return self.pack.view("features", int(self._rows[i]))

    def _labels(self, i: int) -> np.ndarray:
        if not self.label_columns:
            return np.empty((int(self.offsets[i + 1] - self.offsets[i]), 0), np.int32)
        return self.pack.view("labels", int(self._rows[i])).reshape(-1, self.label_columns)

    def read(self, start: int, stop: int, into: np.ndarray | None = None) -> Frames:
        """The frames from `start` to `stop`: a view, unless they lie in several shards. Raises: IndexError."""
        self._check_span(start, stop)
        first, last = (self.offsets.searchsorted((start, stop - 1), "right") - 1).tolist() if start < stop else (0, -1)
        features = self._stretch("features", first, last, start, stop)
        if features is None:
            return super().read(start, stop, into)
        return Frames(features, self.read_labels(start, stop))

    def read_labels(self, start: int, stop: int) -> np.ndarray:
        first, last = (self.offsets.searchsorted((start, stop - 1), "right") - 1).tolist() if start < stop else (0, -1)
        labels = self._stretch("labels", first, last, start, stop) if self.label_columns else None
        return super().read_labels(start, stop) if labels is None else labels.reshape(stop - start, self.label_columns)

    def _stretch(self, stream: str, first: int, last: int, start: int, stop: int) -> np.ndarray | None:
        """The rows of a stream as one view, where the utterances `first` to `last` follow one another in one shard."""
        rows, all_ = self._rows[first:last + 1], self.pack.all
        if not len(rows) or all_.shard[rows[0]] != all_.shard[rows[-1]]:
            return None
        layout = self.pack.layout.stream(stream)
        at = all_.numbers(layout.offset)[rows] - self.offsets[first:last + 1]
        if (at != at[0]).any():
            return None
        number = self.pack.layout.streams.index(layout)
        array = self.pack.storage.array(int(all_.shard[rows[0]]) * len(self.pack.layout.streams) + number)
        return array[start + int(at[0]):stop + int(at[0])]

    def __reduce__(self):
        return Packed, (self.pack,)


def open_packed(path: str | os.PathLike[str]) -> Packed:
    """Opens a pack of frames, or the Zarr mirror of one. Raises: as `asdstore.open`; FormatError, kind "format"."""
    return Packed(open_pack(path))
