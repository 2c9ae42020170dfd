"""One face out of a video frame: the square around a box, with gray where the frame ends."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asdstore.errors import InputError

BLANK = 128  # gray of a frame without a face, and of what lies beyond the frame
MAX_SIDE = 8192  # pixels of a square; a larger one is no face, and its border would fill the memory


def crop_face(bgr_frame: NDArray[np.uint8], bbox: Sequence[float] | None, shape: tuple[int, int],
              file: object = "", sample_id: str = "", row: int | None = None) -> NDArray[np.uint8]:
    """The face in `bbox` (x1, y1, x2, y2 in pixels) of a uint8 [H, W, 3] frame, as gray uint8 of `shape`.

    Coordinates are cut to integers. The square has the longer side of the box and its centre; where it leaves the frame it is
    128. All 128 without a box, for an empty or inverted one, and for a square outside the frame. `file`, `sample_id` and `row`
    say in an error where the box stands. Raises: InputError "bbox" for NaN, Inf or a side beyond MAX_SIDE.

    >>> crop_face(np.zeros((20, 20, 3), np.uint8), (-2, 8, 2, 12), (4, 4)).tolist()
    [[128, 128, 0, 0], [128, 128, 0, 0], [128, 128, 0, 0], [128, 128, 0, 0]]
    """
    if bbox is None:
        return np.full(shape, BLANK, np.uint8)
    if not all(map(math.isfinite, bbox)):
        raise InputError("bbox", file=file, sample_id=sample_id, row=row, expected="four finite numbers",
                         found=str(tuple(bbox)))
    import cv2

    x1, y1, x2, y2 = map(int, bbox)
    side = max(x2 - x1, y2 - y1)
    height, width = bgr_frame.shape[:2]
    left, top = (x1 + x2) // 2 - side // 2, (y1 + y2) // 2 - side // 2
    inside = (max(top, 0), min(top + side, height), max(left, 0), min(left + side, width))  # rows, then columns
    if x1 >= x2 or y1 >= y2 or inside[0] >= inside[1] or inside[2] >= inside[3]:
        return np.full(shape, BLANK, np.uint8)
    if side > MAX_SIDE:
        raise InputError("bbox", file=file, sample_id=sample_id, row=row, expected=f"a box of at most {MAX_SIDE} pixels",
                         found=f"{tuple(bbox)} in a frame of {width}x{height}")
    face: Any = cv2.cvtColor(bgr_frame[inside[0]:inside[1], inside[2]:inside[3]], cv2.COLOR_BGR2GRAY)
    if face.shape != (side, side):
        face = cv2.copyMakeBorder(face, inside[0] - top, top + side - inside[1], inside[2] - left, left + side - inside[3],
                                  cv2.BORDER_CONSTANT, value=(BLANK,))
    return cv2.resize(face, (shape[1], shape[0]), interpolation=cv2.INTER_LINEAR)  # type: ignore[return-value]
