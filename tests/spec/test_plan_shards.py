"""spec.plan: the shards of the original, and the bytes that a track takes."""
from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spec.layout import ASD
from spec.plan import plan_shards, track_bytes


@given(st.lists(st.integers(1, 40), max_size=30), st.integers(1, 50))
def test_plan_is_the_law_of_the_original(sizes: list[int], most: int):
    expected, held, filled = [], [], 0
    for track, size in enumerate(sizes):
        if held and filled + size > most:
            expected.append(held)
            held, filled = [], 0
        held.append(track)
        filled += size
    if held:
        expected.append(held)
    assert [list(part) for part in plan_shards(sizes, most)] == expected


def test_a_track_takes_its_faces_audio_and_labels():
    assert track_bytes(10, 30.0) == 10 * 112 * 112 + 2 * 5333 + 10
    assert track_bytes(10, 30.0, ASD.with_face_shape((3, 5))) == 10 * 15 + 2 * 5333 + 10


def test_edges():
    assert plan_shards([], 10) == []
    assert plan_shards([10, 10], 10) == [range(0, 1), range(1, 2)]
    assert plan_shards([5, 5, 1], 10) == [range(0, 2), range(2, 3)]  # full is not exceeded
    assert plan_shards([99], 10) == [range(0, 1)]
