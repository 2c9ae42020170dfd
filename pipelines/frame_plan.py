"""Plans of frames, and the transforms that make them: context, labels left out or replaced, partitions, and a random order.

    chain(context(5), ignore_labels(0, (3, 9)), map_labels({1: 0, 2: 1}), shuffle(), partition(1000 << 20))

`shuffle` before `partition` mixes over a whole file (which then lies in memory), behind it inside each partition. A plan
holds which frames of each file are kept; features are not touched.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from asdstore.errors import InputError
from asdstore.formats.source import INT32, Source
from pipelines.frame_spec import FrameSpec, Ranges, parse_mapping, parse_ranges
from pipelines.frame_spec import Mapping as Relabelling
from pipelines.keys import Key
from pipelines.transforms import Transform, chain, stage

ROUNDED = 256  # frames: PDNN cuts the partitions of a pfile at multiples of this, whatever the batch size
PDNN_SEED = 18877
_SCANNED = 1 << 20  # frames whose labels are read at a time


class FramePlan(NamedTuple):
    """What is taken of each file, in order. `kept[f]` are the frames of file f (int32 or int64), None where all are."""

    sources: tuple[Source, ...]
    column: int  # of labels, -1 for none
    kept: tuple[np.ndarray | None, ...]
    left: int = 0
    right: int = 0
    relabellings: tuple[Relabelling, ...] = ()  # done to labels one after the other, each at once
    partition: int | None = None  # bytes; None: a file is one partition
    shuffle: str = ""  # "", "file" or "partition"
    pdnn: bool = False  # the order is PDNN's, the same in every epoch

    @property
    def width(self) -> int:
        """Frames that stand side by side in a row."""
        return self.left + 1 + self.right

    @property
    def dim(self) -> int:
        """Values of a row."""
        return self.width * self.sources[0].dim

    def count(self, file: int) -> int:
        """Frames of a file that are kept."""
        kept = self.kept[file]
        return self.sources[file].frames if kept is None else len(kept)

    def relabelled(self, labels: np.ndarray) -> np.ndarray:
        """Labels as they come out: int32."""
        for mapping in self.relabellings:
            labels = relabel(labels, mapping)
        return labels

    def labels(self, file: int, start: int, stop: int) -> np.ndarray:
        """The labels of a file's frames from `start` to `stop`, as they come out: int32 [frames]."""
        return self.relabelled(self.sources[file].read_labels(start, stop)[:, self.column])

    def kept_labels(self, file: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The frames of a file that are kept, in pieces, and their labels as they come out."""
        kept = self.kept[file]
        for start in range(0, self.sources[file].frames, _SCANNED):
            stop = min(start + _SCANNED, self.sources[file].frames)
            labels = self.labels(file, start, stop)
            if kept is None:
                frames = np.arange(start, stop)
            else:
                frames = kept[np.searchsorted(kept, start):np.searchsorted(kept, stop)]
            yield frames, labels[frames - start]


def relabel(labels: np.ndarray, mapping: Relabelling) -> np.ndarray:
    """Labels with every (first, last, new) done at once; the last one counts for a label that several name.

    >>> relabel(np.array([1, 3, 2, 9]), ((1, 1, 3), (3, 3, 1), (9, 20, 0))).tolist()
    [3, 1, 2, 0]
    """
    edges = np.unique([edge for first, last, _ in mapping for edge in (first, last + 1)])
    owner = np.full(len(edges) + 1, -1)  # which entry of the mapping the labels between two edges belong to
    for number, (first, last, _) in enumerate(mapping):
        owner[np.searchsorted(edges, first) + 1:np.searchsorted(edges, last + 1) + 1] = number
    found = owner[np.searchsorted(edges, labels, "right")]
    target = np.array([*(new for *_, new in mapping), 0], labels.dtype)  # the 0 is for -1, where labels stay
    return np.where(found >= 0, target[found], labels)


# Transforms ----------------------------------------------------------------------------------------------------------------

def _stage(name: str, plan: Callable[..., FramePlan], **settings: Any) -> Transform:
    return stage(name, plan, still=True, **settings)  # type: ignore[arg-type]  # a plan of frames in place of one of tracks


def context(left: int, right: int | None = None) -> Transform:
    """Put `left` frames before and `right` frames behind each into its row, oldest first; one number is for both sides.

    They never come from another utterance: at its ends the first and the last frame are repeated.
    """
    for side in (left, right or 0):
        if not isinstance(side, int) or side < 0:
            raise InputError("context", expected="0 frames or more on each side", found=f"{left}:{right}")
    return _stage("context", _context, left=left, right=left if right is None else right)


def _context(plan: FramePlan, key: Key, left: int, right: int) -> FramePlan:
    _expect_before("context", plan, plan.width > 1 or any(k is not None for k in plan.kept) or _ordered(plan))
    return plan._replace(left=left, right=right)


def ignore_labels(*labels: int | tuple[int, int] | str) -> Transform:
    """Leave out the frames of some labels: numbers, (first, last) or texts such as "0:3-9". They stay context of others."""
    ranges: list[tuple[int, int]] = []
    for given in labels:
        ranges += parse_ranges(given, "ignore_labels") if isinstance(given, str) else [_pair(given)]
    return _stage("ignore_labels", _ignore, ranges=tuple(ranges))


def _pair(given: int | tuple[int, int]) -> tuple[int, int]:
    first, last = given if isinstance(given, tuple) else (given, given)
    if first > last:
        raise InputError("spec", file="labels", expected="(first, last), the smaller one first", found=str(given))
    return int(first), int(last)


def _ignore(plan: FramePlan, key: Key, ranges: Ranges) -> FramePlan:
    _expect_before("ignore_labels", plan, _ordered(plan))
    expect_labels("ignore_labels", plan)
    kept = []
    for file, source in enumerate(plan.sources):
        small = np.int32 if source.frames < 1 << 31 else np.int64
        pieces = [frames[~_inside(labels, ranges)].astype(small) for frames, labels in plan.kept_labels(file)]
        kept.append(np.concatenate([np.empty(0, small), *pieces]))
        if len(plan.sources) > 1:
            source.release()
    return plan._replace(kept=tuple(kept))


def _inside(labels: np.ndarray, ranges: Ranges) -> np.ndarray:
    """Whether each label is in one of the ranges: bool [labels]."""
    edges = np.unique([edge for first, last in ranges for edge in (first, last + 1)])
    covered = np.zeros(len(edges) + 1, bool)
    for first, last in ranges:
        covered[np.searchsorted(edges, first) + 1:np.searchsorted(edges, last + 1) + 1] = True
    return covered[np.searchsorted(edges, labels, "right")]


def map_labels(mapping: Mapping[int | tuple[int, int], int] | str) -> Transform:
    """Replace labels, all at the same time: {1: 0, (4, 6): 2}, or a text such as "1:0/4-6:2". Labels not named stay."""
    if isinstance(mapping, str):
        entries = parse_mapping(mapping, "map_labels")
    else:
        entries = tuple((*_pair(given), int(new)) for given, new in mapping.items())
    for *_, new in entries:
        if not INT32.min <= new <= INT32.max:
            raise InputError("spec", file="labels", expected="new labels that 32 bits hold", found=str(new))
    return _stage("map_labels", _map, mapping=entries)


def _map(plan: FramePlan, key: Key, mapping: Relabelling) -> FramePlan:
    _expect_before("map_labels", plan, _ordered(plan))
    expect_labels("map_labels", plan)
    return plan._replace(relabellings=(*plan.relabellings, mapping))


def partition(bytes: int) -> Transform:
    """Cut each file into partitions of at most `bytes`, counting 4 for each value of a row with its context."""
    if bytes < 1:
        raise InputError("partition", expected="at least 1 byte", found=str(bytes))
    return _stage("partition", _partition, bytes=int(bytes))


def _partition(plan: FramePlan, key: Key, bytes: int) -> FramePlan:
    _expect_before("partition", plan, plan.partition is not None)
    plan = plan._replace(partition=bytes)
    for source in plan.sources:
        partition_rows(plan, source)  # refuses what is too small
    return plan


def shuffle(compat: str | None = None) -> Transform:
    """Mix the frames: of a whole file before `partition`, of each partition behind it. The order is drawn anew each epoch.

    `compat="pdnn"` is PDNN's order, the same in every epoch and for all partitions of a length.
    """
    if compat not in (None, "pdnn"):
        raise InputError("compat", file="shuffle", expected="None or 'pdnn'", found=repr(compat))
    return _stage("shuffle", _shuffle, compat=compat)


def _shuffle(plan: FramePlan, key: Key, compat: str | None) -> FramePlan:
    _expect_before("shuffle", plan, bool(plan.shuffle))
    return plan._replace(shuffle="file" if plan.partition is None else "partition", pdnn=compat == "pdnn")


def _ordered(plan: FramePlan) -> bool:
    return plan.partition is not None or bool(plan.shuffle)


def _expect_before(name: str, plan: FramePlan, late: bool) -> None:
    if late:
        raise InputError("order", file="chain", found=f"{name} too late, or twice",
                         expected="context, ignore_labels and map_labels, then shuffle and partition in either order")


def expect_labels(name: str, plan: FramePlan) -> None:
    """Raises InputError, kind "labels", where there are none."""
    if plan.column < 0:
        raise InputError("labels", file=plan.sources[0].path, expected=f"labels, for {name}", found="a file without labels",
                         cure="Name an alignment with label=." if plan.sources[0].format == "kaldi" else "")


def of_spec(spec: FrameSpec, compat: str | None = None) -> Transform:
    """The chain that a specification stands for.

    >>> from pipelines.frame_spec import parse_spec
    >>> from pipelines.transforms import text
    >>> text(of_spec(parse_spec("a.pfile,context=5,random=true"))) == text(chain(context(5), shuffle(), partition(600 << 20)))
    True
    """
    stages = [context(spec.left, spec.right)] if spec.left or spec.right else []
    stages += [ignore_labels(*spec.ignore)] if spec.ignore else []
    stages += [_stage("map_labels", _map, mapping=spec.mapping)] if spec.mapping else []
    mixed = [shuffle(compat)] if spec.random else []
    last = [partition(spec.partition), *mixed] if spec.stream else [*mixed, partition(spec.partition)]
    return chain(*stages, *last)


# Partitions ----------------------------------------------------------------------------------------------------------------

class Partitions(NamedTuple):
    """Partition p: the kept frames `start[p]` to `stop[p]` of `file[p]`, as batches `first[p]` to `first[p + 1]`. All int64."""

    file: np.ndarray
    start: np.ndarray
    stop: np.ndarray
    first: np.ndarray

    def __len__(self) -> int:
        return len(self.file)


def partition_rows(plan: FramePlan, source: Source) -> int | None:
    """Rows of a partition of a file: None for the whole file, and of a pfile or pack a multiple of ROUNDED.

    Raises InputError, kind "partition", where not one fits.
    """
    if plan.partition is None or source.format == "pickle" or not source.frames:
        return None
    least = ROUNDED if source.format in ("pfile", "frames") else 1
    rows = plan.partition // (4 * plan.dim) // least * least
    if not rows:
        raise InputError("partition", file=source.path, found=str(plan.partition),
                         cure="Raise partition=, or lower the context.",
                         expected=f"at least {least * 4 * plan.dim} bytes, which {least} rows of {plan.dim} values take")
    return rows


def partitions(plan: FramePlan, batch: int, keep_last: bool) -> Partitions:
    """The partitions of a plan in order, and how many batches each has: the remainder of each is dropped, or kept."""
    file, start, stop = [np.empty(0, np.int64)], [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for number, source in enumerate(plan.sources):
        count = plan.count(number)
        rows = partition_rows(plan, source) or max(count, 1)
        start.append(np.arange(0, count, rows))
        stop.append(np.minimum(start[-1] + rows, count))
        file.append(np.full(len(start[-1]), number))
    starts, stops = np.concatenate(start), np.concatenate(stop)
    batches = -((starts - stops) // batch) if keep_last else (stops - starts) // batch
    return Partitions(np.concatenate(file), starts, stops, np.concatenate([[0], np.cumsum(batches)]))
