"""Projection-window targets: who speaks in bins of the near past and future of every frame, as MuVAP is trained on."""
from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from asdstore.errors import InputError
from pipelines.transforms import Transform, targets


def projection_targets(bins: Sequence[float] = (0.8, 0.6, 0.4, 0.2, 0.2, 0.4), history: int = 4, *, fps: float = 25.0,
                       threshold: float = 0.5, cut_center_frame: bool = False) -> Transform:
    """Targets float32 [B, T, bins]: 1 where at least `threshold` of the frames of a bin are speech.

    Args:
        bins: seconds of each bin, in order of time.
        history: how many of them lie in the past; the last of these ends with the frame itself.
        fps: of the plan's timeline.
        threshold: share of a bin's frames.
        cut_center_frame: the past ends before the frame, and the future begins with it.

    Frames beyond the ends of the track count as silence. Raises: InputError "bins".
    """
    frames = tuple(round(seconds * fps) for seconds in bins)
    if not frames or min(frames) < 1 or not 0 <= history <= len(frames):
        raise InputError("bins", expected=f"bins of a frame or more at {fps:g} fps, 0 to {len(frames)} of them in the past",
                         found=f"{list(bins)}, {history}")
    return targets(partial(projection, bins=frames, history=history, threshold=threshold, cut_center_frame=cut_center_frame))


def projection(labels: np.ndarray, *, bins: Sequence[int], history: int, threshold: float = 0.5,
               cut_center_frame: bool = False) -> np.ndarray:
    """float32 [frames, bins] from labels 0/1 [frames]; `bins` in frames.

    >>> labels = np.zeros(80, np.uint8); labels[30:40] = 1
    >>> found = projection(labels, bins=(20, 15, 10, 5, 5, 10), history=4)
    >>> ["".join(str(int(x)) for x in found[k]) for k in (20, 29, 30, 34, 39, 45, 79)]
    ['000001', '000011', '000010', '000110', '001100', '001000', '100000']
    """
    n = len(labels)
    past = sum(bins[:history])
    before = past if cut_center_frame else max(past - 1, 0)
    sums = np.concatenate([[0], np.cumsum(labels, dtype=np.int64)])
    found = np.empty((n, len(bins)), np.float32)
    start = np.arange(n) - before
    for k, size in enumerate(bins):
        spoken = sums[np.clip(start + size, 0, n)] - sums[np.clip(start, 0, n)]
        found[:, k] = spoken / size >= threshold
        start = start + size
    return found
