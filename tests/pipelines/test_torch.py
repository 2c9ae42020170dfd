"""The torch bridge: tensors of the same batches, memory that stays valid, and what DataLoaders do with it."""
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
from asdstore.errors import InputError
from tests.pipelines.launch import run_ranks
from tests.pipelines.made import SETTINGS, flat, ids

torch = pytest.importorskip("torch")
from tests.pipelines.torch_ranks import RANKS, Score, loss_sum  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:.*shorter than one frame")


def settings(**more: Any) -> dict[str, Any]:
    return {**SETTINGS, **more}


def names(batch: dict) -> tuple:
    return tuple(zip(batch["sample_ids"], batch["starts"].tolist(), batch["valid"].tolist(), strict=True))


def same(batch: dict, other: dict) -> bool:
    """A batch of tensors and one of arrays."""
    return batch.keys() == other.keys() and all(equal(value, other[name]) for name, value in batch.items())


def equal(value, other) -> bool:
    if isinstance(value, torch.Tensor):
        return np.array_equal(value.numpy(), other) and value.numpy().dtype == other.dtype
    return value == (other.tolist() if isinstance(other, np.ndarray) else other)


@pytest.mark.parametrize("more", [{}, {"audio": "int16"}, {"threads": 3, "prefetch": 3}, {"processes": 1},
                                  {"world": 3, "rank": 2}])
def test_tensors_are_the_arrays(pack, more):
    loader = pipelines.train(pack, **settings(**more), targets=pipelines.projection_targets())
    bridge = pipelines.to_torch(loader)
    for _ in range(2):
        read = list(bridge)
        assert len(read) == len(bridge) == len(loader)
        assert all(same(batch, loader.at(bridge.epoch - 1)[step]) for step, batch in enumerate(read))
    bridge.close()


def test_what_a_batch_holds(pack):
    batch = pipelines.to_torch(pipelines.train(pack, **SETTINGS))[0]
    assert isinstance(batch["sample_ids"], list) and type(batch["sample_ids"][0]) is str
    assert type(batch["scored_in_step"]) is int
    assert batch["faces"].dtype == torch.uint8 and batch["scored"].dtype == torch.bool and batch["lengths"].dtype == torch.int64


def test_a_list_of_batches_is_right_whatever_happens_to_them(pack):
    loader = pipelines.train(pack, **settings(threads=2, prefetch=3))
    bridge = pipelines.to_torch(loader)
    kept = list(bridge)
    for batch in bridge:  # another epoch, each of whose batches is overwritten
        batch["faces"].fill_(7)
        batch["audio"].zero_()
        batch["scored"].fill_(True)
    part = kept[0]["faces"][0]  # of a batch that is gone
    expected = loader.at(0)[0]["faces"][0]
    assert all(same(batch, loader.at(0)[step]) for step, batch in enumerate(kept))
    del kept, batch
    list(bridge)
    assert np.array_equal(part.numpy(), expected)


def test_memory_is_shared_and_used_again(pack):
    bridge = pipelines.to_torch(pipelines.train(pack, **SETTINGS))
    places = set()
    for _ in range(3):
        for batch in bridge:
            places.add(batch["faces"].data_ptr())
            del batch
    assert len(places) <= 4


def backwards(batch: dict) -> dict:
    return {**batch, "reversed": batch["labels"][:, ::-1], "constant": np.broadcast_to(np.float32(3), batch["labels"].shape)}


def test_arrays_that_torch_cannot_take_are_copied(pack):
    loader = pipelines.train(pack, **SETTINGS, augment=pipelines.map(backwards))
    batch = pipelines.to_torch(loader)[0]
    assert torch.equal(batch["reversed"], batch["labels"].flip(1)) and (batch["constant"] == 3).all()
    batch["constant"][0] = 1
    assert batch["constant"].sum() < 3 * batch["constant"].numel()


def test_state_epochs_and_the_sampler_that_trainers_ask_for(pack):
    loader = pipelines.train(pack, **SETTINGS)
    bridge = pipelines.to_torch(loader)
    assert bridge.batch_sampler is None and not isinstance(bridge, torch.utils.data.DataLoader)
    bridge.sampler.set_epoch(2)
    iteration = iter(bridge)
    assert [names(next(iteration)) for _ in range(2)] == flat(loader, 2)[:2]
    state = json.loads(json.dumps(bridge.state_dict()))
    assert state == {**loader.state_dict(), "epoch": 2, "batches": 2}  # the loader itself has not moved
    other = pipelines.to_torch(pipelines.train(pack, **SETTINGS))
    other.load_state_dict(state)
    other.sampler.set_epoch(2)
    assert [names(batch) for batch in other] == flat(loader, 2)[2:]
    assert len(pickle.dumps(bridge)) < 4000


def test_to_ask_for_an_iterator_begins_nothing(pack):
    bridge = pipelines.to_torch(pipelines.train(pack, **SETTINGS))
    state = {**bridge.state_dict(), "epoch": 1, "batches": 3}
    early = iter(bridge)  # as Lightning does, before it loads the state
    bridge.load_state_dict(state)
    for _ in range(3):
        iter(bridge)
    assert bridge.state_dict() == state
    assert names(next(early)) == flat(bridge, 1)[3]


def test_a_bridge_begins_where_the_loader_stands(pack):
    loader = pipelines.train(pack, **SETTINGS)
    loader.load_state_dict({**loader.state_dict(), "epoch": 1, "batches": 4})
    assert [names(batch) for batch in pipelines.to_torch(loader)] == flat(loader, 1)[4:]


@pytest.mark.parametrize("given", [None, [], "pack"])
def test_what_is_no_loader(given):
    with pytest.raises(InputError) as error:
        pipelines.to_torch(given)
    assert error.value.kind == "loader"


def test_a_bridge_is_not_bridged_again(pack):
    with pytest.raises(InputError):
        pipelines.to_torch(pipelines.to_torch(pipelines.train(pack, **SETTINGS)))


# Pinned memory --------------------------------------------------------------------------------------------------------------


def test_pinning_without_an_accelerator_is_said_to_do_nothing(pack, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.warns(UserWarning, match="no effect"):
        bridge = pipelines.to_torch(pipelines.train(pack, **SETTINGS), pin_memory=True)
    assert len(bridge[0]["faces"])


def test_every_tensor_is_pinned(pack, monkeypatch):
    pinned = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: pinned.append(tensor.clone()) or pinned[-1])
    loader = pipelines.train(pack, **SETTINGS)
    batch = pipelines.to_torch(loader, pin_memory=True)[0]
    assert same(batch, loader[0])
    assert {id(v) for v in batch.values() if isinstance(v, torch.Tensor)} == {id(tensor) for tensor in pinned}


# DataLoaders ----------------------------------------------------------------------------------------------------------------


def test_a_dataloader_around_it_adds_nothing(pack):
    loader = pipelines.train(pack, **SETTINGS, rank=1, world=2)
    bridge = pipelines.to_torch(loader)
    around = torch.utils.data.DataLoader(bridge, batch_size=None)
    assert len(around) == len(loader)
    for epoch in range(2):
        assert [names(batch) for batch in around] == [ids(batch) for batch in loader.at(epoch)]
        assert (bridge.epoch, bridge.state_dict()["batches"]) == (epoch + 1, 0)


def test_its_position_is_that_of_the_dataloader(pack):
    bridge = pipelines.to_torch(pipelines.train(pack, **SETTINGS))
    iteration = iter(torch.utils.data.DataLoader(bridge, batch_size=None))
    for _ in range(3):
        next(iteration)
    other = pipelines.to_torch(pipelines.train(pack, **SETTINGS))
    other.load_state_dict(bridge.state_dict())
    assert [names(batch) for batch in torch.utils.data.DataLoader(other, batch_size=None)] == flat(bridge, 0)[3:]


def test_dataloaders_that_would_change_the_order_are_refused(pack):
    bridge = pipelines.to_torch(pipelines.train(pack, **SETTINGS))
    with pytest.raises(ValueError, match="shuffle"):
        torch.utils.data.DataLoader(bridge, batch_size=None, shuffle=True)
    with pytest.raises(ValueError, match="sampler"):
        torch.utils.data.DataLoader(bridge, batch_size=None, sampler=torch.utils.data.DistributedSampler(range(9), 2, 0))
    with pytest.raises(InputError, match="num_workers=0"):
        next(iter(torch.utils.data.DataLoader(bridge, batch_size=None, num_workers=1, multiprocessing_context="spawn")))


@pytest.mark.parametrize("at", [0, 3, 9])
def test_a_stateful_dataloader_goes_on_exactly(pack, at):
    stateful = pytest.importorskip("torchdata.stateful_dataloader")

    def made():
        return stateful.StatefulDataLoader(pipelines.to_torch(pipelines.train(pack, **SETTINGS)), batch_size=None)

    around = made()
    iteration = iter(around)
    for _ in range(at):
        next(iteration)
    state, loader = around.state_dict(), pipelines.train(pack, **SETTINGS)
    again = made()
    again.load_state_dict(state)
    assert len(loader) == 9
    first = 1 if at == 9 else 0  # after the last batch of an epoch the next one begins
    assert [names(batch) for batch in again] == (flat(loader, 0)[at:] or flat(loader, 1))
    assert [names(batch) for batch in again] == flat(loader, first + 1)


# Imports and ranks ----------------------------------------------------------------------------------------------------------


def test_torch_is_imported_when_it_is_used(pack):
    code = (f"import sys, pipelines; loader = pipelines.train({str(pack.paths[0])!r}); next(iter(loader));"
            "frameworks = ('torch', 'jax', 'grain', 'lightning');"
            "assert not [m for m in frameworks if m in sys.modules];"
            "pipelines.to_torch(loader); assert [m for m in frameworks if m in sys.modules] == ['torch']")
    assert subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(("bridge", "package"), [("to_torch", "torch"), ("to_grain", "grain"), ("to_jax", "jax"),
                                                 ("PackedASDDataModule", "lightning")])
def test_what_is_not_installed_is_named(bridge, package):
    code = (f"import sys; sys.modules[{package!r}] = None\nimport pipelines\nfrom asdstore.errors import DependencyError\n"
            f"try:\n    pipelines.{bridge}\nexcept DependencyError as error:\n    print(error)")
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert f"pip install 'asdstore[{package}]'" in said.stdout, said


def test_a_rank_that_was_guessed_too_early_is_refused(pack, monkeypatch):
    loader = pipelines.to_torch(pipelines.train(pack, **SETTINGS))
    given = pipelines.to_torch(pipelines.train(pack, **SETTINGS, rank=0, world=1))
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    with pytest.raises(InputError) as error:
        next(iter(loader))
    assert error.value.kind == "rank" and "rank 0 of 1" in str(error.value)
    next(iter(given))


@pytest.mark.parametrize("world", [2, 3])
def test_ranks_of_torch_distributed(pack, tmp_path: Path, world: int):
    found = run_ranks("torch_ranks.py", world, tmp_path, pack.paths[0])
    assert [each["rank"] for each in found] == [[rank, world] for rank in range(world)]
    orders = [flat(pipelines.train(pack, **RANKS, rank=0, world=1), epoch) for epoch in range(2)]
    assert len(orders[0]) % world  # the last step has fillers
    read = [[tuple(map(tuple, batch)) for batch in each["read"]] for each in found]
    assert len({len(batches) for batches in read}) == 1
    at = 0
    for order in orders:
        steps = -(-len(order) // world)
        given_out = [read[i % world][at + i // world] for i in range(steps * world)]
        assert given_out[:len(order)] == order
        assert not any(valid for batch in given_out[len(order):] for _, _, valid in batch)
        at += steps
    assert len({json.dumps(each["states"]) for each in found}) == 1
    evaluated = [name for each in found for batch in each["evaluated"] for name, _, valid in batch if valid]
    assert sorted(evaluated) == sorted(track.id for track in pack)
    assert len({len(each["evaluated"]) for each in found}) == 1
    check_gradient(pack, world, [each["gradient"] for each in found])


def check_gradient(pack, world: int, found: list) -> None:
    """What DDP left on every rank is the gradient of the mean over all frames that the step scores."""
    model = Score()
    batches = [pipelines.to_torch(pipelines.train(pack, **RANKS, rank=rank, world=world))[0] for rank in range(world)]
    scored = sum(int(batch["scored"].sum()) for batch in batches)
    (torch.stack([loss_sum(model, batch) for batch in batches]).sum() / scored).backward()
    for gradient in found:
        for parameter, values in zip(model.parameters(), gradient, strict=True):
            assert parameter.grad is not None
            assert np.allclose(parameter.grad.flatten(), values, rtol=1e-4, atol=1e-7)
