"""Windows of MSDWild: which stretches of a video become clips, and which faces stay in them. Pure.

The documented choice (the default): 30 s clips with 10 s overlap from the first frame with a face, incomplete tails
dropped. The newer code of the original (`tail="keep"`, overlap 0): tails of at least `min_clip_seconds` are clips too.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from asdstore.errors import InputError


class Choice(NamedTuple):
    """How windows are laid: seconds of a clip and of overlap, what to do with tails, and the least presence of a face."""

    clip_seconds: float = 30.0
    overlap_seconds: float = 10.0
    tail: str = "drop"  # or "keep": a last window of at least `min_clip_seconds`
    min_clip_seconds: float = 2.0
    min_face_ratio: float = 0.9  # of the frames of the window


DOCUMENTED = Choice()


class Window(NamedTuple):
    """A stretch of `frames` frames from frame `start`; `segment` numbers all windows of the video, used or not."""

    segment: int
    start: int
    frames: int


def lay_windows(annotated: Iterable[int], frames: int, fps: float, choice: Choice = DOCUMENTED) -> list[Window]:
    """The windows of a video of `frames` frames whose `annotated` frames (ascending) have a face.

    Raises: InputError kind "window" where the overlap leaves no step.

    >>> lay_windows(range(607), 607, 25.0, Choice(clip_seconds=10, overlap_seconds=5))
    [Window(segment=0, start=0, frames=250), Window(segment=1, start=125, frames=250), Window(segment=2, start=250, frames=250)]
    """
    length = round(choice.clip_seconds * fps)
    stride = round((choice.clip_seconds - choice.overlap_seconds) * fps)
    if length < 1 or stride < 1:
        raise InputError("window", expected="an overlap shorter than the clip", found=f"clips of {choice.clip_seconds} s with "
                         f"{choice.overlap_seconds} s overlap at {fps} fps")
    least = length if choice.tail == "drop" else max(1, round(choice.min_clip_seconds * fps))
    seen = list(annotated)  # rows beyond the last frame are possible, they only say how far the annotation goes
    if not seen:
        return []
    windows = (Window(segment, start, min(length, frames - start))
               for segment, start in enumerate(range(seen[0], min(seen[-1] + 1, frames), stride)))
    return [window for window in windows if window.frames >= least]


def present(faces: Mapping[str, Mapping[int, object]], window: Window, choice: Choice = DOCUMENTED) -> list[str]:
    """The faces that are seen in enough frames of `window`, sorted as text."""
    span = range(window.start, window.start + window.frames)
    return [face for face in sorted(faces)
            if sum(frame in faces[face] for frame in span) >= choice.min_face_ratio * window.frames]
