"""What a pack holds, in figures: a short table, and the report of levels by dataset, stored and as the loader normalises them.

Only columns of the index are read, and only by array operations.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spec.layout import SAMPLE_RATE
from spec.timeline import MODEL_FPS, SILENCE, gain

if TYPE_CHECKING:
    from asdstore.pack import Pack

PERCENTILES = (0, 1, 50, 95, 99, 100)
TARGET_DBFS, MAX_GAIN_DB, PEAK_LIMIT = -25.0, 20.0, 0.99  # of the format's normalisation
NEAR_SILENCE = 10 ** (-60 / 20)  # rms below which a track is hardly speech
LARGE_MEAN = 0.01  # |mean| of a waveform on full scale 1 that a recording should not have
LARGE_DIFFERENCE = 3.0  # dB between the median normalised RMS of two datasets
EXAMPLES = 3  # ids named where something deserves a look
NOT_SEALED = "not sealed: exchanged or altered files cannot be detected"

LEVELS = ("audio_mean", "audio_rms", "audio_peak")  # an index without them has no level report
COLUMNS = ("dataset", "corpus", "sample_id", "source_fps", "source_frames", "audio_samples", "speaking_ratio", *LEVELS)
Columns = Mapping[str, np.ndarray]
Numbers = NDArray[np.float64]


class Look(NamedTuple):
    """Something that deserves a look: which dataset, what, how many of its tracks, the ids of the first."""

    dataset: str
    what: str
    tracks: int
    share: float
    samples: tuple[str, ...]


class DatasetLevels(NamedTuple):
    """The figures of one dataset. `spreads[quantity]` has the percentiles of PERCENTILES over its tracks."""

    dataset: str
    tracks: int
    seconds: float
    frames: int | None  # these three are None or empty for a corpus of audio alone
    speaking: float | None  # share of the frames
    fps: dict[float, int]  # tracks at each rate
    spreads: dict[str, tuple[float, ...]]


class Levels(NamedTuple):
    """The level report: figures of every dataset, and what deserves a look."""

    datasets: tuple[DatasetLevels, ...]
    looks: tuple[Look, ...]


def levels(columns: Columns) -> Levels:
    """The level report of an index: `columns[name]` is an array [tracks], as `pack.index` gives it, of COLUMNS that it has.

    Quantities: seconds, fps, peak, rms, mean (absolute), gain_db, normalised_peak, normalised_rms, speaking_ratio; levels on
    full scale 1. Normalised is what the loader makes of a track: mean removed, then the format's gain.
    """
    columns = {key: columns[key] for key in COLUMNS if key in columns}
    names = _names(columns)
    found, looks = [], []
    for name in np.unique(names):
        own = {key: column[names == name] for key, column in columns.items()}
        found.append(_figures(str(name), own))
        looks += _looks(str(name), own)
    return Levels(tuple(found), (*looks, *_differences(found)))


def _figures(name: str, own: Columns) -> DatasetLevels:
    rms, peak, seconds = own["audio_rms"], own["audio_peak"], _seconds(own)
    with np.errstate(all="ignore"):  # a damaged index may hold any number
        factor = gain(rms, peak)
        quantities = {"seconds": seconds, "peak": peak, "rms": rms, "mean": np.abs(own["audio_mean"]),
                      "gain_db": 20 * np.log10(factor), "normalised_peak": peak * factor, "normalised_rms": rms * factor,
                      **{key: own[field] for key, field in (("fps", "source_fps"), ("speaking_ratio", "speaking_ratio"))
                         if field in own}}
        spreads = {key: tuple(np.percentile(values, PERCENTILES).tolist()) for key, values in quantities.items()}
    frames = int(own["source_frames"].sum()) if "source_frames" in own else None
    return DatasetLevels(name, len(rms), float(seconds.sum()), frames, _speaking(own), _tracks_by_rate(own), spreads)


def _looks(name: str, own: Columns) -> list[Look]:
    rms, peak, mean = own["audio_rms"], own["audio_peak"], np.abs(own["audio_mean"])
    ratio = own.get("speaking_ratio", np.full(len(rms), 0.5))
    with np.errstate(all="ignore"):
        above = peak - mean > 1.0001  # a peak is measured from the mean
        heard = (rms > SILENCE) & (peak > SILENCE)
        target, cap, limit = 10 ** (TARGET_DBFS / 20) / rms, 10 ** (MAX_GAIN_DB / 20), PEAK_LIMIT / peak
    found = (
        ("silence, not amplified", ~heard),
        ("near silence (RMS below -60 dBFS)", heard & (rms < NEAR_SILENCE)),
        ("gain held by the peak limit of 0.99", heard & (limit < np.minimum(target, cap))),
        ("gain held by the cap of +20 dB", heard & (cap < np.minimum(target, limit))),
        (f"large DC (mean beyond {LARGE_MEAN})", mean > LARGE_MEAN),
        ("beyond full scale", above),
        ("no frame labelled as speech", ratio == 0),
        ("every frame labelled as speech", ratio == 1),
        ("shorter than one model frame: gives no chunk", _is_short(own)),
    )
    return [Look(name, what, int(mask.sum()), float(mask.mean()), tuple(map(str, own["sample_id"][mask][:EXAMPLES])))
            for what, mask in found if mask.any()]


def _differences(found: list[DatasetLevels]) -> list[Look]:
    """The datasets whose median normalised RMS is far from the loudest one's."""
    medians = {one.dataset: _db(one.spreads["normalised_rms"][PERCENTILES.index(50)]) for one in found}
    loudest = max(medians, key=lambda name: medians[name], default="")
    return [Look(one.dataset, f"median normalised RMS {medians[one.dataset]:.1f} dBFS, {loudest} has {medians[loudest]:.1f}",
                 one.tracks, 1.0, ()) for one in found if medians[loudest] - medians[one.dataset] > LARGE_DIFFERENCE]


def _db(value: float) -> float:
    return 20 * math.log10(value) if value > 0 else -math.inf


# ---- columns that not every index has

def _names(columns: Columns) -> np.ndarray:
    """The dataset of each track."""
    return np.asarray(columns["dataset"] if "dataset" in columns else columns["corpus"])


def _is_timed(columns: Columns) -> bool:
    return "source_fps" in columns or "audio_samples" in columns


def _seconds(columns: Columns) -> np.ndarray:
    with np.errstate(all="ignore"):
        return columns["source_frames"] / columns["source_fps"] if "source_fps" in columns else (
            columns["audio_samples"] / SAMPLE_RATE)


def _is_short(columns: Columns) -> np.ndarray:
    """Whether a track gives no model frame."""
    with np.errstate(all="ignore"):
        return _seconds(columns) * MODEL_FPS + 1e-9 < 1


def _speaking(columns: Columns) -> float | None:
    """The share of the frames that are labelled as speech."""
    if "speaking_ratio" not in columns:
        return None
    with np.errstate(all="ignore"):
        return float(np.sum(columns["speaking_ratio"] * columns["source_frames"]) / np.sum(columns["source_frames"]))


def _tracks_by_rate(columns: Columns) -> dict[float, int]:
    rates, counts = np.unique(columns.get("source_fps", np.empty(0)), return_counts=True)
    return dict(zip(rates.tolist(), counts.tolist(), strict=True))


# ---- as text

_ROWS: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("length, s", "seconds", lambda v: f"{v:.2f}"), ("rate, fps", "fps", lambda v: f"{v:.6g}"),
    ("speaking ratio", "speaking_ratio", lambda v: f"{v:.3f}"), ("stored peak", "peak", lambda v: f"{v:.4f}"),
    ("normalised peak", "normalised_peak", lambda v: f"{v:.4f}"), ("stored RMS, dBFS", "rms", lambda v: f"{_db(v):.1f}"),
    ("normalised RMS, dBFS", "normalised_rms", lambda v: f"{_db(v):.1f}"), ("gain, dB", "gain_db", lambda v: f"{v:+.1f}"),
    ("stored mean, absolute", "mean", lambda v: f"{v:.5f}"),
)


def text(report: Levels) -> str:
    """The level report as a table for each dataset, then what deserves a look."""
    blocks = [_table(one) for one in report.datasets]
    if report.looks:
        blocks.append("\n".join(["What deserves a look", *(f"  {_said(look)}" for look in report.looks)]))
    return "\n\n".join(blocks)


def _table(one: DatasetLevels) -> str:
    head = [f"Levels of {one.dataset}: {_many(one.tracks, 'track')}", f"{one.seconds / 3600:.3f} h"]
    head += [f"{one.frames:,} frames", _rates(one.fps)] if one.frames is not None else []
    head += [f"{one.speaking:.1%} of the frames speak"] if one.speaking is not None else []
    rows = [["percentile", *map(str, PERCENTILES)]]
    rows += [[title, *map(form, one.spreads[key])] for title, key, form in _ROWS if key in one.spreads]
    return "\n".join([", ".join(head), *aligned(rows)])


def _said(look: Look) -> str:
    ids = f": {', '.join(look.samples)}{' ...' if look.tracks > len(look.samples) else ''}" if look.samples else ""
    return f"{look.dataset}: {look.what}, {_many(look.tracks, 'track')} ({look.share:.1%}){ids}"


def _rates(fps: dict[float, int], most: int = 4) -> str:
    """The most frequent rates with their tracks.

    >>> _rates({25.0: 7}), _rates({25.0: 7, 29.97: 9})
    ('25 fps', '29.97 (9) and 25 (7) fps')
    """
    ordered = sorted(fps.items(), key=lambda item: -item[1])
    shown = [f"{rate:.6g}" + (f" ({tracks})" if len(fps) > 1 else "") for rate, tracks in ordered[:most]]
    if len(fps) > most:
        shown.append(f"{len(fps) - most} other" + ("s" if len(fps) > most + 1 else ""))
    return f"{', '.join(shown[:-1])} and {shown[-1]} fps" if len(shown) > 1 else f"{shown[0]} fps"


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def aligned(rows: list[list[str]], left: tuple[int, ...] = (0,)) -> list[str]:
    """Lines of a table, indented; the columns in `left` to the left, the others to the right.

    >>> aligned([["a", "b"], ["long", "1"]])
    ['  a     b', '  long  1']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    cells = [[cell.ljust(w) if k in left else cell.rjust(w) for k, (cell, w) in enumerate(zip(row, widths, strict=True))]
             for row in rows]
    return ["  " + "  ".join(row).rstrip() for row in cells]


# ---- as values for JSON

def document(report: Levels) -> dict[str, Any]:
    """The level report as a JSON object; a number that JSON does not have (of a damaged index) is null."""
    datasets = [one._asdict() | {
        "fps": {f"{rate:.12g}": tracks for rate, tracks in one.fps.items()},
        "spreads": {key: dict(zip(map(str, PERCENTILES), map(_finite, values), strict=True))
                    for key, values in one.spreads.items()},
        "seconds": _finite(one.seconds), "speaking": _finite(one.speaking)} for one in report.datasets]
    return {"datasets": datasets, "looks": [look._asdict() for look in report.looks]}


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


# ---- the pack at a glance

def describe(pack: Pack) -> str:
    """A short text table of a pack: tracks, hours, datasets, rates and lengths, and what is unusual about it."""
    columns = {key: pack.index[key] for key in COLUMNS if key in pack.all.columns}
    names, ids, timed = _names(columns), columns["sample_id"], _is_timed(columns)
    rows = [_glance(str(name), {key: column[names == name] for key, column in columns.items()}) for name in np.unique(names)]
    streams = ", ".join(f"{s.name} {np.dtype(s.dtype).name} {'x'.join(map(str, s.item_shape))}".rstrip()
                        for s in pack.layout.streams)
    hours = [f"{_seconds(columns).sum() / 3600:.3f} h"] if timed else []
    head = [", ".join(pack.paths), f"{pack.layout.format} {pack.layout.version}: {streams}",
            ", ".join([_many(len(pack), "track"), *hours, "sealed" if pack.sealed else NOT_SEALED])]
    distinct, counts = np.unique(ids, return_counts=True)
    short = _is_short(columns) if timed else np.zeros(len(pack), bool)
    unusual = [*_named("{} with the sample id of another one", distinct[counts > 1], counts[counts > 1].sum()),
               *_named("{} shorter than one model frame", ids[short], short.sum())]
    table = aligned([list(rows[0]), *(list(row.values()) for row in rows)], left=(0, len(rows[0]) - 1)) if rows else []
    return "\n".join([*head, *unusual, *table])


def _glance(name: str, own: Columns) -> dict[str, str]:
    """The row of one dataset, as far as the index has the columns."""
    row = {"dataset": name, "tracks": f"{len(own['sample_id']):,}"}
    if "source_frames" in own:
        row["frames"] = f"{own['source_frames'].sum():,}"
    timed = _is_timed(own)
    lengths, unit = (_seconds(own), "{:.2f} s") if timed else (own["source_frames"], "{:.0f} frames")
    row |= {title: unit.format(np.percentile(lengths, p)) for title, p in (("shortest", 0), ("median", 50), ("longest", 100))}
    row |= {"hours": f"{lengths.sum() / 3600:.3f}"} if timed else {}
    row |= {"speaking": f"{_speaking(own):.1%}"} if "speaking_ratio" in own else {}
    return row | ({"rates": _rates(_tracks_by_rate(own))} if "source_fps" in own else {})


def _named(sentence: str, ids: np.ndarray, tracks: int) -> list[str]:
    """A line that counts tracks and names the first ids, or no line for no track."""
    dots = " ..." if len(ids) > EXAMPLES else ""
    return [f"{sentence.format(_many(int(tracks), 'track'))}: {', '.join(map(str, ids[:EXAMPLES]))}{dots}"] if tracks else []
