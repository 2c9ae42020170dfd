"""How tracks are cut into chunks: near-equal spans that tile every track, and a prefix of history before each.

All lengths are frames of the timeline that the plan is on (25 Hz after `resample(25)`). Everything here is a pure function
of lengths, vectorised over tracks.
"""
from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Spans(NamedTuple):
    """Chunks as columns, int64 [chunks]: which track, the first frame, how many frames."""

    track: np.ndarray
    start: np.ndarray
    length: np.ndarray


def tile(frames: np.ndarray, span: int | None, phase: np.ndarray | None = None) -> Spans:
    """Cut tracks of `frames` (int64 [tracks]) into chunks of at most `span` frames that cover every frame once.

    A track of f <= span frames is one chunk, an empty one is none. A longer one is cut at
    round(linspace(0, f, ceil(f/span) + 1)), ties to even: near-equal chunks. With `phase` (float64 [tracks] in [0, 1)) all
    inner cuts move together by that part of a chunk, so that such a track gets one chunk more and the tiling stays whole.
    `span` None leaves tracks whole.

    >>> tile(np.array([607]), 200).start.tolist(), tile(np.array([450, 0, 3]), 200).track.tolist()
    ([0, 152, 304, 455], [0, 0, 0, 2])
    >>> tile(np.array([400]), 200, np.array([0.25])).length.tolist()
    [50, 200, 150]
    """
    frames = np.asarray(frames, np.int64)
    span = span or int(frames.max(initial=1))
    cuts = np.maximum(-(-frames // span), 1)
    long = frames > span
    moved = long if phase is not None else np.zeros_like(long)
    pieces = np.where(frames > 0, cuts + moved, 0)
    track = np.repeat(np.arange(len(frames)), pieces)
    number = np.arange(len(track)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    step = (frames / cuts)[track]  # numpy's linspace multiplies by this quotient: another order would move some ties
    shift = np.where(moved, phase - 1.0, 0.0)[track] if phase is not None else 0.0
    start = np.rint(np.maximum((number + shift) * step, 0.0)).astype(np.int64)
    end = np.append(start[1:], 0)
    last = number == pieces[track] - 1
    end[last] = frames[track[last]]
    full = end > start  # a phase near 0 or 1 leaves nothing at one end
    return Spans(track[full], start[full], (end - start)[full])


def history(start: np.ndarray, context: int) -> np.ndarray:
    """How many of `context` frames there are before each start: int64 [chunks].

    >>> history(np.array([0, 20, 152]), 50).tolist()
    [0, 20, 50]
    """
    return np.minimum(start, context)


def starved(start: np.ndarray, length: np.ndarray, prefix: np.ndarray, wanted: int) -> tuple[int, int]:
    """Scored frames that are fed with fewer than `wanted` earlier frames: (at real track starts, at chunk starts).

    `start` and `length` are fed spans, so that the scored frames are the last `length - prefix`.

    >>> starved(np.array([0, 102]), np.array([152, 202]), np.array([0, 50]), 50)
    (50, 0)
    """
    short = np.clip(wanted - prefix, 0, length - prefix)
    return int(short[start == 0].sum()), int(short[start > 0].sum())
