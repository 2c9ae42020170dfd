"""Face tracks from still pictures: folders of JPEG crops, and npy arrays. Grayscale, straight to the size of the pack."""
from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from asdstore.errors import InputError, MissingError
from asdstore.npyfile import map_npy

_NAME = re.compile(r"([-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))\.jpe?g", re.IGNORECASE | re.ASCII)
_PLAIN = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?\.jpg(?:\n|\Z))+")
_ONCE = 1 << 16  # bytes read at a time, more than most crops have
SYSTEM_FILES = ("thumbs.db", "desktop.ini")  # besides names that begin with a dot


class Listing(NamedTuple):
    """What a folder of JPEGs holds."""

    names: tuple[str, ...]  # in the order of their numbers
    numbers: tuple[float, ...]  # that they are
    ignored: int  # system files


def jpeg_folder_names(folder: str | os.PathLike[str], sample_id: str = "") -> Listing:
    """File names of the JPEGs in `folder`, sorted as the numbers that they are: "9.96.jpg" before "10.00.jpg".

    System files (`.DS_Store`, `Thumbs.db`, any name that begins with a dot) are ignored and counted. An empty folder gives no
    names. Raises: MissingError "faces-missing"; InputError "faces-foreign" for any other file, a sub-folder or a name that is
    no number, "faces-duplicate" for two names of one number.
    """
    try:
        found = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError) as why:
        raise MissingError("faces-missing", file=folder, sample_id=sample_id, expected="a folder of JPEGs",
                           found="nothing") from why
    joined = "\n".join(found)
    if joined.count("\n") == len(found) - 1 and _PLAIN.fullmatch(joined):  # as most are: a corpus has millions of names
        names, numbers = found, [float(name[:-4]) for name in found]
    else:
        names = [name for name in found if not name.startswith(".") and name.lower() not in SYSTEM_FILES]
        numbers = list(map(_number, names))
    if None in numbers:
        foreign = min(name for name, number in zip(names, numbers, strict=True) if number is None)
        raise InputError("faces-foreign", file=Path(folder, foreign), sample_id=sample_id, found=repr(foreign),
                         expected="only JPEGs whose names are numbers", cure="Move it out of the folder.")
    order: list[tuple[float, str]] = sorted(zip(numbers, names, strict=True))  # type: ignore[type-var]
    for (number, name), (other, twin) in pairwise(order):
        if number == other:
            raise InputError("faces-duplicate", file=Path(folder, twin), sample_id=sample_id, expected="one JPEG per number",
                             found=f"{name!r} and {twin!r}", cure="Remove the one that does not belong.")
    return Listing(tuple(name for _, name in order), tuple(number for number, _ in order), len(found) - len(names))


def _number(name: str) -> float | None:
    """The number that a JPEG's name is, or None.

    >>> _number("1686.95.jpg"), _number("thumb.jpg"), _number("nan.jpg"), _number("1_0.jpg"), _number("7.png")
    (1686.95, None, None, None, None)
    """
    found = _NAME.fullmatch(name)
    return float(found[1]) if found else None


def read_jpegs(folder: str | os.PathLike[str], names: Sequence[str], shape: tuple[int, int],
               sample_id: str = "") -> NDArray[np.uint8]:
    """The JPEGs as uint8 [len(names), height, width]: decoded as grayscale, then stretched bilinearly to `shape`.

    The aspect ratio is not kept. Pixels are those of cv2.imread and cv2.resize; a JPEG that is cut short, which imread fills
    up with gray, is an error here. Raises: MissingError "faces-missing"; InputError "faces-corrupt".
    """
    import cv2

    size = (shape[1], shape[0])
    faces, room = np.empty((len(names), *shape), np.uint8), np.empty(_ONCE, np.uint8)
    with _opened(folder, sample_id) as place:
        for name, face in zip(names, faces, strict=True):
            data = _bytes(folder, place, name, sample_id, room)
            try:
                picture: Any = cv2.imdecode(data, cv2.IMREAD_GRAYSCALE)
            except cv2.error:  # an empty file, an absurd size
                picture = None
            if picture is None:
                raise InputError("faces-corrupt", file=Path(folder, name), sample_id=sample_id,
                                 expected="a JPEG that decodes whole", found=f"{len(data)} bytes that do not",
                                 cure="Extract this face again, or leave the track out.")
            cv2.resize(picture, size, face)  # bilinearly, which is the default
    return faces


def jpegs_changed(folder: str | os.PathLike[str], since: int) -> bool:
    """Whether a file of `folder` changed at or after `since`, in ns: the folder does not tell of one written in place."""
    try:
        with os.scandir(folder) as entries:
            return any(entry.stat().st_ctime_ns >= since for entry in entries)
    except OSError:  # gone; loading says so
        return True


@contextmanager
def _opened(folder: str | os.PathLike[str], sample_id: str) -> Iterator[int]:
    """The descriptor of a folder: files are opened in it by name, which spares the system a walk for each."""
    try:
        place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as why:
        raise MissingError("faces-missing", file=folder, sample_id=sample_id, expected="a folder of JPEGs",
                           found=str(why.strerror)) from why
    try:
        yield place
    finally:
        os.close(place)


def _bytes(folder: str | os.PathLike[str], place: int, name: str, sample_id: str,
           room: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The bytes of a file: in `room`, where they fit, until the next file is read."""
    try:
        file = os.open(name, os.O_RDONLY, dir_fd=place)
        try:
            size = os.readv(file, (room,))  # type: ignore[arg-type]
            if size < len(room):
                return room[:size]
            data = bytearray(room)
            while more := os.read(file, _ONCE):
                data += more
            return np.frombuffer(data, np.uint8)
        finally:
            os.close(file)
    except FileNotFoundError as why:
        raise MissingError("faces-missing", file=Path(folder, name), sample_id=sample_id, expected="a JPEG",
                           found="nothing") from why
    except OSError as why:
        raise InputError("faces-corrupt", file=Path(folder, name), sample_id=sample_id, expected="a JPEG",
                         found=str(why)) from why


def read_npy(path: str | os.PathLike[str], shape: tuple[int, int], sample_id: str = "") -> NDArray[np.uint8]:
    """The faces of a npy file, which must be uint8 [frames, *shape] already: a read-only view of the mapped file.

    Raises: MissingError "faces-missing"; InputError "faces-npy" (no npy, or cut short), "faces-layout" (dtype or shape).
    """
    faces = map_npy(path, "faces", sample_id)
    if faces.dtype != np.uint8 or faces.ndim != 3 or faces.shape[1:] != tuple(shape):
        raise InputError("faces-layout", file=path, sample_id=sample_id, expected=f"uint8 [frames, {shape[0]}, {shape[1]}]",
                         found=f"{faces.dtype} {list(faces.shape)}", cure="Crop and convert the faces, then save them again.")
    return faces
