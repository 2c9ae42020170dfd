from __future__ import annotations

import hashlib
import json
import math

import numpy as np
import pytest

from adapters.media.crop import BLANK, MAX_SIDE, crop_face
from asdstore.errors import InputError

cv2 = pytest.importorskip("cv2")

FRAME = np.random.default_rng(0).integers(0, 256, (120, 160, 3), np.uint8)


def plain(frame: np.ndarray, box: tuple[int, int, int, int], shape: tuple[int, int]) -> np.ndarray:
    """The same by one large canvas: the gray frame in the middle of nothing but 128."""
    margin = 400
    canvas = np.full((frame.shape[0] + 2 * margin, frame.shape[1] + 2 * margin), 128, np.uint8)
    canvas[margin:-margin, margin:-margin] = cv2.cvtColor(frame, cv2.COLOR_BGR2GRAY)
    side = max(box[2] - box[0], box[3] - box[1])
    left, top = math.floor((box[0] + box[2]) / 2) - side // 2 + margin, math.floor((box[1] + box[3]) / 2) - side // 2 + margin
    return cv2.resize(canvas[top:top + side, left:left + side], (shape[1], shape[0]))


def test_equals_a_cut_from_a_canvas():
    rng = np.random.default_rng(1)
    for _ in range(300):
        x, y = rng.integers(-60, 180, 2).tolist()
        width, height = rng.integers(1, 130, 2).tolist()
        box = (x, y, x + width, y + height)
        shape = (112, 112) if width % 2 else (40, 56)
        np.testing.assert_array_equal(crop_face(FRAME, box, shape), plain(FRAME, box, shape), err_msg=str(box))


@pytest.mark.parametrize("box", [None, (50, 30, 50, 90), (90, 30, 40, 95), (40, 95, 90, 30), (-100, 10, -20, 60),
                                 (160, 10, 190, 40), (40.2, 30, 40.9, 60), (10**9, 0, 2 * 10**9, 5)])
def test_blank(box):
    face = crop_face(FRAME, box, (30, 20))
    assert face.shape == (30, 20) and face.dtype == np.uint8 and (face == BLANK).all()


def test_the_frame_is_not_changed():
    before = FRAME.copy()
    crop_face(FRAME, (-5, -5, 300, 300), (112, 112))[:] = 0
    np.testing.assert_array_equal(FRAME, before)


@pytest.mark.parametrize("box", [(math.nan, 30, 90, 95), (40, 30, math.inf, 95), (-math.inf, 1, 2, 3)])
def test_boxes_that_are_no_numbers(box):
    with pytest.raises(InputError, match="a.csv, row 7, sample 's'") as error:
        crop_face(FRAME, box, (112, 112), file="a.csv", sample_id="s", row=7)
    assert error.value.kind == "bbox"


def test_a_box_that_would_fill_the_memory():
    assert crop_face(FRAME, (0, 0, MAX_SIDE, 5), (8, 8)).shape == (8, 8)
    for box in ((0, 0, MAX_SIDE + 1, 5), (-10**12, -10**12, 10**12, 10**12)):
        with pytest.raises(InputError) as error:
            crop_face(FRAME, box, (8, 8))
        assert error.value.kind == "bbox"


def test_golden_boxes(golden):
    frame = np.load(golden / "crop" / "frame_bgr.npy")
    cases = [c for c in json.loads((golden / "crop" / "crop_face.json").read_text())["cases"] if c["gray"]]
    assert len(cases) >= 30
    for case in cases:
        box = case["bbox"] and [float(v) if isinstance(v, str) else v for v in case["bbox"]]
        if "raises" in case:
            with pytest.raises(InputError):
                crop_face(frame, box, (112, 112))
            continue
        face = crop_face(frame, box, (112, 112))
        assert hashlib.sha256(face.tobytes()).hexdigest() == case["sha256"], case["case"]
        assert (face == BLANK).all() == case["all_128"]
