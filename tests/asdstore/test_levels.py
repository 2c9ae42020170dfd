"""The level report and the table of a pack: percentiles, gains and what deserves a look, recomputed by plain numpy."""
from __future__ import annotations

import json
import math

import numpy as np
import pytest

import asdstore
from asdstore import levels
from asdstore.levels import PERCENTILES, Look


def columns(**changed: list) -> dict[str, np.ndarray]:
    base = {"dataset": ["ava", "ava", "wasd"], "sample_id": ["a", "b", "c"], "source_fps": [25.0, 50.0, 25.0],
            "source_frames": [100, 100, 50], "audio_mean": [0.0, 0.001, 0.0], "audio_rms": [0.05, 0.06, 0.055],
            "audio_peak": [0.2, 0.3, 0.25], "speaking_ratio": [0.5, 0.25, 0.5]}
    return {key: np.array(values) for key, values in (base | changed).items()}


def looks(**changed: list) -> set[tuple[str, int, tuple[str, ...]]]:
    found = levels.levels(columns(**changed)).looks
    return {(look.what.split(",")[0].split(" (")[0], look.tracks, look.samples) for look in found}


def test_figures_of_each_dataset():
    one, other = levels.levels(columns()).datasets
    assert (one.dataset, one.tracks, one.frames, one.seconds) == ("ava", 2, 200, 6.0)
    assert (other.dataset, other.tracks, other.fps) == ("wasd", 1, {25.0: 1})
    assert one.fps == {25.0: 1, 50.0: 1} and one.speaking == 0.375
    gains = np.minimum(10 ** (-25 / 20) / np.array([0.05, 0.06]), 10)
    for quantity, values in {"rms": [0.05, 0.06], "peak": [0.2, 0.3], "mean": [0, 0.001], "seconds": [4, 2],
                             "gain_db": 20 * np.log10(gains), "normalised_rms": [0.05 * gains[0], 0.06 * gains[1]],
                             "normalised_peak": [0.2 * gains[0], 0.3 * gains[1]], "speaking_ratio": [0.5, 0.25]}.items():
        assert one.spreads[quantity] == pytest.approx([np.percentile(values, p) for p in PERCENTILES])


def test_ordinary_levels_deserve_no_look():
    assert looks() == set()


@pytest.mark.parametrize(("changed", "what"), [
    ({"audio_rms": [0.05, 0, 0.055]}, "silence"), ({"audio_peak": [0.2, 1e-9, 0.25]}, "silence"),
    ({"audio_rms": [0.05, 0.02, 0.055], "audio_peak": [0.2, 0.9, 0.25]}, "gain held by the peak limit of 0.99"),
    ({"audio_rms": [0.05, 0.004, 0.055], "audio_peak": [0.2, 0.01, 0.25]}, "gain held by the cap of +20 dB"),
    ({"audio_mean": [0.0, -0.2, 0.0]}, "large DC"), ({"audio_peak": [0.2, 1.2, 0.25]}, "beyond full scale"),
    ({"speaking_ratio": [0.5, 0.0, 0.5]}, "no frame labelled as speech"),
    ({"speaking_ratio": [0.5, 1.0, 0.5]}, "every frame labelled as speech"),
    ({"source_frames": [100, 1, 50]}, "shorter than one model frame: gives no chunk"),
])
def test_what_deserves_a_look_is_named(changed, what):
    found = looks(**changed)
    assert (what, 1, ("b",)) in found
    assert len(found) <= 2


def test_near_silence_and_examples_are_bounded():
    report = levels.levels(columns(
        dataset=["x"] * 5, sample_id=list("abcde"), audio_rms=[1e-4] * 5, audio_peak=[2e-4] * 5, audio_mean=[0.0] * 5,
        speaking_ratio=[0.5] * 5, source_fps=[25.0] * 5, source_frames=[50] * 5))
    assert Look("x", "near silence (RMS below -60 dBFS)", 5, 1.0, ("a", "b", "c")) in report.looks
    assert "a, b, c ..." in levels.text(report)


def test_corpora_that_differ_after_normalisation():
    far = levels.levels(columns(audio_rms=[0.05, 0.06, 0.001], audio_peak=[0.2, 0.3, 0.9])).looks
    assert [(look.dataset, look.tracks) for look in far if "median normalised RMS" in look.what] == [("wasd", 1)]


def test_golden_packs_equal_a_plain_computation(golden):
    pack = asdstore.open(golden / "packs" / "ava_val_full")
    one = levels.levels(pack.index).datasets[0]
    rms, peak = pack.index["audio_rms"], pack.index["audio_peak"]
    gain = [1.0 if r <= 1e-8 or p <= 1e-8 else min(10 ** (-25 / 20) / r, 10.0, 0.99 / p)
            for r, p in zip(rms, peak, strict=True)]
    assert one.spreads["normalised_rms"] == pytest.approx([np.percentile(rms * np.array(gain), p) for p in PERCENTILES])
    assert one.tracks == 8 and one.frames == 319


def test_any_numbers_give_a_report_that_is_json():
    wild = [math.nan, math.inf, -1.0]
    report = levels.levels(columns(source_fps=[0.0, -5.0, math.nan], audio_mean=wild, audio_rms=wild, audio_peak=wild[::-1],
                                   speaking_ratio=wild, source_frames=[0, -5, 2**62]))
    json.dumps(levels.document(report), allow_nan=False)
    assert "Levels of wasd" in levels.text(report)


def test_describe(make_pack):
    made = make_pack(frames=(30, 12, 1), fps=(25.0, 60.0))
    pack = asdstore.open(made.path)
    lines = pack.describe().splitlines()
    assert lines[0] == str(made.path)
    assert lines[1] == "muvap-asd-mmap 4: faces uint8 112x112, audio int16, labels uint8"
    assert lines[2] == "3 tracks, 0.000 h, sealed"
    assert [line.split() for line in lines[3:]][-1][:4] == ["ava", "3", "43", "0.04"]
    assert not any("shorter" in line for line in lines)
    short = asdstore.open(make_pack("short", frames=(30, 1), fps=(25.0, 60.0)).path)
    assert f"1 track shorter than one model frame: {short[1].id}" in short.describe()
    twice = asdstore.open([made.path, made.path]).describe()
    assert "6 tracks with the sample id of another one" in twice
    (made.path / "seal.json").unlink()
    assert "not sealed: exchanged or altered files cannot be detected" in asdstore.open(made.path).describe()
    assert asdstore.open(made.path)[:0].describe()


def test_a_corpus_of_audio_alone_has_levels_too():
    speech = {key: values for key, values in columns().items() if not key.startswith(("source", "speaking", "dataset"))}
    speech |= {"corpus": np.array(["fleurs", "fleurs", "yodas"]), "audio_samples": np.array([16000, 32000, 8000])}
    report = levels.levels(speech)
    one, other = report.datasets
    assert (one.dataset, one.tracks, one.seconds, one.frames, one.speaking, one.fps) == ("fleurs", 2, 3.0, None, None, {})
    assert other.seconds == 0.5 and one.spreads["seconds"][-1] == 2.0 and "fps" not in one.spreads
    assert levels.text(report).startswith("Levels of fleurs: 2 tracks, 0.001 h\n")
    json.dumps(levels.document(report), allow_nan=False)
