"""A mixture in torch, Grain and JAX: the same batches in the same order."""
from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

import pipelines
from asdstore.errors import InputError, StateError
from pipelines.mixture_loader import SpeechLoader
from tests.pipelines.made_speech import Spoken, clips, write_foreign

LETTERS = pipelines.Characters("abcdefghij")


def load(spoken: Spoken, **settings: Any) -> SpeechLoader:
    base: dict[str, Any] = {"block": 64, "sample_budget": 40_000, "group": 2, "tokenizer": LETTERS}
    return pipelines.mixture(spoken.packs, **{**base, **settings})


def draws(batches: Iterable[dict[str, Any]]) -> list[list[int]]:
    return [np.asarray(batch["draws"]).tolist() for batch in batches]


def test_torch(spoken: Spoken) -> None:
    torch = pytest.importorskip("torch")
    loader = pipelines.to_torch(load(spoken, seed=3))
    batches = list(loader)
    assert draws(batches) == draws(load(spoken, seed=3))
    batch = batches[0]
    assert batch["source_seqs"].dtype == torch.float32 and batch["target_seqs"].dtype == torch.int64
    assert isinstance(batch["texts"], list) and isinstance(batch["languages"][0], str)
    state = loader.state_dict()
    rest = pipelines.to_torch(load(spoken, seed=3))
    rest.load_state_dict(state)
    assert draws(rest) == draws(load(spoken, seed=3).at(1))


def test_what_could_not_be_decoded_is_known_through_a_bridge(tmp_path: Any) -> None:
    pytest.importorskip("torch")
    source = write_foreign(tmp_path, clips(), broken={5: b"no sound"})
    loader = pipelines.to_torch(pipelines.mixture(source, block=256, beta_corpus=1, beta_language=1))
    with pytest.warns(UserWarning, match="1 utterances could not be decoded"):
        list(loader)
    assert loader.explain()["undecodable"] == 1


def test_grain_counts_blocks_whose_batches_differ_in_number(spoken: Spoken) -> None:
    pytest.importorskip("grain")
    settings: dict[str, Any] = {"block": 31, "group": 1, "sample_budget": 8000}
    counts = [len(load(spoken, **settings).at(epoch)) for epoch in range(8)]
    assert len(set(counts)) > 1
    dataset = pipelines.to_grain(load(spoken, **settings), epochs=8)
    plain = draws(batch for epoch in range(8) for batch in load(spoken, **settings).at(epoch))
    assert len(dataset) == sum(counts) and draws(dataset[i] for i in range(len(dataset))) == plain
    for rank in range(3):  # ranks by slices, as Grain's users write them
        assert draws(dataset[rank::3][i] for i in range(4)) == plain[rank::3][:4]
    iteration = iter(dataset.to_iter_dataset())
    for _ in range(5):
        next(iteration)
    state = iteration.get_state()
    again = iter(pipelines.to_grain(load(spoken, **settings), epochs=8).to_iter_dataset())
    again.set_state(state)
    assert draws([next(again)]) == plain[5:6]
    with pytest.raises(StateError):
        iter(pipelines.to_grain(load(spoken, block=30), epochs=8).to_iter_dataset()).set_state(state)


def test_grain_over_an_evaluation(spoken: Spoken) -> None:
    pytest.importorskip("grain")
    loader = pipelines.evaluate(spoken.packs, sample_budget=12_000)
    dataset = pipelines.to_grain(loader)
    assert draws(dataset[i] for i in range(len(dataset))) == draws(loader)


def test_jax_with_few_shapes(spoken: Spoken) -> None:
    jax = pytest.importorskip("jax")
    loader = pipelines.to_jax(load(spoken, shapes=3))
    shapes, found = set(), []
    for batch in loader:
        assert isinstance(batch["source_seqs"], jax.Array) and isinstance(batch["texts"], np.ndarray)
        shapes.add((batch["source_seqs"].shape, batch["target_seqs"].shape))
        found.append(np.asarray(batch["draws"]).tolist())
    assert len({source for source, _ in shapes}) <= 3 and len(shapes) <= 6
    assert found == draws(load(spoken, shapes=3))
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("rows",))
    with pytest.raises(InputError, match="shapes of all ranks"):
        pipelines.to_jax(load(spoken, shapes=3), sharding=jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("rows")))
