"""What a packing run counts: a tally for each track, added up to one for each shard and to `report.json` for the pack."""
from __future__ import annotations

from typing import Any

import numpy as np

from asdstore.records import Record
from spec.layout import ASD, SAMPLE_RATE, Layout
from spec.timeline import model_frame_count

NAME = "report.json"
STAMP = 0.01  # seconds: time stamps of clips have two decimals, so audio cut by them is a frame short give or take this much
Tally = dict[str, Any]


def empty(layout: Layout = ASD) -> Tally:
    """A tally of nothing, with every key that a report has."""
    if not layout.has("faces"):
        return {"tracks": 0, "frames" if layout.has("features") else "samples": 0, "datasets": {}, "notes": {}}
    none = {"tracks": 0, "seconds": 0.0}
    audio = {"padded_up_to_one_frame": none, "padded_more": none | {"samples": []}, "cropped": none, "clipped_samples": 0}
    return {"tracks": 0, "frames": 0, "seconds": 0.0, "datasets": {}, "audio": audio, "without_model_frames": [], "notes": {}}


def of_track(record: Record, missing: int, clipped: int, notes: dict[str, float | int | str]) -> Tally:
    """The tally of one track.

    Arguments: `missing` samples of audio were padded (negative: cropped), `clipped` samples were beyond full scale;
    of `notes`, numbers are added up and texts are counted.
    """
    size = {"tracks": 1, "frames": record.frames, "seconds": record.frames / record.fps}
    audio: Tally = {"clipped_samples": clipped}
    length = {"tracks": 1, "seconds": abs(missing) / SAMPLE_RATE}
    if missing < 0:
        audio["cropped"] = length
    elif missing / SAMPLE_RATE > 1 / record.fps + STAMP:
        audio["padded_more"] = length | {"samples": [record.sample_id]}
    elif missing:
        audio["padded_up_to_one_frame"] = length
    vanishes = model_frame_count(record.frames, record.fps) == 0
    return {**size, "datasets": {record.dataset: size}, "audio": audio,
            "without_model_frames": [record.sample_id] if vanishes else [],
            "notes": {name: _countable(note) for name, note in notes.items()}}


def add(one: Any, other: Any) -> Any:
    """Two tallies as one: numbers are added, lists joined, dictionaries added key by key.

    >>> add({"a": 1, "b": {"c": [1]}}, {"b": {"c": [2]}, "d": 3})
    {'a': 1, 'b': {'c': [1, 2]}, 'd': 3}
    """
    if isinstance(one, dict):
        return {key: add(one[key], other[key]) if key in one and key in other else one.get(key, other.get(key))
                for key in [*one, *(key for key in other if key not in one)]}
    return one + other


def document(tally: Tally) -> dict[str, Any]:
    """The tally as `report.json` says it: hours instead of seconds of tracks, to a thousandth of a second."""
    if "audio" not in tally:
        return tally

    def hours(size: dict[str, Any]) -> dict[str, Any]:
        return {"tracks": size["tracks"], "frames": size["frames"], "hours": round(size["seconds"] / 3600, 6)}

    audio = {key: value | {"seconds": round(value["seconds"], 3)} if isinstance(value, dict) else value
             for key, value in tally["audio"].items()}
    return {**hours(tally), "datasets": {name: hours(size) for name, size in tally["datasets"].items()}, "audio": audio,
            "without_model_frames": tally["without_model_frames"], "notes": tally["notes"]}


def _countable(note: float | int | str) -> Any:
    return {note: 1} if isinstance(note, str) else note.item() if isinstance(note, np.generic) else note
