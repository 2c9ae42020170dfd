"""`seal.json`: the last file of a pack, which names every other one with its size, sha256 and block checksums.

A block is `block_bytes` long, the last one what is left; each has the CRC-32C (Castagnoli) of its bytes. A file of no
bytes has no block. The seal covers every file of the pack except itself and Zarr mirrors.
"""
from __future__ import annotations

import json
import re
from typing import NamedTuple

from spec.document import parse_json
from spec.errors import FormatError

NAME = "seal.json"
FORMAT, VERSION = "asdstore-seal", 1
BLOCK_BYTES = 262_144


class SealedFile(NamedTuple):
    """One file: its name relative to the pack, with "/"; its bytes; sha256 in hex; 8 hex digits of CRC-32C for each block."""

    name: str
    bytes: int
    sha256: str
    crc32c: str

    def block(self, k: int) -> int:
        """The CRC-32C of block `k`."""
        return int(self.crc32c[8 * k:8 * k + 8], 16)


class Seal(NamedTuple):
    block_bytes: int
    files: tuple[SealedFile, ...]  # sorted by name

    def named(self) -> dict[str, SealedFile]:
        return {f.name: f for f in self.files}


def document(seal: Seal) -> dict:
    return {"format": FORMAT, "version": VERSION, "block_bytes": seal.block_bytes, "files": [f._asdict() for f in seal.files]}


def dump(seal: Seal) -> bytes:
    """The bytes of `seal.json`.

    >>> parse(dump(Seal(262144, (SealedFile("dataset.json", 0, "0" * 64, ""),)))).files[0].name
    'dataset.json'
    """
    return json.dumps(document(seal), indent=1).encode()


def parse(data: bytes, file: str = NAME) -> Seal:
    """The seal that the bytes hold. Raises FormatError, kinds "json" and "seal"."""
    return of_document(parse_json(data, file), file)


def of_document(found: object, file: str = NAME) -> Seal:
    """The seal of a JSON object. Raises FormatError, kind "seal": what is wrong with it."""
    def refuse(expected: str, value: object) -> FormatError:
        return FormatError("seal", file=file, expected=expected, found=str(value)[:200],
                           cure="Restore seal.json, or remove it to open the pack unverified.")

    if not isinstance(found, dict) or (found.get("format"), found.get("version")) != (FORMAT, VERSION):
        said = (found.get("format"), found.get("version")) if isinstance(found, dict) else found
        raise refuse(f"{FORMAT} {VERSION}", said)
    block, listed = found.get("block_bytes"), found.get("files")
    if type(block) is not int or not 4096 <= block <= 1 << 24 or not isinstance(listed, list):
        raise refuse("block_bytes from 4096 to 2^24 and a list of files", block)
    files = []
    for entry in listed:
        if not isinstance(entry, dict) or set(entry) != set(SealedFile._fields):
            raise refuse("name, bytes, sha256, crc32c for each file", entry)
        one = SealedFile(**entry)
        if type(one.bytes) is not int or not 0 <= one.bytes < 1 << 62 or not _is_name(one.name):
            raise refuse("a name inside the pack and a size", one.name)
        digits = 8 * -(-one.bytes // block)
        if not all(isinstance(s, str) and len(s) == n and re.fullmatch("[0-9a-f]*", s)
                   for s, n in ((one.sha256, 64), (one.crc32c, digits))):
            raise refuse(f"64 hex digits of sha256 and {digits} of crc32c for {one.name}", one.crc32c)
        files.append(one)
    names = [f.name for f in files]
    if names != sorted(set(names)):
        raise refuse("file names in order, each once", next((b for a, b in zip(names, names[1:], strict=False) if a >= b), ""))
    return Seal(block, tuple(files))


def _is_name(name: object) -> bool:
    """Whether a name stays inside the pack on every system."""
    return isinstance(name, str) and 0 < len(name) <= 1000 and all(
        part not in ("", ".", "..") and not re.search(r'[\x00-\x1f\\:\ud800-\udfff]', part) for part in name.split("/"))
