"""Writers of Kaldi archives, scripts and alignments: in binary Kaldi's own bytes, in text with all digits that there are."""
from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import ExitStack

import numpy as np

from asdstore.errors import InputError
from asdstore.formats.output import new_file
from asdstore.formats.source import narrow


def write_ark(path: str | os.PathLike[str], items: Iterable[tuple[str, np.ndarray]], scp: str | os.PathLike[str] | None = None,
              text: bool = False) -> None:
    """Writes an archive, and a script that points into it by the path as it is given here.

    Args:
        items: keys and values. float32 [rows, columns] becomes FM, float64 DM, of one axis FV and DV; integers [n] an
            integer vector. In `text` all numbers are written so that they read back exactly.
        scp: the script, if one is wanted.

    Raises: InputError "kaldi-key" (empty, blanks inside, or twice), "kaldi-value", "label-range", "same-file"; StoreError.
    """
    if scp is not None and os.path.abspath(scp) == os.path.abspath(path):
        raise InputError("same-file", file=path, expected="an archive and a script of different names", found="one name")
    seen: set[str] = set()
    with ExitStack() as stack:
        script = stack.enter_context(new_file(scp)) if scp is not None else None  # the first to begin is the last in its place
        archive = stack.enter_context(new_file(path))
        for key, given in items:
            if not key or key.split() != [key] or key in seen:
                raise InputError("kaldi-key", file=path, sample_id=key, expected="a key without blanks, once",
                                 found="the same key again" if key in seen else repr(key))
            seen.add(key)
            archive.write(f"{key} ".encode())
            at = archive.bytes
            archive.write(_text(given, key, path) if text else _binary(given, key, path))
            if script is not None:
                script.write(f"{key} {os.fspath(path)}:{at}\n".encode())


def _kind(given: np.ndarray, key: str, path: object) -> str:
    """"FM", "DM", "FV", "DV" or "integers"."""
    integers = given.dtype.kind in "iu" and given.ndim == 1
    if not integers and (given.dtype.kind != "f" or given.dtype.itemsize not in (4, 8) or given.ndim not in (1, 2)):
        raise InputError("kaldi-value", file=path, sample_id=key, found=f"{given.dtype} {list(given.shape)}",
                         expected="float32 or float64 of one or two axes, or integers of one")
    if integers:
        return "integers"
    return ("F" if given.dtype.itemsize == 4 else "D") + ("M" if given.ndim == 2 else "V")


def _binary(given: np.ndarray, key: str, path: object) -> bytes:
    kind = _kind(given, key, path)
    if kind == "integers":
        pairs = np.empty(len(given), [("size", "i1"), ("value", "<i4")])
        pairs["size"], pairs["value"] = 4, narrow(given, str(path), key)
        return b"\0B\4" + np.int32(len(given)).tobytes() + pairs.tobytes()
    shape = given.shape if given.size else (0,) * given.ndim  # Kaldi has no matrix without rows that has columns
    sizes = b"".join(b"\4" + np.array(n, "<i4").tobytes() for n in shape)
    return b"\0B" + kind.encode() + b" " + sizes + given.astype("<f4" if kind[0] == "F" else "<f8").tobytes()


def _text(given: np.ndarray, key: str, path: object) -> bytes:
    kind = _kind(given, key, path)
    if kind == "integers":
        return (" ".join(map(str, narrow(given, str(path), key).tolist())) + "\n").encode()
    numbers = (lambda row: " ".join(f"{x:.9g}" for x in row)) if kind[0] == "F" else lambda row: " ".join(map(repr, row))
    if kind[1] == "V" or not given.size:
        return f" [ {numbers(given.ravel().tolist())} ]\n".replace("[  ]", "[ ]").encode()
    return " [\n  {} ]\n".format(" \n  ".join(numbers(row) for row in given.tolist())).encode()


def write_alignments(path: str | os.PathLike[str], items: Iterable[tuple[str, np.ndarray]]) -> None:
    """Writes lines `utterance label label ...`. Raises: as `write_ark`."""
    write_ark(path, items, text=True)
