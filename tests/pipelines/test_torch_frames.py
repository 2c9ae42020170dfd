"""Minibatches of frames through the bridges: the same as without one."""
from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pipelines
from asdstore.errors import InputError
from asdstore.formats.pfile import write_pfile
from asdstore.formats.source import Memory


@pytest.fixture
def loader(tmp_path: Path):
    random = np.random.default_rng(0)
    sizes = (40, 7, 53)
    x = [random.standard_normal((n, 4)).astype(np.float32) for n in sizes]
    write_pfile(tmp_path / "a.pfile", Memory(["0", "1", "2"], x, [random.integers(0, 5, n) for n in sizes]))
    return pipelines.frames(f"{tmp_path / 'a.pfile'},context=1,random=true", batch=16)


@pytest.mark.parametrize("bridge", ["to_torch", "to_grain", "to_jax"])
def test_frames_are_the_same_through_every_bridge(loader, bridge):
    pytest.importorskip(bridge.removeprefix("to_"))
    read = list(getattr(pipelines, bridge)(loader))
    assert len(read) == len(loader) == 6
    for batch, expected in zip(read, loader.at(0), strict=True):
        assert batch.keys() == expected.keys() == {"features", "labels"}
        assert all(np.array_equal(np.asarray(batch[name]), value) for name, value in expected.items())


def test_frames_as_global_arrays(loader, tmp_path: Path):
    jax = pytest.importorskip("jax")
    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    assert pipelines.to_jax(loader, sharding=sharding)[0]["features"].shape == (16, 12)
    with pytest.raises(InputError):  # its last batch would have another shape on one rank only
        pipelines.to_jax(pipelines.frames(f"{tmp_path / 'a.pfile'}", batch=16, keep_last=True), sharding=sharding)
