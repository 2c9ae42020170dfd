"""The laws of time and level against the tables of the original program, and their own properties."""
from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec import timeline
from spec.errors import InputError


def table(golden: Path, name: str) -> dict:
    return json.loads((golden / "tables" / f"{name}.json").read_text())


def sha256(indices: np.ndarray) -> str:
    assert indices.dtype == np.int64
    return hashlib.sha256(indices.tobytes()).hexdigest()


def test_index_maps_equal_the_original(golden):
    rows = table(golden, "timeline")["rows"]
    assert len(rows) == 1980
    for row in rows:
        args = row["frames"], row["fps"], row["model_fps"]
        assert timeline.model_frame_count(*args) == row["count"], args
        assert sha256(timeline.source_indices(*args)) == row["source_sha256"], args
        assert sha256(timeline.model_indices(*args)) == row["model_sha256"], args


def test_sample_counts_equal_the_original(golden):
    found = table(golden, "audio_samples")
    assert [timeline.audio_sample_count(n, fps) for n, fps, _ in found["rows"]] == [s for *_, s in found["rows"]]
    assert [timeline.start_sample(start) for start, _ in found["start_rows"]] == [s for _, s in found["start_rows"]]
    for frames, fps, samples in found["fit_rows"]:
        edges = timeline.sample_edges(frames, fps)
        assert edges[0] == 0 and edges[-1] == samples, (frames, fps)


def test_gain_equals_the_original(golden):
    found = table(golden, "gain")
    for rms, peak, wanted in found["rows"]:
        assert timeline.gain(rms, peak) == wanted, (rms, peak)
    for *args, wanted in found["other_rows"]:
        assert timeline.gain(*args) == wanted, args
    rms, peak, wanted = np.array(found["rows"]).T
    np.testing.assert_array_equal(timeline.gain(rms, peak), wanted)


def test_pcm_equals_the_original(golden):
    found = table(golden, "pcm16")
    every = np.arange(-32768, 32768).astype(np.int16)
    stored = timeline.pcm16(timeline.pcm_to_float(every))
    assert hashlib.sha256(stored.tobytes()).hexdigest() == found["all_int16_after_read_and_store_sha256"]
    assert (stored == every).sum() == found["unchanged_values"]
    values, pcm, back = np.array(found["floats"]).T
    np.testing.assert_array_equal(timeline.pcm16(values.astype(np.float32)), pcm)
    np.testing.assert_array_equal(timeline.pcm_to_float(pcm.astype(np.int16)), back)


@given(st.integers(0, 3000), st.sampled_from([5.0, 10, 12.5, 15, 23.976, 24, 25, 29.97, 30, 48, 50, 59.94, 60, 120]),
       st.sampled_from([12.5, 25.0, 30.0]))
def test_source_frames_stay_within_half_a_model_frame_of_the_truth(frames, fps, model_fps):
    index = timeline.source_indices(frames, fps, model_fps)
    assert len(index) == timeline.model_frame_count(frames, fps, model_fps)
    assert (np.diff(index) >= 0).all()
    truth = (np.arange(len(index)) + 0.5) / model_fps
    assert ((index / fps <= truth + 1e-9) & (truth <= (index + 1) / fps + 1e-9)).all()
    lifted = timeline.model_indices(frames, fps, model_fps)
    assert len(lifted) == frames and (np.diff(lifted) >= 0).all()


@given(st.integers(0, 5000), st.sampled_from([7.0, 12.5, 23.976, 25.0, 29.97, 30.0, 60.0]))
def test_sample_edges_do_not_drift(frames, model_fps):
    edges = timeline.sample_edges(frames, model_fps)
    assert np.abs(edges - np.arange(frames + 1) / model_fps * 16000).max() <= 0.5 + 1e-6


@pytest.mark.parametrize("frames, fps, model_fps", [
    (-1, 25, 25), (1, 0, 25), (1, -25, 25), (1, float("nan"), 25), (1, float("inf"), 25), (1, 25, 0), (1, 25, float("nan")),
    (10, 1e-300, 25)])
def test_impossible_times_are_refused(frames, fps, model_fps):
    for law in (timeline.model_frame_count, timeline.source_indices, timeline.model_indices):
        with pytest.raises(InputError) as caught:
            law(frames, fps, model_fps)
        assert caught.value.kind == "timeline"


@pytest.mark.parametrize("call", [
    lambda: timeline.audio_sample_count(-1, 25), lambda: timeline.audio_sample_count(1, 1e-300),
    lambda: timeline.start_sample(-0.1), lambda: timeline.start_sample(float("inf")),
    lambda: timeline.sample_edges(-1), lambda: timeline.sample_edges(3, float("nan"))])
def test_impossible_samples_are_refused(call):
    with pytest.raises(InputError) as caught:
        call()
    assert caught.value.kind == "timeline"


def test_silence_gets_no_gain_and_unknown_levels_no_number():
    assert timeline.gain(1e-8, 1) == 1.0 and timeline.gain(1, 0) == 1.0
    assert np.isnan(timeline.gain(float("nan"), .5))


def test_level_is_that_of_the_mean_free_waveform():
    samples = np.random.default_rng(0).uniform(-.2, .7, 9999).astype(np.float32)
    exact = samples.astype(np.float64)
    found = timeline.level(samples)
    assert found.mean == pytest.approx(exact.mean(), abs=1e-12)
    assert found.rms == pytest.approx(np.sqrt(np.mean((exact - exact.mean()) ** 2)), abs=1e-12)
    assert found.peak == pytest.approx(np.abs(exact - exact.mean()).max(), abs=1e-12)


def test_waveforms_that_cannot_be_stored_are_refused():
    with pytest.raises(InputError, match="NaN at sample 2"):
        timeline.pcm16(np.array([0, 1, np.nan], np.float32))
    with pytest.raises(InputError, match="audio-empty"):
        timeline.level(np.zeros(0, np.float32))
    assert timeline.pcm16(np.array([np.inf, -np.inf], np.float32)).tolist() == [32767, -32767]


def test_pcm_leaves_its_input_alone():
    samples = np.array([.25, 2], np.float32)
    timeline.pcm16(samples)
    assert samples.tolist() == [.25, 2]
