"""Scores on the model's timeline back to one score for every native frame, and the AVA evaluation table made of them."""
from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from asdstore import files
from asdstore.errors import FormatError, InputError, MissingError
from pipelines.tracks import opened
from spec.timeline import MODEL_FPS, model_frame_count, model_indices

_LEFT_OUT = ("label_id", "instance_id")  # columns of an `*_orig.csv` that the evaluation table does not have
_POSITIVE = "SPEAKING_AUDIBLE"
_NAMED = 5


def lift_scores(scores: Sequence[float] | np.ndarray, frames: int, fps: float, model_fps: float = MODEL_FPS,
                missing: float = 0.0) -> np.ndarray:
    """One score for each of `frames` native frames at `fps`, from a track's scores at `model_fps`: float64 [frames].

    A native frame takes the score of the model frame at its centre, the last ones that of the last model frame. Scores beyond
    the track's model frames are not read (a padded row may be given whole). A track that is shorter than one model frame takes
    the first score that it has, or `missing` everywhere where it has none.

    Raises: InputError, "scores", where there are fewer scores than model frames, or one of them is not a number.

    >>> lift_scores([.1, .2, .3, .4, .5, .6, .7, .8], 10, 30.0).tolist()
    [0.1, 0.2, 0.3, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.8]
    >>> lift_scores([], 2, 60.0).tolist(), lift_scores([.5], 2, 60.0).tolist()
    ([0.0, 0.0], [0.5, 0.5])
    """
    try:
        values = np.asarray(scores, np.float64)
    except (TypeError, ValueError) as why:
        raise InputError("scores", expected="numbers", found=f"{type(scores).__name__}: {why}") from None
    count = model_frame_count(frames, fps, model_fps)
    if values.ndim != 1 or len(values) < count:
        raise InputError("scores", expected=f"{count} scores, one for each model frame", found=str(list(values.shape)))
    for row in np.flatnonzero(np.isnan(values[:max(count, 1)]))[:1].tolist():
        raise InputError("scores", row=row, expected="a number for every model frame", found="nan")
    if not len(values):
        return np.full(frames, missing)
    return values[model_indices(frames, fps, model_fps)]


def lift(scores: Mapping[str, Any], packs: Any, orig: str | os.PathLike[str] | None = None,
         output: str | os.PathLike[str] | None = None, *, fps: float = MODEL_FPS,
         missing: float = 0.0) -> dict[str, np.ndarray]:
    """Scores of every track of `packs` for its native frames, by sample id: float64 [frames]; and the evaluation table.

    Args:
        scores: by sample id, one number for each model frame, as `evaluate` fed them.
        packs: a pack, a path, or a list of them.
        orig: an `*_orig.csv` with a header; its rows get their scores in `output`, written at once.
        output: the AVA evaluation CSV: the columns of `orig` without label_id and instance_id, label SPEAKING_AUDIBLE, and
            score. Every field keeps its text: the time stamp is a join key.
        fps: of the model.
        missing: the score of a track that has none because it is shorter than one model frame.

    The rows of an entity are its native frames in order of time. Raises: InputError, "scores" for a track without (enough)
    scores, "duplicate-id" for an id that two tracks share, "orig" for a table that does not fit the tracks, a stamp twice, or a
    row that no track scores; FormatError, "orig-header", "orig-text".
    """
    if (orig is None) != (output is None):
        raise InputError("orig", expected="both orig and output, or neither", found=f"orig {orig}, output {output}")
    lifted: dict[str, np.ndarray] = {}
    for pack in opened([packs]):
        ids, frames, rates = (pack.index[name] for name in ("sample_id", "source_frames", "source_fps"))
        for sample_id, count, rate in zip(ids.tolist(), frames.tolist(), rates.tolist(), strict=True):
            if sample_id in lifted:
                raise InputError("duplicate-id", file=pack, sample_id=sample_id, expected="every id once, as scores know it",
                                 found="a second track", cure="Lift packs that share ids one by one.")
            given = scores.get(sample_id, [] if model_frame_count(count, rate, fps) == 0 else None)
            if given is None:
                raise InputError("scores", file=pack, sample_id=sample_id, expected="scores of every track", found="none")
            try:
                lifted[sample_id] = lift_scores(given, count, rate, fps, missing)
            except InputError as error:
                raise InputError(error.fault._replace(file=str(pack), sample_id=sample_id)) from None
    if orig is not None and output is not None:
        _write(Path(output), _table(Path(orig), lifted).encode())
    return lifted


def _write(path: Path, data: bytes) -> None:
    """The whole file or none of it."""
    made = path.with_name(f".{path.name}.partial")
    files.write_file(made, path.name, data)
    files.rename(made, path)
    files.fsync_folder(path.parent)


def _table(orig: Path, scores: Mapping[str, np.ndarray]) -> str:
    """The evaluation table as a text."""
    header, rows = _read(orig)
    stamp, entity = header.index("frame_timestamp"), header.index("entity_id")
    places: dict[str, list[int]] = {}
    for number, row in enumerate(rows):
        places.setdefault(row[entity], []).append(number)
    unknown = [name for name in places if name not in scores]
    if unknown:
        raise InputError("orig", file=orig, row=places[unknown[0]][0] + 2, sample_id=unknown[0],
                         expected="a score for every row",
                         found=f"none for {len(unknown)} entities: {', '.join(unknown[:_NAMED])}")
    found = [0.0] * len(rows)
    for name, numbers in places.items():
        _check_entity(orig, name, [rows[n][stamp] for n in numbers], numbers, len(scores[name]))
        in_time = sorted(numbers, key=lambda n: float(rows[n][stamp]))
        for number, score in zip(in_time, scores[name].tolist(), strict=True):
            found[number] = score
    kept = [k for k, name in enumerate(header) if name not in _LEFT_OUT]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([header[k] for k in kept] + ["score"])
    for row, score in zip(rows, found, strict=True):
        writer.writerow([_POSITIVE if header[k] == "label" else row[k] for k in kept] + [repr(score)])
    return text.getvalue()


def _check_entity(orig: Path, name: str, stamps: list[str], numbers: list[int], frames: int) -> None:
    if len(numbers) != frames:
        raise InputError("orig", file=orig, row=numbers[0] + 2, sample_id=name,
                         expected=f"{frames} rows, one for each frame of the track", found=str(len(numbers)))
    if len(set(stamps)) != len(stamps):
        twice = next(stamp for stamp in stamps if stamps.count(stamp) > 1)
        raise InputError("orig", file=orig, sample_id=name, expected="every time stamp once", found=f"{twice} twice")


def _read(orig: Path) -> tuple[list[str], list[list[str]]]:
    """Header and rows as texts.

    Raises: MissingError; FormatError, "orig-header", "orig-text"; InputError, "orig", for rows that are not whole.
    """
    if not orig.is_file():
        raise MissingError("missing", file=orig, expected="the table of annotated frames", found="no such file")
    rows = list(_rows(orig))
    header = rows[0] if rows else []
    needed = {"frame_timestamp", "entity_id", "label"}
    if not needed <= set(header):
        raise FormatError("orig-header", file=orig, row=1, expected=f"columns {', '.join(sorted(needed))}",
                          found=", ".join(header)[:200])
    stamp = header.index("frame_timestamp")
    for number, row in enumerate(rows[1:], 2):
        if len(row) != len(header):
            raise InputError("orig", file=orig, row=number, expected=f"{len(header)} fields", found=str(len(row)))
        try:
            finite = np.isfinite(float(row[stamp]))
        except ValueError:
            finite = False
        if not finite:
            raise InputError("orig", file=orig, row=number, expected="a time stamp in seconds", found=repr(row[stamp])[:80])
    return header, rows[1:]


def _rows(orig: Path) -> Iterator[list[str]]:
    with open(orig, newline="", encoding="utf-8-sig") as stream:
        reader = csv.reader(stream)
        try:
            yield from (row for row in reader if row)
        except (csv.Error, UnicodeDecodeError) as why:
            raise FormatError("orig-text", file=orig, row=reader.line_num + 1, expected="a CSV table in UTF-8",
                              found=str(why)) from None
