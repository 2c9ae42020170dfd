"""Video by OpenCV's own FFmpeg: frame after frame from the start, never by seeking, which lands elsewhere on real files.

What decodes is the truth; what a container claims is for comparison only.
"""
from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from asdstore.errors import InputError, MissingError


class ContainerFacts(NamedTuple):
    """What a container says of its video."""

    fps: float
    claimed_frames: int  # 0 or less: it does not say
    width: int  # pixels
    height: int


@contextmanager
def _capture(path: str | os.PathLike[str], sample_id: str) -> Iterator[Any]:
    import cv2

    if not os.path.isfile(path):
        raise MissingError("video-missing", file=path, sample_id=sample_id, expected="a video", found="nothing")
    name = os.path.abspath(path)  # so that FFmpeg takes no "a:b.mp4" for a protocol
    try:
        name.encode()
    except UnicodeEncodeError as why:  # OpenCV would crash
        raise InputError("video-name", file=path, sample_id=sample_id, expected="a name in UTF-8", found=ascii(name),
                         cure="Rename the video.") from why
    capture = cv2.VideoCapture(name, cv2.CAP_FFMPEG)  # FFmpeg only, so that no "%03d" is taken for an image sequence
    try:
        if not capture.isOpened():
            raise InputError("video-corrupt", file=path, sample_id=sample_id, expected="a video that FFmpeg can open",
                             found=f"{os.path.getsize(path)} bytes that it cannot", cure="Fetch or encode the video again.")
        yield capture
    finally:
        capture.release()


def container_facts(path: str | os.PathLike[str], sample_id: str = "") -> ContainerFacts:
    """Rate, claimed frame count and size of the first video stream; nothing is decoded.

    Raises: MissingError "video-missing"; InputError "video-corrupt", "video-rate" when the rate is not finite and above 0.
    """
    import cv2

    with _capture(path, sample_id) as capture:
        fps = capture.get(cv2.CAP_PROP_FPS)
        facts = (capture.get(key) for key in (cv2.CAP_PROP_FRAME_COUNT, cv2.CAP_PROP_FRAME_WIDTH, cv2.CAP_PROP_FRAME_HEIGHT))
        count, width, height = (int(value) if math.isfinite(value) else 0 for value in facts)
    if not (math.isfinite(fps) and fps > 0):
        raise InputError("video-rate", file=path, sample_id=sample_id, expected="a frame rate above 0", found=str(fps))
    return ContainerFacts(fps, count, width, height)


def frames(path: str | os.PathLike[str], sample_id: str = "") -> Iterator[NDArray[np.uint8]]:
    """Every frame that decodes, in order: BGR uint8 [height, width, 3].

    Raises: MissingError "video-missing"; InputError "video-corrupt" when it cannot be opened, "video-name" for a name that is
    not UTF-8, "video-empty" when no frame decodes.
    """
    with _capture(path, sample_id) as capture:
        whole, frame = capture.read()
        if not whole:
            raise InputError("video-empty", file=path, sample_id=sample_id, expected="at least one frame",
                             found="none that decodes", cure="Fetch or encode the video again.")
        while whole:
            yield frame
            whole, frame = capture.read()


def read_face_clip(path: str | os.PathLike[str], shape: tuple[int, int], sample_id: str = "") -> NDArray[np.uint8]:
    """A clip that shows one face crop: uint8 [decoded frames, height, width], gray, stretched bilinearly to `shape`.

    Raises: as `frames`.
    """
    import cv2

    faces, count = np.empty((256, *shape), np.uint8), 0
    for frame in frames(path, sample_id):
        if count == len(faces):  # grows in place: the claimed count is not believed, and no second copy is held
            faces.resize((2 * count, *shape), refcheck=False)
        gray: Any = cv2.cvtColor(frame, cv2.COLOR_BGR2GRAY)
        cv2.resize(gray, (shape[1], shape[0]), dst=faces[count], interpolation=cv2.INTER_LINEAR)
        count += 1
    faces.resize((count, *shape), refcheck=False)
    return faces
