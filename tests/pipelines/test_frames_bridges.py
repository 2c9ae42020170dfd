"""Frames through the bridges: the same minibatches in the same order, resumed and shared among ranks."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipelines
from asdstore.formats.pfile import write_pfile
from asdstore.formats.source import Memory

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def spec(tmp_path: Path) -> str:
    draw = np.random.default_rng(0)
    lengths = [70, 1, 90, 33]
    write_pfile(tmp_path / "a.pfile", Memory(list("abcd"), [draw.normal(size=(n, 3)).astype(np.float32) for n in lengths],
                                             [draw.integers(0, 5, n) for n in lengths]))
    return f"{tmp_path}/a.pfile,context=2,random=true,ignore-label=4"


def plain(spec: str, epoch: int = 0, **given: Any) -> list[np.ndarray]:
    return [batch["features"] for batch in pipelines.frames(spec, batch=10, **given).at(epoch)]


def test_torch(spec):
    torch = pytest.importorskip("torch")
    loader = pipelines.to_torch(pipelines.frames(spec, batch=10))
    found = []
    for number, batch in enumerate(loader):
        found.append(batch["features"].numpy())
        assert batch["features"].dtype == torch.float32 and batch["labels"].dtype == torch.int32
        if number == 2:
            state = loader.state_dict()
    assert all(map(np.array_equal, found, plain(spec))) and len(found) == len(plain(spec))
    resumed = pipelines.to_torch(pipelines.frames(spec, batch=10))
    resumed.load_state_dict(state)
    assert all(map(np.array_equal, [b["features"].numpy() for b in resumed], found[3:]))
    assert all(map(np.array_equal, [b["features"].numpy() for b in resumed], plain(spec, epoch=1)))


def test_grain(spec):
    pytest.importorskip("grain")
    dataset = pipelines.to_grain(pipelines.frames(spec, batch=10)).repeat(2)
    expected = plain(spec) + plain(spec, epoch=1)
    assert len(dataset) == len(expected)
    for r in range(3):
        assert all(np.array_equal(a["features"], b) for a, b in zip(dataset[r::3], expected[r::3], strict=True))


def test_jax(spec):
    jax = pytest.importorskip("jax")
    found = list(pipelines.to_jax(pipelines.frames(spec, batch=10)))
    assert isinstance(found[0]["features"], jax.Array)
    assert all(np.array_equal(batch["features"], other) for batch, other in zip(found, plain(spec), strict=True))
    with_state = pipelines.to_jax(pipelines.frames(spec, batch=10))
    next(iter(with_state))
    assert with_state.state_dict()["batches"] == 1


def test_fillers_of_ranks_say_that_they_are(spec):
    pytest.importorskip("torch")
    count = len(plain(spec))
    world = count - 1  # the last step has one batch and fillers
    steps = [list(pipelines.to_torch(pipelines.frames(spec, batch=10, rank=r, world=world))) for r in range(world)]
    assert {len(s) for s in steps} == {2}
    assert [bool(s[1]["valid"].all()) for s in steps] == [True] + [False] * (world - 1)
    assert all(s[1]["scored_in_step"] == 10 for s in steps)
