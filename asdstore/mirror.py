"""A Zarr v3 face for a pack: links to its own files, a copy, or a compressed archive.

    mirror.zarr/zarr.json                       group: manifest, seal, shard names; documents of all nodes (consolidated)
    mirror.zarr/shard-000000/zarr.json          group: the shard's index
    mirror.zarr/shard-000000/faces/zarr.json    array: one chunk that is a Zarr shard
    mirror.zarr/shard-000000/faces/c/0/0/0      -> ../../../../../../shard-000000/faces.npy

The mirror is built beside its place and renamed when every chunk has been read through it, so that no document is ever
published without its chunks: other readers take a missing chunk for zeros.
"""
from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import google_crc32c
import numpy as np

from asdstore import files
from asdstore.errors import AsdError, FormatError, InputError, StoreError, error
from asdstore.facts import changed_blocks, gather
from asdstore.storage import map_file
from asdstore.verb import make_callable
from asdstore.zarr_arrays import DOCUMENT, extents
from spec import index, manifest, seal, zarr3
from spec.document import dump_json, parse_json
from spec.facts import ArrayFacts, Facts
from spec.layout import Stream
from spec.rules import OPEN_RULES, faults

LINKS = ("symlink", "hard", "copy")
CODECS: dict[str, dict[str, Any]] = {  # Zarr configurations; faces and speech gain most from blosc with bit shuffling
    "zstd": {"level": 5, "checksum": False},
    "blosc": {"cname": "zstd", "clevel": 5, "shuffle": "bitshuffle", "blocksize": 0},
    "gzip": {"level": 5},
}
COPY_BYTES = 1 << 22


class _Array(NamedTuple):
    """One array of the pack: rows of `stream` at byte `header` of the file `path`."""

    stream: Stream
    name: str  # relative to the pack
    path: str
    header: int
    rows: int
    size: int

    @property
    def chunk(self) -> int:
        return self.stream.chunk_rows(self.rows)

    @property
    def tail(self) -> bytes:
        return zarr3.shard_tail(self.header, self.rows, self.stream.row_bytes, self.chunk)


class _Plan(NamedTuple):
    """What is made: links of a kind, or the chunks of a codec."""

    link: str
    codec: str | None

    def configuration(self, stream: Stream) -> dict[str, Any] | None:
        """The Zarr codec that compresses a stream."""
        if self.codec is None:
            return None
        size = {"typesize": int(stream.dtype[2:])} if self.codec == "blosc" else {}
        return {"name": self.codec, "configuration": CODECS[self.codec] | size}


def mirror(pack_path: str | os.PathLike[str], target: str | os.PathLike[str] | None = None, link: str = "symlink",
           codec: str | None = None, overwrite: bool = False, progress: Callable[[str], object] = lambda array: None) -> Path:
    """Makes a Zarr v3 mirror of a pack and returns where it is. It comes into its place whole or not at all.

    Arguments:
        pack_path: the folder of the pack.
        target: the folder of the mirror; `<pack>/mirror.zarr`, or `<pack>/mirror-<codec>.zarr`, by default.
        link: "symlink", relative, which survives moving and copying the pack as a whole; "hard"; or "copy", which also works
            for packs of other programs, whose files have no Zarr shard index.
        codec: "zstd", "blosc" or "gzip" for a compressed archive instead of links.
        overwrite: replace a mirror at `target`, once the new one is complete.
        progress: called with the name of each array when it is done.

    Raises: what opening the pack raises; FormatError "zarr-index" for a file that cannot be linked; IntegrityError "digest"
        where a copied or compressed file of a sealed pack is not what was sealed; InputError "mirror"; StoreError "exists",
        "locked", "disk-full", "io".
    """
    if link not in LINKS or codec not in (None, *CODECS):
        expected = f"a link of {', '.join(LINKS)} or a codec of {', '.join(CODECS)}"
        raise InputError("mirror", expected=expected, found=repr(codec or link))
    facts = _readable(Path(os.path.realpath(pack_path)))
    default = Path(facts.root, f"mirror-{codec}.zarr" if codec else "mirror.zarr")
    target = Path(os.path.realpath(default if target is None else target))
    if target.parent == Path(facts.root) and target.name.startswith("shard-"):
        raise InputError("mirror", file=target, expected="a name that is not that of a shard", found=target.name)
    files.make_folder(target.parent)
    with files.lock(target.with_name(f".{target.name}.lock")):
        _check_target(target, overwrite)
        partial = target.with_name(f".{target.name}.partial")  # as deep as the target: relative links hold in both
        files.remove_tree(partial)
        try:
            _build(facts, partial, _Plan(link, codec), progress)
            _publish(partial, target)
        except BaseException:
            with suppress(OSError):
                files.remove_tree(partial)
            raise
    return target


def _readable(root: Path) -> Facts:
    facts = gather(str(root))
    for fault in faults(OPEN_RULES, facts):
        raise error(fault._replace(file=os.path.join(root, fault.file)))
    if facts.mirror:
        raise InputError("mirror", file=root, expected="a pack", found="a mirror", cure="Name the pack that it mirrors.")
    return facts


def _check_target(target: Path, overwrite: bool) -> None:
    if not os.path.lexists(target) or (target.is_dir() and not any(target.iterdir())):
        return
    try:
        is_mirror = "asdstore" in parse_json((target / DOCUMENT).read_bytes())["attributes"]
    except (OSError, AsdError, LookupError, TypeError):
        is_mirror = False
    if not (is_mirror and overwrite):
        raise StoreError("exists", file=target, expected="a new or empty folder",
                         found="a mirror" if is_mirror else "something that is not a mirror",
                         cure="Add --overwrite or name another target." if is_mirror else "Name another target.")


def _publish(partial: Path, target: Path) -> None:
    if target.is_dir() and any(target.iterdir()):
        files.exchange(partial, target, target.with_name(f".{target.name}.aside"))
        files.remove_tree(partial)
    else:
        files.rename(partial, target)
    files.fsync_folder(target.parent)


def _build(facts: Facts, folder: Path, plan: _Plan, progress: Callable[[str], object]) -> None:
    """Writes the whole mirror into `folder`: arrays, then groups, then the root."""
    nodes: dict[str, dict[str, Any]] = {}
    for shard, arrays in zip(facts.shards, facts.arrays, strict=True):
        rows = parse_json(Path(facts.root, shard, index.NAME).read_bytes(), f"{shard}/{index.NAME}")
        nodes[shard] = zarr3.group_document({"index": rows})
        for array in map(_array, facts.layout.streams, arrays):
            name = f"{shard}/{array.stream.name}"
            nodes[name] = zarr3.array_document(array.stream, array.rows, array.chunk, plan.configuration(array.stream))
            if array.rows:
                _write_chunk(facts, array, folder / name / "c" / "/".join("0" * (1 + len(array.stream.item_shape))), plan)
            _write_document(folder / name, nodes[name])
            _prove(folder / name, array, plan)
            progress(name)
        _write_document(folder / shard, nodes[shard])
    attributes = {"manifest": parse_json(Path(facts.root, manifest.NAME).read_bytes()), "shards": list(facts.shards),
                  "seal": seal.document(facts.seal) if facts.seal else None}
    inner = {name: zarr3.group_document(node["attributes"], {}) if node["node_type"] == "group" else node
             for name, node in nodes.items()}  # zarr-python gives each consolidated group a block of its own
    _write_document(folder, zarr3.group_document({"asdstore": attributes}, inner))


def _array(stream: Stream, facts: ArrayFacts) -> _Array:
    assert facts.pieces  # one, of a pack's file
    piece = facts.pieces[0]
    return _Array(stream, facts.file, piece.path, piece.offset, piece.rows, facts.size)


def _write_document(folder: Path, document: dict[str, Any]) -> None:
    files.make_folder(folder)
    files.write_file(folder / DOCUMENT, DOCUMENT, dump_json(document))
    files.fsync_folder(folder)


def _write_chunk(facts: Facts, array: _Array, path: Path, plan: _Plan) -> None:
    files.make_folder(path.parent)
    if plan.codec is None and plan.link != "copy":
        _check_tail(array)
        if plan.link == "hard":
            files.link(Path(array.path), path)
        else:
            files.symlink(os.path.relpath(array.path, path.parent), path)
    else:
        sealed = facts.seal.named().get(array.name) if facts.seal else None
        if facts.seal and sealed:
            for fault in changed_blocks(array.path, sealed, facts.seal.block_bytes):
                raise error(fault)
        with files.StreamFile(path, array.name) as file:
            for part in _copied(array) if plan.codec is None else _compressed(array, plan):
                file.write(part)
            file.finish()
    files.fsync_folder(path.parent)


def _check_tail(array: _Array) -> None:
    """Refuses to link a file that no Zarr reader could read."""
    with open(array.path, "rb") as file:
        file.seek(max(array.size - len(array.tail), 0))
        if file.read() == array.tail:
            return
    bare = array.size == array.header + array.rows * array.stream.row_bytes
    raise FormatError("zarr-index", file=array.name, expected="a Zarr shard index behind the data",
                      found="a npy file without one" if bare else "other bytes",
                      cure="Make the mirror with --link copy, which writes one.")


def _copied(array: _Array) -> Iterator[Any]:
    """The bytes of the sharded form: header, rows, zeros, index."""
    data = map_file(array.path, array.size)[:array.header + array.rows * array.stream.row_bytes]
    yield from (data[at:at + COPY_BYTES] for at in range(0, len(data), COPY_BYTES))
    yield bytes(zarr3.padding_bytes(array.rows, array.stream.row_bytes, array.chunk))
    yield array.tail


def _compressed(array: _Array, plan: _Plan) -> Iterator[bytes]:
    """The bytes of a compressed shard: each inner chunk with its crc32c, then the index."""
    encode, shape = _encoder(plan), (array.rows, *array.stream.item_shape)
    data = np.ndarray(shape, array.stream.dtype, map_file(array.path, array.size), array.header)
    sizes = []
    for at in range(0, array.rows, array.chunk):
        chunk = data[at:at + array.chunk]
        if len(chunk) < array.chunk:
            chunk = np.concatenate([chunk, np.zeros((array.chunk - len(chunk), *shape[1:]), chunk.dtype)])
        encoded = bytes(encode(chunk))
        sizes.append(len(encoded) + 4)
        yield encoded + google_crc32c.value(encoded).to_bytes(4, "little")
    ends = np.cumsum(sizes, dtype=np.uint64)
    yield zarr3.shard_index(np.stack([ends - np.array(sizes, np.uint64), np.array(sizes, np.uint64)], axis=1))


def _encoder(plan: _Plan) -> Callable[[np.ndarray], Any]:
    import numcodecs

    values = CODECS[str(plan.codec)]
    if plan.codec == "blosc":
        return numcodecs.Blosc(values["cname"], values["clevel"], numcodecs.Blosc.BITSHUFFLE, values["blocksize"]).encode
    return (numcodecs.Zstd if plan.codec == "zstd" else numcodecs.GZip)(values["level"]).encode


def _prove(folder: Path, array: _Array, plan: _Plan) -> None:
    """Opens an array of the mirror as a reader would, down to every inner chunk."""
    found = extents(folder)
    wanted = [(array.header, 0, array.rows)] if array.rows else []
    if plan.codec is None and [piece[1:] for piece in found or []] != wanted:
        expected = f"{array.rows} rows from byte {array.header}"
        raise FormatError("zarr-index", file=array.name, expected=expected, found=str(found))


def main(argv: Sequence[str] | None = None) -> int:
    """`python -m asdstore.mirror PACK [TARGET]`. Returns 0 fine, 2 usage, 3 unreadable."""
    parser = argparse.ArgumentParser(description="Give a pack a Zarr v3 face without a second copy of its data.")
    parser.add_argument("pack", metavar="PACK", help="the folder of the pack")
    parser.add_argument("target", metavar="TARGET", nargs="?", help="default: PACK/mirror.zarr, or PACK/mirror-CODEC.zarr")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--link", choices=LINKS, default="symlink", help="how it has the data (default: symlink, relative)")
    how.add_argument("--codec", choices=CODECS, help="write a compressed archive instead")
    parser.add_argument("--overwrite", action="store_true", help="replace a mirror, once the new one is complete")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    arguments = parser.parse_intermixed_args(argv)  # PACK --link hard TARGET, too

    def progress(array: str) -> None:
        if sys.stderr.isatty():
            print(f"\r\033[K{array}", end="", file=sys.stderr, flush=True)

    try:
        target = mirror(arguments.pack, arguments.target, arguments.link, arguments.codec, arguments.overwrite, progress)
    except AsdError as fault:
        print(f"asdstore mirror: {fault}", file=sys.stderr)
        return 2 if fault.kind in ("exists", "mirror") else 3
    finally:
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr)
    found = {"mirror": str(target), "how": arguments.codec or arguments.link, "bytes": _own_bytes(target)}
    print(json.dumps(found) if arguments.json else
          f"{target}: a Zarr v3 mirror ({found['how']}) of {arguments.pack}; it takes {found['bytes']:,} bytes of its own")
    return 0


def _own_bytes(folder: Path) -> int:
    """Bytes that a mirror adds to its pack: links of either kind add none."""
    entries = (Path(at, name).lstat() for at, _, names in os.walk(folder) for name in names if not Path(at, name).is_symlink())
    return sum(entry.st_size for entry in entries if entry.st_nlink == 1)


make_callable(__name__)

if __name__ == "__main__":
    sys.exit(main())
