"""The JAX bridge: device arrays, few shapes, and global arrays over processes."""
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipelines
from asdstore.errors import InputError, StateError
from tests.pipelines.launch import free_port, run_ranks
from tests.pipelines.made import SETTINGS, flat, ids

jax = pytest.importorskip("jax")
pytestmark = pytest.mark.filterwarnings("ignore:.*shorter than one frame")


def settings(**more: Any) -> dict[str, Any]:
    return {**SETTINGS, **more}


def same(batch: dict, other: dict) -> bool:
    """A batch of device arrays and one of numpy's."""
    return batch.keys() == other.keys() and all(np.array_equal(np.asarray(value), other[name]) for name, value in batch.items())


def bounded(pack):
    return pipelines.train(pack, **SETTINGS, shapes=3)


def test_arrays_are_those_of_the_bounded_loader(pack):
    bridge = pipelines.to_jax(pipelines.train(pack, **SETTINGS), shapes=3)
    loader = bounded(pack)
    for epoch in range(2):
        read = list(bridge)
        assert len(read) == len(loader) and all(same(batch, loader.at(epoch)[step]) for step, batch in enumerate(read))
    assert bridge.state_dict() == {**loader.state_dict(), "epoch": 2}


def test_what_a_batch_holds(pack):
    batch = pipelines.to_jax(pipelines.train(pack, **SETTINGS, audio="int16"))[0]
    kinds = {name: str(value.dtype) for name, value in batch.items() if isinstance(value, jax.Array)}
    assert kinds == {"faces": "uint8", "audio": "int16", "labels": "float32", "scored": "bool", "valid": "bool",
                     **dict.fromkeys(("lengths", "starts", "prefix", "tracks"), "int32"),
                     **dict.fromkeys(("audio_mean", "audio_gain"), "float32")}
    assert batch["sample_ids"].dtype.kind == "U" and type(batch["scored_in_step"]) is int


def test_shapes_are_few_by_default_and_a_program_is_compiled_once_for_each(pack):
    traced = []

    @jax.jit
    def program(faces, scored):
        traced.append(faces.shape)
        return faces.sum(), scored.sum()

    bridge = pipelines.to_jax(pipelines.train(pack, **settings(frame_budget=300, min_batch=1, group=1)))
    for _ in range(3):
        for batch in bridge:
            program(batch["faces"], batch["scored"])
    assert 1 < len(traced) == len(set(traced)) <= 16


def test_shapes_that_are_bounded_already_or_left_alone(pack):
    five = pipelines.train(pack, **SETTINGS, shapes=5)
    assert pipelines.to_jax(five).state_dict() == five.state_dict()
    loader = pipelines.train(pack, **SETTINGS)
    assert [ids(batch) for batch in pipelines.to_jax(loader, shapes=None)] == flat(loader, 0)
    evaluated = pipelines.evaluate(pack)
    assert [ids(batch) for batch in pipelines.to_jax(evaluated)] == [ids(batch) for batch in evaluated]
    padded = pipelines.to_jax(pipelines.evaluate(pack, frame_budget=600), shapes=2)
    assert len({batch["scored"].shape[1] for batch in padded}) <= 2
    seen = [name for batch in padded.at(0) for name in batch["sample_ids"][np.asarray(batch["valid"])]]
    assert sorted(seen) == sorted(track.id for track in pack)


def test_batches_that_are_kept_stay_right(pack):
    bridge = pipelines.to_jax(pipelines.train(pack, **settings(threads=2, prefetch=3)), shapes=3)
    kept = [batch["faces"] for batch in bridge]
    list(bridge)
    assert all(np.array_equal(faces, bounded(pack)[step]["faces"]) for step, faces in enumerate(kept))


def test_memory_is_used_again(pack):
    bridge, buffers = pipelines.to_jax(pipelines.train(pack, **SETTINGS), shapes=3), []
    for _ in range(4):
        for batch in bridge:
            batch["faces"].block_until_ready()
            del batch
        buffers.append(len(bridge.recipe._pool._buffers))
    assert buffers[-1] <= buffers[0] + 1 <= 8


def test_state_goes_on_exactly(pack):
    bridge = pipelines.to_jax(pipelines.train(pack, **SETTINGS), shapes=3)
    bridge.set_epoch(1)
    iteration = iter(bridge)
    read = [ids(next(iteration)) for _ in range(2)]
    state = json.loads(json.dumps(bridge.state_dict()))
    assert read == [ids(batch) for batch in bounded(pack).at(1)][:2] and state["batches"] == 2
    again = pipelines.to_jax(pipelines.train(pack, **SETTINGS, shapes=3))
    again.load_state_dict(state)
    assert [ids(batch) for batch in again] == [ids(batch) for batch in bounded(pack).at(1)][2:]
    with pytest.raises(StateError):
        pipelines.to_jax(pipelines.train(pack, **SETTINGS), shapes=4).load_state_dict(state)


def test_a_sharding_of_one_process(pack):
    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    bridge = pipelines.to_jax(pipelines.train(pack, **SETTINGS), shapes=3, sharding=sharding)
    assert all(same(batch, bounded(pack)[step]) for step, batch in enumerate(bridge))
    with pytest.raises(InputError) as error:
        pipelines.to_jax(pipelines.train(pack, **SETTINGS, rank=1, world=2), sharding=sharding)
    assert error.value.kind == "world"


def test_a_loader_that_has_begun_is_not_planned_anew(pack):
    loader = pipelines.train(pack, **SETTINGS)
    next(iter(loader))
    with pytest.raises(InputError) as error:
        pipelines.to_jax(loader)
    assert error.value.kind == "loader" and "shapes=None" in str(error.value)
    assert [ids(batch) for batch in pipelines.to_jax(loader, shapes=None)] == flat(loader, 1)


@pytest.mark.parametrize("given", [None, "pack", {}])
def test_what_is_no_loader(given):
    with pytest.raises(InputError):
        pipelines.to_jax(given)


def test_two_processes_share_global_arrays(pack, tmp_path: Path):
    from tests.pipelines.jax_ranks import SHAPES

    world = 2
    found = run_ranks("jax_ranks.py", world, tmp_path, pack.paths[0], free_port())
    assert [each["rank"] for each in found] == [[rank, world] for rank in range(world)]
    loaders = [pipelines.train(pack, **SHAPES, rank=rank, world=world) for rank in range(world)]
    expected = [step for epoch in range(2) for step in zip(*(loader.at(epoch) for loader in loaders), strict=True)]
    assert len(found[0]["steps"]) == len(found[1]["steps"]) == len(expected) > 8
    for number, batches in enumerate(expected):
        steps = [each["steps"][number] for each in found]
        assert steps[0]["sums"] == steps[1]["sums"] and steps[0]["shape"] == steps[1]["shape"] and steps[0]["devices"] == 4
        for step, batch in zip(steps, batches, strict=True):  # a process holds the rows of its own rank
            rows = len(batch["starts"])
            assert step["ids"][:rows] == batch["sample_ids"].tolist() and step["starts"][:rows] == batch["starts"].tolist()
            assert not any(step["ids"][rows:]) and step["rows"] * 4 == step["shape"][0]
            assert step["scored"] == steps[0]["sums"]["scored"]
        assert steps[0]["sums"] == pytest.approx(expected_sums(batches), rel=1e-5)
    assert 1 < found[0]["compiled"] <= SHAPES["shapes"] and found[0]["state"] == found[1]["state"]
    assert [each["refused"] for each in found] == [["world", "group", "world"]] * 2
    names = [name for each in found for ids, _ in each["tracks"] for name in ids if name]
    assert set(names) == {track.id for track in pack}
    assert sum(scored for _, scored in found[0]["tracks"]) == pipelines.evaluate(pack).explain()["scored_frames"]


def expected_sums(batches: tuple) -> dict[str, float]:
    totals: dict[str, float] = {}
    for batch in batches:
        scored = batch["scored"]
        faces, audio = batch["faces"].astype(np.float64).mean((2, 3)), np.abs(batch["audio"]).reshape(*scored.shape, -1).mean(2)
        parts = {"scored": scored, "labels": batch["labels"] * scored, "faces": faces * scored, "audio": audio * scored,
                 "starts": batch["starts"], "valid": batch["valid"]}
        totals = {name: totals.get(name, 0.0) + float(value.sum()) for name, value in parts.items()}
    return totals
