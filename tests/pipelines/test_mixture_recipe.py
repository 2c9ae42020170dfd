"""The `dataset:` block of the document's recipes as configuration."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import pipelines
from asdstore.errors import InputError, MissingError
from asdstore.stats import compute_stats
from pipelines.mixture_recipe import asset_data, speech_recipe
from tests.pipelines.made_speech import Spoken, numbers

pytest.importorskip("yaml")
LETTERS = pipelines.Characters("abcdefghij")

# The document's own, "Integration with Training"
CARD = """
name: my_dataset
dataset_family: mixture_parquet_asr_dataset
dataset_config:
  data: {data}
tokenizer_ref: omniASR_tokenizer_v1
"""
RECIPE = """
model:
  name: "omniASR_CTC_300M"
dataset:
  name: "my_dataset"  # Matches asset card
  train_split: "train"
  valid_split: "dev"
  storage_mode: "MIXTURE_PARQUET"
  task_mode: "ASR"
  mixture_parquet_storage_config:
    dataset_summary_path: "{summary}"
    beta_corpus: 0.5
    beta_language: 0.5
    fragment_loading:
      cache: True
  asr_task_config:
    max_audio_len: 6_000
    max_num_elements: 40_000
    normalize_audio: true
    example_shuffle_window: 5000
trainer:
  anything: [1, 2]
"""


def test_the_documents_recipe_and_card(spoken: Spoken, tmp_path: Path) -> None:
    summary, recipe, card = tmp_path / "language_distribution_0.tsv", tmp_path / "config.yaml", tmp_path / "my_dataset.yaml"
    compute_stats(spoken.own, summary)
    recipe.write_text(RECIPE.format(summary=summary))
    card.write_text(CARD.format(data=spoken.own))
    found, data = pipelines.speech_recipe(recipe), asset_data(card)
    loader = found.train(data, tokenizer=LETTERS, block=64, seed=0, group=2)
    same = pipelines.mixture(spoken.own, tokenizer=LETTERS, summary=summary, block=64, sample_budget=40_000, group=2,
                             max_audio_len=6000)
    assert loader.state_dict() == same.state_dict()
    valid = [n for batch in found.valid(data, tokenizer=LETTERS) for n in numbers(batch["texts"])]
    assert sorted(valid) == [clip.number for clip in spoken.of("dev")]
    original = found.train(data, tokenizer=LETTERS, compat="omnilingual", block=64)
    assert all(batch["source_seqs"].size <= 40_000 for batch in original)


def test_every_task_setting_arrives(spoken: Spoken) -> None:
    task = {"use_fbank": True, "spec_aug_p": 0.3, "spec_aug_freq_mask_param": 30, "spec_aug_time_mask_param": 9, "seed": 7,
            "remove_unknown": True, "filter_long_text_threshold": 1, "min_samples_per_char": 0, "min_audio_len": 900,
            "max_audio_len": 5000, "max_num_elements": 20_000}
    loader = speech_recipe({"asr_task_config": task}).train(spoken.packs, tokenizer=LETTERS)
    reading = loader.recipe.reading
    assert (reading.features, reading.remove_unknown, loader.recipe.seed) == ("log_mel", True, 7)
    assert reading.spec_augment == pipelines.SpecAugment(0.3, (20, 30), 9)
    assert loader.recipe.batching.budget == 20_000
    left = loader.explain()["left_out"]
    assert set(left) == {"too short", "too long", "too many tokens"} and left["too many tokens"] > 30
    shares = loader.explain()["partitions"].values()  # without a summary nothing is mixed: all utterances alike
    assert sum(part["weight"] for part in shares) == pytest.approx(1)


@pytest.mark.parametrize("fbank", [False, True])
def test_masks_at_the_original_s_defaults(spoken: Spoken, fbank: bool) -> None:
    task = {"use_fbank": fbank, "spec_aug_p": 1.0}
    loader = speech_recipe({"asr_task_config": task}).train(spoken.packs, tokenizer=LETTERS, block=20)
    for batch in loader:
        assert (batch["source_seqs"] != 0).any()


def test_without_a_summary_all_utterances_are_alike(spoken: Spoken) -> None:
    loader = speech_recipe({}).train(spoken.packs, tokenizer=LETTERS, block=6200, sample_budget=1_000_000)
    counts = pytest.importorskip("numpy").bincount(loader.chunks.row)
    assert counts[counts > 0].min() == 100 == counts.max()


def test_splits_with_a_corpus_and_self_supervision(spoken: Spoken) -> None:
    section = speech_recipe({"train_split": "train_cv", "valid_split": "dev_mls", "task_mode": "SSL"})
    loader = section.train(spoken.packs, block=20)
    batch = next(iter(loader))
    assert set(batch["corpora"]) == {"cv"} and "target_seqs" not in batch
    assert {str(corpus) for batch in section.valid(spoken.packs) for corpus in batch["corpora"]} == {"mls"}
    with pytest.raises(InputError) as error:
        speech_recipe({"valid_split": "dev_other"}).valid(spoken.packs, tokenizer=LETTERS)
    assert error.value.kind == "split"
    with pytest.raises(InputError) as error:
        speech_recipe({}).train(spoken.packs)
    assert error.value.kind == "tokenizer"


WRONG: list[tuple[Any, str]] = [
    ({"trian_split": "x"}, "Did you mean 'train_split'"), ({"train_split": 3}, "str, as train"), ([1], "a mapping"),
    ({"dataset": {"storage_mode": "MANIFEST"}}, "MIXTURE_PARQUET"), ({"task_mode": "TTS"}, "ASR or SSL"),
    ({"mixture_parquet_storage_config": {"beta_corpsu": 1}}, "Did you mean 'beta_corpus'"),
    ({"mixture_parquet_storage_config": {"beta_corpus": "much"}}, "float"),
    ({"mixture_parquet_storage_config": 7}, "a mapping"),
    ({"mixture_parquet_storage_config": {"dataset_summary_path": "x.tsv", "beta_corpus": 1}}, "beta_language"),
    ({"asr_task_config": {"no_padding": True}}, "padded"), ({"asr_task_config": {"max_audio_len": True}}, "int"),
    ({"asr_task_config": {"batching_strategy": "static"}}, "length"), ({"asr_task_config": {"lr": 1}}, "Remove it")]


@pytest.mark.parametrize("given, said", WRONG)
def test_what_is_wrong_is_named(given: Any, said: str, tmp_path: Path) -> None:
    import yaml

    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(given))
    with pytest.raises(InputError, match=said) as error:
        speech_recipe(path)
    assert error.value.kind == "config" and "recipe.yaml" in str(error.value)


def test_files_that_are_no_recipe(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    with pytest.raises(MissingError):
        speech_recipe(path)
    ran = tmp_path / "ran"
    for text in (f"dataset: !!python/object/apply:os.mkdir ['{ran}']", "dataset: [", "\x00\x01", "[" * 5000):
        path.write_text(text)
        with pytest.raises(InputError) as error:
            speech_recipe(path)
        assert error.value.kind == "yaml" and not ran.exists()
    path.write_text("a: 1\n" * 300_000)
    with pytest.raises(InputError, match="at most"):
        speech_recipe(path)
    path.write_text("dataset_config: {}")
    with pytest.raises(InputError, match="data, a path"):
        asset_data(path)
