"""A mixture in torch, Grain and JAX: the same batches in the same order."""
from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipelines
from asdstore.errors import InputError, StateError
from pipelines.mixture_loader import SpeechLoader
from tests.pipelines.launch import free_port, run_ranks
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


@pytest.mark.filterwarnings("ignore:.*could not be decoded")
def test_two_jax_processes_share_global_arrays(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    from tests.pipelines import jax_speech_ranks as program

    spoken = [clip._replace(text=clip.text * (8 if clip.number % 16 == 0 else 1)) for clip in clips()]  # a few long targets
    world, source = 2, write_foreign(tmp_path / "set", spoken, broken={5: b"no sound"})
    ranks = run_ranks("jax_speech_ranks.py", world, tmp_path / "ranks", source, free_port())
    assert [found["refused"] for found in ranks] == ["group"] * world
    for name in (*program.SETTINGS, "evaluate"):
        assert ranks[0][name]["state"] == ranks[1][name]["state"]
        loaders = [program.load(str(source), name, rank=rank, world=world) for rank in range(world)]
        expected = [step for epoch in range(2) for step in zip(*(loader.at(epoch) for loader in loaders), strict=True)]
        assert len(ranks[0][name]["steps"]) == len(ranks[1][name]["steps"]) == len(expected) > 2
        seen, spread = set(), 0
        for number, batches in enumerate(expected):
            steps = [found[name]["steps"][number] for found in ranks]
            assert steps[0]["shapes"] == steps[1]["shapes"] and steps[0]["sums"] == steps[1]["sums"]
            assert steps[0]["sums"] == pytest.approx(speech_sums(batches), rel=1e-4)
            shapes = steps[0]["shapes"]
            rows, width = shapes["source_seqs"][:2]
            most = max(batch["source_seqs"].shape[1] for batch in batches)
            assert rows % 4 == 0 and {shape[0] for shape in shapes.values()} == {rows} and width >= most
            spread += len({batch["target_seqs"].shape for batch in batches if "target_seqs" in batch}) > 1
            for step, batch in zip(steps, batches, strict=True):  # a process holds the rows of its own rank
                own = len(batch["draws"])
                assert step["draws"][:own] == batch["draws"].tolist() and set(step["draws"][own:]) <= {-1}
                assert step["texts"][:own] == batch["texts"].tolist() and step["in_step"] == batch["scored_in_step"]
            seen.add(tuple(shapes["source_seqs"]))
        assert len(seen) <= 3 or "shapes" not in program.SETTINGS.get(name, {})
        assert spread or name == "no targets", "ranks whose targets differ in length are what this test is for"


def speech_sums(batches: tuple[dict[str, Any], ...]) -> dict[str, float]:
    totals: dict[str, float] = {}
    for batch in batches:
        valid = batch["valid"]
        source = np.abs(batch["source_seqs"].astype(np.float64)).reshape(len(valid), -1).sum(1)
        parts = {"valid": valid, "draws": batch["draws"] * valid, "lengths": batch["source_seq_lens"] * valid,
                 "source": source * valid}
        if "target_seqs" in batch:
            parts["targets"] = (batch["target_seqs"] * (batch["draws"] % 7 + 1)[:, None]).sum(1) * valid
        totals = {name: totals.get(name, 0.0) + float(value.sum()) for name, value in parts.items()}
    return totals


def test_jax_refuses_a_tokenizer_that_samples(spoken: Spoken) -> None:
    jax = pytest.importorskip("jax")
    calls: list[str] = []

    def more_each_time(text: str) -> list[int]:
        calls.append(text)
        return [1] * (len(calls) // 50 + 1)

    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    loader = pipelines.to_jax(load(spoken, tokenizer=more_each_time, block=400, threads=0, prefetch=0), sharding=sharding)
    with pytest.raises(InputError, match="as these texts had before"):
        list(loader)
