"""Reads what a pack says of itself: documents, headers and sizes, and of a sealed pack the checksums that `open` compares.

Nothing is judged here but what cannot be read at all; judging is `spec.rules`. A Zarr mirror gives the same facts.
"""
from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import google_crc32c
import numpy as np

from asdstore.errors import AsdError, Fault, FormatError, MissingError
from asdstore.storage import map_file
from spec import columns, index, manifest, npy, seal
from spec.document import LARGEST, parse_json
from spec.facts import ArrayFacts, Facts, Piece
from spec.index import Index
from spec.layout import SHARD_NAME, Layout
from spec.manifest import Manifest
from spec.seal import Seal, SealedFile


def gather(root: str) -> Facts:
    """Facts of the pack, or the Zarr mirror, in the folder `root`.

    Raises MissingError, kind "missing", where there is neither; everything else that is wrong is in the facts.
    """
    try:
        entries = tuple(sorted(os.listdir(root)))
    except (OSError, ValueError) as e:  # ValueError: a name that no file can have
        raise MissingError("missing", file=root, expected="a folder with dataset.json or a Zarr mirror",
                           found=getattr(e, "strerror", None) or str(e)) from None
    if manifest.NAME not in entries and "zarr.json" in entries:
        from asdstore.mirror_facts import gather_mirror
        return gather_mirror(root)
    return _gather_pack(root, entries)


def _gather_pack(root: str, entries: tuple[str, ...]) -> Facts:
    faults: list[Fault] = []
    found_manifest = _manifest(root, faults)
    sealed = _seal(root, faults) if seal.NAME in entries else None
    facts = Facts(root, entries=entries, seal=sealed, faults=tuple(faults))
    if found_manifest is None:
        return facts
    shards = shard_names(found_manifest, entries, faults)
    first_blocks: dict[str, int] | None = {} if sealed else None
    block = sealed.block_bytes if sealed else 0
    arrays = []
    for name in shards:
        if os.path.isdir(os.path.join(root, name)):
            arrays.append(tuple(_array(root, f"{name}/{s.file}", block, first_blocks) for s in found_manifest.layout.streams))
        else:
            lost = Fault("missing", name, expected=f"{found_manifest.shards} shards, as dataset.json says",
                         found="no such folder", cure="Restore the shard or pack again.")
            arrays.append(tuple(ArrayFacts(f"{name}/{s.file}", fault=lost) for s in found_manifest.layout.streams))
    sizes = dict(_sizes(root, sealed)) if sealed else {}
    if sealed:
        faults += _changed_documents(root, sealed, sizes)
    found_index = _index(root, found_manifest, shards, sealed, faults)
    return facts._replace(manifest=found_manifest, index=found_index, shards=shards, arrays=tuple(arrays), sizes=sizes,
                          first_blocks=first_blocks or {}, faults=tuple(faults))


def shard_names(found: Manifest, entries: tuple[str, ...], faults: list[Fault]) -> tuple[str, ...]:
    """Names of the shards that the manifest counts; no more than there are entries in the folder, the others are one fault."""
    count = min(found.shards, len(entries))
    if count < found.shards:
        faults.append(Fault("missing", SHARD_NAME.format(count), expected=f"{found.shards} shards, as dataset.json says",
                            found=f"no more than {count}", cure="Restore the shards or pack again."))
    return tuple(SHARD_NAME.format(k) for k in range(count))


def open_file(path: str) -> BinaryIO:
    """A regular file to be read. Raises OSError, also for a folder, and for a pipe or device that would be waited for."""
    file = open(path, "rb", buffering=0, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "not a regular file")
    return file


def read_document(root: str, name: str, limit: int = LARGEST) -> bytes:
    """The bytes of a document, at most one more than `limit`. Raises MissingError, kind "missing"."""
    try:
        with open_file(os.path.join(root, name)) as file:
            return file.read(min(limit, os.fstat(file.fileno()).st_size) + 1)
    except OSError as e:
        raise MissingError("missing", file=name, expected="a file that can be read", found=e.strerror or str(e),
                           cure="Restore it or pack again.") from None


def _caught(read: Callable[[], Any], faults: list[Fault]) -> Any:
    """What `read()` gives, or None and its fault in `faults`."""
    try:
        return read()
    except AsdError as e:
        faults.append(e.fault)
        return None


def _manifest(root: str, faults: list[Fault]) -> Manifest | None:
    document = _caught(lambda: parse_json(read_document(root, manifest.NAME, manifest.LARGEST), manifest.NAME,
                                          manifest.LARGEST), faults)
    if faults:
        return None
    faults += manifest.faults(document)
    return None if faults else manifest.of_document(document)


def _seal(root: str, faults: list[Fault]) -> Seal | None:
    return _caught(lambda: seal.parse(read_document(root, seal.NAME)), faults)


def _array(root: str, name: str, block_bytes: int, first_blocks: dict[str, int] | None) -> ArrayFacts:
    path = os.path.join(root, name)
    try:
        with open_file(path) as file:
            block = file.read(max(npy.MAX_HEAD, block_bytes))
            size = os.fstat(file.fileno()).st_size
    except OSError as e:
        return ArrayFacts(name, fault=Fault("missing", name, expected="the array", found=e.strerror or str(e),
                                            cure="Restore it or pack again."))
    if first_blocks is not None:
        first_blocks[name] = google_crc32c.value(block[:block_bytes])
    try:
        header = npy.parse_header(block[:npy.MAX_HEAD], name)
    except FormatError as e:
        return ArrayFacts(name, fault=e.fault, size=size)
    data_end = header.nbytes_header + header.nbytes_data
    return ArrayFacts(name, header.dtype, header.shape, size, data_end, block[:header.nbytes_header],
                      (Piece(path, header.nbytes_header, 0, header.shape[0] if header.shape else 0),))


def _sizes(root: str, sealed: Seal) -> Iterator[tuple[str, int]]:
    for file in sealed.files:
        try:
            found = os.stat(os.path.join(root, file.name))
        except OSError:
            continue
        if stat.S_ISREG(found.st_mode):
            yield file.name, found.st_size


def _changed_documents(root: str, sealed: Seal, sizes: dict[str, int]) -> Iterator[Fault]:
    """Sealed files other than arrays, all of whose blocks are compared: they decide how the arrays are read."""
    for file in sealed.files:
        is_array = file.name.endswith(".npy") and not file.name.startswith(columns.FOLDER)
        if sizes.get(file.name) == file.bytes and not is_array:
            yield from changed_blocks(os.path.join(root, file.name), file, sealed.block_bytes)


def changed_blocks(path: str, file: SealedFile, block_bytes: int,
                   read: Callable[[bytes], object] = lambda block: None) -> Iterator[Fault]:
    """The blocks of a sealed file that have another checksum by now, kind "digest". `read(block)` is called with each block."""
    cure = "The file was exchanged or damaged: restore it or pack again."
    try:
        with open_file(path) as data:
            for k, at in enumerate(range(0, file.bytes, block_bytes)):
                block = data.read(min(block_bytes, file.bytes - at))
                read(block)
                if google_crc32c.value(block) != file.block(k):
                    yield Fault("digest", file.name, offset=at, expected=f"crc32c {file.block(k):08x} of the block",
                                found=f"{google_crc32c.value(block):08x}", cure=cure)
    except OSError as e:
        yield Fault("digest", file.name, expected="a file that can be read", found=e.strerror or str(e), cure=cure)


def _index(root: str, found: Manifest, shards: tuple[str, ...], sealed: Seal | None, faults: list[Fault]) -> Index | None:
    before = len(faults)
    listed = {f.name for f in sealed.files} if sealed else set()
    if not faults and f"{columns.FOLDER}/shard.npy" in listed:
        return _caught(lambda: columns.load(lambda name: mapped_npy(root, name), listed, found.layout, found.samples,
                                            found.shards), faults)
    parts = []
    for k, name in enumerate(shards):
        if not os.path.isdir(os.path.join(root, name)):
            continue
        part = _shard_index(root, f"{name}/{index.NAME}", found.layout, k, faults)
        parts += [part] if part is not None else []
    return index.concat(parts) if parts and len(faults) == before and len(parts) == len(shards) else None


def _shard_index(root: str, name: str, layout: Layout, shard: int, faults: list[Fault]) -> Index | None:
    data = _caught(lambda: read_document(root, name), faults)
    if data is None:
        return None
    try:
        return index.parse(data, layout, shard, name)
    except FormatError as e:
        if e.kind != "index":
            faults.append(e.fault)
        else:
            faults += index.faults(parse_json(data, name), layout, name)
        return None


def mapped_npy(root: str, name: str) -> np.ndarray:
    """A npy file as a mapped read-only array. Raises MissingError; FormatError, kinds of the header and "size"."""
    path = os.path.join(root, name)
    if not os.path.isfile(path):
        raise MissingError("missing", file=name, expected="the file", found="none")
    data = map_file(path, os.path.getsize(path))
    header = npy.parse_header(data[:npy.MAX_HEAD].tobytes(), name)
    if header.nbytes_header + header.nbytes_data > len(data):
        raise FormatError("size", file=name, expected=f"{header.nbytes_header + header.nbytes_data} bytes",
                          found=str(len(data)))
    return np.ndarray(header.shape, header.dtype, data, header.nbytes_header)
