"""Reads a Zarr mirror as the facts of the pack that it mirrors, so that opening and judging are the same for both.

A mirror of another program is read too, as long as the groups keep their attributes: arrays with uncompressed chunks of whole
rows are mapped where they lie, all others are decoded.
"""
from __future__ import annotations

import os
from typing import Any

import google_crc32c

from asdstore.errors import AsdError, Fault, FormatError
from asdstore.facts import open_file, read_document, shard_names
from asdstore.zarr_arrays import DOCUMENT, extents
from asdstore.zarr_arrays import read_document as read_array_document
from spec import index, manifest, seal
from spec.document import parse_json
from spec.facts import ArrayFacts, Facts
from spec.index import Index
from spec.layout import Layout
from spec.manifest import Manifest
from spec.seal import Seal


def gather_mirror(root: str) -> Facts:
    """Facts of the Zarr mirror in the folder `root`; what is wrong is in the facts.

    A sealed array that lies in the mirror as the very file has its size and first checksum compared, as in a pack.
    """
    faults: list[Fault] = []
    facts = Facts(root, entries=tuple(sorted(os.listdir(root))), mirror=True)
    try:
        said = group_attributes(root, DOCUMENT).get("asdstore")
    except AsdError as e:
        return facts._replace(faults=(e.fault,))
    if not isinstance(said, dict) or "manifest" not in said:
        wrong = Fault("zarr-document", DOCUMENT, expected="attributes.asdstore with the manifest of a pack", found="none",
                      cure="Open the pack itself, or make a mirror of it with asdstore.mirror.")
        return facts._replace(faults=(wrong,))
    faults += manifest.faults(said["manifest"], DOCUMENT)
    sealed = _seal(said.get("seal"), faults)
    if any(f.kind != "seal" for f in faults):
        return facts._replace(seal=sealed, faults=tuple(faults))
    found = manifest.of_document(said["manifest"], DOCUMENT)
    shards = shard_names(found, facts.entries, faults)
    arrays = tuple(tuple(_array(root, f"{shard}/{s.name}") for s in found.layout.streams) for shard in shards)
    sizes, first_blocks = _sealed_files(sealed, found.layout, shards, arrays) if sealed else ({}, {})
    rows = _index(root, found, shards, faults)
    return facts._replace(manifest=found, index=rows, shards=shards, arrays=arrays, seal=sealed, sizes=sizes,
                          first_blocks=first_blocks, faults=tuple(faults))


def group_attributes(root: str, name: str) -> dict[str, Any]:
    """The attributes of a Zarr v3 group, whose document is `root`/`name`.

    Raises MissingError "missing"; FormatError "json", "zarr-document".
    """
    document = parse_json(read_document(root, name), name)
    if not isinstance(document, dict) or (document.get("zarr_format"), document.get("node_type")) != (3, "group"):
        said = {k: document.get(k) for k in ("zarr_format", "node_type")} if isinstance(document, dict) else type(document)
        raise FormatError("zarr-document", file=name, expected="the document of a Zarr v3 group", found=str(said)[:80])
    attributes = document.get("attributes", {})
    if not isinstance(attributes, dict):
        raise FormatError("zarr-document", file=name, expected="attributes: an object", found=type(attributes).__name__)
    return attributes


def _seal(document: Any, faults: list[Fault]) -> Seal | None:
    try:
        return None if document is None else seal.of_document(document, DOCUMENT)
    except AsdError as e:
        faults.append(e.fault)
        return None


def _array(root: str, name: str) -> ArrayFacts:
    folder = os.path.join(root, name)
    try:
        document, pieces = read_array_document(folder), extents(folder)
        size = os.stat(pieces[0].path).st_size if pieces and len(pieces) == 1 else 0
    except AsdError as e:
        path = os.path.relpath(e.fault.file, root)
        return ArrayFacts(name, fault=e.fault._replace(file=path.replace(os.sep, "/")))
    except OSError as e:
        return ArrayFacts(name, fault=Fault("missing", name, expected="a chunk that can be read", found=e.strerror or str(e)))
    dtype = document.dtype.replace(">", "<") if pieces is None else document.dtype  # decoding gives native bytes
    return ArrayFacts(name, dtype, document.shape, size, size, pieces=None if pieces is None else tuple(pieces))


def _sealed_files(sealed: Seal, layout: Layout, shards: tuple[str, ...],
                  arrays: tuple[tuple[ArrayFacts, ...], ...]) -> tuple[dict[str, int], dict[str, int]]:
    """Size and first checksum of each array that is there as the pack's own file, by its name in the pack."""
    sizes: dict[str, int] = {}
    first_blocks: dict[str, int] = {}
    named = sealed.named()
    for shard, own in zip(shards, arrays, strict=True):
        for stream, array in zip(layout.streams, own, strict=True):
            name = f"{shard}/{stream.file}"
            if name in named and array.pieces and len(array.pieces) == 1 and array.size == named[name].bytes:
                with open_file(array.pieces[0].path) as file:
                    first_blocks[name] = google_crc32c.value(file.read(sealed.block_bytes))
                sizes[name] = array.size
    return sizes, first_blocks


def _index(root: str, found: Manifest, shards: tuple[str, ...], faults: list[Fault]) -> Index | None:
    parts: list[Index] = []
    for k, shard in enumerate(shards):
        name = f"{shard}/{DOCUMENT}"
        try:
            rows = group_attributes(root, name).get("index")
        except AsdError as e:
            faults.append(e.fault)
            continue
        wrong = list(index.faults(rows, found.layout, name))
        faults += wrong
        parts += [] if wrong else [index.of_rows(rows, found.layout, k, name)]
    return index.concat(parts) if len(parts) == len(shards) else None
