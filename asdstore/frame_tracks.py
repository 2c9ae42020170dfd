"""Frame features in a pack: a track is an utterance, with features float32 [frames, dim] and its columns of integer labels."""
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from asdstore.records import Encoded, Record
from spec.errors import InputError
from spec.layout import FRAMES, Layout


class FrameMedia(NamedTuple):
    """What loading the record of an utterance gives."""

    features: np.ndarray  # float32 [frames, dim]
    labels: np.ndarray  # int32 [frames, columns]
    notes: dict[str, float | int | str] = {}


def frame_layout(dim: int, label_columns: int) -> Layout:
    """The layout of utterances with `dim` values a frame: labels [frames] for one column, [frames, columns] for more.

    >>> [(s.name, s.item_shape) for s in frame_layout(40, 1).streams]
    [('features', (40,)), ('labels', ())]
    """
    columns = {0: None, 1: ()}.get(label_columns, (label_columns,))
    return FRAMES.with_shapes({"features": (dim,), "labels": columns})


def encode_frames(record: Record, media: FrameMedia, layout: Layout) -> Encoded:
    """An utterance in the form in which it is stored.

    Raises InputError: "frames" (of another number than the record says), "dimension", "labels", "features-nan".
    """
    def refuse(kind: str, expected: str, found: object) -> InputError:
        return InputError(kind, sample_id=record.sample_id, expected=expected, found=str(found))

    features, labels, notes = media
    if features.dtype != np.float32 or features.shape[1:] != layout.stream("features").item_shape:
        raise refuse("dimension", f"float32 rows of {list(layout.stream('features').item_shape)}",
                     f"{features.dtype} {list(features.shape)}")
    if len(features) != record.frames:
        raise refuse("frames", f"{record.frames} frames", len(features))
    arrays = {"features": np.ascontiguousarray(features, "<f4")}
    if layout.has("labels"):
        shape = (record.frames, *layout.stream("labels").item_shape)
        if labels.dtype != np.int32 or labels.size != np.prod(shape):
            raise refuse("labels", f"int32 labels {list(shape)}", f"{labels.dtype} {list(labels.shape)}")
        arrays["labels"] = np.ascontiguousarray(labels, "<i4").reshape(shape)
    finite = np.isfinite(features).all(axis=1)
    row = {"dataset": record.dataset, "sample_id": record.sample_id, "recording": record.recording,
           "source_frames": record.frames}
    size = {"tracks": 1, "frames": record.frames}
    bad = {"frames with NaN or infinity": int((~finite).sum())} if not finite.all() else {}
    tally: dict[str, Any] = {**size, "datasets": {record.dataset: size}, "notes": {**notes, **bad}}
    return Encoded(arrays, row, tally)
