"""The loader: batches of a recipe for one rank, in an order that only packs, settings, seed and epoch decide."""
from __future__ import annotations

import json
import operator
import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from asdstore.errors import InputError, StateError
from pipelines.prefetch import ordered
from pipelines.ranks import find_rank, running
from pipelines.workers import Workers

_STATE = 1  # version of a loader's state
Like = TypeVar("Like", bound="Loader")


class Source(Protocol):
    """What a loader draws from: a `Recipe`, or another of the same face."""

    seed: int

    @property
    def digest(self) -> str: ...
    def expect(self, digest: str, of: str = "") -> None: ...
    def count(self, epoch: int) -> int: ...
    def scored(self, epoch: int, start: int, stop: int) -> int: ...
    def repeats(self, epoch: int) -> bool: ...
    def ended(self) -> None: ...
    def batch(self, epoch: int, number: int, step: int) -> dict[str, Any]: ...


class Composition(NamedTuple):
    """The batches of an epoch in global order: batch b holds the chunks `ids[offsets[b]:offsets[b + 1]]`. Both int64."""

    ids: np.ndarray
    offsets: np.ndarray


class Loader:
    """Iterates over the batches of one epoch after another, for rank `rank` of `world`.

    At step s rank r reads batch s * world + r of the epoch's global order; ranks have equal steps. Where the batches do not
    divide, the last step is completed with fillers: a batch whose `valid` and `scored` are False.

    `loader[step]` is a batch of this rank in the current epoch, `len(loader)` the steps of an epoch, `loader.at(epoch=3)`
    another epoch. `state_dict()` says where the iteration stands, counted in batches that were handed out over all ranks, so
    that it can be loaded with another number of ranks, threads or processes. An iteration goes on from a loaded state;
    otherwise it begins an epoch: the current one if it was not begun yet, else the next.

    A batch stays as it is for as long as anything refers to one of its arrays. `pipelines.train`, `evaluate` and `build` make
    loaders.
    """

    def __init__(self, recipe: Any, *, rank: int | None = None, world: int | None = None, prefetch: int = 2, threads: int = 2,
                 processes: int = 0, start_method: str | None = None):
        for name, value in (("prefetch", prefetch), ("threads", threads), ("processes", processes)):
            if value < 0:
                raise InputError(name, expected="0 or more", found=str(value))
        self.recipe = recipe
        self.rank, self.world = find_rank(rank, world)
        self._given = rank is not None
        self.prefetch, self.threads, self.processes, self.start_method = prefetch, threads, processes, start_method
        self.epoch = 0
        self._done = 0  # batches handed out in this epoch, over all ranks
        self._resumed = False  # the next iteration goes on from there
        self._workers: Workers | None = None
        self._times = [0, 0.0, 0.0]  # batches, seconds waited for them, seconds between the first and the last

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_workers": None}

    # Order ------------------------------------------------------------------------------------------------------------------
    def _steps(self, epoch: int, done: int) -> int:
        """Steps of this rank for what is left of an epoch."""
        left = self.recipe.count(epoch) - done
        whole = -(-left // self.world) * self.world
        if self.recipe.repeats(epoch):
            whole = min(whole, left + self.recipe.count(epoch))
        return max(-(-(whole - self.rank) // self.world), 0)

    def __len__(self) -> int:
        return self._steps(self.epoch, 0)

    def __getitem__(self, step: int) -> dict[str, Any]:
        step, steps = operator.index(step), len(self)
        if not -steps <= step < steps:
            raise IndexError(f"step {step} of {steps}")
        return self.batch(self.epoch, step % steps)

    def batch(self, epoch: int, step: int) -> dict[str, Any]:
        """The batch of this rank at a step of any epoch."""
        return self._made(epoch, 0, step)

    def _made(self, epoch: int, done: int, step: int) -> dict[str, Any]:
        return self.finish(make_batch(self.recipe, self.rank, self.world, epoch, done, step), epoch, done + step * self.world)

    def finish(self, batch: dict[str, Any], epoch: int, first: int) -> dict[str, Any]:
        """What a bridge does to each batch of the step that starts with global batch `first`, in the thread that made it."""
        return batch

    # Iteration --------------------------------------------------------------------------------------------------------------
    def __iter__(self) -> Iterator[dict[str, Any]]:
        # A generator, so that all this happens with the first batch: trainers ask for iterators only to look.
        self._check_rank()
        if self._done and not self._resumed:
            self.epoch, self._done = self.epoch + 1, 0
        self._resumed = False
        if self._done and self._done >= self.recipe.count(self.epoch):
            self.epoch, self._done = self.epoch + 1, 0
        yield from self._iterate(self.epoch, self._done)

    def _check_rank(self) -> None:
        """Raises where this rank was found before a distributed run was initialised, and is another one in it."""
        if not self._given and running() not in (None, (self.rank, self.world)):
            raise InputError("rank", expected="a loader made after the distributed run was initialised, or given its rank",
                             found=f"rank {self.rank} of {self.world} in a run where this is (rank, world) {running()}",
                             cure="Make the loader later, or pass rank= and world=.")

    def _iterate(self, epoch: int, done: int) -> Iterator[dict[str, Any]]:
        steps, total = self._steps(epoch, done), self.recipe.count(epoch)
        if self.processes:
            if self._workers is None:
                make = partial(make_batch, self.recipe, self.rank, self.world)
                self._workers = Workers(make, self.processes, self.start_method)
            made = self._workers.ordered(lambda step: (epoch, done, step), steps, self.prefetch)
            ahead = (self.finish(batch, epoch, done + step * self.world) for step, batch in enumerate(made))
        else:
            ahead = ordered(partial(self._made, epoch, done), steps, depth=self.prefetch, threads=self.threads)
        began = time.perf_counter()
        for step in range(steps):
            asked = time.perf_counter()
            yield self._handed_out(next(ahead), epoch, min(done + (step + 1) * self.world, total), asked, began)
        ahead.close()  # type: ignore[attr-defined]
        self.epoch, self._done = epoch + 1, 0
        self.recipe.ended()

    def _handed_out(self, batch: dict[str, Any], epoch: int, done: int, asked: float, began: float) -> dict[str, Any]:
        self.epoch, self._done = epoch, done
        now = time.perf_counter()
        self._times = [self._times[0] + 1, self._times[1] + now - asked, now - began]
        return batch

    def at(self: Like, epoch: int) -> Like:
        """A loader like this one at the beginning of another epoch."""
        if epoch < 0:
            raise InputError("epoch", expected="0 or more", found=str(epoch))
        return self.like(type(self), epoch=int(epoch), _done=0, _resumed=False)

    def like(self, kind: type[Like], **changed: Any) -> Like:
        """A loader of another kind that stands where this one stands and then goes its own way: what bridges are made by."""
        found = object.__new__(kind)
        found.__dict__.update(self.__getstate__(), _times=[0, 0.0, 0.0], **changed)
        return found

    def set_epoch(self, epoch: int) -> None:
        """Go to the beginning of an epoch; nothing happens where a state of this very epoch has just been loaded."""
        if epoch != self.epoch or not self._resumed:
            self.epoch, self._done, self._resumed = int(epoch), 0, False

    @property
    def pids(self) -> list[int]:
        """Ids of the worker processes; none before the first iteration."""
        return self._workers.pids if self._workers else []

    def close(self) -> None:
        """End the worker processes, if there are any. Iterating again starts new ones."""
        if self._workers is not None:
            self._workers.close()
            self._workers = None

    # State ------------------------------------------------------------------------------------------------------------------
    def state_dict(self) -> dict[str, Any]:
        """Where the iteration stands, as plain values for one line of JSON. Equal on every rank."""
        return {"version": _STATE, "plan": self.recipe.digest, "recipe": self.recipe.text, "seed": self.recipe.seed,
                "epoch": self.epoch, "batches": self._done}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was saved, with as many ranks as there are now.

        Raises: StateError, "state" for one that is not a loader's, "plan" for that of another plan, "seed" for another seed.
        """
        numbers = [state.get(name) if isinstance(state, Mapping) else None for name in ("version", "seed", "epoch", "batches")]
        if any(type(n) is not int or n < 0 for n in numbers[:1] + numbers[2:]) or type(numbers[1]) is not int:
            raise StateError("state", expected="version, plan, seed, epoch and batches", found=repr(state)[:200])
        version, seed, epoch, batches = (int(n) for n in numbers if n is not None)
        if version != _STATE:
            raise StateError("state", expected=f"version {_STATE}", found=str(version))
        self.recipe.expect(str(state.get("plan")), str(state.get("recipe", "")))
        if seed != self.recipe.seed:
            raise StateError("seed", expected=f"a state of seed {self.recipe.seed}", found=str(seed))
        if batches > (count := self.recipe.count(epoch)):
            raise StateError("state", expected=f"at most the {count} batches of epoch {epoch}", found=str(batches))
        self.epoch, self._done, self._resumed = epoch, batches, True

    # What it does -----------------------------------------------------------------------------------------------------------
    @property
    def chunks(self) -> np.recarray:
        """The chunks of the current epoch, int64 columns: track, predict_start, predict_length, prefix, fed_length."""
        plan = self.recipe.plan(self.epoch)
        columns = {"track": plan.track, "predict_start": plan.start + plan.prefix, "predict_length": plan.length - plan.prefix,
                   "prefix": plan.prefix, "fed_length": plan.length}
        return np.rec.fromarrays(list(columns.values()), dtype=[(name, np.int64) for name in columns])

    def batches(self, epoch: int | None = None) -> Composition:
        """The batches of an epoch (the current one) in global order, as positions in `at(epoch).chunks`."""
        found = self.recipe.plan(self.epoch if epoch is None else epoch).batches
        return Composition(found.ids, found.offsets)

    def explain(self) -> Explanation:
        """What the plan of the current epoch does with the data, and how long the loop has waited: a text, or `.json()`."""
        count, waited, elapsed = self._times
        share = round(waited / elapsed, 6) if elapsed else 0.0
        loop = {"batches": count, "waited_seconds": round(waited, 6), "waited_share": share}
        own = {"rank": self.rank, "world": self.world, "steps": len(self), "loop": loop}
        return Explanation(self.recipe.describe(self.epoch) | own)

    def __repr__(self) -> str:
        return f"Loader(rank {self.rank} of {self.world}, epoch {self.epoch}, {len(self)} steps)"


class Explanation(dict):
    """Facts by name; `str()` gives them as a text, `json()` on one line.

    >>> print(Explanation(batches=3, balance={"2": 0.99}))
    batches  3
    balance  2: 0.99
    """

    def __str__(self) -> str:
        width = max(map(len, self), default=0)
        return "\n".join(f"{name:<{width}}  {_short(value)}" for name, value in self.items())

    def json(self) -> str:
        return json.dumps(self)


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}: {_short(item)}" for name, item in value.items()) or "none"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def make_batch(source: Source, rank: int, world: int, epoch: int, done: int, step: int) -> dict[str, Any]:
    """The batch of a rank at a step that is counted from global batch `done` of an epoch on.

    `scored_in_step` (int) counts the scored frames of all ranks: a loss summed over a rank's frames, divided by it, adds up to
    the mean over the step.
    """
    count, first = source.count(epoch), done + step * world
    number = first + rank
    scored = source.scored(epoch, first, min(first + world, count))
    repeats = source.repeats(epoch)
    if repeats and first + world > count:
        scored += source.scored(epoch, max(first - count, 0), first + world - count)
    if number < count or repeats:
        batch = source.batch(epoch, number % count, world)
    else:
        batch = source.batch(epoch, count - 1, world)
        batch["valid"] = np.zeros_like(batch["valid"])
        batch["scored"] = np.zeros_like(batch["scored"])
    batch["scored_in_step"] = scored
    return batch
