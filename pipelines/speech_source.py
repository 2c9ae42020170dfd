"""What a loader of utterances draws from: blocks of draws, each batched within itself, pure functions of (seed, block)."""
from __future__ import annotations

import hashlib
import threading
import warnings
import zlib
from collections import OrderedDict
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from asdstore.errors import Fault
from pipelines.batching import Batches, Limits, check_limits, compose
from pipelines.buffers import Pool
from pipelines.keys import Key
from pipelines.mixture_buckets import Buckets, as_batches, bucketed
from pipelines.mixture_draws import Draws, Mixture
from pipelines.recipe import Recipe
from pipelines.settings import whole
from pipelines.shapes import choose, compose_shapes
from pipelines.speech_batch import Place, Reading, make, source_width, token_width
from pipelines.speech_corpus import Utterances
from pipelines.tokenizers import Characters, SentencePiece
from pipelines.transforms import described, stage

VERSION = 1  # of the laws by which blocks are made: another number, another order
TICK = 160  # samples: batches are composed by lengths in 10 ms
_BLOCKS = 2  # kept
_NAMED = 10
_HOUR = 3600 * 16000  # samples


class Batching(NamedTuple):
    """How a block is cut into batches: by this project's planner, or by the original's `buckets`.

    `budget`: samples of a batch, padding included; `shapes`: at most so many distinct (rows, samples); `group`: batches of
    similar cost that stand together, so that ranks do equal work where their number divides it.
    """

    budget: int
    min_batch: int = 1
    max_batch: int = 256
    group: int = 24
    shapes: int | None = None
    buckets: Buckets | None = None

    @property
    def limits(self) -> Limits:
        return Limits(self.budget // TICK, self.min_batch, self.max_batch)

    def check(self, longest: int) -> None:
        """Raises InputError "budget", "min_batch", "max_batch", "group", "shapes"."""
        for name, value in (("group", self.group), ("shapes", 1 if self.shapes is None else self.shapes)):
            whole(name, value, 1)
        if self.buckets is None:
            for name, value, least in (("budget", self.budget, TICK), ("min_batch", self.min_batch, 1),
                                       ("max_batch", self.max_batch, 1)):
                whole(name, value, least)
            check_limits(self.limits, -(-longest // TICK))
        else:
            bucketed([], self.buckets)

    def batches(self, samples: np.ndarray, grid: tuple[int, ...], key: Key, shuffle: bool) -> Batches:
        """The batches of utterances of so many samples each; `frames` are samples here."""
        if self.buckets is not None:
            found = as_batches(bucketed(samples.tolist(), self.buckets), samples)
            return _reordered(found, key.fold("buckets").permutation(len(found))) if shuffle else found
        ticks = -(-samples // TICK)
        if grid:
            found = compose_shapes(ticks, grid, self.limits, key, group=self.group, shuffle=shuffle)
            return Batches(found.ids, found.offsets, found.rows, found.frames * TICK)
        found = compose(ticks, self.limits, key, group=self.group, shuffle=shuffle)
        longest = np.maximum.reduceat(samples[found.ids], found.offsets[:-1]) if len(found) else found.frames
        return Batches(found.ids, found.offsets, found.rows, longest)


def _reordered(batches: Batches, order: np.ndarray) -> Batches:
    offsets = np.concatenate([[0], np.cumsum(batches.rows[order])])
    ids = [batches.members(b) for b in order.tolist()]
    return Batches(np.concatenate([np.empty(0, np.int64), *ids]), offsets, batches.rows[order], batches.frames[order])


class Block(NamedTuple):
    """The draws of a block and its batches, whose ids are positions in the draws."""

    draws: Draws
    batches: Batches


class Extent(NamedTuple):
    """Rows and columns of source_seqs, and columns of target_seqs."""

    rows: int
    width: int
    tokens: int


class SpeechRecipe(Recipe):
    """Utterances, what is fed of them, how they are drawn, batched and read, and a seed.

    `mixture` None gives one block: each row once, longest first, the same in every epoch. `faults` has what could not be
    decoded so far, by the position of the utterance.
    """

    def __init__(self, utterances: Utterances, rows: np.ndarray, mixture: Mixture | None, batching: Batching, reading: Reading,
                 seed: int, notes: dict[str, Any]):
        self.utterances, self.rows, self.mixture = utterances, rows, mixture
        self.batching, self.reading, self.seed, self.notes = batching, reading, whole("seed", seed), notes
        self.transform = stage("mixture", still=mixture is None)  # what bridges ask: is each epoch alike?
        self.packs = utterances.parts
        self._blocks: OrderedDict[int, Block] = OrderedDict()
        self._lock = threading.Lock()
        self._pool = Pool()
        self.faults: dict[int, Fault] = {}
        self._said = 0  # of them
        longest = int(utterances.samples[rows].max(initial=0))
        batching.check(longest)

    def __reduce__(self):
        rows = zlib.compress(np.diff(self.rows, prepend=0).astype("<i8").tobytes(), 1)
        mixture = None if self.mixture is None else self.mixture._replace(order=self._in_rows)
        return _again, (self.utterances, rows, mixture, self.batching, self.reading, self.seed, self.notes)

    @property
    def _in_rows(self) -> np.ndarray:
        """The mixture's order as positions in `rows`, in 4 bytes each."""
        assert self.mixture is not None
        return np.searchsorted(self.rows, self.mixture.order).astype(np.uint32)

    @cached_property
    def text(self) -> str:
        """Everything but the seed that decides what is read, on one line."""
        rows = hashlib.sha256(self.rows.astype("<i8").tobytes()).hexdigest()[:16]
        order = "once"
        if self.mixture is not None:
            edges = hashlib.sha256(self.mixture.edges.astype("<i8").tobytes()).hexdigest()[:16]
            order = f"block={self.mixture.draws}, weights {edges}, local={self.mixture.local}"
        reading, tokenizer = self.reading._replace(tokenizer=None, undecodable=""), self.reading.tokenizer
        named = repr(tokenizer) if isinstance(tokenizer, (Characters, SentencePiece)) else described(tokenizer)
        return f"speech {VERSION} of {self.utterances.digest[:16]}, rows {rows}: {order}, {self.batching}, {reading}, {named}"

    @cached_property
    def _grid(self) -> tuple[int, ...]:
        """The lengths, in ticks, that batches are padded to; () where they are not bounded."""
        if self.batching.shapes is None or self.batching.buckets is not None:
            return ()
        ticks = -(-self.utterances.samples[self.rows] // TICK)
        return choose(ticks, int(ticks.max(initial=1)), self.batching.shapes)

    def block(self, epoch: int) -> Block:
        """The block that is an epoch."""
        number = 0 if self.mixture is None else epoch
        with self._lock:
            if number not in self._blocks:
                self._blocks[number] = self._made(number)
                while len(self._blocks) > _BLOCKS:
                    self._blocks.popitem(last=False)
            self._blocks.move_to_end(number)
            return self._blocks[number]

    def _made(self, number: int) -> Block:
        key = Key.of(self.seed)
        draws = Draws(self.rows, np.arange(len(self.rows))) if self.mixture is None else \
            self.mixture.take(key.fold("mixture"), number)
        batches = self.batching.batches(self.utterances.samples[draws.rows], self._grid, key.fold("batches", number),
                                        self.mixture is not None)
        self.utterances.stage(draws.rows)
        return Block(draws, batches)

    def count(self, epoch: int) -> int:
        """Batches of a block."""
        return len(self.block(epoch).batches)

    def scored(self, epoch: int, start: int, stop: int) -> int:
        """Utterances of the batches start:stop."""
        offsets = self.block(epoch).batches.offsets
        last = len(offsets) - 1
        return int(offsets[min(stop, last)] - offsets[min(start, last)])

    def extent(self, epoch: int, numbers: np.ndarray) -> Extent:
        """Into what all batches of some numbers fit, whoever reads them: known from lengths and texts, without any audio."""
        block = self.block(epoch)
        rows, samples = int(block.batches.rows[numbers].max()), int(block.batches.frames[numbers].max())
        longest = 0
        if self.reading.tokenizer is not None:
            members = np.concatenate([block.batches.members(number) for number in np.unique(numbers).tolist()])
            longest = max(map(self._token_count, block.draws.rows[members].tolist()), default=0)
        return Extent(rows, source_width(samples, self.reading), token_width(longest, bool(self._grid)))

    def _token_count(self, row: int) -> int:
        """Tokens of an utterance, which are made once."""
        if self._token_counts[row] < 0:
            self._token_counts[row] = len(self.reading.tokens(self.utterances.text(row)))
        return int(self._token_counts[row])

    @cached_property
    def _token_counts(self) -> np.ndarray:
        return np.full(len(self.utterances), -1, np.int32)

    def batch(self, epoch: int, number: int, step: int = 1) -> dict[str, Any]:
        """One batch; see `pipelines.mixture`."""
        block = self.block(epoch)
        members = block.batches.members(number)
        fixed = bool(self._grid)
        place = Place(block.draws.rows[members], block.draws.numbers[members], int(block.batches.rows[number]) if fixed else 0,
                      int(block.batches.frames[number]) if fixed else 0, fixed)
        found = make(self.utterances, place, self.reading, Key.of(self.seed).fold("draw"), self._pool)
        return {**found, "scored": found["valid"]}

    def repeats(self, epoch: int) -> bool:
        return False

    def ended(self) -> None:
        """Warns of what could not be decoded, and was not said before."""
        new = list(self.faults.values())[self._said:]
        self._said += len(new)
        if new:
            more = f"; and {len(new) - _NAMED} more" if len(new) > _NAMED else ""
            warnings.warn(f"{len(new)} utterances could not be decoded and were left out: "
                          f"{'; '.join(fault.text() for fault in new[:_NAMED])}{more}", stacklevel=4)

    def describe(self, epoch: int) -> dict[str, Any]:
        """What `explain` reports."""
        block, samples = self.block(epoch), self.utterances.samples
        batches = block.batches
        drawn = samples[block.draws.rows[batches.ids]]
        faults = [fault.text() for fault in self.faults.values()]
        padded = int((batches.rows * batches.frames).sum())
        sizes = batches.sizes
        return {"utterances": len(self.rows), "hours": round(float(samples[self.rows].sum()) / _HOUR, 6), **self.notes,
                "batches": len(batches), "draws": int(sizes.sum()), "undrawn": len(block.draws.rows) - int(sizes.sum()),
                "drawn_hours": round(float(drawn.sum()) / _HOUR, 6),
                "utilisation": round(float(drawn.sum()) / max(padded, 1), 6),
                "batch_sizes": [int(sizes.min()), int(sizes.max())] if len(sizes) else [],
                "undecodable": len(faults), "undecodable_named": faults[:_NAMED]}


def _again(utterances: Utterances, rows: bytes, mixture: Mixture | None, *more: Any) -> SpeechRecipe:
    found = np.cumsum(np.frombuffer(zlib.decompress(rows), "<i8"))
    if mixture is not None:
        mixture = mixture._replace(order=found[mixture.order])
    return SpeechRecipe(utterances, found, mixture, *more)
