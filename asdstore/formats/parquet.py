"""A Parquet set of utterances, read in place: random access to each one, an index of numpy columns.

    utterances = open_parquet("root")
    utterances[0].text, utterances[0].audio          # str, int16 [samples] mono 16 kHz
    utterances.index["audio_size"], utterances.select(language="deu_Latn", split="train")

Sets that this project wrote are mapped: the bytes of an utterance lie in the file as they are. Of others whole row groups are
decoded.
"""
from __future__ import annotations

import hashlib
import operator
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, NamedTuple, overload

import numpy as np

from asdstore.errors import FormatError, InputError, StoreError
from asdstore.formats import parquet_set
from asdstore.formats.arrow import check_partition, check_schema, octets, opened, strings
from asdstore.formats.parquet_set import KEYS, Found, Part
from asdstore.storage import map_file
from spec.layout import SAMPLE_RATE
from spec.strings import Strings

HELD_BYTES = 128 << 20  # of decoded row groups and mapped files, per open set
THREADS = 4  # that read the index of files


class Utterance(NamedTuple):
    """One row of a set. Its audio is read when it is asked for."""

    set: ParquetSet
    row: int  # of the whole set

    @property
    def text(self) -> str:
        return self.set.texts[self.row]

    @property
    def language(self) -> str:
        return self.set.part(self.row).language

    @property
    def corpus(self) -> str:
        return self.set.part(self.row).corpus

    @property
    def split(self) -> str:
        return self.set.part(self.row).split

    @property
    def id(self) -> str:
        """What the source called it; `<file>:<row>` in a set that does not say."""
        return self.set.ids[self.row]

    @property
    def speaker(self) -> str:
        return self.set.speakers[self.row]

    @property
    def audio_size(self) -> int:
        """Samples at 16 kHz, -1 where a foreign set says none."""
        return int(self.set.sizes[self.row])

    @property
    def duration(self) -> float:
        """Seconds."""
        return self.audio_size / SAMPLE_RATE

    @property
    def audio_bytes(self) -> bytes:
        """The encoded file. Raises InputError "audio-empty" where a foreign set holds null."""
        return self.set.audio_bytes(self.row)

    @property
    def audio(self) -> np.ndarray:
        """int16 [samples], mono 16 kHz; divide by 32768. Raises InputError, kinds of `asdstore.audio.decode`."""
        from asdstore.audio import decode_bytes
        from spec.timeline import full_scale16

        part, name = self.set.part(self.row), f"{self.set.part(self.row).name}:{self.row - self.set.first_row(self.row)}"
        return full_scale16(decode_bytes(self.audio_bytes, file=os.path.join(self.set.root, part.name), sample_id=name).samples)


def open_parquet(paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> ParquetSet:
    """Open a Parquet set: a dataset's root, one version of it, or a folder of its partitions; or several as one.

    Raises: MissingError "missing"; FormatError "parquet" (not such a file, or cut short), "schema", "partition", "version",
    "manifest", "size"; DependencyError without pyarrow.
    """
    roots = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    return ParquetSet([parquet_set.find(root) for root in roots])


class _Index(NamedTuple):
    """What opening reads of one file."""

    sizes: np.ndarray  # int64 [rows]: audio_size, -1 for null
    groups: np.ndarray  # int64 [row groups + 1]: first row of each, and the end


class ParquetSet(Sequence[Utterance]):
    """Utterances in the order of file names and rows. Made by `open_parquet`; pickles as its path and opens again."""

    def __init__(self, sets: Sequence[Found]):
        self.paths = tuple(one.root for one in sets)
        self.root, self.parts, self.manifests = parquet_set.joined(sets)
        with ThreadPoolExecutor(THREADS) as pool:
            read = list(pool.map(self._read_index, self.parts))
        self.sizes = np.concatenate([np.empty(0, np.int64), *(one.sizes for one in read)])  # int64 [rows] of audio_size
        self.first = np.cumsum([0, *(len(one.sizes) for one in read)])  # int64 [parts + 1]: first row of each
        self.rows: np.ndarray | range = range(len(self.sizes))
        self._groups = [one.groups for one in read]
        self._held: OrderedDict[tuple, Any] = OrderedDict()
        self._lock = threading.Lock()

    # A sequence -----------------------------------------------------------------------------------------------------------
    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, which: int) -> Utterance: ...
    @overload
    def __getitem__(self, which: slice) -> ParquetSet: ...
    def __getitem__(self, which: int | slice) -> Utterance | ParquetSet:
        if isinstance(which, slice):
            return self._of(self.rows[which])
        return Utterance(self, int(self.rows[operator.index(which)]))

    def __iter__(self) -> Iterator[Utterance]:
        return (Utterance(self, int(row)) for row in self.rows)

    def select(self, keep: np.ndarray | Callable[[Columns], np.ndarray] | None = None,
               **equal: str | Sequence[str]) -> ParquetSet:
        """The set of some utterances, order kept.

        Arguments: `keep` bool [utterances], or a function of the index that gives it; `equal` corpus, split, language or
        another column of the index with the value, or the values, that it must have.
        """
        mask = np.ones(len(self), bool)
        if keep is not None:
            mask &= np.asarray(keep(self.index) if callable(keep) else keep, bool)
        for name, value in equal.items():
            wanted = {value} if isinstance(value, str) else set(value)
            if name in KEYS:
                of_part = np.array([getattr(part, name) in wanted for part in self.parts], bool)
                mask &= of_part[self._part_of(self._row_array)]
            else:
                mask &= np.array([one in wanted for one in self.index[name].tolist()], bool)
        return self._of(self._row_array[mask])

    # Columns --------------------------------------------------------------------------------------------------------------
    @property
    def index(self) -> Columns:
        """numpy columns [utterances]: audio_size, text, corpus, split, language, id, speaker."""
        return Columns(self)

    @cached_property
    def texts(self) -> Strings:
        """The text of every row of the whole set, "" for null."""
        return Strings.concat([Strings.empty(0), *(strings(self._table(part, "text")["text"]) for part in self.parts)])

    @cached_property
    def ids(self) -> Strings:
        return self._named("id")

    @cached_property
    def speakers(self) -> Strings:
        return self._named("speaker")

    def part(self, row: int) -> Part:
        """The file of a row of the whole set."""
        return self.parts[self._part_of(row)]

    def first_row(self, row: int) -> int:
        """The first row of the whole set that lies in the same file as `row`."""
        return int(self.first[self._part_of(row)])

    def group(self, row: int) -> tuple[int, int]:
        """The rows of the whole set, first and end, that lie in the same row group as `row`."""
        number = int(self._part_of(row))
        first, groups = int(self.first[number]), self._groups[number]
        at = int(np.searchsorted(groups, row - first, "right"))
        return first + int(groups[at - 1]), first + int(groups[at])

    @cached_property
    def digest(self) -> str:
        """sha256 that identifies the content: of the manifests' digests, or of names, sizes and lengths in a foreign set."""
        found = hashlib.sha256()
        for part in self.parts:
            size = part.sha256 or str(os.path.getsize(os.path.join(self.root, part.name)))
            found.update(f"{part.name}\0{size}\n".encode())
        found.update(self.sizes.tobytes())
        if not isinstance(self.rows, range) or self.rows != range(len(self.sizes)):
            found.update(self._row_array.astype("<i8").tobytes())
        return found.hexdigest()

    def describe(self) -> str:
        """A short text table: utterances and hours of each corpus, split and language."""
        from asdstore.stats import compute_stats, table
        return table(compute_stats(self, per_split=True), per_split=True)

    # Audio ----------------------------------------------------------------------------------------------------------------
    def audio_bytes(self, row: int) -> bytes:
        """The encoded audio of a row of the whole set.

        Raises: InputError "audio-empty"; FormatError "parquet", "offset"; StoreError "stale" where the file was changed.
        """
        number = int(self._part_of(row))
        part, place = self.parts[number], row - int(self.first[number])
        if part.rows_bytes >= 0:
            at, size = self._places(number)
            data = self._kept(("file", number), lambda: map_file(os.path.join(self.root, part.name), part.bytes))
            return data[at[place]:at[place] + size[place]].tobytes()
        groups = self._groups[number]
        group = int(np.searchsorted(groups, place, "right")) - 1
        column = self._kept((number, group), lambda: self._table(part, "audio_bytes", group)["audio_bytes"])
        cell = column[place - int(groups[group])]
        data = octets(cell)
        if not data:
            raise InputError("audio-empty", file=part.name, row=place, expected="an audio file", found="null or nothing")
        return data

    def _places(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Where the audio of each row of a file begins, and its bytes."""
        def read() -> tuple[np.ndarray, np.ndarray]:
            found = self._companion(self.parts[number], "at", "bytes")
            at, size = found["at"].to_numpy(), found["bytes"].to_numpy()
            part = self.parts[number]
            if {at.dtype, size.dtype} != {np.dtype(np.int64)} or len(at) != part.rows or np.any(
                    (at < 0) | (size < 0) | (at > part.bytes - size)):
                raise FormatError("offset", file=part.companion, expected="a place inside the file for each row",
                                  found=f"{len(at)} places", cure="Restore it or prepare the corpus again.")
            return at, size
        return self._kept(("places", number), read)

    def _kept(self, key: tuple, read: Callable[[], Any]) -> Any:
        """What `read` gives, kept as long as there is room for it."""
        with self._lock:
            if key in self._held:
                self._held.move_to_end(key)
                return self._held[key]
        value = read()
        with self._lock:
            self._held[key] = value
            while len(self._held) > 2 and sum(_weight(*item) for item in self._held.items()) > HELD_BYTES:
                self._held.popitem(last=False)
        return value

    # Reading --------------------------------------------------------------------------------------------------------------
    def _read_index(self, part: Part) -> _Index:
        with opened(os.path.join(self.root, part.name)) as file:
            check_schema(file.schema_arrow, part)
            sizes = file.read(["audio_size"], use_threads=False)["audio_size"]
            meta = file.metadata
            groups = np.cumsum([0, *(meta.row_group(n).num_rows for n in range(meta.num_row_groups))])
            for key in set(KEYS) & set(file.schema_arrow.names):
                check_partition(file.read([key])[key], key, part)
        if part.rows not in (-1, len(sizes)):
            raise FormatError("count", file=part.name, expected=f"{part.rows} rows, as the manifest says",
                              found=str(len(sizes)))
        return _Index(sizes.fill_null(-1).to_numpy().astype(np.int64), groups)

    def _table(self, part: Part, column: str, group: int | None = None) -> Any:
        with opened(os.path.join(self.root, part.name)) as file:
            if group is not None:
                return file.read_row_group(group, [column])
            found = file.read([column])
            found.validate(full=True)  # that texts are UTF-8
            return found

    def _companion(self, part: Part, *columns: str) -> Any:
        with opened(os.path.join(self.root, part.companion)) as file:
            found = file.read(list(columns))
            found.validate(full=True)
        if found.column_names != list(columns):
            raise FormatError("companion", file=part.companion, expected=f"the columns {', '.join(columns)}",
                              found=", ".join(found.column_names), cure="Restore it or prepare the corpus again.")
        return found

    def _named(self, column: str) -> Strings:
        found = [Strings.empty(0)]
        for number, part in enumerate(self.parts):
            if part.rows_bytes >= 0:
                found.append(strings(self._companion(part, column)[column]))
            else:
                rows = int(self.first[number + 1] - self.first[number])
                names = [f"{part.name}:{row}" for row in range(rows)] if column == "id" else [""] * rows
                found.append(Strings.of(names))
        return Strings.concat(found)

    def _part_of(self, row: Any) -> Any:
        return np.searchsorted(self.first, row, "right") - 1

    @cached_property
    def _row_array(self) -> np.ndarray:
        return np.asarray(self.rows, np.int64)

    def _of(self, rows: np.ndarray | range) -> ParquetSet:
        found = object.__new__(ParquetSet)
        found.__dict__.update({k: v for k, v in self.__dict__.items() if k not in ("_row_array", "digest")} | {"rows": rows})
        return found

    def __reduce__(self):
        return _reopen, (self.paths, self.digest, self.rows)

    def __repr__(self) -> str:
        return f"ParquetSet({', '.join(self.paths)!r}, {len(self)} utterances in {len(self.parts)} files)"


class Columns(Mapping):
    """The index of a set's utterances: a name gives a numpy array [utterances]."""

    def __init__(self, of: ParquetSet):
        self._set = of

    NAMES = ("audio_size", *KEYS, "text", "id", "speaker")

    def __getitem__(self, name: str) -> np.ndarray:
        found, rows = self._set, self._set._row_array
        if name == "audio_size":
            return found.sizes[rows]
        if name in KEYS:
            values = np.array([getattr(part, name) for part in found.parts], np.dtypes.StringDType())
            return values[found._part_of(rows)]
        if name not in self.NAMES:
            raise KeyError(f"{name!r}; the index has {', '.join(self)}")
        return {"text": found.texts, "id": found.ids, "speaker": found.speakers}[name].take(rows).to_numpy()

    def __iter__(self) -> Iterator[str]:
        return iter(self.NAMES)

    def __len__(self) -> int:
        return len(self.NAMES)


def _weight(key: tuple, held: Any) -> int:
    """Bytes that something held counts for; of a mapped file those of its tables, for its pages are the system's."""
    if key[0] == "file":
        return 1 << 18
    return held.nbytes if hasattr(held, "nbytes") else sum(part.nbytes for part in held)


def _reopen(paths: tuple[str, ...], digest: str, rows: np.ndarray | range) -> ParquetSet:
    found = open_parquet(paths)._of(rows)
    if found.digest != digest:
        raise StoreError("stale", file=", ".join(paths), found=found.digest[:12],
                         expected=f"the set {digest[:12]} that was pickled", cure="Open the new set and start again.")
    return found
