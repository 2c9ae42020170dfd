"""Bytes of files that may be compressed: `.gz` and `.bz2` by name, whole in one pass and within a bound, others mapped."""
from __future__ import annotations

import bz2
import gzip
import os
import zlib
from typing import BinaryIO

import numpy as np

from asdstore.errors import FormatError, MissingError
from asdstore.storage import map_file

LARGEST = 1 << 32  # bytes that a compressed file may hold where nothing else says so
PIECE = 1 << 22
_OPENERS = {".gz": gzip.open, ".bz2": bz2.open}


def suffix(path: str) -> str:
    """".gz", ".bz2" or "" for a file that is not compressed.

    >>> suffix("train.pfile.1.gz"), suffix("train.pfile")
    ('.gz', '')
    """
    return next((end for end in _OPENERS if path.endswith(end)), "")


def found(path: str | os.PathLike[str]) -> str:
    """The path, or the one with `.gz` or `.bz2` behind it that is there instead. Raises MissingError, kind "missing"."""
    name = os.fspath(path)
    for end in ("", *_OPENERS):
        if os.path.isfile(name + end):
            return name + end
    raise MissingError("missing", file=name, expected="a file, or one with .gz or .bz2 behind its name",
                       found="a folder" if os.path.isdir(name) else "none")


def read(path: str | os.PathLike[str], limit: int = LARGEST) -> np.ndarray:
    """The bytes of a file, read-only uint8 [bytes]: mapped, or of a compressed one decompressed into memory.

    Raises MissingError "missing"; FormatError "compressed" (damaged or cut short), "too-large" (holds more than `limit`).
    """
    name = found(path)
    if not suffix(name):
        return map_file(name, os.path.getsize(name))
    with Pieces(name) as file:
        whole = file.read(limit)
        if file.read(1):
            raise too_large(name, limit)
    return np.frombuffer(whole, np.uint8)


def too_large(file: str, limit: int) -> FormatError:
    return FormatError("too-large", file=file, expected=f"at most {limit} bytes once decompressed", found="more",
                       cure="Decompress the file yourself if it can be trusted.")


class Pieces:
    """A compressed file read from its beginning to its end. `read(n)` gives n bytes, or fewer at the end and never before."""

    def __init__(self, path: str):
        self.path, self.at = path, 0  # `at`: bytes that were read
        self._file: BinaryIO = _OPENERS[suffix(path)](path, "rb")  # type: ignore[assignment]

    def read(self, size: int) -> bytes:
        """Raises FormatError, kind "compressed"."""
        parts = []
        while size:
            try:
                part = self._file.read(min(size, PIECE))
            except (EOFError, OSError, zlib.error) as why:
                raise FormatError("compressed", file=self.path, offset=self.at, found=str(why) or "the end",
                                  expected=f"a whole {suffix(self.path)[1:]} file",
                                  cure="Copy or compress the file again.") from why
            if not part:
                break
            parts.append(part)
            size -= len(part)
            self.at += len(part)
        return b"".join(parts)

    def __enter__(self) -> Pieces:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
