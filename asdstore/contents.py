"""Reads a pack further than `open` does, for `check`: labels, columns, mirrors, and with "deep" every byte."""
from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from asdstore.errors import AsdError, Fault
from asdstore.facts import changed_blocks, mapped_npy, read_document
from asdstore.mirror_contents import is_mirror, read_mirror, unlike_documents
from asdstore.reading import parts, read_bytes, read_rows, usable
from spec import columns, index, npy, zarr3
from spec.facts import ArrayFacts, Contents, Facts
from spec.index import Index
from spec.layout import Stream
from spec.seal import SealedFile

Progress = Callable[[str], object]
FULL_SCALE = 32767  # of stored audio
BLOCK = 1 << 20  # samples that are added up at a time
DEEPEST = 8  # folders in folders that are looked into
RESTORE = "The file was exchanged or damaged: restore it or pack again."


def read_contents(facts: Facts, deep: bool = False, progress: Progress = lambda name: None) -> Facts:
    """The facts with what the arrays and files hold. What cannot be read is a fault in them, kind "unreadable".

    `progress` is called with the name of each file before all its bytes are read.
    """
    if facts.manifest is None:
        return facts
    faults: list[Fault] = []
    found = _labels(facts, faults)
    if deep:
        levels, full_scale, lowest = _audio(facts, faults, progress)
        found = found._replace(pcm=levels, full_scale=full_scale, lowest=lowest)
        faults += changed_files(facts, progress)
    if facts.mirror:
        faults += unlike_documents(facts)
        return facts._replace(contents=found._replace(faults=tuple(faults)))
    mirrors = [name for name in facts.entries if is_mirror(facts.root, name)]
    found = found._replace(
        files=tuple(_caught(lambda: list(_files(facts.root, frozenset(mirrors))), faults) or ()),
        columns=_sidecar(facts, faults), documents=_documents(facts) if columns.FOLDER in facts.entries else None,
        tails={array.file: tail for array, tail in _tails(facts, faults)},
        mirrors=tuple(read_mirror(facts, name, deep) for name in mirrors))
    if deep:
        faults += _padding(facts)
    return facts._replace(contents=found._replace(faults=tuple(faults)))


def _caught(read: Callable[[], Any], faults: list[Fault], file: str = "") -> Any:
    """What `read()` gives, or None and a fault."""
    try:
        return read()
    except AsdError as e:
        faults.append(e.fault._replace(kind="unreadable", file=file if file and not e.fault.file else e.fault.file))
    except OSError as e:
        faults.append(Fault("unreadable", file, expected="a file that can be read", found=e.strerror or str(e)))
    return None


# ---- labels and audio

def _tracks(facts: Facts, stream: Stream) -> Iterator[tuple[ArrayFacts, slice, np.ndarray, np.ndarray]]:
    """Each usable array with its rows of the index, and first row and count of each in it, if all lie inside."""
    if facts.index is None:
        return
    for shard in range(len(facts.arrays)):
        array, rows = usable(facts, shard, stream), facts.rows_of(shard)
        first, count = facts.index.numbers(stream.offset)[rows], facts.index.numbers(stream.count)[rows]
        if array is not None and np.all((first >= 0) & (count >= 0) & (first <= array.rows)):
            if np.all(count <= array.rows - first):
                yield array, rows, first, count


def _labels(facts: Facts, faults: list[Fault]) -> Contents:
    if facts.index is None or "speaking_ratio" not in facts.index.columns:  # labels of another kind
        return Contents()
    positives, odd = np.full(len(facts.index), -1, np.int64), []
    for array, rows, first, count in _tracks(facts, facts.layout.stream("labels")):
        labels = _caught(lambda array=array: read_rows(facts.root, array, 0, array.rows), faults, array.file)
        if labels is None:
            continue
        ended = np.append(labels, np.uint8(0))  # so that every end is a place in it
        edges = np.stack([first, first + count], axis=1).reshape(-1)
        positives[rows] = np.where(count > 0, np.add.reduceat(ended, edges, dtype=np.int64)[::2], 0)
        for i in np.flatnonzero((np.maximum.reduceat(ended, edges)[::2] > 1) & (count > 0)).tolist():
            own = labels[first[i]:first[i] + count[i]]
            frame = int(np.argmax(own > 1))
            odd.append((rows.start + i, frame, int(own[frame])))
    return Contents(positives=positives, odd_labels=tuple(odd))


def _audio(facts: Facts, faults: list[Fault],
           progress: Progress) -> tuple[np.ndarray | None, np.ndarray | None, tuple[tuple[int, int], ...]]:
    """Levels of the stored audio, whether it reaches full scale, and where it is -32768."""
    if facts.index is None or "audio_rms" not in facts.index.columns:
        return None, None, ()
    levels, full_scale = np.full((len(facts.index), 3), np.nan), np.zeros(len(facts.index), bool)
    lowest = []
    for array, rows, first, count in _tracks(facts, facts.layout.stream("audio")):
        progress(array.file)
        for row, start, length in zip(range(rows.start, rows.stop), first.tolist(), count.tolist(), strict=True):
            pcm = _caught(lambda a=array, s=start, n=length: read_rows(facts.root, a, s, s + n), faults, array.file)
            if pcm is None:
                break
            if len(pcm):
                low, high = int(pcm.min()), int(pcm.max())
                levels[row] = _pcm_level(pcm, low, high)
                full_scale[row] = high == 32767 or low <= -32767
                if low == -32768:
                    lowest.append((row, int(pcm.argmin())))
    return levels, full_scale, tuple(lowest)


def _pcm_level(pcm: np.ndarray, low: int, high: int) -> tuple[float, float, float]:
    """Mean, RMS and peak on full scale 1 of int16 audio between `low` and `high`; sums are exact, in whole numbers."""
    count, total, squares = len(pcm), 0, 0
    for at in range(0, count, BLOCK):
        block = pcm[at:at + BLOCK].astype(np.int64)
        total, squares = total + int(block.sum()), squares + int(block @ block)
    mean = total / count
    return mean / FULL_SCALE, math.sqrt(count * squares - total * total) / count / FULL_SCALE, max(
        high - mean, mean - low) / FULL_SCALE


# ---- files

def _files(root: str, without: frozenset[str], below: str = "", depth: int = 0) -> Iterator[str]:
    """Names of all files in a pack, links followed; a folder that lies too deep is named itself."""
    for entry in os.scandir(os.path.join(root, below)):
        name = f"{below}/{entry.name}" if below else entry.name
        if name in without:
            continue
        if entry.is_dir() and depth < DEEPEST:
            yield from _files(root, without, name, depth + 1)
        else:
            yield name


def _sidecar(facts: Facts, faults: list[Fault]) -> Index | None:
    """The index as columns/ has it, None where there is none or opening has found fault with it."""
    told = any(f.file.startswith(columns.FOLDER) for f in facts.faults)
    if columns.FOLDER not in facts.entries or told or facts.manifest is None:
        return None
    try:
        names = {f"{columns.FOLDER}/{name}" for name in os.listdir(os.path.join(facts.root, columns.FOLDER))}
        return columns.load(lambda name: mapped_npy(facts.root, name), names, facts.layout, facts.manifest.samples,
                            facts.manifest.shards)
    except AsdError as e:
        faults.append(e.fault._replace(kind="columns"))
    except OSError as e:
        faults.append(Fault("columns", columns.FOLDER, expected="files that can be read", found=e.strerror or str(e)))
    return None


def _documents(facts: Facts) -> Index | None:
    """The index as the index.json files say it, None where one of them cannot be read: a fault that opening names."""
    names = [f"{shard}/{index.NAME}" for shard in facts.shards]
    try:
        parsed = [index.parse(read_document(facts.root, name), facts.layout, k, name) for k, name in enumerate(names)]
    except AsdError:
        return None
    return index.concat(parsed)


def _with_tail(facts: Facts) -> Iterator[tuple[ArrayFacts, int]]:
    """The npy files with a Zarr shard index behind their data, and the bytes of it."""
    for shard in range(len(facts.arrays)):
        for stream in facts.layout.streams:
            array = usable(facts, shard, stream)
            if array is not None and array.rows:
                chunk = stream.chunk_rows(array.rows)
                if array.size == zarr3.file_bytes(len(array.header), array.rows, stream.row_bytes, chunk):
                    yield array, zarr3.index_bytes(zarr3.chunk_count(array.rows, chunk))


def _tails(facts: Facts, faults: list[Fault]) -> Iterator[tuple[ArrayFacts, bytes]]:
    for array, length in _with_tail(facts):
        path, at = os.path.join(facts.root, array.file), array.size - length
        tail = _caught(lambda path=path, at=at, length=length: read_bytes(path, at, length), faults, array.file)
        if tail is not None:
            yield array, tail


def _padding(facts: Facts) -> Iterator[Fault]:
    faults: list[Fault] = []
    for array, length in _with_tail(facts):
        path, at, stop = os.path.join(facts.root, array.file), array.data_end, array.size - length
        found = _caught(lambda path=path, at=at, stop=stop: read_bytes(path, at, stop - at), faults, array.file)
        odd = np.flatnonzero(np.frombuffer(found or b"", np.uint8))
        if len(odd):
            yield Fault("padding", array.file, offset=at + int(odd[0]), expected="zeros behind the data",
                        found=f"{len(odd)} other bytes", cure=RESTORE)
    yield from faults


def changed_files(facts: Facts, progress: Progress = lambda name: None) -> Iterator[Fault]:
    """Sealed files that have other checksums by now; of a mirror the arrays, put into the form that they have in a pack."""
    if facts.seal is None:
        return
    if facts.mirror:
        yield from _array_digests(facts, facts.seal.named())
        return
    for file in facts.seal.files:
        progress(file.name)
        if facts.sizes.get(file.name) == file.bytes:
            digest = hashlib.sha256()
            changed = list(changed_blocks(os.path.join(facts.root, file.name), file, facts.seal.block_bytes, digest.update))
            yield from changed or _sha256(file, file.name, digest.hexdigest())


def _array_digests(facts: Facts, named: dict[str, SealedFile]) -> Iterator[Fault]:
    for k, shard in enumerate(facts.shards):
        for stream in facts.layout.streams:
            array, file = usable(facts, k, stream), named.get(f"{shard}/{stream.file}")
            if array is not None and file is not None:
                try:
                    yield from _sha256(file, array.file, _file_digest(facts.root, array, stream, file.bytes))
                except (AsdError, OSError) as e:
                    yield Fault("unreadable", array.file, expected="an array that can be read", found=str(e))


def _sha256(file: SealedFile, name: str, found: str) -> Iterator[Fault]:
    if found != file.sha256:
        yield Fault("sha256", name, expected=f"sha256 {file.sha256}", found=found, cure=RESTORE)


def _file_digest(root: str, array: ArrayFacts, stream: Stream, size: int) -> str:
    """The sha256 of the npy file of `size` bytes that holds the rows of an array, with or without a Zarr shard index."""
    header, chunk = npy.header(stream.dtype, array.shape), stream.chunk_rows(array.rows)
    digest = hashlib.sha256(header)
    for rows in parts(root, array, stream):
        digest.update(rows.data)
    if size > len(header) + array.rows * stream.row_bytes:
        digest.update(bytes(zarr3.padding_bytes(array.rows, stream.row_bytes, chunk)))
        digest.update(zarr3.shard_tail(len(header), array.rows, stream.row_bytes, chunk))
    return digest.hexdigest()
