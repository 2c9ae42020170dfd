"""`pipelines.frames`: minibatches of frame features with their context, from PDNN's specifications or a chain made by hand.

One partition, or one file where a whole file is mixed, lies in memory as float32 without its context; a minibatch is one
gather from it that puts the context beside each frame.
"""
from __future__ import annotations

import hashlib
import threading
import warnings
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from asdstore.errors import InputError
from asdstore.formats.joined import Joined
from asdstore.formats.open import open_source
from asdstore.formats.packed import Packed
from asdstore.formats.source import Source, check_alike
from asdstore.pack import Pack
from pipelines.buffers import Pool
from pipelines.frame_gather import Block, gather_rows, with_context
from pipelines.frame_plan import PDNN_SEED, FramePlan, Partitions, expect_labels, of_spec, partitions
from pipelines.frame_plan import partition as partition_
from pipelines.frame_spec import FrameSpec, files, parse_spec
from pipelines.keys import Key
from pipelines.loader import Composition, Loader
from pipelines.recipe import Recipe
from pipelines.transforms import Transform, chain, run, text

VERSION = 1  # of the laws by which the order is drawn
SPARSE = 2  # frames in the file for each one that is needed, from which on these alone are held in memory
PIECE = 1 << 24  # bytes that are read at a time then


class FrameRecipe(Recipe):
    """Sources, a transform, a batch size and a seed. From these and an epoch follow the partitions and every minibatch."""

    def __init__(self, sources: Sequence[Source], transform: Transform, column: int, batch: int, keep_last: bool, seed: int):
        self.sources, self.transform, self.column = tuple(sources), chain(transform), column
        self.batch_rows, self.keep_last, self.seed = batch, keep_last, seed
        self._block: tuple[tuple[int, int], Block] | None = None
        self._order: tuple[tuple[int, int], np.ndarray] | None = None
        self._lock = threading.Lock()
        self._pool = Pool()

    def __reduce__(self):
        return FrameRecipe, (self.sources, self.transform, self.column, self.batch_rows, self.keep_last, self.seed)

    @cached_property
    def frame_plan(self) -> FramePlan:
        """What is taken of each file. Raises what the transforms raise."""
        plan = FramePlan(self.sources, self.column, (None,) * len(self.sources))
        return run(self.transform.stages, "plan", plan, Key.of(self.seed))

    @cached_property
    def partitions(self) -> Partitions:
        return partitions(self.frame_plan, self.batch_rows, self.keep_last)

    @cached_property
    def text(self) -> str:
        """Everything but the seed that decides the order, on one line."""
        kept = hashlib.sha256()
        for rows in self.frame_plan.kept:
            kept.update(b"all" if rows is None else rows.astype("<i8").tobytes())
        sources = ", ".join(source.digest[:16] for source in self.sources)
        return f"frames {VERSION} of [{sources}], label column {self.column}: {text(self.transform)}, " \
               f"batch={self.batch_rows}, keep_last={self.keep_last}, kept {kept.hexdigest()[:16]}"

    def count(self, epoch: int) -> int:
        """Minibatches of an epoch."""
        return int(self.partitions.first[-1])

    def scored(self, epoch: int, start: int, stop: int) -> int:
        """Frames of the minibatches start:stop."""
        return self._rows_before(stop) - self._rows_before(start)

    @cached_property
    def _table(self) -> list[list[int]]:
        """The partitions as Python's numbers, which are found and added several times faster: a list of each column, the
        frames that the batches of the partitions before use, and the number of each partition's first batch, for bisection."""
        file, start, stop, first = self.partitions
        used = np.minimum(stop - start, np.diff(first) * self.batch_rows)
        return [file.tolist(), start.tolist(), stop.tolist(), np.cumsum([0, *used]).tolist(), first.tolist()]

    def _rows_before(self, number: int) -> int:
        *_, used, first = self._table
        p = min(bisect_right(first, number), len(first) - 1) - 1
        return min(used[p] + (number - first[p]) * self.batch_rows, used[p + 1]) if p >= 0 else 0

    def batch(self, epoch: int, number: int, pool: Any = None) -> dict[str, Any]:
        """One minibatch: features float32 [rows, dim], labels int32 [rows] where there are any, and `valid`, `scored`."""
        _, starts, stops, _, first = self._table
        p = bisect_right(first, number) - 1
        start = starts[p] + (number - first[p]) * self.batch_rows
        found = self._gathered(p, self._rows(epoch, p, start, min(start + self.batch_rows, stops[p])))
        valid = np.ones(len(found["features"]), bool)
        return {**found, "valid": valid, "scored": valid}

    def whole_partition(self, epoch: int, p: int) -> dict[str, np.ndarray]:
        """All rows of a partition, in the order in which its minibatches are cut."""
        _, starts, stops, *_ = self._table
        return self._gathered(p, self._rows(epoch, p, starts[p], stops[p]))

    def _gathered(self, p: int, rows: np.ndarray | range) -> dict[str, np.ndarray]:
        plan, block, offsets = self.frame_plan, self._loaded(p), self.sources[self._table[0][p]].offsets
        if block.numbers is not None and block.offsets is not None:
            rows, offsets = block.numbers.searchsorted(rows), block.offsets
        features = gather_rows(block, rows, offsets, plan.left, plan.right)
        if block.labels is None:
            return {"features": features}
        if isinstance(rows, range):
            return {"features": features, "labels": block.labels[rows.start - block.first:rows.stop - block.first].copy()}
        return {"features": features, "labels": block.labels.take(rows - block.first, mode="clip")}

    def _rows(self, epoch: int, p: int, start: int, stop: int) -> np.ndarray | range:
        """The frames of a partition's file that stand at the places `start` to `stop` of the order of an epoch."""
        plan, file = self.frame_plan, self._table[0][p]
        places: np.ndarray | range = range(start, stop)
        if plan.shuffle == "file":
            places = self._mixed(epoch, -1 - file, plan.count(file))[start:stop].astype(np.int64)
        elif plan.shuffle == "partition":
            _, starts, stops, *_ = self._table
            first = starts[p]
            places = first + self._mixed(epoch, p, stops[p] - first)[start - first:stop - first].astype(np.int64)
        kept = plan.kept[file]
        if kept is None:
            return places
        return (kept[places] if isinstance(places, np.ndarray) else kept[start:stop]).astype(np.int64)

    def _mixed(self, epoch: int, unit: int, count: int) -> np.ndarray:
        """The order of a partition, or of file -1 - unit, in an epoch: int32 or int64 [count]."""
        if self.frame_plan.pdnn:
            epoch, unit = 0, -count  # all of a length are alike
        with self._lock:
            if self._order is None or self._order[0] != (epoch, unit):
                pdnn = self.frame_plan.pdnn  # numpy has promised that these numbers stay
                draw = np.random.RandomState(PDNN_SEED) if pdnn else Key.of(self.seed, epoch).fold("shuffle", unit)
                small = np.int32 if count < 1 << 31 else np.int64
                self._order = (epoch, unit), draw.permutation(count).astype(small)
            return self._order[1]

    def _loaded(self, p: int) -> Block:
        """What a partition's rows are gathered from. Only one such block is kept."""
        plan, file = self.frame_plan, self._table[0][p]
        which = (file, -1) if plan.shuffle == "file" else (file, p)
        with self._lock:
            if self._block is None or self._block[0] != which:
                if self._block is not None and self._block[0][0] != file:
                    self.sources[self._block[0][0]].release()
                self._block = None  # gone before the next one is read
                self._block = which, self._read(file, p)
            return self._block[1]

    def _read(self, file: int, p: int) -> Block:
        plan, source, kept = self.frame_plan, self.sources[file], self.frame_plan.kept[file]
        start, stop = 0, source.frames
        if plan.shuffle != "file":
            first, last = self._table[1][p], self._table[2][p]
            kept = kept if kept is None else kept[first:last]
            low, high = (first, last - 1) if kept is None else kept[[0, -1]].tolist()
            begin, end = source.offsets.searchsorted([low, high], "right")
            start = max(low - plan.left, int(source.offsets[begin - 1]))
            stop = min(high + plan.right + 1, int(source.offsets[end]))
        if kept is not None and SPARSE * len(kept) < stop - start:
            numbers = with_context(kept.astype(np.int64), source.offsets, plan.left, plan.right)
            if SPARSE * len(numbers) < stop - start:
                return self._read_sparsely(file, numbers)
        into = self._pool.arrays([("features", (stop - start, source.dim), np.float32)])["features"]
        features, labels = source.read(start, stop, into)
        return Block(features, plan.relabelled(labels[:, self.column]) if self.column >= 0 else None, start)

    def _read_sparsely(self, file: int, numbers: np.ndarray) -> Block:
        """Some frames of a file, which is read in pieces."""
        plan, source = self.frame_plan, self.sources[file]
        features = np.empty((len(numbers), source.dim), np.float32)
        labels = np.empty(len(numbers), np.int32)
        step = max(1, PIECE // (4 * source.dim))
        for start in range(int(numbers[0]), int(numbers[-1]) + 1, step):
            low, high = numbers.searchsorted([start, start + step]).tolist()
            if low < high:
                first, last = int(numbers[low]), int(numbers[high - 1])
                found, places = source.read(first, last + 1), numbers[low:high] - first
                features[low:high] = found.features[places]
                if self.column >= 0:
                    labels[low:high] = plan.relabelled(found.labels[places, self.column])
        return Block(features, labels if self.column >= 0 else None, 0, numbers, numbers.searchsorted(source.offsets))

    def check_classes(self, classes: int) -> None:
        """Raises InputError: "classes" for a label outside 0 to classes - 1, with its utterance and frame; "labels"."""
        expect_labels(f"classes={classes}", self.frame_plan)
        for file, source in enumerate(self.sources):
            for frames, labels in self.frame_plan.kept_labels(file):
                wrong = np.flatnonzero((labels < 0) | (labels >= classes))
                if len(wrong):
                    frame = int(frames[wrong[0]])
                    u = int(np.searchsorted(source.offsets, frame, "right")) - 1
                    raise InputError("classes", file=source.path, sample_id=source.ids[u], row=frame - int(source.offsets[u]),
                                     expected=f"labels 0 to {classes - 1}, after ignore-label and map-label",
                                     found=str(labels[wrong[0]]), cure="Leave the label out with ignore-label, or map it.")
            if len(self.sources) > 1:
                source.release()

    def repeats(self, epoch: int) -> bool:
        return False

    def describe(self, epoch: int) -> dict[str, Any]:
        """What `explain` reports."""
        found, used = self.partitions, self._rows_before(self.count(epoch))
        kept = int((found.stop - found.start).sum())
        notes = {f"{source.path}: {name}": items for source in self.sources for name, items in source.notes.items()}
        return {"files": len(self.sources), "utterances": sum(map(len, self.sources)),
                "frames": sum(source.frames for source in self.sources), "kept_frames": kept, "dim": self.frame_plan.dim,
                "partitions": len(found), "batches": self.count(epoch), "dropped_frames": kept - used, "notes": notes}


class FrameLoader(Loader):
    """A loader of minibatches `{"features": float32 [batch, dim], "labels": int32 [batch]}`; files without labels give none.

    With several ranks there are also `valid` (bool [batch], False in the batches that complete the last step), `scored` (the
    same) and `scored_in_step` (the frames of the step over all ranks). Made by `pipelines.frames`.
    """

    recipe: FrameRecipe

    def finish(self, batch: dict[str, Any], epoch: int, first: int) -> dict[str, Any]:
        return batch if self.world > 1 else {name: batch[name] for name in ("features", "labels") if name in batch}

    def partitions(self) -> Iterator[dict[str, np.ndarray]]:
        """The same rows partition by partition, before they are cut into minibatches, of the current epoch and all ranks."""
        return (self.recipe.whole_partition(self.epoch, p) for p in range(len(self.recipe.partitions)))

    @property
    def chunks(self) -> np.recarray:
        """The partitions, int64 columns: file, start and stop among its kept frames, batches."""
        found = self.recipe.partitions
        return np.rec.fromarrays([found.file, found.start, found.stop, np.diff(found.first)],
                                 names=["file", "start", "stop", "batches"])  # type: ignore[arg-type]

    def batches(self, epoch: int | None = None) -> Composition:
        """The minibatches of an epoch (the current one) in global order: frames of all files, counted one after the other."""
        recipe, epoch = self.recipe, self.epoch if epoch is None else epoch
        base = np.cumsum([0, *(source.frames for source in recipe.sources)])
        rows, sizes = [np.empty(0, np.int64)], [0]
        for p, (file, start, stop, count) in enumerate(self.chunks.tolist()):
            used = min(stop - start, count * recipe.batch_rows)
            rows.append(base[file] + np.asarray(recipe._rows(epoch, p, start, start + used)))
            sizes += [min(recipe.batch_rows, used - at) for at in range(0, used, recipe.batch_rows)]
        return Composition(np.concatenate(rows), np.cumsum(sizes))


def frames(spec: Any, transform: Transform | None = None, *, batch: int = 256, seed: int = 0, keep_last: bool = False,
           classes: int | None = None, compat: str | None = None, partition_bytes: int | None = None,
           strict: bool | None = None, label_column: int | None = None, allow_commands: bool = False, rank: int | None = None,
           world: int | None = None, prefetch: int = 2, threads: int = 0, processes: int = 0,
           start_method: str | None = None) -> FrameLoader:
    """The loader of a data specification.

    Args:
        spec: "train.pfile,context=5,ignore-label=0:3-9,map-label=1:0/2:1,partition=1000m": pfiles, Kaldi scripts, pickles or
            packs of frames; see `pipelines.frame_spec`. Or a source that `asdstore.open` gave, or a list of them.
        transform: a chain of `context`, `ignore_labels`, `map_labels`, `shuffle`, `partition` in place of options.
        batch: frames of a minibatch. What a partition has beyond whole minibatches is dropped, as in PDNN.
        keep_last: keep it, as a smaller minibatch.
        seed: of the random order, which is another one each epoch.
        classes: how many there are; labels outside 0 to classes - 1 are an error at once (labels are read for that).
        compat: "pdnn" gives PDNN's random order, the same in every epoch.
        partition_bytes: instead of `partition=`.
        strict: False leaves out utterances without labels, or with another number of them, counts and lists them; it is the
            default with compat="pdnn", and otherwise they are an error.
        label_column: instead of `label-column=`.
        allow_commands: run the commands of a Kaldi script, through the shell; only for scripts that you wrote yourself.
        rank, world, prefetch, threads, processes, start_method: see `pipelines.build`. A minibatch is made in less time than
            a thread takes to hand it over, so there are none by default.

    Raises: InputError "spec", "context", "partition", "label-column", "labels", "classes", "dimension", "order", "batch",
        MissingError for a pattern that matches nothing, and what the readers raise.
    Warns where something was left out, and where there is not a single minibatch.

    >>> loader = frames("train.pfile,context=5,random=true", batch=256)             # doctest: +SKIP
    >>> for step in loader: step["features"].shape, step["labels"].shape            # doctest: +SKIP
    ((256, 440), (256,))
    """
    if compat not in (None, "pdnn"):
        raise InputError("compat", file="frames", expected="None or 'pdnn'", found=repr(compat))
    if batch < 1 or batch != int(batch):
        raise InputError("batch", file="frames", expected="a whole number of frames, at least 1", found=str(batch))
    said, sources = _opened(spec, compat is None if strict is None else strict, allow_commands)
    if transform is None:
        if said.random and all(source.format == "kaldi" for source in sources):
            said = said._replace(stream=True)  # PDNN always streams these
        transform = of_spec(said, compat)
    elif said._replace(pattern="", notes=()) != FrameSpec(""):
        raise InputError("spec", file=said.pattern, expected="options or a transform", found="both")
    column = _column(sources, said.label_column if label_column is None else label_column)
    recipe = FrameRecipe(sources, _resized(transform, partition_bytes), column, int(batch), keep_last, int(seed))
    loader = FrameLoader(recipe, rank=rank, world=world, prefetch=prefetch, threads=threads, processes=processes,
                         start_method=start_method)
    _ = recipe.partitions
    if classes is not None:
        recipe.check_classes(classes)
    _warn(recipe, said)
    return loader


def _opened(spec: Any, strict: bool, allow_commands: bool) -> tuple[FrameSpec, list[Source]]:
    """What a specification says, and the files that it names, opened."""
    if not isinstance(spec, str):
        given = spec if isinstance(spec, (list, tuple)) else [spec]
        return FrameSpec(""), _alike([source for part in given for source in _sources(part, strict, allow_commands)])
    said = parse_spec(spec)
    return said, _alike([open_source(name, said.label, strict, allow_commands) for name in files(said.pattern)])


def _sources(part: Any, strict: bool, allow_commands: bool) -> list[Source]:
    if isinstance(part, Joined):
        return part.sources
    if isinstance(part, Source):
        return [part]
    if isinstance(part, Pack):
        return [Packed(part)]
    return [open_source(name, None, strict, allow_commands) for name in files(str(part))]


def _alike(sources: list[Source]) -> list[Source]:
    """Refuses files that do not go together."""
    for source in sources:
        if source.frames:
            check_alike(source, sources[0])
        if len(sources) > 1:
            source.release()
    return sources


def _column(sources: Sequence[Source], wanted: int | None) -> int:
    """The label column to use, -1 for none. Raises InputError, kind "label-column"."""
    found = sources[0].label_columns
    if wanted is None and found <= 1:
        return found - 1
    if wanted is None or not 0 <= wanted < found:
        raise InputError("label-column", file=sources[0].path, found="no choice" if wanted is None else str(wanted),
                         expected=f"one of the label columns 0 to {found - 1}" if found else "no choice: there are no labels",
                         cure="Choose one with label-column=0." if wanted is None else "")
    return wanted


def _resized(transform: Transform, partition_bytes: int | None) -> Transform:
    """The chain with another partition size."""
    if partition_bytes is None:
        return transform
    other = partition_(partition_bytes).stages
    stages = [s for given in chain(transform).stages for s in (other if given.name == "partition" else (given,))]
    if not any(s.name == "partition" for s in stages):
        stages += other
    return chain(*(Transform(s.plan, s.apply, (s,)) for s in stages))


def _warn(recipe: FrameRecipe, said: FrameSpec) -> None:
    notes = [*said.notes, *(f"{source.path}: {name}: {_listed(items)}" for source in recipe.sources
                            for name, items in source.notes.items())]
    facts = recipe.describe(0)
    if not facts["batches"]:
        why = f"{facts['kept_frames']} frames < batch {recipe.batch_rows} in every partition"
        notes.append(f"0 minibatches: {why}; keep_last=True keeps the rest" if facts["kept_frames"] else
                     f"0 minibatches: none of {facts['frames']} frames is kept")
    for note in notes:
        warnings.warn(note, stacklevel=3)


def _listed(items: list[str]) -> str:
    return f"{len(items)}: {', '.join(items[:10])}{', ...' if len(items) > 10 else ''}"
