"""Face tracks from still pictures: folders of JPEG crops, and npy arrays. Grayscale, straight to the size of the pack."""
from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from asdstore.errors import InputError, MissingError
from asdstore.npyfile import map_npy

SUFFIXES = (".jpg", ".jpeg")
SYSTEM_FILES = ("thumbs.db", "desktop.ini")  # besides names that begin with a dot


class Listing(NamedTuple):
    """What a folder of JPEGs holds."""

    names: tuple[str, ...]  # in the order of their numbers
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
    numbers: dict[float, str] = {}
    ignored = 0
    for name in sorted(found):
        if name.startswith(".") or name.lower() in SYSTEM_FILES:
            ignored += 1
            continue
        number = _number(name)
        if number is None:
            raise InputError("faces-foreign", file=Path(folder, name), sample_id=sample_id,
                             expected="only JPEGs whose names are numbers", found=repr(name), cure="Move it out of the folder.")
        if number in numbers:
            raise InputError("faces-duplicate", file=Path(folder, name), sample_id=sample_id, expected="one JPEG per number",
                             found=f"{numbers[number]!r} and {name!r}", cure="Remove the one that does not belong.")
        numbers[number] = name
    return Listing(tuple(numbers[n] for n in sorted(numbers)), ignored)


def _number(name: str) -> float | None:
    """The number that a JPEG's name is, or None.

    >>> _number("1686.95.jpg"), _number("thumb.jpg"), _number("nan.jpg"), _number("1_0.jpg"), _number("7.png")
    (1686.95, None, None, None, None)
    """
    stem, suffix = os.path.splitext(name)
    if suffix.lower() not in SUFFIXES or "_" in stem or stem != stem.strip():
        return None
    try:
        number = float(stem)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def read_jpegs(folder: str | os.PathLike[str], names: Sequence[str], shape: tuple[int, int],
               sample_id: str = "") -> NDArray[np.uint8]:
    """The JPEGs as uint8 [len(names), height, width]: decoded as grayscale, then stretched bilinearly to `shape`.

    The aspect ratio is not kept. Pixels are those of cv2.imread and cv2.resize; a JPEG that is cut short, which imread fills
    up with gray, is an error here. Raises: MissingError "faces-missing"; InputError "faces-corrupt".
    """
    import cv2

    size = (shape[1], shape[0])
    faces = np.empty((len(names), *shape), np.uint8)
    for name, face in zip(names, faces, strict=True):
        data = _bytes(folder, name, sample_id)
        try:
            picture: Any = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_GRAYSCALE)
        except cv2.error:  # an empty file, an absurd size
            picture = None
        if picture is None:
            raise InputError("faces-corrupt", file=Path(folder, name), sample_id=sample_id,
                             expected="a JPEG that decodes whole", found=f"{len(data)} bytes that do not",
                             cure="Extract this face again, or leave the track out.")
        cv2.resize(picture, size, dst=face, interpolation=cv2.INTER_LINEAR)
    return faces


def _bytes(folder: str | os.PathLike[str], name: str, sample_id: str) -> bytes:
    path = os.path.join(folder, name)
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except FileNotFoundError as why:
        raise MissingError("faces-missing", file=path, sample_id=sample_id, expected="a JPEG", found="nothing") from why
    except OSError as why:
        raise InputError("faces-corrupt", file=path, sample_id=sample_id, expected="a JPEG", found=str(why)) from why


def read_npy(path: str | os.PathLike[str], shape: tuple[int, int], sample_id: str = "") -> NDArray[np.uint8]:
    """The faces of a npy file, which must be uint8 [frames, *shape] already: a read-only view of the mapped file.

    Raises: MissingError "faces-missing"; InputError "faces-npy" (no npy, or cut short), "faces-layout" (dtype or shape).
    """
    faces = map_npy(path, "faces", sample_id)
    if faces.dtype != np.uint8 or faces.ndim != 3 or faces.shape[1:] != tuple(shape):
        raise InputError("faces-layout", file=path, sample_id=sample_id, expected=f"uint8 [frames, {shape[0]}, {shape[1]}]",
                         found=f"{faces.dtype} {list(faces.shape)}", cure="Crop and convert the faces, then save them again.")
    return faces
