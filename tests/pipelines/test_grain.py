"""The Grain bridge: epochs, slices for ranks, read options, checkpoints."""
from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipelines
from asdstore.errors import InputError, StateError
from tests.pipelines.launch import REPOSITORY
from tests.pipelines.made import SETTINGS, flat, ids

grain = pytest.importorskip("grain")
pytestmark = pytest.mark.filterwarnings("ignore:.*shorter than one frame")


def order(loader, epochs: int) -> list:
    return [batch for epoch in range(epochs) for batch in flat(loader, epoch)]


@pytest.mark.parametrize("jitter", [False, True])
def test_elements_are_the_batches_of_every_epoch(pack, jitter):
    loader = pipelines.train(pack, **SETTINGS, jitter=jitter, seed=5)
    dataset = pipelines.to_grain(loader, 3)
    expected = order(loader, 3)
    assert len(dataset) == len(expected)
    assert [ids(batch) for batch in dataset] == expected
    assert [ids(dataset[i]) for i in (0, len(dataset) - 1)] == [expected[0], expected[-1]]
    assert ids(dataset[len(dataset)]) == flat(loader, 3)[0]  # beyond its end Grain means later epochs
    batch, same = dataset[1], loader[1]
    assert batch.keys() == same.keys() and all(np.array_equal(value, same[name]) for name, value in batch.items())


class Shorter:
    """Leaves out one more track in each epoch, so that epochs have different numbers of batches."""

    def __call__(self, plan, key):
        return plan.keep(plan.track >= 8 * plan.epoch)


def test_epochs_with_different_numbers_of_batches(pack):
    stages = [pipelines.resample(25), pipelines.Transform(plan=Shorter()), pipelines.chunk(45), pipelines.budget_batch(300)]
    loader = pipelines.build(pack, pipelines.chain(*stages))
    counts = [len(loader.at(epoch)) for epoch in range(3)]
    assert len(set(counts)) == 3
    for dataset in (pipelines.to_grain(loader, 3), pipelines.to_grain(loader).repeat(3)):
        assert len(dataset) == sum(counts) and [ids(batch) for batch in dataset] == order(loader, 3)
    assert ids(pipelines.to_grain(loader, None)[sum(counts[:2])]) == flat(loader, 2)[0]


def test_repeat_is_epochs(pack):
    loader = pipelines.train(pack, **SETTINGS)
    assert [ids(batch) for batch in pipelines.to_grain(loader).repeat(2)] == order(loader, 2)
    endless = pipelines.to_grain(loader).repeat()
    assert len(endless) == sys.maxsize and ids(endless[9 * 7 + 2]) == flat(loader, 7)[2]
    once = pipelines.to_grain(loader)
    twice: dict[str, Any] = {"num_epochs": 2}
    wrong = [(endless, twice), (once[::2], twice), (once, {"num_epochs": 0}), (once, {**twice, "reseed_each_epoch": False})]
    for dataset, arguments in wrong:
        with pytest.raises(InputError, match=r"to_grain\(loader\).repeat\(n\)\[r::W\]"):
            dataset.repeat(**arguments)


@pytest.mark.parametrize("world", [1, 2, 3])
def test_slices_after_repeat_are_ranks(pack, world):
    loader = pipelines.train(pack, **SETTINGS, rank=0, world=1)
    expected = order(loader, 2)
    dataset = pipelines.to_grain(loader).repeat(2)
    read = [[ids(batch) for batch in dataset[rank::world]] for rank in range(world)]
    assert [read[i % world][i // world] for i in range(len(expected))] == expected
    assert all(isinstance(dataset[rank::world], type(dataset)) for rank in range(world))
    assert [ids(batch) for batch in dataset[2:9:3]] == expected[2:9:3]


def test_a_loader_of_a_rank_gives_its_batches(pack):
    loader = pipelines.train(pack, **SETTINGS, rank=1, world=2)
    assert [ids(batch) for batch in pipelines.to_grain(loader, 2)] == [ids(b) for epoch in range(2) for b in loader.at(epoch)]


def test_a_dataset_begins_at_the_epoch_of_its_loader_and_leaves_it_alone(pack):
    loader = pipelines.train(pack, **SETTINGS)
    loader.set_epoch(4)
    dataset = pipelines.to_grain(loader)
    loader.set_epoch(0)
    assert [ids(batch) for batch in dataset] == flat(loader, 4) and loader.state_dict()["epoch"] == 0


def test_few_threads_and_batches_ahead(pack):
    dataset = pipelines.to_grain(pipelines.train(pack, **SETTINGS))
    options = dataset.read_options
    assert (options.num_threads, options.prefetch_buffer_size) == (2, 2)
    assert "num_threads=2, prefetch_buffer_size=2" in str(dataset[1:5].to_iter_dataset())
    own = grain.ReadOptions(num_threads=1, prefetch_buffer_size=3)
    assert "num_threads=1, prefetch_buffer_size=3" in str(dataset.to_iter_dataset(own))
    assert pipelines.to_grain(pipelines.train(pack, **SETTINGS), threads=0).read_options.num_threads == 0


def test_kept_batches_stay_right(pack):
    loader = pipelines.train(pack, **SETTINGS)
    kept = list(pipelines.to_grain(loader, 2))
    for step, batch in enumerate(kept[:9]):
        assert all(np.array_equal(value, loader[step][name]) for name, value in batch.items())


def test_transformations_of_grain_apply(pack):
    dataset = pipelines.to_grain(pipelines.train(pack, **SETTINGS))
    rows = dataset.map(lambda batch: len(batch["valid"])).to_iter_dataset(dataset.read_options)
    assert list(rows) == [len(batch["valid"]) for batch in dataset]


# Checkpoints ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("at", [0, 1, 9, 17, 18])
def test_iterators_are_checkpointed(pack, at, threads):
    loader = pipelines.train(pack, **SETTINGS)
    iteration = iter(pipelines.to_grain(loader, 2))
    for _ in range(at):
        next(iteration)
    state = json.loads(json.dumps(iteration.get_state()))
    assert state["next_index"] == at
    again = iter(pipelines.to_grain(pipelines.train(pack, **SETTINGS), 2, threads=threads))
    next(again)
    again.set_state(state)
    assert [ids(batch) for batch in again] == order(loader, 2)[at:]


def test_another_number_of_ranks_goes_on_where_it_was_left(pack):
    loader = pipelines.train(pack, **SETTINGS, rank=0, world=1)
    dataset = pipelines.to_grain(loader).repeat(2)
    iteration = iter(dataset[0::2])
    for _ in range(3):
        next(iteration)
    state = iteration.get_state()
    state["next_index"] = state["next_index"] * 2 // 3
    read = []
    for rank in range(3):
        again = iter(dataset[rank::3])
        again.set_state(state)
        read.append([ids(batch) for batch in again])
    assert [read[i % 3][i // 3] for i in range(12)] == order(loader, 2)[6:]


@pytest.mark.parametrize(("change", "kind"), [({"window": 61}, "plan"), ({"seed": 1}, "seed")])
def test_a_state_of_another_plan_is_refused(pack, change, kind):
    state = iter(pipelines.to_grain(pipelines.train(pack, **SETTINGS))).get_state()
    with pytest.raises(StateError) as error:
        iter(pipelines.to_grain(pipelines.train(pack, **{**SETTINGS, **change}))).set_state(state)
    assert error.value.kind == kind
    with pytest.raises(StateError):
        iter(pipelines.to_grain(pipelines.train(pack, **SETTINGS))).set_state({"next_index": 1})


# Processes and bad input ----------------------------------------------------------------------------------------------------


def test_datasets_pickle_small(pack):
    dataset = pickle.loads(pickle.dumps(pipelines.to_grain(pipelines.train(pack, **SETTINGS), 2)[1::2]))
    assert [ids(batch) for batch in dataset] == order(dataset.loader, 2)[1::2]
    assert len(pickle.dumps(dataset)) < 8000


def test_processes_of_grain_keep_the_order(pack, tmp_path: Path):
    output = tmp_path / "order.json"
    path = REPOSITORY / "tests" / "pipelines" / "grain_processes.py"
    done = subprocess.run([sys.executable, "-W", "ignore", str(path), str(pack.paths[0]), str(output)], timeout=240,
                          env={"PYTHONPATH": str(REPOSITORY)}, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    expected = [[name for name, _, _ in batch] for batch in order(pipelines.train(pack, **SETTINGS), 2)]
    assert json.loads(output.read_text()) == expected


@pytest.mark.parametrize("change", [{"loader": "pack"}, {"epochs": 0}])
def test_bad_input(pack, change):
    with pytest.raises(InputError):
        pipelines.to_grain(**{"loader": pipelines.train(pack, **SETTINGS), **change})
    with pytest.raises(IndexError):
        pipelines.to_grain(pipelines.train(pack, **SETTINGS))[-1]
