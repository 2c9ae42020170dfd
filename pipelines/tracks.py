"""The tracks of one or several packs as columns: what a plan is made from, without touching an array of a pack."""
from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

import asdstore
from asdstore.errors import InputError
from asdstore.pack import Pack
from pipelines.keys import Key

STREAMS = ("faces", "audio", "labels")


@dataclass(frozen=True)
class Tracks:
    """Every track of `packs`, one after another; columns are [tracks]."""

    packs: tuple[Pack, ...]
    pack: np.ndarray  # int32, which pack
    position: np.ndarray  # int64, where in its pack
    frames: np.ndarray  # int64, native
    fps: np.ndarray  # float64, native
    mean: np.ndarray  # float32, of the stored audio on full scale 1
    rms: np.ndarray  # float64, after the mean is subtracted
    peak: np.ndarray  # float64, likewise

    @classmethod
    def of(cls, packs: Sequence[Pack]) -> Tracks:
        """The tracks of packs of one geometry.

        Raises: InputError, "layout" for what is no pack of face tracks, "geometry" for packs that differ in it, "empty" where
        there is no track, "fps" for a rate that is not finite and above 0.
        """
        packs = tuple(packs)
        for pack in packs:
            streams = {stream.name for stream in pack.layout.streams} if isinstance(pack, Pack) else set()
            if not streams.issuperset(STREAMS):
                raise InputError("layout", file=pack, expected=f"a pack of {', '.join(STREAMS)}",
                                 found=", ".join(sorted(streams)) or type(pack).__name__)
        for pack in packs[1:]:
            if pack.layout != packs[0].layout:
                raise InputError("geometry", file=pack, expected=f"the layout of {packs[0]}: {_says(packs[0])}",
                                 found=_says(pack), cure="Feed packs of one format and face geometry together.")
        sizes = [len(pack) for pack in packs]
        if not sum(sizes):
            raise InputError("empty", file=", ".join(map(str, packs)), expected="at least one track", found="none")

        def column(name: str, dtype: Any) -> np.ndarray:
            return np.concatenate([np.asarray(pack.index[name], dtype) for pack in packs])

        places = [np.arange(n) for n in sizes]
        found = cls(packs, np.repeat(np.arange(len(packs), dtype=np.int32), sizes), np.concatenate(places),
                    column("source_frames", np.int64), column("source_fps", np.float64), column("audio_mean", np.float32),
                    column("audio_rms", np.float64), column("audio_peak", np.float64))
        for row in np.flatnonzero(~(np.isfinite(found.fps) & (found.fps > 0)))[:1].tolist():
            raise InputError("fps", file=packs[found.pack[row]], sample_id=found.sample_id(row), row=int(found.position[row]),
                             expected="a frame rate that is finite and above 0", found=str(found.fps[row]))
        return found

    def __len__(self) -> int:
        return len(self.frames)

    def __reduce__(self):
        return Tracks.of, (self.packs,)

    def viewer(self, stream: str) -> Callable[[int], np.ndarray]:
        """The function that gives one stream of a track: read-only view [count, *item_shape]."""
        views = [pack.viewer(stream) for pack in self.packs]
        packs, rows = self._places
        return lambda track: views[packs[track]](rows[track])

    def named(self, track: int) -> tuple[str, str]:
        """Sample id and recording of a track; the latter "" where it is not known."""
        packs, rows = self._places
        pack, row = self.packs[packs[track]], rows[track]
        return pack.all.texts("sample_id")[row], pack.recordings[row]

    @cached_property
    def _places(self) -> tuple[memoryview, memoryview]:
        """The pack of each track and the row in its whole index; memoryviews give Python integers several times faster."""
        rows = np.concatenate([np.asarray(pack.rows, np.int64) for pack in self.packs])
        return self.pack.data, rows.data

    def sample_id(self, track: int) -> str:
        """The id of a track."""
        return self.named(track)[0]

    @cached_property
    def recordings(self) -> np.ndarray:
        """A number for each recording, -1 where it is not known: int64 [tracks]."""
        numbers: dict[str, int] = {"": -1}
        return np.array([numbers.setdefault(name, len(numbers) - 1) for pack in self.packs
                         for name in pack.index["recording"].tolist()], np.int64)

    @cached_property
    def identity(self) -> np.ndarray:
        """64 bits for each track from its pack's digest and its position there: uint64 [tracks]."""
        return np.concatenate([Key.of(0).fold(pack.digest, np.arange(len(pack))).words for pack in self.packs])

    @property
    def face_shape(self) -> tuple[int, ...]:
        return self.packs[0].layout.face_shape


def _says(pack: Pack) -> str:
    layout = pack.layout
    return f"{layout.format} {layout.version}, " + ", ".join(f"{s.name} {s.dtype} {list(s.item_shape)}" for s in layout.streams)


def opened(packs: Sequence[Any]) -> tuple[Any, ...]:
    """What packs, paths that `asdstore.open` knows, and lists of them stand for, in order."""
    found: list[Any] = []
    for given in packs:
        if isinstance(given, (list, tuple)):
            found += opened(given)
        else:
            found.append(asdstore.open(given) if isinstance(given, (str, os.PathLike)) else given)
    return tuple(found)
