"""A recipe: packs, a transform and a seed. From it and an epoch follow the plan and every batch, in any process."""
from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from asdstore.errors import StateError
from asdstore.pack import Pack
from pipelines.buffers import Pool
from pipelines.gather import batch_bytes, gather
from pipelines.keys import Key
from pipelines.plan import Batch, Plan, complete, whole_tracks
from pipelines.rows import TOGETHER, Rows, rows_of
from pipelines.settings import whole
from pipelines.tracks import Tracks
from pipelines.transforms import Transform, chain, run, text, unchanged

VERSION = 1  # of the laws by which plans are made: another number, another order of the same recipe
_PLANS = 2  # epochs kept
_ROWS = 4  # of so many times TOGETHER batches
_LARGEST = 256 << 20  # bytes up to which all buffers are made as large as the largest batch needs


class Recipe:
    """What a loader draws from: `plan(epoch)`, `batch(epoch, number)`, and the `digest` that a state is checked against."""

    def __init__(self, packs: Sequence[Pack], transform: Transform, seed: int):
        self.packs, self.transform, self.seed = tuple(packs), chain(transform), whole("seed", seed)
        self._plans: OrderedDict[int, Plan] = OrderedDict()
        self._rows: OrderedDict[tuple[int, int, int], Rows] = OrderedDict()
        self._lock = threading.Lock()

    def __reduce__(self):
        return Recipe, (self.packs, self.transform, self.seed)

    @cached_property
    def text(self) -> str:
        """Everything but the seed that decides the order, on one line.

        Functions are in it by name, so what became of the tracks before anything is drawn is in it too: two filters that share
        a name do not share a plan.
        """
        packs = ", ".join(pack.digest[:16] for pack in self.packs)
        plan = self._still[1]
        spans = hashlib.sha256(b"".join(column.astype("<i8").tobytes() for column in
                                        (plan.track, plan.start, plan.length, plan.prefix))).hexdigest()[:16]
        return f"plan {VERSION} of [{packs}]: {text(self.transform)}; {len(plan.track)} spans {spans}"

    @cached_property
    def digest(self) -> str:
        """32 hexadecimal digits of `text`."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:32]

    def expect(self, digest: str, of: str = "") -> None:
        """Raises StateError, kind "plan", where `digest` is another plan's; `of` is that plan's text, if it is known."""
        if digest != self.digest:
            raise StateError("plan", expected=self.text, found=of or digest,
                             cure="Use the packs and settings that the state was saved with, or start anew.")

    @cached_property
    def tracks(self) -> Tracks:
        """The tracks of the packs. Raises as `Tracks.of`."""
        return Tracks.of(self.packs)

    @cached_property
    def _still(self) -> tuple[int, Plan]:
        """How many stages at the front plan alike in every epoch, and the plan after them."""
        stages = self.transform.stages
        count = next((i for i, stage in enumerate(stages) if not stage.still), len(stages))
        return count, run(stages[:count], "plan", whole_tracks(self.tracks), Key.of(self.seed))

    def plan(self, epoch: int) -> Plan:
        """The plan of an epoch. Raises what the transforms raise; InputError, "empty", where nothing is left to feed."""
        return self._kept(self._plans, epoch, _PLANS, lambda: self._made(epoch))

    def _kept(self, found: OrderedDict[Any, Any], key: Any, most: int, make: Callable[[], Any]) -> Any:
        """What `found` holds of a key, made where it does not; the `most` last used ones stay."""
        with self._lock:
            if key in found:
                found.move_to_end(key)
                return found[key]
        made = make()
        with self._lock:
            found[key] = made
            while len(found) > most:
                found.popitem(last=False)
        return made

    def _made(self, epoch: int) -> Plan:
        count, plan = self._still
        plan = plan._replace(epoch=epoch, shapes=self.shapes if epoch else ())
        plan = run(self.transform.stages[count:], "plan", plan, Key.of(self.seed, epoch))
        return complete(plan)._replace(recipe=self)

    @cached_property
    def shapes(self) -> tuple[int, ...]:
        """The lengths that epoch 0 chose to pad batches to; () where they are not bounded."""
        bounded = any(dict(stage.settings).get("shapes") for stage in self.transform.stages)
        return self.plan(0).shapes if bounded else ()

    @cached_property
    def _pool(self) -> Pool:
        size = batch_bytes(self.plan(next(iter(self._plans), 0)))
        return Pool(size if size <= _LARGEST else 0)

    def count(self, epoch: int) -> int:
        """Batches of an epoch."""
        batches = self.plan(epoch).batches
        assert batches is not None
        return len(batches)

    def scored(self, epoch: int, start: int, stop: int) -> int:
        """Scored frames of the batches start:stop of an epoch."""
        scored = self.plan(epoch).scored
        assert scored is not None
        return int(scored[start:stop].sum())

    def batch(self, epoch: int, number: int, step: int = 1) -> Batch:
        """One batch of an epoch, gathered and transformed; the next ones asked for are best `step` apart."""
        plan = self.plan(epoch)
        assert plan.batches is not None
        first = number - number // step % TOGETHER * step
        rows = self._kept(self._rows, (epoch, first, step), _ROWS, lambda: rows_of(plan, first, TOGETHER, step))
        batch = gather(rows, number, self._pool)
        if all(stage.apply is unchanged for stage in self.transform.stages):
            return batch
        members = plan.batches.members(number)
        own = np.zeros(int(plan.batches.rows[number]), np.uint64)
        own[:len(members)] = plan.identity(members)
        return self.transform.apply(batch, Key.of(self.seed, epoch).fold(own))

    def repeats(self, epoch: int) -> bool:
        """Do ranks complete the last step with the first batches again, as the original program does?"""
        return self.plan(epoch).repeat

    def ended(self) -> None:
        """Say what is to be said once an epoch has been read to its end: of face tracks nothing."""

    def describe(self, epoch: int) -> dict[str, Any]:
        """What `Loader.explain` reports of the plan."""
        from pipelines.explain import explain_plan
        return explain_plan(self.plan(epoch))
