"""A machine of loaders, one for each rank, that steps, saves, restores, changes its size and its means, and loses processes.

Whatever happens, what the ranks read next is what the pure order of the plan says.
"""
from __future__ import annotations

import json
import os
import pickle
import signal
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

import pipelines
from asdstore.errors import StateError
from tests.pipelines.made import varied, write

pytestmark = pytest.mark.filterwarnings("ignore:.*shorter than one frame")
WORLDS, EPOCHS = st.integers(1, 4), st.integers(0, 3)


class Loaders(RuleBasedStateMachine):
    """`epoch` and `done` are what the machine expects of every loader; `orders` is the pure order."""

    pack: Any = None
    orders: dict[tuple[bool, int], list[tuple]] = {}

    @initialize(world=WORLDS, jitter=st.booleans())
    def begin(self, world: int, jitter: bool) -> None:
        self.settings = {"window": 60, "context": 15, "frame_budget": 500, "jitter": jitter, "group": 3}
        self.means: dict[str, Any] = {"threads": 0, "prefetch": 2, "processes": 0}
        self.epoch = self.done = 0
        self.torch = False
        self.saved: str | None = None
        self.kept: list[tuple[dict, dict]] = []
        self.resumed = False
        self.start(world)

    def start(self, world: int) -> None:
        """A new job of `world` ranks."""
        self.stop()
        loaders = [pipelines.train(self.pack, **self.settings, **self.means, start_method="fork", rank=rank, world=world)
                   for rank in range(world)]
        self.loaders = [pipelines.to_torch(loader) for loader in loaders] if self.torch else loaders
        self.iterations: list[Iterator] | None = None

    def stop(self) -> None:
        for loader in getattr(self, "loaders", []):
            loader.close()

    teardown = stop

    def resume(self, world: int, state: str | None = None) -> None:
        """A new job that goes on from a state, by default from where this one stands."""
        state = json.dumps(self.loaders[0].state_dict()) if state is None else state
        self.start(world)
        for loader in self.loaders:
            loader.load_state_dict(json.loads(state))
        self.epoch, self.done = json.loads(state)["epoch"], json.loads(state)["batches"]
        self.resumed = True

    def order(self, epoch: int) -> list[tuple]:
        """(track, start) of every chunk of every batch of an epoch, in global order."""
        jitter = self.settings["jitter"]
        if (jitter, epoch) not in self.orders:
            plain = pipelines.train(self.pack, **self.settings, rank=0, world=1)
            found, chunks = plain.batches(epoch), plain.at(epoch).chunks
            rows = list(zip(chunks.track.tolist(), (chunks.predict_start - chunks.prefix).tolist(), strict=True))
            self.orders[jitter, epoch] = [tuple(rows[i] for i in found.ids[a:b])
                                          for a, b in zip(found.offsets, found.offsets[1:], strict=False)]
        return self.orders[jitter, epoch]

    def check(self, batch: dict, number: int) -> None:
        order = self.order(self.epoch)
        read = tuple(zip(batch["tracks"].tolist(), batch["starts"].tolist(), strict=True))
        if number < len(order):
            assert read == order[number] and batch["valid"].all()
        else:
            assert not batch["valid"].any() and not batch["scored"].any()

    def ensure(self) -> None:
        """Iterations, begun where the loaders stand."""
        if self.iterations is None:
            if self.done and not self.resumed:
                self.epoch, self.done = self.epoch + 1, 0
            if self.done >= len(self.order(self.epoch)):
                self.epoch, self.done = self.epoch + 1, 0
            self.resumed = False
            self.iterations = [iter(loader) for loader in self.loaders]

    def take(self) -> bool:
        """One step of all ranks; False at the end of the epoch."""
        self.ensure()
        assert self.iterations is not None
        batches = [next(iteration, None) for iteration in self.iterations]
        if self.done >= len(self.order(self.epoch)):
            assert batches == [None] * len(batches)
            self.epoch, self.done, self.iterations = self.epoch + 1, 0, None
            return False
        for rank, batch in enumerate(batches):
            assert batch is not None
            self.check(batch, self.done + rank)
        self.done = min(self.done + len(batches), len(self.order(self.epoch)))
        self.last = batches[0]
        return True

    # Rules --------------------------------------------------------------------------------------------------------------
    @rule()
    def step(self) -> None:
        self.take()

    @rule(count=st.integers(2, 6))
    def steps(self, count: int) -> None:
        for _ in range(count):
            self.take()

    @rule()
    def finish_the_epoch(self) -> None:
        while self.take():
            pass

    @rule()
    def give_up_the_iteration(self) -> None:
        self.iterations = None

    @rule()
    def save(self) -> None:
        self.saved = json.dumps(self.loaders[-1].state_dict())

    @precondition(lambda self: self.saved is not None)
    @rule()
    def restore(self) -> None:
        self.resume(len(self.loaders), self.saved)

    @precondition(lambda self: self.saved is not None)
    @rule(world=WORLDS)
    def restore_with_other_ranks(self, world: int) -> None:
        self.resume(world, self.saved)

    @rule(world=WORLDS)
    def change_the_world(self, world: int) -> None:
        self.resume(world)

    @rule(threads=st.integers(0, 3))
    def change_threads(self, threads: int) -> None:
        self.means |= {"threads": threads, "processes": 0}
        self.resume(len(self.loaders))

    @rule(prefetch=st.integers(0, 3))
    def change_prefetch(self, prefetch: int) -> None:
        self.means["prefetch"] = prefetch
        self.resume(len(self.loaders))

    @rule(processes=st.integers(1, 2))
    def use_processes(self, processes: int) -> None:
        self.means["processes"] = processes
        self.resume(1)

    @precondition(lambda self: find_spec("torch") is not None)
    @rule()
    def change_the_bridge(self) -> None:
        """The same job goes on with tensors, or without them again."""
        self.torch = not self.torch
        self.resume(len(self.loaders))

    @precondition(lambda self: find_spec("grain") is not None and not self.torch)
    @rule(epoch=EPOCHS, data=st.data())
    def read_through_grain(self, epoch: int, data: st.DataObject) -> None:
        world = data.draw(WORLDS)
        rank = data.draw(st.integers(0, world - 1))
        whole = pipelines.train(self.pack, **self.settings, rank=0, world=1).at(epoch)
        ranked = pipelines.to_grain(whole).repeat(2)[rank::world]
        numbers = [(each, number) for each in (epoch, epoch + 1) for number in range(len(self.order(each)))][rank::world]
        assert len(ranked) == len(numbers)
        step, current = data.draw(st.integers(0, len(numbers) - 1)), self.epoch
        self.epoch, number = numbers[step]
        self.check(ranked[step], number)
        self.epoch = current

    @precondition(lambda self: self.means["processes"])
    @rule(which=st.integers(0, 9))
    def kill_a_worker(self, which: int) -> None:
        self.take()
        for loader in self.loaders:
            if pids := loader.pids:
                with suppress(ProcessLookupError):  # it may be dead already
                    os.kill(pids[which % len(pids)], signal.SIGKILL)

    @rule(epoch=EPOCHS)
    def go_to_an_epoch(self, epoch: int) -> None:
        for loader in self.loaders:
            loader.set_epoch(epoch)
        if not (self.resumed and epoch == self.epoch):
            self.epoch, self.done, self.resumed = epoch, 0, False
        self.iterations = None

    @rule(epoch=EPOCHS, data=st.data())
    def look_at_any_batch(self, epoch: int, data: st.DataObject) -> None:
        loader = data.draw(st.sampled_from(self.loaders)).at(epoch)
        step = data.draw(st.integers(0, len(loader) - 1))
        current, self.epoch = self.epoch, epoch
        self.check(loader[step], step * loader.world + loader.rank)
        self.epoch = current

    @rule()
    def send_to_another_process(self) -> None:
        state = self.loaders[0].state_dict()
        made: list[Any] = [pickle.loads(pickle.dumps(loader)) for loader in self.loaders]
        self.stop()
        self.loaders, self.iterations, self.resumed = made, None, True
        for loader in self.loaders:
            loader.load_state_dict(state)

    @precondition(lambda self: getattr(self, "last", None) is not None)
    @rule()
    def keep_a_batch(self) -> None:
        assert self.last is not None
        arrays = {name: value for name, value in self.last.items() if isinstance(value, np.ndarray)}
        self.kept = [*self.kept[-2:], (arrays, {name: value.copy() for name, value in arrays.items()})]

    @rule()
    def save_at_the_end_of_an_epoch(self) -> None:
        self.ensure()
        while self.done < len(self.order(self.epoch)):
            self.take()
        self.resume(len(self.loaders))

    @rule()
    def refuse_a_state_of_another_plan(self) -> None:
        for change in ({"plan": "0" * 32}, {"seed": 9}, {"batches": 10**6}):
            with pytest.raises(StateError):
                self.loaders[0].load_state_dict({**self.loaders[0].state_dict(), **change})

    @rule()
    def explain(self) -> None:
        assert self.loaders[0].explain()["batches"] == len(self.order(self.loaders[0].epoch))

    # Invariants ---------------------------------------------------------------------------------------------------------
    @invariant()
    def all_ranks_save_the_same(self) -> None:
        states = {json.dumps(loader.state_dict()) for loader in getattr(self, "loaders", [])}
        assert len(states) <= 1
        for state in states:
            assert (json.loads(state)["epoch"], json.loads(state)["batches"]) == (self.epoch, self.done)

    @invariant()
    def kept_batches_stay(self) -> None:
        for arrays, copies in getattr(self, "kept", []):
            assert all(np.array_equal(arrays[name], copies[name]) for name in arrays)


def test_the_stream_is_always_the_pure_order(tmp_path):
    import asdstore
    Loaders.pack = asdstore.open(write(tmp_path / "pack", varied(14)))
    Loaders.orders = {}
    run_state_machine_as_test(Loaders, settings=settings(
        max_examples=300, stateful_step_count=12, deadline=None, suppress_health_check=[HealthCheck.too_slow]))
