"""`asdstore.open`: a pack as a sequence of tracks, each of whose arrays is a read-only view of a map.

Sizes, shapes, dtypes, counts, offsets and coverage are checked against the index and the seal before anything is mapped.
"""
from __future__ import annotations

import hashlib
import operator
import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, SupportsIndex, overload

import numpy as np

from asdstore.errors import FormatError, StoreError, TrackError, error
from asdstore.facts import gather
from asdstore.formats.open import kind_of, open_sources
from asdstore.formats.parquet_set import is_set
from asdstore.storage import Source, Storage, stamp
from spec import index as index_
from spec import seal
from spec.facts import Facts
from spec.index import Index
from spec.layout import SAMPLE_RATE, SPEECH, Layout
from spec.rules import OPEN_RULES, faults
from spec.strings import Strings

PathText = str | os.PathLike[str]


def open_pack(paths: PathText | Sequence[PathText], verify: str = "fast", *, label: PathText | None = None,
              strict: bool = True, allow_commands: bool = False) -> Pack:
    """Open a pack, a Zarr mirror of one, or several as one corpus.

    Args:
        paths: a folder, or a list of folders whose tracks follow one another; the folder of a Parquet set of utterances; or a
            file of frame features: pfile, Kaldi script or archive, PDNN's pickle. Several of these are one, too.
        verify: "fast" checks sizes, documents, offsets and, in a sealed pack, the checksums of index files and of the first
            block of every array; "deep" also reads every byte of a sealed pack and compares all checksums.
        label, strict, allow_commands: of Kaldi's files, see `asdstore.formats.kaldi.open_kaldi`.

    Raises:
        MissingError: "missing", no such folder, shard or file.
        FormatError: the kind of the first broken rule of `spec.rules`; "geometry" for packs of different geometry together.
        IntegrityError: "digest", an exchanged or damaged file of a sealed pack.

    >>> import asdstore, spec.vectors                            # doctest: +SKIP
    >>> pack = asdstore.open("AVA/packed/train")                 # doctest: +SKIP
    >>> pack[0].faces.shape                                      # doctest: +SKIP
    (233, 112, 112)
    """
    if verify not in ("fast", "deep"):
        raise ValueError(f"verify: expected 'fast' or 'deep', found {verify!r}")
    roots = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    if label is not None and not all(map(kind_of, roots)):
        raise FormatError("format", file=str(paths), expected="label= beside an scp or ark only", found=f"label={label}")
    if roots and all(map(is_set, roots)):
        from asdstore.formats.parquet import open_parquet
        return open_parquet(roots)  # type: ignore[return-value]  # a sequence with the same face, of utterances
    if roots and all(kind_of(root) and not os.path.isdir(root) for root in roots):
        return open_sources(roots, label, strict, allow_commands)  # type: ignore[return-value]  # the same, of frame features
    if not roots:
        raise FormatError("count", expected="at least one pack", found="an empty list")
    folders = [os.path.abspath(os.fspath(root)) for root in roots]
    before = [_inode(folder) for folder in folders]
    gathered = [_checked(folder, verify) for folder in folders]
    first = gathered[0]
    for facts in gathered[1:]:
        if facts.layout != first.layout:
            raise FormatError("geometry", file=facts.root, expected=f"the format and geometry of {first.root}: {_says(first)}",
                              found=_says(facts), cure="Open packs of one format and geometry together.")
    pack = Pack(gathered)
    for folder, inode in zip(folders, before, strict=True):
        if _inode(folder) != inode:
            raise StoreError("stale", file=folder, expected="one pack while it is opened", found="another in its place",
                             cure="Open it again.")
    return pack


def _inode(folder: str) -> int:
    return os.stat(folder).st_ino if os.path.isdir(folder) else 0


def _says(facts: Facts) -> str:
    shapes = ", ".join(f"{s.name} {s.dtype} {list(s.item_shape)}" for s in facts.layout.streams)
    return f"{facts.layout.format} {facts.layout.version}, {shapes}"


def _checked(root: str, verify: str) -> Facts:
    facts = gather(root)
    for fault in faults(OPEN_RULES, facts):
        raise error(fault._replace(file=os.path.join(root, fault.file)))
    if verify == "deep":
        from asdstore.contents import changed_files
        for fault in changed_files(facts):
            raise error(fault._replace(file=os.path.join(root, fault.file)))
    return facts


class Track:
    """One face track: read-only views of its arrays, and its row of the index."""

    __slots__ = ("_pack", "_row")

    def __init__(self, pack: Pack, row: int):
        self._pack, self._row = pack, row

    @property
    def faces(self) -> np.ndarray:
        """uint8 [frames, height, width], grayscale."""
        return self._pack._views["faces"](self._row)

    @property
    def audio(self) -> np.ndarray:
        """int16 [samples], mono 16 kHz, original gain; divide by 32768."""
        return self._pack._views["audio"](self._row)

    @property
    def labels(self) -> np.ndarray:
        """uint8 [frames], 1 where the face speaks audibly."""
        return self._pack._views["labels"](self._row)

    @property
    def id(self) -> str:
        return self.sample_id

    @property
    def fps(self) -> float:
        return self.source_fps

    @property
    def frames(self) -> int:
        return self.source_frames

    @property
    def duration(self) -> float:
        """Seconds: frames / fps, of speech the samples of its audio / 16000."""
        if "source_frames" not in self._pack.all.columns:
            return self.audio_samples / SAMPLE_RATE
        return self.source_frames / self.source_fps

    @property
    def recording(self) -> str | None:
        """The recording that tracks share, None where it is not known."""
        return self._pack.recordings[self._row] or None

    def __getattr__(self, name: str) -> Any:
        """A field of the index: dataset, sample_id, source_fps, start_sec, audio_mean ...; or another stream: features."""
        if name.startswith("_"):
            raise AttributeError(name)
        if name in self._pack._views:
            return self._pack._views[name](self._row)
        try:
            found = self._pack.all.columns[name]
        except KeyError:
            raise AttributeError(f"a track has no {name!r}; its index has {', '.join(self._pack.all.columns)}") from None
        return found[self._row] if isinstance(found, Strings) else found[self._row].item()

    def __repr__(self) -> str:
        columns, told = self._pack.all.columns, [repr(self.id)]
        if "source_frames" in columns:
            told.append(f"{self.frames} frames" + (f" at {self.fps:g} fps" if "source_fps" in columns else ""))
        if "audio_samples" in columns:
            told.append(f"{self.duration:.2f} s")
        return f"Track({', '.join(told)})"


class Pack(Sequence):
    """Tracks in loader order. Made by `asdstore.open`; pickles as its paths and opens again where it is unpickled."""

    def __init__(self, gathered: Sequence[Facts]):
        first = gathered[0]
        self.paths = tuple(f.root for f in gathered)
        self.layout: Layout = first.layout
        self.sealed = all(f.seal is not None for f in gathered)
        shards = np.cumsum([0] + [len(f.shards) for f in gathered])
        parts = [replace(f.index, shard=f.index.shard + np.int32(n)) if n else f.index  # type: ignore[union-attr]
                 for f, n in zip(gathered, shards, strict=False)]
        self.all: Index = index_.concat(parts)  # type: ignore[arg-type]
        self._parts = np.cumsum([len(p) for p in parts])  # type: ignore[arg-type]
        self.storage = Storage([_source(array, facts) for facts in gathered for shard in facts.arrays for array in shard])
        self._views = {stream.name: self._viewer(k) for k, stream in enumerate(self.layout.streams)}
        self._gathered = tuple(gathered)
        self.rows: range | memoryview = range(len(self.all))

    # Sequence ------------------------------------------------------------------------------------------------------------
    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, which: SupportsIndex | str) -> Track: ...
    @overload
    def __getitem__(self, which: slice) -> Pack: ...
    def __getitem__(self, which: SupportsIndex | str | slice) -> Track | Pack:
        """A track by position or by id, or the pack of a slice. Raises IndexError; TrackError, "unknown-id", "duplicate-id"."""
        if type(which) is int:  # the common case first: this is the hot path
            return Track(self, self.rows[which])
        if isinstance(which, slice):
            return self._of(self.rows[which])
        position = self.position(which) if isinstance(which, str) else operator.index(which)
        return Track(self, self.rows[position])

    def __iter__(self) -> Iterator[Track]:
        return (Track(self, row) for row in self.rows)

    def __contains__(self, which: object) -> bool:
        return len(self.positions(which)) > 0 if isinstance(which, str) else super().__contains__(which)

    def position(self, sample_id: str) -> int:
        """Where the track of an id stands. Raises TrackError, kinds "unknown-id" and "duplicate-id"."""
        found = self.positions(sample_id)
        if len(found) == 1:
            return int(found[0])
        where = ", ".join(map(str, found[:10]))
        raise TrackError("duplicate-id" if len(found) else "unknown-id", file=", ".join(self.paths), sample_id=sample_id,
                         expected="one track of that id", found=f"{len(found)}, at positions {where}" if len(found) else "none",
                         cure="Take it by position." if len(found) else "")

    def positions(self, sample_id: str) -> np.ndarray:
        """Positions of all tracks of an id, int64 [n], in order."""
        order, ids = self._by_id
        key = np.array(sample_id.encode(), ids.dtype if len(sample_id.encode()) <= ids.dtype.itemsize else None)
        return np.sort(order[np.searchsorted(ids, key, "left"):np.searchsorted(ids, key, "right")])

    @cached_property
    def _by_id(self) -> tuple[np.ndarray, np.ndarray]:
        ids = self.all.texts("sample_id").fixed()[self._row_array]
        order = np.argsort(ids, kind="stable")
        return order, ids[order]

    @cached_property
    def duplicates(self) -> dict[str, list[int]]:
        """Ids that several tracks have, with their positions."""
        _, ids = self._by_id
        twice = np.unique(ids[1:][ids[1:] == ids[:-1]])
        return {found.decode(): self.positions(found.decode()).tolist() for found in twice}

    # The index -----------------------------------------------------------------------------------------------------------
    @cached_property
    def _row_array(self) -> np.ndarray:
        return np.asarray(self.rows, np.int64)

    @property
    def index(self) -> Columns:
        """The index as numpy columns: `pack.index["source_fps"]` is float64 [tracks]; texts are variable-length strings."""
        return Columns(self)

    @cached_property
    def recordings(self) -> Strings | list[str]:
        """The recording of each row of the whole index, "" where it is not known; inferred from the id where a foreign pack
        of a known corpus does not say."""
        from asdstore.recordings import recordings
        return recordings(self.all)

    def select(self, keep: np.ndarray | Callable[[Columns], np.ndarray] | None = None, **equal: Any) -> Pack:
        """The pack of some tracks, order kept.

        Args:
            keep: bool [tracks], or a function of the index columns that gives it.
            equal: index fields with the value, or the collection of values, that a track must have.

        >>> pack.select(dataset="ava")                                        # doctest: +SKIP
        >>> pack.select(lambda index: index["source_frames"] >= 25)           # doctest: +SKIP
        """
        mask = np.ones(len(self), bool)
        if keep is not None:
            given = np.asarray(keep(self.index) if callable(keep) else keep)
            if given.dtype != bool or given.shape != mask.shape:
                raise ValueError(f"select: expected bool [{len(self)}], found {given.dtype} {list(given.shape)}")
            mask &= given
        for name, value in equal.items():
            column = self.index[name]
            wanted = {value} if isinstance(value, (str, int, float)) else set(value)
            mask &= np.fromiter((x in wanted for x in column.tolist()), bool, len(column))
        return self._of(self._row_array[mask].data)

    def describe(self) -> str:
        """A short text table: tracks, hours, datasets, rates, lengths, and what deserves a look."""
        if self.layout == SPEECH:
            from asdstore.speech_tracks import describe_speech
            return describe_speech(self)
        from asdstore.levels import describe
        return describe(self)

    # Arrays --------------------------------------------------------------------------------------------------------------
    def view(self, stream: str, row: int) -> np.ndarray:
        """One stream of a row of the whole index (`pack.rows[position]`): read-only view [count, *item_shape]."""
        return self._views[stream](row)

    def viewer(self, stream: str) -> Callable[[int], np.ndarray]:
        """`view` of one stream, as a function of the row alone: for loops."""
        return self._views[stream]

    def _viewer(self, number: int) -> Callable[[int], np.ndarray]:
        stream = self.layout.streams[number]
        storage, opened, used = self.storage, self.storage.open, self.storage.used
        starts = self.all.numbers(stream.offset)
        # memoryviews give Python integers several times faster than numpy scalars do
        slot = (self.all.shard.astype(np.int64) * len(self.layout.streams) + number).data
        start, stop = np.ascontiguousarray(starts).data, (starts + self.all.numbers(stream.count)).data

        def view(row: int) -> np.ndarray:
            place = slot[row]
            array = opened[place]
            if array is None:
                array = storage.array(place)
            used[place] = 1
            return array[start[row]:stop[row]]

        return view

    # Identity ------------------------------------------------------------------------------------------------------------
    @cached_property
    def _digests(self) -> tuple[str, ...]:
        return tuple(_digest(facts) for facts in self._gathered)

    @cached_property
    def digest(self) -> str:
        """sha256 that identifies the content: of the seals, or of manifest, indexes and sizes where there is no seal."""
        whole = self._digests[0] if len(self._digests) == 1 else hashlib.sha256("".join(self._digests).encode()).hexdigest()
        if self.rows == range(len(self.all)):
            return whole
        return hashlib.sha256(whole.encode() + self._row_array.astype("<i8").tobytes()).hexdigest()

    def _of(self, rows: range | memoryview) -> Pack:
        found = object.__new__(Pack)
        cached = {"_row_array", "_by_id", "duplicates", "digest"}
        found.__dict__.update({k: v for k, v in self.__dict__.items() if k not in cached} | {"rows": rows})
        return found

    def __reduce__(self):
        return _reopen, (self.paths, self._digests, _packed_rows(self.rows))

    def __repr__(self) -> str:
        where = self.paths[0] if len(self.paths) == 1 else f"{len(self.paths)} packs"
        return f"Pack({where!r}, {len(self)} tracks{'' if self.sealed else ', not sealed'})"


class Columns(Mapping):
    """The index of a pack's tracks: a name gives a numpy array [tracks]."""

    def __init__(self, pack: Pack):
        self._pack = pack

    def __getitem__(self, name: str) -> np.ndarray:
        pack = self._pack
        if name == "recording":
            found: Any = np.array(list(pack.recordings), dtype=np.dtypes.StringDType())
        else:
            column = pack.all.columns.get(name, pack.all.extra.get(name))
            if column is None:
                raise KeyError(f"{name!r}; the index has {', '.join(self)}")
            found = column.to_numpy() if isinstance(column, Strings) else column
        if isinstance(pack.rows, range):
            start, stop, step = pack.rows.start, pack.rows.stop, pack.rows.step
            return found[start:stop if stop >= 0 else None:step]
        return found[pack._row_array]

    def __iter__(self) -> Iterator[str]:
        names = dict.fromkeys((*self._pack.all.columns, *self._pack.all.extra, "recording"))
        return iter(names)

    def __len__(self) -> int:
        return len(list(iter(self)))


def _source(array: Any, facts: Facts) -> Source:
    if array.pieces is None:
        return Source(array.dtype, array.shape, None, (), os.path.join(facts.root, array.file))
    return Source(array.dtype, array.shape, array.pieces, tuple(stamp(piece.path) for piece in array.pieces))


def _digest(facts: Facts) -> str:
    if facts.seal:
        return hashlib.sha256(seal.dump(facts.seal)).hexdigest()
    found = hashlib.sha256()
    assert facts.index is not None
    for name, column in sorted(facts.index.columns.items()):
        blob = column.blob.tobytes() + column.offsets.tobytes() if isinstance(column, Strings) else column.tobytes()
        found.update(name.encode() + b"\0" + blob)
    found.update(repr([(a.dtype, a.shape) for shard in facts.arrays for a in shard]).encode())
    return found.hexdigest()


def _packed_rows(rows: range | memoryview) -> range | bytes:
    """Rows small enough to travel: a range, or compressed steps between them."""
    return rows if isinstance(rows, range) else zlib.compress(np.diff(np.asarray(rows), prepend=0).astype("<i8").tobytes(), 6)


def _reopen(paths: tuple[str, ...], digests: tuple[str, ...], rows: range | bytes) -> Pack:
    pack = open_pack(paths)
    for path, then, now in zip(paths, digests, pack._digests, strict=True):
        if then != now:
            raise StoreError("stale", file=path, expected=f"the pack {then[:12]} that was pickled", found=now[:12],
                             cure="Open the new pack and start again.")
    kept = rows if isinstance(rows, range) else np.cumsum(np.frombuffer(zlib.decompress(rows), "<i8")).data
    return pack._of(kept)
