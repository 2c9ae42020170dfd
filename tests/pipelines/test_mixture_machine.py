"""A machine of mixture loaders, one for each rank, that steps, saves, restores, changes its size and its means.

Whatever happens, what the ranks read next is what the pure order of the blocks says.
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
from pipelines.speech_source import SpeechRecipe
from tests.pipelines.made_speech import Spoken

WORLDS, EPOCHS = st.integers(1, 4), st.sampled_from([0, 1, 2, 1000, 2**31])


class Loaders(RuleBasedStateMachine):
    """`epoch` and `done` are what the machine expects of every loader; `orders` is the pure order of each block."""

    spoken: Spoken
    orders: dict[tuple[str, int], list[list[int]]] = {}

    @initialize(world=WORLDS, source=st.sampled_from(["packs", "own", "foreign"]))
    def begin(self, world: int, source: str) -> None:
        self.source = source
        self.settings: dict[str, Any] = {"block": 40, "sample_budget": 20_000, "group": 3, "normalize": "scale"}
        self.means: dict[str, Any] = {"threads": 0, "prefetch": 2, "processes": 0}
        self.epoch = self.done = 0
        self.torch = self.resumed = False
        self.saved: str | None = None
        self.kept: list[tuple[np.ndarray, np.ndarray]] = []
        self.start(world)

    def make(self, rank: int, world: int, **means: Any) -> Any:
        return pipelines.mixture(self.spoken.sources()[self.source], **self.settings, **means, rank=rank, world=world)

    def start(self, world: int) -> None:
        """A new job of `world` ranks."""
        self.stop()
        loaders = [self.make(rank, world, **self.means, start_method="fork") for rank in range(world)]
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
        self.epoch, self.done, self.resumed = json.loads(state)["epoch"], json.loads(state)["batches"], True

    def order(self, epoch: int) -> list[list[int]]:
        """The draws of every batch of a block, in global order, made by nothing but the plan."""
        if (self.source, epoch) not in self.orders:
            plain = self.make(0, 1).at(epoch)
            found = plain.batches()
            self.orders[self.source, epoch] = [plain.chunks.draw[found.ids[a:b]].tolist()
                                               for a, b in zip(found.offsets, found.offsets[1:], strict=False)]
            drawn = plain.chunks.draw
            assert sorted(drawn.tolist()) == list(range(epoch * 40, epoch * 40 + 40))
        return self.orders[self.source, epoch]

    def check(self, batch: dict, number: int) -> None:
        order, valid = self.order(self.epoch), np.asarray(batch["valid"])
        if number < len(order):
            assert valid.all() and batch["draws"].tolist() == order[number]
        else:
            assert not valid.any()

    def ensure(self) -> None:
        """Iterations, begun where the loaders stand."""
        if self.iterations is None:
            if (self.done and not self.resumed) or self.done >= len(self.order(self.epoch)):
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
    @rule(count=st.integers(1, 5))
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
    @rule(world=WORLDS)
    def restore(self, world: int) -> None:
        self.resume(world, self.saved)

    @rule(world=WORLDS, threads=st.integers(0, 4), prefetch=st.integers(0, 3))
    def change_ranks_and_threads(self, world: int, threads: int, prefetch: int) -> None:
        self.means = {"threads": threads, "prefetch": prefetch, "processes": 0}
        self.resume(world)

    @rule()
    def use_a_process(self) -> None:
        self.means["processes"] = 1
        self.resume(1)

    @precondition(lambda self: self.means["processes"])
    @rule()
    def kill_a_worker(self) -> None:
        self.take()
        for loader in self.loaders:
            for pid in loader.pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    @precondition(lambda self: find_spec("torch") is not None)
    @rule()
    def change_the_bridge(self) -> None:
        self.torch = not self.torch
        self.resume(len(self.loaders))

    @precondition(lambda self: find_spec("grain") is not None)
    @rule(epoch=EPOCHS, world=WORLDS, data=st.data())
    def read_through_grain(self, epoch: int, world: int, data: st.DataObject) -> None:
        rank = data.draw(st.integers(0, world - 1))
        ranked = pipelines.to_grain(self.make(0, 1).at(epoch)).repeat(2)[rank::world]
        numbers = [(each, number) for each in (epoch, epoch + 1) for number in range(len(self.order(each)))][rank::world]
        assert len(ranked) == len(numbers)
        step, current = data.draw(st.integers(0, len(numbers) - 1)), self.epoch
        self.epoch, number = numbers[step]
        self.check(ranked[step], number)
        self.epoch = current

    @rule()
    def explain(self) -> None:
        assert self.loaders[0].explain()["batches"] == len(self.order(self.loaders[0].epoch))

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
        array = np.asarray(self.last["source_seqs"])
        self.kept = [*self.kept[-2:], (array, array.copy())]

    @rule()
    def refuse_a_state_of_another_plan(self) -> None:
        for change in ({"plan": "0" * 32}, {"seed": 9}, {"batches": 10**6}, {"epoch": -1}):
            with pytest.raises(StateError):
                self.loaders[0].load_state_dict({**self.loaders[0].state_dict(), **change})

    # Invariants ---------------------------------------------------------------------------------------------------------
    @invariant()
    def all_ranks_save_the_same(self) -> None:
        states = {json.dumps(loader.state_dict()) for loader in getattr(self, "loaders", [])}
        assert len(states) <= 1
        for state in states:
            assert (json.loads(state)["epoch"], json.loads(state)["batches"]) == (self.epoch, self.done)

    @invariant()
    def kept_batches_stay(self) -> None:
        assert all(np.array_equal(array, copy) for array, copy in getattr(self, "kept", []))


def test_the_stream_is_always_the_pure_order(spoken: Spoken) -> None:
    Loaders.spoken, Loaders.orders = spoken, {}
    run_state_machine_as_test(Loaders, settings=settings(
        max_examples=300, stateful_step_count=12, deadline=None, suppress_health_check=[HealthCheck.too_slow]))


def test_the_machine_sees_a_fault(spoken: Spoken, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same machine fails where the order of a block is not what is read."""
    original = SpeechRecipe.batch

    def partial(self: SpeechRecipe, epoch: int, number: int, pool: Any = None) -> Any:
        return original(self, epoch, number if number != 2 else 1, pool)

    monkeypatch.setattr(SpeechRecipe, "batch", partial)
    Loaders.spoken, Loaders.orders = spoken, {}
    with pytest.raises(AssertionError):
        run_state_machine_as_test(Loaders, settings=settings(
            max_examples=30, stateful_step_count=8, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None))
