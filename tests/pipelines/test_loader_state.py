"""Where a loader stands: saved, loaded with any number of ranks, refused where it does not fit."""
from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pipelines
from asdstore.errors import StateError
from tests.pipelines.made import Kind, flat, ids, small

pytestmark = pytest.mark.filterwarnings("ignore:.*shorter than one frame")


@given(epoch=st.integers(0, 3), at=st.integers(0, 200), first=st.integers(1, 5), second=st.integers(1, 5), data=st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_state_goes_on_exactly_with_any_number_of_ranks(pack, epoch, at, first, second, data):
    whole = small(pack, jitter=True, rank=0, world=1)
    order = flat(whole, epoch)
    rank = data.draw(st.integers(0, first - 1))
    loader = small(pack, jitter=True, rank=rank, world=first).at(epoch)
    steps = min(at, len(loader))
    iteration = iter(loader)
    for _ in range(steps):
        next(iteration)
    state = json.loads(json.dumps(loader.state_dict()))
    done = state["batches"]
    assert done == min(steps * first, len(order)) and state["epoch"] == epoch
    rest = []
    for rank in range(second):
        other = small(pack, jitter=True, rank=rank, world=second)
        other.load_state_dict(state)
        rest.append([ids(batch) for batch in other])
    expected = order[done:] or flat(whole, epoch + 1)
    given_out = [rest[i % second][i // second] for i in range(second * len(rest[0]))]
    assert given_out[:len(expected)] == expected
    assert not any(valid for batch in given_out[len(expected):] for _, _, valid in batch)


def test_a_state_is_one_line_and_the_same_on_every_rank(pack):
    states = []
    for rank in range(3):
        loader = small(pack, threads=rank, rank=rank, world=3)
        iteration = iter(loader)
        next(iteration)
        states.append(json.dumps(loader.state_dict()))
    assert len(set(states)) == 1 and "\n" not in states[0] and len(states[0]) < 1000
    assert not any(word in states[0] for word in ("rank", "world", "thread", "worker"))


def test_what_was_prefetched_does_not_count(pack):
    loader = small(pack, threads=2, prefetch=4)
    iteration = iter(loader)
    assert loader.state_dict()["batches"] == 0
    next(iteration)
    assert loader.state_dict()["batches"] == 1


def test_a_loaded_state_survives_set_epoch_of_its_epoch(pack):
    loader = small(pack)
    iteration = iter(loader.at(2))
    del iteration
    state = {**loader.state_dict(), "epoch": 2, "batches": 3}
    loader.load_state_dict(state)
    loader.set_epoch(2)
    assert [ids(batch) for batch in loader] == flat(loader, 2)[3:]
    loader.load_state_dict(state)
    loader.set_epoch(3)
    assert [ids(batch) for batch in loader] == flat(loader, 3)


@pytest.mark.parametrize(("change", "kind"), [
    ({"window": 61}, "plan"), ({"context": 14}, "plan"), ({"frame_budget": 501}, "plan"), ({"group": 12}, "plan"),
    ({"jitter": True}, "plan"), ({"shapes": 4}, "plan"), ({"seed": 1}, "seed"),
    ({"augment": pipelines.augment_faces()}, "plan")])
def test_a_state_of_another_plan_is_refused_and_says_what_changed(pack, change, kind):
    state = small(pack).state_dict()
    with pytest.raises(StateError) as error:
        small(pack, **change).load_state_dict(state)
    assert error.value.kind == kind and error.value.fault.expected != error.value.fault.found


def test_a_state_of_other_packs_is_refused(pack, packed):
    state = small(pack).state_dict()
    with pytest.raises(StateError):
        small(pack, packed([Kind(30)])).load_state_dict(state)


def test_a_state_of_another_filter_of_the_same_name_is_refused(pack):
    def kept(predicate):
        return pipelines.build(pack, pipelines.chain(pipelines.filter(predicate), pipelines.resample(25)))

    state = kept(lambda track: track.fps > 24).state_dict()
    kept(lambda track: track.fps > 24).load_state_dict(state)
    with pytest.raises(StateError) as error:
        kept(lambda track: track.fps < 50).load_state_dict(state)
    assert error.value.kind == "plan" and error.value.fault.expected != error.value.fault.found


@pytest.mark.parametrize("change", [
    {"batches": -1}, {"batches": 10**6}, {"epoch": -1}, {"epoch": "0"}, {"version": 2}, {"version": None}, {"seed": None},
    {"plan": None}, {"batches": 1.0}, {"epoch": True}])
def test_states_that_are_none(pack, change):
    loader = small(pack)
    with pytest.raises(StateError):
        loader.load_state_dict({**loader.state_dict(), **change})
    for state in (None, [], {}, "state"):
        with pytest.raises(StateError):
            loader.load_state_dict(state)  # type: ignore[arg-type]


