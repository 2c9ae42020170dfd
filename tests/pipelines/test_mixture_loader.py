"""`pipelines.mixture`: what is drawn, in which shares, by which rank, and what a batch holds."""
from __future__ import annotations

import json
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipelines
from asdstore.errors import InputError, StateError
from asdstore.stats import compute_stats
from pipelines.mixture_loader import SpeechLoader
from pipelines.mixture_summary import mixture_weights
from tests.pipelines.made_speech import CORPORA, Spoken, clips, name, numbers, write_foreign

LETTERS = pipelines.Characters("abcdefghij")
SMALL: dict[str, Any] = {"block": 64, "sample_budget": 40_000, "group": 2, "tokenizer": LETTERS}
LARGE: dict[str, Any] = {**SMALL, "block": 256}


def load(spoken: Spoken, source: str = "packs", **settings: Any) -> SpeechLoader:
    return pipelines.mixture(spoken.sources()[source], **{**SMALL, **settings})


def seen(loader: SpeechLoader, epochs: int = 1) -> list[tuple[int, int]]:
    """(clip, draw) of everything that is fed, in order."""
    found: list[tuple[int, int]] = []
    for _ in range(epochs):
        for batch in loader:
            valid = batch["valid"]
            found += zip(numbers(batch["texts"][valid]), batch["draws"][valid].tolist(), strict=True)
    return found


# What a batch holds ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["foreign", "own", "packs"])
def test_a_batch_is_what_the_document_says(spoken: Spoken, source: str) -> None:
    by = {clip.number: clip for clip in spoken.clips}
    ids = set()
    for batch in load(spoken, source, normalize="scale"):
        rows, width = batch["source_seqs"].shape
        assert batch["source_seqs"].dtype == np.float32 and width == batch["source_seq_lens"].max()
        assert batch["target_seqs"].shape == (rows, batch["target_seq_lens"].max()) and batch["scored_in_step"] == rows
        assert {batch[key].dtype.str for key in ("source_seq_lens", "target_seq_lens", "target_seqs", "draws")} == {"<i8"}
        for row, number in enumerate(numbers(batch["texts"])):
            clip, size = by[number], int(batch["source_seq_lens"][row])
            assert (batch["source_seqs"][row, :size] == clip.audio / np.float32(32768)).all()
            assert not batch["source_seqs"][row, size:].any()
            tokens = batch["target_seqs"][row]
            assert LETTERS.decode(tokens[:batch["target_seq_lens"][row]]) == clip.text
            assert not tokens[batch["target_seq_lens"][row]:].any()
            assert (batch["corpora"][row], batch["languages"][row]) == (clip.where[0], clip.where[2])
            assert clip.where[1] == "train"
            ids.add(str(batch["ids"][row]))
    assert len(ids) > 20


@pytest.mark.parametrize("source", ["own", "packs"])
def test_layer_normed_audio_is_what_torch_gives(spoken: Spoken, source: str) -> None:
    torch = pytest.importorskip("torch")
    by = {clip.number: clip for clip in spoken.clips}
    for batch in load(spoken, source):
        for row, number in enumerate(numbers(batch["texts"])):
            wave = torch.from_numpy(by[number].audio / np.float32(32768))
            wanted = torch.nn.functional.layer_norm(wave, wave.shape).numpy()
            assert np.abs(batch["source_seqs"][row, :len(wanted)] - wanted).max() < 1e-4


def test_log_mel_half_precision_and_no_tokenizer(spoken: Spoken) -> None:
    from pipelines.log_mel import log_mel, standardize

    by = {clip.number: clip for clip in spoken.clips}
    batch = next(iter(load(spoken, features="log_mel", dtype="float16", tokenizer=None)))
    assert batch["source_seqs"].dtype == np.float16 and batch["source_seqs"].shape[2] == 80
    assert "target_seqs" not in batch
    for row, number in enumerate(numbers(batch["texts"])):
        wanted = standardize(log_mel(by[number].audio / np.float32(32768)))
        size = int(batch["source_seq_lens"][row])
        assert size == len(wanted) and np.abs(batch["source_seqs"][row, :size] - wanted).max() < 5e-3
        assert not batch["source_seqs"][row, size:].any()


def test_constant_audio_is_zeros(tmp_path: Path) -> None:
    flat = [clip._replace(audio=np.full(3000, 77, np.int16)) for clip in clips({("a", "train", "deu_Latn"): 3})]
    for batch in pipelines.mixture(write_foreign(tmp_path, flat), block=3):
        assert not batch["source_seqs"].any() and (batch["source_seq_lens"] == 3000).all()


def test_sets_of_every_kind_give_the_same_batches(spoken: Spoken) -> None:
    """A pack has the order of the set that it was made from, so the whole stream is alike."""
    own, packs = (list(load(spoken, source)) for source in ("own", "packs"))
    for ours, theirs in zip(own, packs, strict=True):
        assert (ours["texts"] == theirs["texts"]).all() and (ours["draws"] == theirs["draws"]).all()
        assert np.abs(ours["source_seqs"] - theirs["source_seqs"]).max() < 1e-3


def test_types_may_be_those_of_numpy_and_torch(spoken: Spoken) -> None:
    torch = pytest.importorskip("torch")
    plain = load(spoken, dtype="float16").state_dict()
    for given in (np.float16, np.dtype("float16"), torch.float16):
        assert load(spoken, dtype=given).state_dict() == plain
    for given in (np.int16, torch.bfloat16, "bfloat16"):
        with pytest.raises(InputError) as error:
            load(spoken, dtype=given)
        assert error.value.kind == "dtype"


# What is drawn --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["foreign", "packs"])
def test_no_utterance_comes_again_before_its_partition_is_exhausted(spoken: Spoken, source: str) -> None:
    where = {clip.number: clip.where for clip in spoken.clips}
    taken: dict[Any, list[tuple[int, int]]] = {}
    for number, draw in seen(load(spoken, source), epochs=6):
        taken.setdefault(where[number], []).append((draw, number))
    assert set(taken) == {key for key in CORPORA if key[1] == "train"}
    for key, draws in taken.items():
        by_block: dict[int, list[int]] = {}
        for draw, number in draws:
            by_block.setdefault(draw // 64, []).append(number)
        counts: Counter[int] = Counter()
        for numbers_ in by_block.values():
            counts.update(numbers_)
            values = [counts[clip.number] for clip in spoken.clips if clip.where == key]
            assert max(values) - min(values) <= 1  # at every block's end, whatever was drawn is spread evenly
        assert min(values) > 0, "every utterance is reached"


def test_shares_are_the_weights(spoken: Spoken) -> None:
    weights = mixture_weights(compute_stats(spoken.own, per_split=True), split="train")
    counted: Counter[tuple[str, str]] = Counter()
    loader = load(spoken, block=2048, sample_budget=400_000, normalize="scale", min_samples_per_char=0)
    for _ in range(10):
        for batch in loader:
            counted.update(zip(map(str, batch["corpora"]), map(str, batch["languages"]), strict=True))
    total = sum(counted.values())
    assert total == 20480
    for key, weight in weights.items():
        assert abs(counted[key] / total - weight) < 0.01, key


def test_hours_as_the_unit(spoken: Spoken) -> None:
    seconds: Counter[tuple[str, str]] = Counter()
    loader = load(spoken, block=4096, sample_budget=400_000, unit="hours", beta_corpus=0, beta_language=0)
    for batch in loader:
        for corpus, language, size in zip(batch["corpora"], batch["languages"], batch["source_seq_lens"], strict=True):
            seconds[str(corpus), str(language)] += int(size)
    total = sum(seconds.values())
    assert [abs(amount / total - 0.25) < 0.01 for amount in seconds.values()] == [True] * 4
    explained = load(spoken, unit="hours").explain()
    assert explained["unit"] == "hours" and sum(p["weight"] for p in explained["partitions"].values()) == pytest.approx(1)


def test_a_summary_of_another_split_or_with_more_than_is_there(spoken: Spoken, tmp_path: Path) -> None:
    hours = {("mls", "deu_Latn"): 3.0, ("mls", "fra_Latn"): 1.0, ("cv", "deu_Latn"): 1.0, ("cv", "lug_Latn"): 1.0}
    with pytest.warns(UserWarning, match="no utterance here has: far/xyz_Latn"):
        loader = load(spoken, summary={**hours, ("far", "xyz_Latn"): 1.0}, beta_corpus=1, beta_language=1)
    explained = loader.explain()
    assert explained["summary_without_utterances"] == ["far/xyz_Latn"]
    assert explained["partitions"]["mls/deu_Latn"]["weight"] == pytest.approx(0.5)
    for wrong in ({key: hours[key] for key in list(hours)[:3]}, {**hours, ("cv", "lug_Latn"): 0.0}):
        with pytest.raises(InputError, match="none for cv/lug_Latn") as error:
            load(spoken, summary=wrong)
        assert error.value.kind == "summary"
    chosen = load(spoken, summary=hours, languages=["deu_Latn"], corpora=["mls"])  # the others are left out on purpose
    assert set(chosen.explain()["partitions"]) == {"mls/deu_Latn"}
    path = tmp_path / "summary.tsv"
    compute_stats(spoken.own, path)
    assert load(spoken, summary=path).explain()["utterances"] == 62


def test_local_draws_read_row_groups_one_after_the_other(tmp_path: Path) -> None:
    many = clips({("a", "train", "deu_Latn"): 1000}, longest=900)
    source = write_foreign(tmp_path, many, group=100)
    loader = pipelines.mixture(source, block=200, min_samples_per_char=0)
    drawn = loader.chunks.row // 100
    assert len(set(drawn.tolist())) == 2 and sorted(set(np.bincount(drawn).tolist())) == [0, 100]


# Order, ranks, state --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("world", [2, 3])
def test_ranks_share_nothing_and_miss_nothing(spoken: Spoken, world: int) -> None:
    alone = seen(load(spoken, rank=0, world=1), epochs=3)
    each = [seen(load(spoken, rank=rank, world=world), epochs=3) for rank in range(world)]
    assert sorted(sum(each, [])) == sorted(alone) and len({draw for one in each for _, draw in one}) == len(alone)
    lengths = {len(load(spoken, rank=rank, world=world)) for rank in range(world)}
    assert len(lengths) == 1


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("threads", [0, 1, 2, 3, 4])
def test_resume_at_any_step_equals_the_uninterrupted_run(spoken: Spoken, world: int, threads: int) -> None:
    def stream(loader: SpeechLoader, state: dict | None = None) -> list[list[int]]:
        if state is not None:
            loader.load_state_dict(json.loads(json.dumps(state)))
        return [batch["draws"][batch["valid"]].tolist() for _ in range(2) for batch in loader]

    wholes = [stream(load(spoken, rank=rank, world=world)) for rank in range(world)]
    steps = len(load(spoken, rank=0, world=world))
    for stop in range(1, steps + 1):
        first = load(spoken, rank=0, world=world, threads=threads)
        iteration = iter(first)
        for _ in range(stop):
            next(iteration)
        state = first.state_dict()
        for rank in range(world):
            rest = stream(load(spoken, rank=rank, world=world, threads=threads), state)
            second = wholes[rank][stop:]
            assert rest[:len(second)] == second


def test_another_number_of_ranks_goes_on_where_one_stood(spoken: Spoken) -> None:
    whole = [batch["draws"].tolist() for batch in load(spoken, rank=0, world=1)]
    loader = load(spoken, rank=0, world=2)
    next(iter(loader))
    state = loader.state_dict()
    parts = []
    for rank in range(3):
        other = load(spoken, rank=rank, world=3)
        other.load_state_dict(state)
        parts.append([batch["draws"][batch["valid"]].tolist() for batch in other])
    assert [one for step in zip(*parts, strict=True) for one in step if one] == whole[2:]


def test_a_block_far_ahead_is_made_at_once(spoken: Spoken) -> None:
    loader = load(spoken)
    loader.load_state_dict({**loader.state_dict(), "epoch": 3_000_000_000, "batches": 1})
    batch = next(iter(loader))
    assert batch["draws"].min() >= 64 * 3_000_000_000


def test_states_of_another_plan_are_refused(spoken: Spoken) -> None:
    state = load(spoken).state_dict()
    for other in (load(spoken, block=32), load(spoken, sample_budget=50_000), load(spoken, beta_corpus=0.1),
                  load(spoken, languages=["deu_Latn"]), load(spoken, tokenizer=None), load(spoken, features="log_mel"),
                  load(spoken, min_audio_len=2000), load(spoken, unit="hours"), load(spoken, compat="omnilingual")):
        with pytest.raises(StateError) as error:
            other.load_state_dict(state)
        assert error.value.kind == "plan"
    with pytest.raises(StateError) as error:
        load(spoken, seed=1).load_state_dict(state)
    assert error.value.kind == "seed"
    load(spoken, undecodable="error", threads=0).load_state_dict(state)


def test_seeds_and_epochs_differ_and_the_same_one_repeats(spoken: Spoken) -> None:
    first, again, other = (seen(load(spoken, seed=seed)) for seed in (0, 0, 1))
    assert first == again != other
    assert seen(load(spoken).at(1)) == seen(load(spoken), epochs=2)[len(first):]


def test_processes_make_the_same_batches(spoken: Spoken) -> None:
    plain = seen(load(spoken))
    loader = load(spoken, processes=1, start_method="fork")
    assert seen(loader) == plain
    loader.close()
    again = pickle.loads(pickle.dumps(load(spoken)))
    assert seen(again) == plain and again.state_dict() == load(spoken).at(1).state_dict() | {"epoch": 1}


def test_masks_belong_to_draws_not_to_ranks_or_threads(spoken: Spoken) -> None:
    masked: dict[str, Any] = {"spec_augment": pipelines.SpecAugment(0.7, (20, 80), 80), "normalize": "scale"}
    alone = {draw: batch["source_seqs"][row, :batch["source_seq_lens"][row]].copy() for batch in load(spoken, **masked)
             for row, draw in enumerate(batch["draws"].tolist())}
    plain = {draw: batch["source_seqs"][row, :batch["source_seq_lens"][row]].copy() for batch in load(spoken, normalize="scale")
             for row, draw in enumerate(batch["draws"].tolist())}
    changed = [draw for draw in alone if not np.array_equal(alone[draw], plain[draw])]
    assert 0.4 < len(changed) / len(alone) < 0.95 and {len(alone[d]) == len(plain[d]) for d in alone} == {True}
    for rank in range(2):
        for batch in load(spoken, **masked, rank=rank, world=2, threads=4):
            for row in np.flatnonzero(batch["valid"]).tolist():
                wanted = alone[int(batch["draws"][row])]
                assert np.array_equal(batch["source_seqs"][row, :batch["source_seq_lens"][row]], wanted)


# Batches --------------------------------------------------------------------------------------------------------------------


def test_budget_sizes_and_shapes(spoken: Spoken) -> None:
    for batch in load(spoken, max_batch=5):
        assert batch["source_seqs"].size <= 40_000 and len(batch["texts"]) <= 5
    shapes, draws = set(), []
    loader = load(spoken, shapes=3)
    for _ in range(3):
        for batch in loader:
            shapes.add(batch["source_seqs"].shape)
            draws += batch["draws"][batch["valid"]].tolist()
            assert batch["target_seqs"].shape[1] in (1, 2) and batch["source_seqs"].size <= 40_000
            assert (batch["draws"][~batch["valid"]] == -1).all() and not batch["source_seqs"][~batch["valid"]].any()
    assert len(shapes) <= 3 and sorted(draws) == list(range(192))


def test_the_originals_buckets(spoken: Spoken) -> None:
    buckets = pipelines.Buckets(max_num_elements=40_000, num_seqs_multiple_of=2)
    loader = load(spoken, compat="omnilingual", buckets=buckets, max_audio_len=6000)
    found = [batch["draws"].tolist() for batch in loader]
    assert sorted(sum(found, [])) == list(range(64))
    from pipelines.mixture_buckets import bucketed
    chunks = loader.at(0).chunks
    wanted = bucketed(chunks.samples.tolist(), buckets._replace(max_audio_len=6000))
    assert sorted(sorted(one) for one in found) == sorted(sorted(chunks.draw[one].tolist()) for one in wanted)
    dropped = load(spoken, compat="omnilingual", buckets=buckets._replace(drop_remainder=True), max_audio_len=6000)
    assert dropped.explain()["undrawn"] == 64 - dropped.explain()["draws"] > 0
    wrong: list[dict[str, Any]] = [{"compat": "other"}, {"buckets": buckets}]
    for settings in wrong:
        with pytest.raises(InputError):
            load(spoken, **settings)


# Filters and faults ---------------------------------------------------------------------------------------------------------


def test_filters_are_counted(tmp_path: Path) -> None:
    found = clips({("a", "train", "deu_Latn"): 12}, longest=3000)
    texts = {1: "", 2: "x" * 100, 3: "éé", 4: "zzz", 5: "ab漢"}
    found = [clip._replace(text=texts.get(clip.number, clip.text)) for clip in found]
    found[8] = found[8]._replace(audio=found[8].audio[:100])  # clip 9
    source = write_foreign(tmp_path, found, sizes={7: None})
    base: dict[str, Any] = {"block": 24, "tokenizer": pipelines.Characters("abcdefghijx")}
    loader = pipelines.mixture(source, min_audio_len=200, max_audio_len=2900, **base)
    long = sum(2900 < len(clip.audio) for clip in found)
    assert loader.explain()["left_out"] == {"no audio_size": 1, "too short": 1, "empty text": 1, "unknown tokens only": 2,
                                            "too many characters a second": 1} | ({"too long": long} if long else {})
    assert loader.explain()["utterances"] == 12 - 6 - long
    loose = pipelines.mixture(source, keep_empty=True, keep_unknown=True, min_samples_per_char=0, **base)
    assert loose.explain()["left_out"] == {"no audio_size": 1}
    assert pipelines.mixture(source, max_tokens=1, **base).explain()["left_out"]["too many tokens"] == 4
    tokens = {str(text): row[:size].tolist() for batch in pipelines.mixture(source, remove_unknown=True, **base)
              for text, row, size in zip(batch["texts"], batch["target_seqs"], batch["target_seq_lens"], strict=True)}
    assert tokens["ab漢"] == [2, 3]
    with pytest.raises(InputError, match="too short") as error:
        pipelines.mixture(source, min_audio_len=790_000, **base)
    assert error.value.kind == "empty"


BROKEN: dict[int, bytes | None] = {5: b"fLaC no more", 17: None, 44: b""}


def test_the_lengths_of_buckets_are_fed_unless_others_are_given(spoken: Spoken) -> None:
    buckets = pipelines.Buckets(2000, 5000, 20_000, 1)

    def fed(**lengths: Any) -> tuple[int, int]:
        loader = pipelines.mixture(spoken.packs, compat="omnilingual", buckets=buckets, block=400, **lengths)
        assert loader.recipe.batching.buckets == buckets._replace(**lengths)
        return int(loader.chunks.samples.min()), int(loader.chunks.samples.max())

    samples = [len(clip.audio) for clip in spoken.of()]
    for lengths, least, most in (({}, 2000, 5000), ({"max_audio_len": 4000}, 2000, 4000), ({"min_audio_len": 1}, 1, 5000)):
        among = [n for n in samples if least <= n <= most]
        assert fed(**lengths) == (min(among), max(among))


@pytest.mark.parametrize("processes", [0, 1])
def test_undecodable_clips_are_left_out_and_reported(tmp_path: Path, processes: int) -> None:
    found = clips({key: count for key, count in CORPORA.items() if key[1] == "train"})
    source = write_foreign(tmp_path, found, broken=BROKEN, sizes={60: 4000})
    loader = pipelines.mixture(source, **LARGE, beta_corpus=1, beta_language=1, processes=processes, start_method="fork")
    with pytest.warns(UserWarning, match="4 utterances could not be decoded"):
        fed = [number for number, _ in seen(loader)]
    loader.close()
    bad = {*BROKEN, 60}
    assert not bad & set(fed) and set(fed) == set(range(1, 63)) - bad  # and nothing stands in for them
    drawn = loader.at(0).chunks.row
    of = {clip.number: row for row, clip in enumerate(sorted(found, key=lambda clip: clip.where))}
    assert len(fed) == 256 - int(np.isin(drawn, [of[number] for number in bad]).sum())
    assert loader.explain()["undecodable"] == len(loader.explain()["undecodable_named"]) == 4
    kinds = {fault.kind for fault in loader.recipe.faults.values()}
    assert kinds == {"audio-corrupt", "audio-empty", "audio-size"}
    assert all(fault.sample_id and fault.file for fault in loader.recipe.faults.values())


def test_undecodable_clips_as_an_error(tmp_path: Path) -> None:
    source = write_foreign(tmp_path, clips(), broken=BROKEN)
    with pytest.raises(InputError) as error:
        seen(pipelines.mixture(source, **LARGE, undecodable="error"))
    assert error.value.kind in ("audio-corrupt", "audio-empty")


def test_a_batch_of_which_nothing_decodes_is_one_row_of_silence(tmp_path: Path) -> None:
    found = clips({("a", "train", "deu_Latn"): 3})
    source = write_foreign(tmp_path, found, broken={number: b"nothing" for number in (1, 2, 3)})
    with pytest.warns(UserWarning, match="3 utterances could not"):
        batches = list(pipelines.mixture(source, block=3, group=1, tokenizer=LETTERS))
    for batch in batches:
        assert batch["valid"].tolist() == [False] and not batch["source_seqs"].any() and batch["texts"].tolist() == [""]
        assert batch["target_seqs"].shape == (1, 0) and batch["source_seq_lens"].tolist() == [0]


def test_what_cannot_be_asked_for(spoken: Spoken, pack: Any) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [({"split": "trian"}, "split"), ({"languages": ["deu"]}, "languages"),
        ({"corpora": "mls"}, "corpora"), ({"unit": "minutes"}, "unit"), ({"features": "mfcc"}, "features"), ({"dtype": "int8"},
        "dtype"), ({"normalize": "peak"}, "normalize"), ({"undecodable": "skip"}, "undecodable"), ({"beta_language": -1},
        "beta"), ({"block": 0}, "block"), ({"sample_budget": 5000}, "budget"), ({"sample_budget": 1}, "budget"), ({"min_batch":
        9, "max_batch": 3}, "max_batch"), ({"group": 0}, "group"), ({"shapes": 0}, "shapes"), ({"max_audio_len": 0}, "filter"),
        ({"max_tokens": 0}, "filter"), ({"tokenizer": 3}, "tokenizer"), ({"spec_augment": pipelines.SpecAugment(2.0)},
        "spec_augment"), ({"corpora": ["cv"], "languages": ["fra_Latn"]}, "empty"), ({"block": 2.5}, "block"), ({"split": None},
        "split"), ({"seed": 1.5}, "seed"), ({"max_batch": 2.5}, "max_batch"), ({"sample_budget": "9"}, "budget"),
        ({"group": 1.5}, "group"), ({"spec_augment": 0.5}, "spec_augment")]
    for settings, kind in wrong:
        with pytest.raises(InputError) as error:
            load(spoken, **settings)
        assert error.value.kind == kind, settings
    for sources in (pack, [], 7):
        with pytest.raises(InputError) as error:
            pipelines.mixture(sources)
        assert error.value.kind == "speech"


@pytest.mark.parametrize("tokens", [[1.5], ["a"], None, 3, [[1, 2]]])
def test_tokens_that_are_no_whole_numbers(spoken: Spoken, tokens: Any) -> None:
    with pytest.raises(InputError) as error:
        next(iter(load(spoken, tokenizer=lambda text: tokens)))
    assert error.value.kind == "tokenizer"


def test_texts_of_clips() -> None:
    assert numbers([name(1), name(907)]) == [1, 907]
