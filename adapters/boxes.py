"""The bounding boxes of MSDWild: `frame,face,<id>,x1,y1,x2,y2,0` rows without a header, pixels, frames from 0.

The last column is a constant and no sign of speech. A box that is empty, inverted or outside the picture counts as a
frame on which the face was not seen (the crop is blank), as in the original program; here it is counted too.
"""
from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

from adapters.tables import decimal, text_lines
from asdstore.errors import Fault, InputError

Box = tuple[float, float, float, float]


class Boxes(NamedTuple):
    """The boxes of one video: per face id, the box (x1, y1, x2, y2) by frame; its faults; rows that replaced another."""

    faces: dict[str, dict[int, Box]]
    faults: list[Fault]
    repeated: int  # rows for a face and frame that already had one: the last one stands

    @property
    def frames(self) -> list[int]:
        """Every frame with at least one face, ascending."""
        return sorted({frame for boxes in self.faces.values() for frame in boxes})


def parse_box(line: str) -> tuple[int, str, Box]:
    """Frame, face id and box of a row.

    Raises: InputError kind "box" for another shape, a negative frame, a number that is not finite, an id that holds a path.

    >>> parse_box("7,face,0,725,181,795,276,0")
    (7, '0', (725.0, 181.0, 795.0, 276.0))
    """
    try:
        number, _, face, *corners, _ = line.split(",")
        frame, (x1, y1, x2, y2), face = int(number), map(decimal, corners), face.strip()
        if not face or "_" in number or not number.isascii():
            raise ValueError
    except ValueError:
        raise InputError("box", expected="frame,face,id,x1,y1,x2,y2,0", found=repr(line[:120])) from None
    if "/" in face or "\\" in face or not face.isprintable():  # it becomes a part of the sample id
        raise InputError("box", expected="a face id of printable characters without / and \\", found=repr(face[:40]))
    if frame < 0 or not math.isfinite(x1 + y1 + x2 + y2):
        raise InputError("box", expected="a frame from 0 and finite corners", found=repr(line[:120]))
    return frame, face, (x1, y1, x2, y2)


def read_boxes(path: str | Path) -> Boxes:
    """Read the bbox CSV of a video. Raises: MissingError kind "missing", InputError kind "encoding"."""
    boxes, repeated = Boxes({}, [], 0), 0
    for number, line in text_lines(path):
        try:
            frame, face, box = parse_box(line)
        except InputError as error:
            boxes.faults.append(error.fault._replace(file=str(path), row=number))
            continue
        track = boxes.faces.setdefault(face, {})
        repeated += frame in track
        track[frame] = box
    return boxes._replace(repeated=repeated)


def find_row(path: str | Path, frame: int, face: str) -> int:
    """The row of a sound bbox CSV that gives the box of a face in a frame, for messages: the last one, which stands."""
    return max(number for number, line in text_lines(path) if parse_box(line)[:2] == (frame, face))
