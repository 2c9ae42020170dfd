"""Compares a Zarr mirror with its pack and with itself, for `check`."""
from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from asdstore.errors import AsdError, Fault
from asdstore.facts import read_document
from asdstore.mirror_facts import gather_mirror
from asdstore.reading import parts, usable
from asdstore.zarr_arrays import DOCUMENT
from spec.document import parse_json
from spec.facts import ArrayFacts, Facts, Mirrored
from spec.layout import Stream


def is_mirror(root: str, name: str) -> bool:
    """Whether a folder of a pack is a Zarr mirror, whole or damaged."""
    path = os.path.join(root, name)
    return os.path.isdir(path) and (name.endswith(".zarr") or os.path.lexists(os.path.join(path, DOCUMENT)))


def read_mirror(facts: Facts, name: str, deep: bool) -> Mirrored:
    """The mirror in the folder `name` of a pack, compared with it: where it holds copies, the first rows, with `deep` all."""
    mirror = gather_mirror(os.path.join(facts.root, name))
    found = [f._replace(file=f"{name}/{f.file}") for f in unlike_documents(mirror)]
    for shard, (own, mirrored) in enumerate(zip(facts.arrays, mirror.arrays, strict=False)):
        for stream, ours, theirs in zip(facts.layout.streams, own, mirrored, strict=False):
            same = theirs.fault is None and (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
            if same and usable(facts, shard, stream):
                found += _compared(facts.root, mirror.root, stream, ours, theirs, f"{name}/{theirs.file}", deep)
    return Mirrored(name, mirror, tuple(found))


def _compared(root: str, mirror: str, stream: Stream, ours: ArrayFacts, theirs: ArrayFacts, name: str,
              deep: bool) -> Iterator[Fault]:
    try:
        yield from _unlike_rows(root, mirror, stream, ours, theirs, name, deep)
    except (AsdError, OSError) as e:
        yield Fault("unreadable", name, expected="an array that can be read", found=str(e))


def _unlike_rows(root: str, mirror: str, stream: Stream, ours: ArrayFacts, theirs: ArrayFacts, name: str,
                 deep: bool) -> Iterator[Fault]:
    one, other = (array.pieces[0] if array.pieces and len(array.pieces) == 1 else None for array in (ours, theirs))
    if one and other and os.path.samefile(one.path, other.path):
        if one.offset != other.offset:
            yield Fault("mirror-data", name, expected=f"rows from byte {one.offset}, as in {ours.file}",
                        found=f"byte {other.offset}")
        return
    at = 0
    for here, there in zip(parts(root, ours, stream), parts(mirror, theirs, stream), strict=True):
        odd = np.flatnonzero((here != there).reshape(len(here), -1).any(axis=1))
        if len(odd):
            yield Fault("mirror-data", name, expected=f"the rows of {ours.file}", found=f"another row {at + odd[0]}")
        at += len(here)
        if len(odd) or not deep:
            return


def unlike_documents(mirror: Facts) -> Iterator[Fault]:
    """Consolidated metadata that are not what the documents of the mirror say, kind "mirror-document"."""
    if mirror.manifest is None:
        return
    root = parse_json(read_document(mirror.root, DOCUMENT), DOCUMENT)
    block = root.get("consolidated_metadata")
    if block is None:
        return
    listed = block.get("metadata") if isinstance(block, dict) else None
    nodes = [*mirror.shards, *(array.file for shard in mirror.arrays for array in shard)]
    if not isinstance(listed, dict) or sorted(listed) != sorted(nodes):
        yield Fault("mirror-document", DOCUMENT, expected=f"consolidated metadata of {len(nodes)} nodes", found="others")
        return
    for node in nodes:
        if _plain(listed[node]) != _plain(_document(mirror.root, f"{node}/{DOCUMENT}")):
            yield Fault("mirror-document", DOCUMENT, expected=f"consolidated metadata of {node} as its document says",
                        found="others")


def _document(root: str, name: str) -> Any:
    try:
        return parse_json(read_document(root, name), name)
    except AsdError:  # a fault that opening names
        return None


def _plain(document: Any) -> Any:
    """A document without the block of consolidated metadata that a group may have."""
    return {k: v for k, v in document.items() if k != "consolidated_metadata"} if isinstance(document, dict) else document
