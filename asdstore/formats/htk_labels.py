"""HTK's labels, master label files and `.lab` files: segments of time, laid on frames."""
from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from asdstore.errors import FormatError, InputError
from asdstore.formats import compressed

SLACK = 2  # frames behind the last segment that still belong to it: windows at the end of a recording


class Segment(NamedTuple):
    """One line of a label file: from `start` to `end`, in 100 ns."""

    start: int
    end: int
    name: str
    line: int


def parse_labels(lines: Sequence[str], file: str, first: int = 1) -> list[Segment]:
    """The segments of a label file. Raises FormatError, kind "htk-label", with the number of the line."""
    segments = []
    for number, line in enumerate(lines, first):
        words = line.split()
        if not words:
            continue
        if len(words) < 3 or not (words[0].isdigit() and words[1].isdigit()) or int(words[1]) < int(words[0]):
            raise FormatError("htk-label", file=file, row=number, found=repr(line[:80]),
                              expected="start, end and name, in 100 ns",
                              cure="Labels without times cannot be laid on frames: align them first.")
        segments.append(Segment(int(words[0]), int(words[1]), words[2].strip("\"'"), number))
    return segments


def read_mlf(path: str | os.PathLike[str]) -> dict[str, list[Segment]]:
    """The segments of every label file in a master label file, by name without folder and extension.

    Raises: MissingError "missing"; FormatError "htk-mlf", "htk-label".
    """
    file = compressed.found(path)
    lines = read_text(file).split("\n")

    def wrong(number: int, expected: str) -> FormatError:
        return FormatError("htk-mlf", file=file, row=number, expected=expected, found=repr(lines[number - 1][:80]))

    if lines[0].strip() != "#!MLF!#":
        raise wrong(1, "#!MLF!#")
    found: dict[str, list[Segment]] = {}
    name, begin = "", 0
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if name and text == ".":
            found[name] = parse_labels(lines[begin:number - 1], file, begin + 1)
            name = ""
        elif not name and number > 1 and text:
            quoted = re.fullmatch(r'"([^"]+)"', text)
            if quoted is None:
                raise wrong(number, "the name of a label file in quotes")
            name, begin = stem(quoted[1]), number
            if name in found:
                raise wrong(number, "each label file once")
    if name:
        raise wrong(begin, "a line with a full stop at the end of the label file")
    return found


def stem(path: str) -> str:
    return re.sub(r"\.[^.]*$", "", os.path.basename(path.replace("\\", "/")))


def read_text(file: str) -> str:
    try:
        return compressed.read(file).tobytes().decode()
    except UnicodeDecodeError as why:
        raise FormatError("htk-label", file=file, offset=why.start, expected="a text in UTF-8",
                          found=repr(why.object[why.start:why.start + 16])) from why


def frame_labels(segments: Sequence[Segment], frames: int, period: int, number: Callable[[str], int], file: str,
                 sample_id: str) -> np.ndarray:
    """A label for each frame: that of the segment in which it begins, to the nearest frame. int32 [frames].

    Raises InputError: "htk-cover" for frames that no segment or several cover; up to SLACK behind the last are its own;
        "label-name" for a name that `number` refuses, with the line.

    >>> frame_labels([Segment(0, 200000, "a", 1), Segment(200000, 500000, "b", 2)], 5, 100000, "ab".index, "", "").tolist()
    [0, 0, 1, 1, 1]
    """
    labels = np.zeros(frames, np.int32)
    done = 0
    for segment in segments:
        start, end = round(segment.start / period), min(round(segment.end / period), frames)
        if start >= frames:
            break
        if start != done:
            raise InputError("htk-cover", file=file, sample_id=sample_id, row=segment.line,
                             expected=f"a segment from frame {done} on", found=f"{segment.name!r} from frame {start} on",
                             cure="Every frame needs one label.")
        try:
            labels[start:end] = number(segment.name)
        except InputError as error:
            raise InputError(error.fault._replace(file=file, sample_id=sample_id, row=segment.line)) from None
        done = end
    if not segments or done < frames - SLACK:
        raise InputError("htk-cover", file=file, sample_id=sample_id, expected=f"labels for {frames} frames", found=str(done),
                         cure="Do the labels belong to this file?")
    labels[done:] = labels[done - 1] if done else 0
    return labels


def numbering(label_list: str | os.PathLike[str] | None) -> Callable[[str], int]:
    if label_list is None:
        return _as_number
    names = [line.strip() for line in read_text(compressed.found(label_list)).split("\n") if line.strip()]
    numbers = {name: k for k, name in enumerate(names)}

    def number(name: str) -> int:
        if name not in numbers:
            raise InputError("label-name", expected=f"one of the {len(names)} names in {label_list}", found=repr(name),
                             cure="Add it to the list.")
        return numbers[name]
    return number


def _as_number(name: str) -> int:
    if not re.fullmatch(r"\d{1,9}", name):
        raise InputError("label-name", expected="a number, or a list of names", found=repr(name),
                         cure="Give the names of the labels in a file, one on each line (--label-list).")
    return int(name)
