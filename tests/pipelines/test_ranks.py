from __future__ import annotations

import os
import socket
import subprocess
import sys
import types

import pytest

import pipelines
from asdstore.errors import InputError
from pipelines.ranks import find_rank


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch):
    for name in ("torch.distributed", "jax"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def initialised(monkeypatch, name: str, rank: int, world: int) -> None:
    """A stand-in for an initialised run; the real ones are started below."""
    module = types.SimpleNamespace(
        is_available=lambda: True, is_initialized=lambda: True, get_rank=lambda: rank, get_world_size=lambda: world,
        distributed=types.SimpleNamespace(is_initialized=lambda: True), process_index=lambda: rank, process_count=lambda: world)
    monkeypatch.setitem(sys.modules, name, module)


def test_given_ranks_are_taken():
    assert find_rank(2, 5, {"WORLD_SIZE": "9"}) == (2, 5)


def test_a_single_process_is_rank_0_of_1():
    for environment in ({}, {"WORLD_SIZE": "1"}, {"SLURM_NTASKS": "1", "PMI_SIZE": ""}):
        assert find_rank(environ=environment) == (0, 1)


@pytest.mark.parametrize("name", ["torch.distributed", "jax"])
def test_an_initialised_run_is_found(monkeypatch, name):
    initialised(monkeypatch, name, 1, 4)
    assert find_rank(environ={"WORLD_SIZE": "4"}) == (1, 4)


def test_two_runs_that_disagree_are_refused(monkeypatch):
    initialised(monkeypatch, "torch.distributed", 1, 4)
    initialised(monkeypatch, "jax", 0, 1)
    with pytest.raises(InputError) as error:
        find_rank(environ={})
    assert error.value.kind == "rank"
    assert find_rank(0, 2) == (0, 2)


@pytest.mark.parametrize("name", ["WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"])
def test_a_launcher_without_an_initialised_run_is_refused(name):
    with pytest.raises(InputError, match=name) as error:
        find_rank(environ={name: "4"})
    assert error.value.kind == "world"


@pytest.mark.parametrize(("rank", "world"), [(1, None), (None, 2), (2, 2), (-1, 2), (0, 0)])
def test_ranks_out_of_range(rank, world):
    with pytest.raises(InputError) as error:
        find_rank(rank, world)
    assert error.value.kind == "rank"


TORCH = """
import sys, torch.distributed as dist, pipelines
rank, world, port, pack = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
loader = pipelines.train(pack, window=60, context=15, frame_budget=500, group=1)
assert (loader.rank, loader.world) == (rank, world)
mine = [[(int(t), int(s)) for t, s, v in zip(b["tracks"], b["starts"], b["valid"]) if v] for b in loader]
gathered = [None] * world
dist.all_gather_object(gathered, (mine, loader.state_dict()))
if rank == 0:
    seen = [chunk for batches, _ in gathered for batch in batches for chunk in batch]
    assert len({len(batches) for batches, _ in gathered}) == 1 and len(seen) == len(set(seen)) == len(loader.at(0).chunks)
    assert all(state == gathered[0][1] for _, state in gathered)
    print("whole")
dist.destroy_process_group()
"""

JAX = """
import sys, jax, pipelines
rank, world, port, pack = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
jax.distributed.initialize(f"127.0.0.1:{port}", world, rank)
loader = pipelines.train(pack, window=60, context=15, frame_budget=500)
assert (loader.rank, loader.world) == (rank, world) and len(list(loader)) == len(loader.at(0))
print("whole")
"""


@pytest.mark.parametrize(("module", "program", "world"), [("torch", TORCH, 2), ("torch", TORCH, 3), ("jax", JAX, 2)])
def test_real_runs(pack, module, program, world):
    pytest.importorskip(module)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": os.getcwd()}
    runs = [subprocess.Popen([sys.executable, "-c", program, str(rank), str(world), str(port), pack.paths[0]], text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) for rank in range(world)]
    outputs = [run.communicate(timeout=120) for run in runs]
    assert all(run.returncode == 0 for run in runs), outputs
    assert "whole" in outputs[0][0]


def test_the_loader_says_which_rank_it_is(pack):
    assert "rank 1 of 4" in repr(pipelines.train(pack, rank=1, world=4))
