from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.chunks import history, starved, tile

EXAMPLES = {201: [0, 100, 201], 251: [0, 126, 251], 450: [0, 150, 300, 450], 607: [0, 152, 304, 455, 607],
            750: [0, 188, 375, 562, 750], 1001: [0, 167, 334, 500, 667, 834, 1001]}
LENGTHS = st.lists(st.integers(0, 3000), max_size=30).map(lambda x: np.array(x, np.int64))
SPANS = st.one_of(st.none(), st.integers(1, 400))


@pytest.mark.parametrize("frames", EXAMPLES)
def test_edges_of_the_reference(frames):
    spans = tile(np.array([frames]), 200)
    assert [*spans.start.tolist(), frames] == EXAMPLES[frames]


def check_tiling(frames: np.ndarray, span: int | None, found) -> None:
    seen = [np.zeros(n, int) for n in frames]
    for track, start, length in zip(*found, strict=True):
        assert length > 0 and (span is None or length <= span)
        seen[track][start:start + length] += 1
    assert all((s == 1).all() for s in seen)
    assert int(found.length.sum()) == int(frames.sum())
    assert (np.diff(found.track) >= 0).all()


@given(LENGTHS, SPANS)
def test_every_frame_is_in_one_chunk(frames, span):
    found = tile(frames, span)
    check_tiling(frames, span, found)
    if span:
        assert len(found.track) == int(np.ceil(frames / span).sum())
        for track in np.unique(found.track):
            own = found.length[found.track == track]
            assert own.max() - own.min() <= 1 + (len(own) > 2)  # near-equal


@given(LENGTHS, SPANS, st.integers(0, 2**32))
def test_moved_cuts_tile_too(frames, span, seed):
    phase = np.random.default_rng(seed).random(len(frames))
    check_tiling(frames, span, tile(frames, span, phase))


@pytest.mark.parametrize("phase", [0.0, np.nextafter(1.0, 0), 1e-12])
def test_extreme_phases(phase):
    frames = np.array([400, 200, 401])
    check_tiling(frames, 200, tile(frames, 200, np.full(3, phase)))


def test_cuts_move_by_the_phase_and_only_in_long_tracks():
    frames = np.array([400, 150])
    assert tile(frames, 200, np.array([0.25, 0.25])).length.tolist() == [50, 200, 150, 150]
    assert tile(frames, 200, np.array([0.75, 0.75])).length.tolist() == [150, 200, 50, 150]


def test_history_ends_at_the_start_of_the_track():
    assert history(np.array([0, 20, 50, 90]), 50).tolist() == [0, 20, 50, 50]


@given(LENGTHS, st.integers(1, 300), st.integers(0, 80), st.integers(0, 80))
def test_starved_frames_as_counted_one_by_one(frames, span, context, wanted):
    spans = tile(frames, span)
    before = history(spans.start, context)
    expected = [0, 0]
    for start, length, prefix in zip(spans.start - before, spans.length + before, before, strict=True):
        expected[int(start > 0)] += sum(k < wanted for k in range(prefix, length))
    assert starved(spans.start - before, spans.length + before, before, wanted) == tuple(expected)


@given(LENGTHS, st.integers(1, 300), st.integers(0, 80))
def test_a_prefix_ends_starvation_at_chunk_starts(frames, span, context):
    spans = tile(frames, span)
    before = history(spans.start, context)
    assert starved(spans.start - before, spans.length + before, before, context)[1] == 0
