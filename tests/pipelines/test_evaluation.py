"""`pipelines.evaluate`: what the sources hold decides what is evaluated; each utterance once over all ranks."""
from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipelines
from asdstore.errors import InputError
from pipelines import presets
from pipelines.mixture_loader import SpeechLoader
from tests.pipelines.made_speech import Spoken, clips, numbers, write_foreign


def fed(loader: Any) -> list[int]:
    return [number for batch in loader for number in numbers(batch["texts"][batch["valid"]])]


@pytest.mark.parametrize("source", ["foreign", "own", "packs"])
@pytest.mark.parametrize("world", [1, 2, 3, 16])
def test_each_utterance_once_over_all_ranks(spoken: Spoken, source: str, world: int) -> None:
    loaders = [pipelines.evaluate(spoken.sources()[source], split="dev", sample_budget=12_000, rank=rank, world=world)
               for rank in range(world)]
    assert len({len(loader) for loader in loaders}) == 1
    found = sum(map(fed, loaders), [])
    assert sorted(found) == [clip.number for clip in spoken.of("dev")]
    assert fed(loaders[0]) == fed(loaders[0]), "the same in every epoch"


def test_longest_first_and_within_the_budget(spoken: Spoken) -> None:
    sizes = [batch["source_seqs"].shape for batch in pipelines.evaluate(spoken.packs, sample_budget=12_000)]
    assert [width for _, width in sizes] == sorted((width for _, width in sizes), reverse=True)
    assert all(rows * width <= 12_000 or rows == 1 for rows, width in sizes)


def test_languages_corpora_and_what_a_mixture_would_leave_out(spoken: Spoken, tmp_path: Path) -> None:
    assert fed(pipelines.evaluate(spoken.own, languages=["lug_Latn"])) == fed(pipelines.evaluate(spoken.own, corpora=["cv"]))
    assert len(fed(pipelines.evaluate(spoken.own, split="train"))) == 62
    odd = [clip._replace(text="") for clip in clips({("a", "dev", "deu_Latn"): 2})]
    odd[1] = odd[1]._replace(audio=odd[1].audio[:30])
    source = write_foreign(tmp_path, odd, sizes={})
    for features, frames in (("waveform", 30), ("log_mel", 1)):
        (batch,) = pipelines.evaluate(source, features=features)
        assert batch["source_seq_lens"].min() == frames and batch["valid"].all()
    with pytest.raises(InputError, match="dev") as error:
        pipelines.evaluate(spoken.own, split="test")
    assert error.value.kind == "split"


def test_rows_without_a_length_are_said(tmp_path: Path) -> None:
    source = write_foreign(tmp_path, clips({("a", "dev", "deu_Latn"): 4}), sizes={2: None}, broken={3: b"no sound"})
    with pytest.warns(UserWarning, match="no audio_size"):
        loader = pipelines.evaluate(source)
    with pytest.warns(UserWarning, match="1 utterances could not be decoded"):
        assert sorted(fed(loader)) == [1, 4]


def test_packs_of_faces_are_evaluated_as_before(pack: Any, spoken: Spoken) -> None:
    ours, theirs = pipelines.evaluate(pack, frame_budget=500), presets.evaluate(pack, frame_budget=500)
    assert ours.state_dict() == theirs.state_dict() and not isinstance(ours, SpeechLoader)
    assert np.array_equal(ours[0]["tracks"], theirs[0]["tracks"])
    assert isinstance(pipelines.evaluate(*spoken.packs), SpeechLoader)
    with pytest.raises(TypeError):
        pipelines.evaluate(pack, split="dev")
    with pytest.raises(InputError, match="speech"):
        pipelines.evaluate([spoken.packs[0], pack])


def test_every_setting_of_both_is_named_alike() -> None:
    """The names that both take mean the same."""
    from pipelines.mixture_loader import evaluate_speech, mixture
    speech, mixed = (set(inspect.signature(function).parameters) for function in (evaluate_speech, mixture))
    assert speech - {"sources", "running"} <= mixed
