"""SpecAugment keeps lengths and respects every parameter."""
from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asdstore.errors import InputError
from pipelines.keys import Key
from pipelines.spec_augment import SpecAugment, _inverse, _spectrum


@given(st.integers(1, 5000))
def test_a_waveform_survives_its_spectrum_in_full_length(size: int) -> None:
    samples = np.random.default_rng(size).normal(0, 0.1, size).astype(np.float32)
    again = _inverse(_spectrum(samples), size)
    assert len(again) == size and np.abs(again - samples).max() < 1e-3


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32), st.integers(1, 400), st.integers(0, 60), st.integers(0, 19), st.integers(0, 50),
       st.floats(0, 0.9), st.integers(0, 2), st.integers(0, 2))
def test_masks_have_the_widths_that_were_asked_for(seed: int, frames: int, low: int, more: int, time: int, share: float,
                                                     bands: int, stretches: int) -> None:
    augment = SpecAugment(1.0, (low, low + more), time, share, bands, stretches)
    augment.check(80)
    values = np.ones((frames, 80), np.float32)
    augment.features(values, Key.of(seed))
    silent = values == 0
    whole_rows, whole_columns = silent.all(axis=1), silent.all(axis=0)
    assert (silent == (whole_rows[:, None] | whole_columns)).all()
    most = min(time, int(frames * share))
    if stretches and not whole_columns.all():
        assert whole_rows.sum() <= stretches * most
    elif not stretches:
        assert whole_rows.sum() in (0, frames)
    if not whole_rows.all():
        assert whole_columns.sum() <= bands * (low + more)
        assert bands == 0 or whole_columns.sum() >= low
        runs = np.flatnonzero(np.diff(np.concatenate([[False], whole_columns, [False]]).astype(int)) == 1)
        assert len(runs) <= max(bands, 0)


def test_time_is_not_ignored_and_every_width_occurs() -> None:
    augment = SpecAugment(1.0, (0, 0), 7, 0.5)
    seen = set()
    for seed in range(200):
        values = np.ones((100, 80), np.float32)
        augment.features(values, Key.of(seed))
        seen.add(int((values == 0).all(axis=1).sum()))
    assert seen == set(range(8))


def test_a_band_of_a_waveform_falls_silent_and_its_length_stays() -> None:
    noise = np.random.default_rng(0).normal(0, 0.1, 16150).astype(np.float32)
    changed = noise.copy()
    SpecAugment(1.0, (60, 60), 0).waveform(changed, Key.of(5))
    assert changed.shape == noise.shape
    before, after = (np.abs(np.fft.rfft(x)) ** 2 for x in (noise, changed))
    starts = np.arange(0, len(after) - 40, 40)
    ratio = np.add.reduceat(after, starts) / np.add.reduceat(before, starts)
    share = (ratio < 0.1).mean()
    assert abs(share - 60 / 201) < 0.03 and (ratio > 0.9).mean() > 0.6


def test_the_probability_is_that_of_an_utterance() -> None:
    changed = 0
    for seed in range(400):
        values = np.ones((20, 80), np.float32)
        SpecAugment(0.25, (10, 20)).features(values, Key.of(seed))
        changed += bool((values == 0).any())
    assert 60 < changed < 140
    values = np.ones((20, 80), np.float32)
    SpecAugment(0.0).features(values, Key.of(0))
    assert (values == 1).all()


def test_the_same_key_draws_the_same_masks() -> None:
    made = []
    for seed in (1, 1, 2):
        values = np.random.default_rng(0).normal(0, 0.1, 8000).astype(np.float32)
        SpecAugment(1.0).waveform(values, Key.of(seed))
        made.append(values)
    assert (made[0] == made[1]).all() and (made[0] != made[2]).any()


@pytest.mark.parametrize("bins", [201, 80])
def test_what_is_masked_by_default_is_as_large_a_share_of_any_bins(bins: int) -> None:
    SpecAugment().check(bins)
    found = []
    for seed in range(300):
        values = np.ones((100, bins), np.float32)
        SpecAugment(1.0, time=0).features(values, Key.of(seed))
        found.append(int((values == 0).all(axis=0).sum()))
    assert (min(found), max(found)) == ((20, 80) if bins == 201 else (8, 32))


@pytest.mark.parametrize("augment", [
    SpecAugment(1.5), SpecAugment(1.0, (20, 80)), SpecAugment(1.0, (9, 3)), SpecAugment(1.0, (-1, 3)),
    SpecAugment(1.0, (1, 2), -1), SpecAugment(1.0, (1, 2), 1, 1.0), SpecAugment(1.0, (1, 2), bands=-1)])
def test_parameters_that_cannot_hold(augment: SpecAugment) -> None:
    with pytest.raises(InputError) as error:
        augment.check(80)
    assert error.value.kind == "spec_augment"
