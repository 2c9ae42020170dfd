"""pfiles: ICSI's archive of frame features. Reader for every variant in use, and a writer of QuickNet's bytes.

An uncompressed pfile is mapped; features and labels of an utterance are big-endian views of its rows. A compressed one is
decompressed once, in one pass (its table stands at the end), and stays in memory.
"""
from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np

from asdstore.errors import FormatError
from asdstore.formats import compressed
from asdstore.formats.output import new_file
from asdstore.formats.pfile_header import LARGEST_SIZE, Header, header, parse, truncated
from asdstore.formats.source import Frames, Numbers, Source, narrow
from asdstore.storage import map_file

PIECE = 1 << 20  # bytes of rows that are read and converted at a time


class Pfile(Source):
    """The sentences of a pfile. Made by `open_pfile`; pickles as its path."""

    format = "pfile"

    def __init__(self, path: str, head: Header, offsets: np.ndarray, held: np.ndarray | None, notes: dict[str, list[str]]):
        self.path, self.header, self.offsets, self.notes = path, head, offsets, notes
        self._held = held  # of a compressed file its rows, '>i4' [frames, columns], until they are released
        self._map: np.ndarray | None = None
        self._checked = 0  # rows from the first on whose ids are known to be right
        self.ids, self.dim, self.label_columns = Numbers(head.sentences), head.features, head.labels

    @property
    def rows(self) -> np.ndarray:
        """All rows as big-endian words, '>i4' [frames, columns], mapped."""
        if compressed.suffix(self.path):
            return self._unpacked()
        if self._map is None:
            self._map = map_file(self.path, os.path.getsize(self.path))
        return np.ndarray((self.header.frames, self.header.columns), ">i4", self._map, self.header.size)  # type: ignore[arg-type]

    def _features(self, i: int) -> np.ndarray:
        return _feature_columns(self.header, self.rows[self.offsets[i]:self.offsets[i + 1]])

    def _labels(self, i: int) -> np.ndarray:
        return _label_columns(self.header, self.rows[self.offsets[i]:self.offsets[i + 1]])

    def read(self, start: int, stop: int, into: np.ndarray | None = None) -> Frames:
        """The frames from `start` to `stop`; `into` is memory for their features. The file is read, not mapped, and the ids of
        its rows are compared with the sentence table the first time.

        Raises FormatError: "pfile-ids", "pfile-truncated" for a file that was cut since it was opened.
        """
        self._check_span(start, stop)
        features = np.empty((stop - start, self.dim), np.float32) if into is None else into
        labels = np.empty((stop - start, self.label_columns), np.int32)
        for at, rows in self._pieces(start, stop):
            if at + len(rows) > self._checked:
                _check_ids(self.path, self.header, rows, at, self.offsets)
                self._checked = at + len(rows) if at <= self._checked else self._checked
            place = slice(at - start, at - start + len(rows))
            features[place] = _feature_columns(self.header, rows)
            labels[place] = narrow(_label_columns(self.header, rows), self.path)
        return Frames(features, labels)

    def read_labels(self, start: int, stop: int) -> np.ndarray:
        """The labels from frame `start` to `stop`, int32 [frames, columns]. Raises: as `read`."""
        self._check_span(start, stop)
        labels = np.empty((stop - start, self.label_columns), np.int32)
        for at, rows in self._pieces(start, stop):
            labels[at - start:at - start + len(rows)] = narrow(_label_columns(self.header, rows), self.path)
        return labels

    def release(self) -> None:
        self._held = self._map = None

    def _unpacked(self) -> np.ndarray:
        if self._held is None:
            self._held = open_pfile(self.path)._held
        assert self._held is not None
        return self._held

    def _pieces(self, start: int, stop: int) -> Iterator[tuple[int, np.ndarray]]:
        """The rows from `start` to `stop` in pieces, each with the number of its first row."""
        if compressed.suffix(self.path):
            yield start, self._unpacked()[start:stop]
        elif start < stop:
            with open(self.path, "rb", buffering=0) as file:
                file.seek(self.header.size + start * self.header.row_bytes)
                yield from _read_rows(file, self.path, self.header, start, stop)

    def __reduce__(self):
        return open_pfile, (self.path,)


def open_pfile(path: str | os.PathLike[str], limit: int = compressed.LARGEST) -> Pfile:
    """Opens a pfile, plain or compressed (at most `limit` bytes then).

    Sizes, header, sentence table and the ids of the first and last row of every sentence are checked here; the ids of all
    rows where there is no table, and else when they are read.

    Raises: MissingError "missing"; FormatError "pfile-magic", "pfile-header", "pfile-truncated", "pfile-table", "pfile-ids",
        "compressed", "too-large". Each names the file and the byte.
    """
    name = compressed.found(path)
    return _open_packed(name, limit) if compressed.suffix(name) else _open_plain(name)


def _open_plain(name: str) -> Pfile:
    size = os.path.getsize(name)
    data = map_file(name, size)
    head = parse(data[:LARGEST_SIZE].tobytes(), name)
    if size < head.bytes:
        raise truncated(name, head.bytes, size)
    notes = _extra(size - head.bytes)
    with open(name, "rb", buffering=0) as file:
        if not head.table:
            file.seek(head.size)
            return Pfile(name, head, _scanned(name, head, _read_rows(file, name, head, 0, head.frames)), None, notes)
        table = _table(name, head, data[head.table_at:head.bytes].tobytes())
        if head.frames:
            full = np.diff(table) > 0
            edges = np.unique(np.concatenate([table[:-1][full], table[1:][full] - 1]))
            places = (head.size + edges * head.row_bytes).tolist()  # read, since a map would take a page for each
            ids = b"".join(os.pread(file.fileno(), 8, at) for at in places)
            _check_ids(name, head, np.frombuffer(ids, ">i4").reshape(-1, 2), edges, table)
    return Pfile(name, head, table, None, notes | _empty(table))


def _open_packed(name: str, limit: int) -> Pfile:
    with compressed.Pieces(name) as file:
        head_bytes = file.read(100)
        size = _claimed_size(head_bytes)
        head_bytes += file.read(max(size - len(head_bytes), 0))
        head = parse(head_bytes, name)
        if head.bytes > limit:
            raise compressed.too_large(name, limit)
        held = np.empty((head.frames, head.columns), ">i4")  # takes memory as it is filled, not by what the header claims
        for at, rows in _read_rows(file, name, head, 0, head.frames):
            held[at:at + len(rows)] = rows
        tail = file.read(head.bytes - head.table_at)
        if len(tail) < head.bytes - head.table_at:
            raise truncated(name, head.bytes, file.at)
        notes = _extra(len(file.read(compressed.PIECE)))
    if not head.table:
        return Pfile(name, head, _scanned(name, head, iter([(0, held)])), held, notes)
    table = _table(name, head, tail)
    _check_ids(name, head, held, 0, table)
    return Pfile(name, head, table, held, notes | _empty(table))


def _claimed_size(head: bytes) -> int:
    """Bytes of the header that its first line claims, within the bound; 0 where there is no such line."""
    digits = head.partition(b" size ")[2].split(b"\n")[0].strip()
    return min(int(digits), LARGEST_SIZE) if digits.isdigit() and len(digits) < 10 else 0


def _extra(count: int) -> dict[str, list[str]]:
    return {"bytes behind the end were ignored": [str(count)]} if count else {}


def _empty(table: np.ndarray) -> dict[str, list[str]]:
    found = np.flatnonzero(np.diff(table) == 0)
    return {"sentences without frames": [str(i) for i in found]} if len(found) else {}


def _read_rows(file, name: str, head: Header, start: int, stop: int) -> Iterator[tuple[int, np.ndarray]]:
    """The rows from `start` to `stop` of a file that stands there, in pieces of about PIECE bytes."""
    step = max(1, PIECE // head.row_bytes)
    for at in range(start, stop, step):
        wanted = min(step, stop - at) * head.row_bytes
        data = file.read(wanted)
        while len(data) < wanted and (more := file.read(wanted - len(data))):
            data += more
        if len(data) < wanted:
            raise truncated(name, head.bytes, head.size + at * head.row_bytes + len(data))
        yield at, np.frombuffer(data, ">i4").reshape(-1, head.columns)


def _feature_columns(head: Header, rows: np.ndarray) -> np.ndarray:
    return rows[:, head.first_feature:head.first_feature + head.features].view(">f4")


def _label_columns(head: Header, rows: np.ndarray) -> np.ndarray:
    return rows[:, head.first_label:head.first_label + head.labels]


def _table(name: str, head: Header, data: bytes) -> np.ndarray:
    """The sentence table as int64 [sentences + 1], checked. Raises FormatError, kind "pfile-table"."""
    table = np.frombuffer(data, ">u4").astype(np.int64)
    wrong = np.flatnonzero(np.diff(table) < 0)

    def fault(entry: int, expected: str) -> FormatError:
        little = int(np.frombuffer(data, "<u4")[-1]) == head.frames != int(table[-1])
        return FormatError("pfile-table", file=name, row=entry, offset=head.table_at + 4 * entry, expected=expected,
                           found="little-endian numbers" if little else str(table[entry]),
                           cure="Write the numbers in big-endian order." if little else "Write the file again from its source.")

    if table[0] != 0:
        raise fault(0, "0, the first row of the first sentence, in the sentence table")
    if len(wrong):
        raise fault(int(wrong[0]) + 1, f"at least {table[wrong[0]]}, as the entry before in the sentence table")
    if table[-1] != head.frames:
        raise fault(len(table) - 1, f"{head.frames}, the number of frames, at the end of the sentence table")
    return table


def _check_ids(name: str, head: Header, rows: np.ndarray, at: int | np.ndarray, table: np.ndarray) -> None:
    """Compares the first two columns of `rows`, which are rows `at` on, with the table. Raises FormatError "pfile-ids"."""
    if isinstance(at, int):
        first, last = np.searchsorted(table, [at, at + len(rows) - 1], "right") - 1 if len(rows) else (0, -1)
        number, bounds = np.arange(at, at + len(rows)), np.minimum(np.maximum(table[first:last + 2], at), at + len(rows))
        sentence = np.repeat(np.arange(first, last + 1), np.diff(bounds))
    else:
        number, sentence = at, np.searchsorted(table, at, "right") - 1
    frame = number - table[sentence]
    wrong = np.flatnonzero((rows[:, 0] != sentence) | (rows[:, 1] != frame))
    if len(wrong):
        k = int(wrong[0])
        raise _id_fault(name, head, int(number[k]), np.array([sentence[k], frame[k]]), rows[k, :2])


def _id_fault(name: str, head: Header, row: int, expected: np.ndarray, found: np.ndarray) -> FormatError:
    swapped = found.byteswap().tolist() == expected.tolist()
    said = f"sentence {found[0]} frame {found[1]}"
    return FormatError("pfile-ids", file=name, row=row, offset=head.size + row * head.row_bytes,
                       expected=f"sentence {expected[0]} frame {expected[1]} in its first two columns",
                       found=f"{said}: ids in little-endian order" if swapped else said,
                       cure="Write the ids in big-endian order." if swapped else "Write the file again from its source.")


def _scanned(name: str, head: Header, pieces: Iterator[tuple[int, np.ndarray]]) -> np.ndarray:
    """Offsets from the ids of all rows: sentences 0, 1, 2 ..., frames 0, 1, 2 ... in each. Raises FormatError "pfile-ids"."""
    starts: list[int] = []
    before = np.array([[-1, -1]])
    for at, rows in pieces:
        ids = np.concatenate([before, rows[:, :2]]).astype(np.int64)
        new = ids[1:, 0] != ids[:-1, 0]
        expected = np.where(new[:, None], np.stack([ids[:-1, 0] + 1, np.zeros(len(rows), np.int64)], axis=1), ids[:-1] + (0, 1))
        wrong = np.flatnonzero((ids[1:] != expected).any(axis=1))
        if len(wrong):
            raise _id_fault(name, head, at + int(wrong[0]), expected[wrong[0]], rows[wrong[0], :2])
        starts += (np.flatnonzero(new) + at).tolist()
        before = ids[-1:]
    if len(starts) != head.sentences:
        raise FormatError("pfile-ids", file=name, expected=f"{head.sentences} sentences, as the header says",
                          found=f"{len(starts)} in the ids of the rows")
    return np.array([*starts, head.frames], np.int64)


def write_pfile(path: str | os.PathLike[str], source: Source, table: bool = True) -> None:
    """Writes all utterances of a source as the sentences 0, 1, 2 ... of a pfile, byte for byte as QuickNet does.

    The file appears when it is complete. Utterances without frames, which QuickNet refuses, must have been left out.

    Raises: FormatError "pfile-header" (too many values in a frame), InputError "label-range", StoreError.
    """
    lengths = np.diff(source.offsets)
    if not lengths.all():
        raise FormatError("pfile-table", file=path, sample_id=source.ids[int(np.argmin(lengths))], found="none",
                          expected="at least one frame", cure="Leave it out.")
    head = parse(header(len(source), source.frames, source.dim, source.label_columns, table), path)
    with new_file(path) as file:
        file.write(header(len(source), source.frames, source.dim, source.label_columns, table))
        step = max(1, PIECE // head.row_bytes)
        for at in range(0, source.frames, step):
            found = source.read(at, min(at + step, source.frames))
            number = np.arange(at, at + len(found.features))
            rows = np.empty((len(number), head.columns), ">i4")
            rows[:, 0] = np.searchsorted(source.offsets, number, "right") - 1
            rows[:, 1] = number - source.offsets[rows[:, 0]]
            _feature_columns(head, rows)[:] = found.features
            _label_columns(head, rows)[:] = found.labels
            file.write(rows)
        if table:
            file.write(source.offsets.astype(">i4"))
