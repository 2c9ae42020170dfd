"""Zarr v3 as bytes <-> facts: the documents of arrays and groups, and the shard index that makes a npy file a Zarr shard.

    [npy header: H bytes][rows, C order][zeros up to whole inner chunks][n x (offset u64, nbytes u64)][their crc32c: u32]

All little-endian; n = ceil(rows / k) inner chunks of k rows; offset i = H + i*k*row_bytes, nbytes = k*row_bytes. numpy stops
reading after the rows; a Zarr reader finds the rows through the index. An array without rows has no chunk at all, so its file
is the npy header alone.
"""
from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from spec.document import parse_json
from spec.errors import FormatError, IntegrityError, MissingError
from spec.layout import Stream

ABSENT = 2**64 - 1  # offset and nbytes of an inner chunk that was never written
MAX_DOCUMENT = 1 << 20  # bytes of an array document
MAX_AXES = 32

_TYPES = {"bool": "b1", **{f"{word}{8 * size}": f"{word[0]}{size}" for word in ("int", "uint") for size in (1, 2, 4, 8)},
          **{f"float{8 * size}": f"f{size}" for size in (2, 4, 8)}, "complex64": "c8", "complex128": "c16"}
_NAMES = {descr: name for name, descr in _TYPES.items()}
_LITTLE = {"name": "bytes", "configuration": {"endian": "little"}}
_INDEX_CODECS = [_LITTLE, {"name": "crc32c"}]
_REQUIRED = ("zarr_format", "node_type", "shape", "data_type", "chunk_grid", "chunk_key_encoding", "fill_value", "codecs")
_OPTIONAL = ("attributes", "dimension_names", "storage_transformers")


def chunk_count(rows: int, chunk_rows: int) -> int:
    """Inner chunks of `chunk_rows` rows that hold `rows`.

    >>> [chunk_count(n, 64) for n in (0, 1, 64, 607)]
    [0, 1, 1, 10]
    """
    return -(-rows // chunk_rows)


def padding_bytes(rows: int, row_bytes: int, chunk_rows: int) -> int:
    """Zeros between the rows and the index.

    >>> padding_bytes(607, 12544, 64)
    413952
    """
    return (chunk_count(rows, chunk_rows) * chunk_rows - rows) * row_bytes


def index_bytes(chunks: int) -> int:
    """Size of a shard index with its checksum.

    >>> index_bytes(10)
    164
    """
    return 16 * chunks + 4


def file_bytes(header_bytes: int, rows: int, row_bytes: int, chunk_rows: int) -> int:
    """Size of a whole file: header, rows, padding, index.

    >>> file_bytes(128, 607, 12544, 64), file_bytes(128, 0, 12544, 64)
    (8028452, 128)
    """
    chunks = chunk_count(rows, chunk_rows)
    return header_bytes + chunks * chunk_rows * row_bytes + (index_bytes(chunks) if chunks else 0)


def shard_index(extents: NDArray[np.uint64]) -> bytes:
    """The shard index of inner chunks [n, 2] (offset, nbytes), with its checksum.

    >>> shard_index(np.array([[128, 4], [132, 4]])).hex()[-8:]
    '3031fb80'
    """
    index = extents.astype("<u8").tobytes()
    return index + google_crc32c.value(index).to_bytes(4, "little")


def shard_tail(header_bytes: int, rows: int, row_bytes: int, chunk_rows: int) -> bytes:
    """What follows the padding of a file of ours: the index and its checksum, nothing for no rows.

    >>> shard_tail(128, 5, 1, 4).hex()
    '80000000000000000400000000000000840000000000000004000000000000003031fb80'
    """
    size = chunk_rows * row_bytes
    offsets = header_bytes + size * np.arange(chunk_count(rows, chunk_rows), dtype=np.uint64)
    return shard_index(np.stack([offsets, np.full_like(offsets, size)], axis=1)) if rows else b""


def parse_shard_index(tail: bytes, chunks: int, *, begin: int = 0, end: int = ABSENT, needed: NDArray[np.bool_] | None = None,
                      file: object = "") -> NDArray[np.uint64]:
    """Offset and size of every inner chunk: uint64 [chunks, 2], in chunk order, which need not be the file's order.

    `begin` and `end` bound the part of the file that may hold chunks (all of it except the index). `needed` [chunks] tells
    which chunks must be there, all by default: those wholly outside the array's shape need not.
    Raises: IntegrityError "zarr-index" for a wrong checksum; FormatError "zarr-index" for a wrong length, a chunk outside the
    bounds or over another one; MissingError "missing" for a needed chunk that was never written (others take it for zeros).

    >>> parse_shard_index(shard_tail(128, 5, 1, 4), 2, end=136).tolist()
    [[128, 4], [132, 4]]
    """
    if len(tail) != index_bytes(chunks):
        raise FormatError("zarr-index", file=file, expected=f"an index of {index_bytes(chunks)} bytes", found=str(len(tail)))
    found, stored = google_crc32c.value(tail[:-4]), int.from_bytes(tail[-4:], "little")
    if found != stored:
        raise IntegrityError("zarr-index", file=file, expected=f"crc32c {stored:08x} of the shard index", found=f"{found:08x}")
    index = np.frombuffer(tail, "<u8", 2 * chunks).reshape(chunks, 2).astype(np.uint64)
    absent = (index == ABSENT).all(axis=1)
    lost = np.flatnonzero(absent if needed is None else absent & needed)
    if lost.size:
        raise MissingError("missing", file=file, expected=f"{chunks} written inner chunks",
                           found=f"{lost.size} absent, the first is {lost[0]}",
                           cure="Write the array again, with its empty chunks.")
    _check_extents(index[~absent], np.flatnonzero(~absent), begin, end, file)
    return index


def _check_extents(extents: NDArray[np.uint64], numbers: NDArray[np.int64], begin: int, end: int, file: object) -> None:
    """Refuses inner chunks [n, 2] outside the bounds or over one another; `numbers` [n] is what they are called."""
    offset, size = extents.T
    outside = np.flatnonzero((offset < begin) | (offset > end) | (size > end - np.minimum(offset, np.uint64(end))))
    if outside.size:
        at = outside[0]
        raise FormatError("zarr-index", file=file, expected=f"chunks within bytes {begin} to {end}",
                          found=f"chunk {numbers[at]} at {offset[at]} with {size[at]} bytes")
    order = np.argsort(offset, kind="stable")
    overlap = np.flatnonzero(offset[order][:-1] + size[order][:-1] > offset[order][1:])
    if overlap.size:
        one, other = numbers[order[overlap[0]]], numbers[order[overlap[0] + 1]]
        raise FormatError("zarr-index", file=file, expected="chunks that do not overlap", found=f"chunks {one} and {other} do")


def array_document(stream: Stream, rows: int, chunk_rows: int, codec: Mapping[str, object] | None = None) -> dict[str, object]:
    """zarr.json of one array of a shard: one sharded chunk that covers all rows.

    `codec` is the Zarr name and configuration of a compressor: each inner chunk is then compressed and followed by its crc32c.

    >>> from spec.layout import ASD
    >>> array_document(ASD.stream("labels"), 5, 4)["chunk_grid"]
    {'name': 'regular', 'configuration': {'chunk_shape': [8]}}
    """
    bytes_codec = {"name": "bytes"} if stream.dtype[0] == "|" else _LITTLE
    inner = [bytes_codec] if codec is None else [bytes_codec, dict(codec), {"name": "crc32c"}]
    return {
        "zarr_format": 3, "node_type": "array", "shape": [rows, *stream.item_shape], "data_type": _NAMES[stream.dtype[1:]],
        "chunk_grid": {"name": "regular", "configuration": {
            "chunk_shape": [max(1, chunk_count(rows, chunk_rows)) * chunk_rows, *stream.item_shape]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0,
        "codecs": [{"name": "sharding_indexed", "configuration": {
            "chunk_shape": [chunk_rows, *stream.item_shape], "codecs": inner, "index_codecs": _INDEX_CODECS,
            "index_location": "end"}}],
        "attributes": {}, "dimension_names": list(stream.axes),
    }


def group_document(attributes: Mapping[str, object], consolidated: Mapping[str, Mapping] | None = None) -> dict[str, object]:
    """zarr.json of a group; `consolidated` has the documents of all nodes below it, by path, so that nobody lists folders.

    >>> group_document({"a": 1})
    {'zarr_format': 3, 'node_type': 'group', 'attributes': {'a': 1}}
    """
    document: dict[str, object] = {"zarr_format": 3, "node_type": "group", "attributes": dict(attributes)}
    if consolidated is not None:
        document["consolidated_metadata"] = {"kind": "inline", "must_understand": False, "metadata": dict(consolidated)}
    return document


class ArrayDocument(NamedTuple):
    """What a Zarr v3 array document says."""

    shape: tuple[int, ...]
    dtype: str  # numpy descr with byte order
    chunk: tuple[int, ...]  # shape of one chunk file (of the shard, if sharded)
    inner: tuple[int, ...]  # shape of one inner chunk; that of the chunk, if not sharded
    index: str  # of a sharded array: "start" or "end" of each file, "other" for one encoded in a way of its own; else ""
    raw: bool  # the values lie in the chunk files as they are, in C order, where the index says
    key: tuple[str, str]  # chunk key prefix and separator
    attributes: Mapping[str, object]

    @property
    def grid(self) -> tuple[int, ...]:
        """Chunk files per axis."""
        return tuple(chunk_count(n, k) for n, k in zip(self.shape, self.chunk, strict=True))

    def chunk_key(self, position: tuple[int, ...]) -> str:
        """Key of the chunk file at `position` of the grid, relative to the array's folder."""
        prefix, separator = self.key
        return separator.join([*([prefix] if prefix else []), *map(str, position)]) or "0"


def parse_array_document(data: bytes, file: object = "") -> ArrayDocument:
    """Facts of the zarr.json of any Zarr v3 array of numbers or booleans on a regular grid.

    Compressors and filters are not looked into: they make an array that is not `raw`.
    Raises: FormatError "json" or "zarr-document".

    >>> from spec.document import dump_json
    >>> from spec.layout import ASD
    >>> facts = parse_array_document(dump_json(array_document(ASD.stream("audio"), 5, 4)))
    >>> facts.dtype, facts.chunk, facts.inner, facts.raw, facts.chunk_key((0,))
    ('<i2', (8,), (4,), True, 'c/0')
    """
    value = parse_json(data, str(file), MAX_DOCUMENT)
    if not isinstance(value, dict):
        raise FormatError("zarr-document", file=file, expected="a JSON object", found=type(value).__name__)
    node = _Node(value, file)
    node.members(_REQUIRED, _OPTIONAL)
    node.only("zarr_format", 3)
    node.only("node_type", "array")
    node.absent("storage_transformers", (None, []))
    shape = node.lengths("shape", 0)
    kind = _TYPES.get(str(node.value["data_type"]))
    if kind is None:
        raise node.wrong("data_type", f"one of {', '.join(_TYPES)}")
    chunk = _named(node.value["chunk_grid"], "chunk_grid", file, "regular").lengths("chunk_shape", 1, len(shape))
    codecs = [_named(c, "codecs", file) for c in node.sequence("codecs")]
    sharding = len(codecs) == 1 and codecs[0].name == "sharding_indexed"
    inner, index = _sharding(codecs[0], chunk) if sharding else (chunk, "")
    innermost = [_named(c, "codecs", file) for c in codecs[0].sequence("codecs")] if sharding else codecs
    endian = next((c.value.get("endian", "") for c in innermost if c.name == "bytes"), "little")
    if endian not in ("little", "big", "") or (endian == "" and kind[1:] != "1"):
        raise node.wrong("codecs", "a bytes codec with endian little or big")
    return ArrayDocument(
        shape, ("|" if kind[1:] == "1" else ">" if endian == "big" else "<") + kind, chunk, inner, index,
        index != "other" and [c.name for c in innermost] == ["bytes"], _key(node), node.mapping("attributes"))


class _Node(NamedTuple):
    """One JSON object of a document, with checks that name what they miss."""

    value: Mapping[str, object]
    file: object
    name: str = ""

    def wrong(self, key: str, expected: str) -> FormatError:
        where = ".".join(p for p in (self.name, key) if p)
        found = repr(self.value[key])[:80] if key in self.value else f"no {key}"
        return FormatError("zarr-document", file=self.file, expected=f"{where}: {expected}", found=found)

    def members(self, required: tuple[str, ...], optional: tuple[str, ...]) -> None:
        for key in required:
            if key not in self.value:
                raise self.wrong(key, "present")
        for key, value in self.value.items():
            extension = isinstance(value, dict) and value.get("must_understand") is False
            if key not in required and key not in optional and not extension:
                raise self.wrong(key, "no member that the Zarr v3 specification does not name")

    def only(self, key: str, wanted: object) -> None:
        if self.value.get(key) != wanted or isinstance(self.value[key], bool):
            raise self.wrong(key, repr(wanted))

    def absent(self, key: str, empty: tuple) -> None:
        if self.value.get(key) not in empty:
            raise self.wrong(key, "none")

    def sequence(self, key: str) -> list:
        value = self.value.get(key)
        if not isinstance(value, list) or len(value) > MAX_AXES:
            raise self.wrong(key, f"a list of at most {MAX_AXES}")
        return value

    def mapping(self, key: str) -> Mapping[str, object]:
        value = self.value.get(key, {})
        if not isinstance(value, dict):
            raise self.wrong(key, "an object")
        return value

    def lengths(self, key: str, least: int, axes: int | None = None) -> tuple[int, ...]:
        value = self.sequence(key)
        whole = all(isinstance(n, int) and not isinstance(n, bool) and least <= n < 2**63 for n in value)
        if not whole or len(value) != (len(value) if axes is None else axes) or math.prod(max(n, 1) for n in value) >= 2**63:
            raise self.wrong(key, f"{'' if axes is None else f'{axes} '}integers of {least} or more, below 2**63 together")
        return tuple(value)


def _named(value: object, what: str, file: object, wanted: str | None = None) -> _Node:
    """The configuration of a named extension: `{"name": ..., "configuration": {...}}`, or its bare name."""
    node = _Node({"name": value} if isinstance(value, str) else value if isinstance(value, dict) else {what: value}, file, what)
    name = node.value.get("name")
    if not isinstance(name, str) or (wanted is not None and name != wanted):
        raise node.wrong("name", repr(wanted) if wanted else "a text")
    return _Node(node.mapping("configuration"), file, name)


def _sharding(codec: _Node, chunk: tuple[int, ...]) -> tuple[tuple[int, ...], str]:
    """Inner chunk shape, and where the index is."""
    inner = codec.lengths("chunk_shape", 1, len(chunk))
    if any(n % k for n, k in zip(chunk, inner, strict=True)):
        raise codec.wrong("chunk_shape", f"lengths that divide the shard's {list(chunk)}")
    location = codec.value.get("index_location", "end")
    if location not in ("start", "end"):
        raise codec.wrong("index_location", "start or end")
    index = [_named(c, "index_codecs", codec.file) for c in codec.sequence("index_codecs")]
    common = [c.name for c in index] == ["bytes", "crc32c"] and index[0].value.get("endian") == "little"
    return inner, str(location) if common else "other"


def _key(node: _Node) -> tuple[str, str]:
    encoding = _named(node.value["chunk_key_encoding"], "chunk_key_encoding", node.file)
    if encoding.name not in ("default", "v2"):
        raise node.wrong("chunk_key_encoding", "default or v2")
    separator = encoding.value.get("separator", "/" if encoding.name == "default" else ".")
    if separator not in ("/", "."):
        raise node.wrong("chunk_key_encoding", "a separator / or .")
    return ("c" if encoding.name == "default" else ""), str(separator)
