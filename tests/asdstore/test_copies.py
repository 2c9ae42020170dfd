"""Copies: numpy and the C part do the same, byte for byte, whatever the sizes and alignments."""
from __future__ import annotations

import numpy as np
import pytest

from asdstore import copies
from asdstore.copies import Copy, Scale, by_numpy

WAYS = [by_numpy, pytest.param(copies.in_c, marks=pytest.mark.skipif(copies.in_c is None, reason="no C compiler built it"))]


def _shifted(shape: tuple[int, ...], dtype: str, shift: int) -> np.ndarray:
    """An array of zeros that begins `shift` items behind an aligned place."""
    size = int(np.prod(shape))
    return np.zeros(size + shift, dtype)[shift:].reshape(shape)


@pytest.mark.parametrize("carry_out", WAYS)
@pytest.mark.parametrize("count", [0, 1, 7, 8, 15, 16, 63, 64, 65, 1000, 1_000_003, 5_000_001])
def test_bytes_are_copied_as_they_are(carry_out, count: int) -> None:
    values = np.random.default_rng(count).integers(0, 256, count + 3, np.uint8)[3:]
    for shift in (0, 1, 9, 16):
        out = _shifted((count + 1,), "u1", shift)
        carry_out([Copy(out[:count], values)])
        np.testing.assert_array_equal(out[:count], values)
        assert out[count] == 0


@pytest.mark.parametrize("carry_out", WAYS)
@pytest.mark.parametrize("count", [0, 1, 3, 8, 9, 1000, 131_073, 1_500_001])
def test_audio_is_scaled_with_two_roundings(carry_out, count: int) -> None:
    values = np.random.default_rng(count).integers(-32768, 32768, count + 1, np.int16)[1:]
    mean, gain = 12.345678, 3.1e-5
    wanted = (values.astype(np.float32) - np.float32(mean)) * np.float32(gain)
    for shift in (0, 1, 3):
        out = _shifted((count + 1,), "f4", shift)
        carry_out([Scale(out[:count], values, mean, gain)])
        assert out[:count].tobytes() == wanted.tobytes()
        assert out[count] == 0


@pytest.mark.parametrize("carry_out", WAYS)
@pytest.mark.parametrize("frames", [1, 6, 700])
def test_frames_are_picked_in_any_order(carry_out, frames: int) -> None:
    draw = np.random.default_rng(frames)
    values = draw.integers(0, 256, (frames, 112, 112), np.uint8)
    picks = draw.integers(0, frames, 2 * frames)
    out = np.zeros((len(picks), 112, 112), np.uint8)
    carry_out([Copy(out, values, picks)])
    np.testing.assert_array_equal(out, values[picks])


@pytest.mark.parametrize("carry_out", WAYS)
def test_all_of_a_list_is_carried_out(carry_out) -> None:
    faces, audio = np.arange(6_000_000, dtype=np.uint32).view(np.uint8), np.arange(-5, 5, dtype=np.int16)
    outs = np.zeros_like(faces), np.zeros(10, np.float32), np.zeros((3, 4), np.uint8), np.zeros(0, np.uint8)
    carry_out([Copy(outs[0], faces), Scale(outs[1], audio, 1.0, 0.5),
               Copy(outs[2], faces[:16].reshape(4, 4), np.array([3, 0, 3])), Copy(outs[3], faces[:0])])
    np.testing.assert_array_equal(outs[0], faces)
    np.testing.assert_array_equal(outs[1], (audio - 1.0) / 2)
    np.testing.assert_array_equal(outs[2], faces[:16].reshape(4, 4)[[3, 0, 3]])


@pytest.mark.skipif(copies.in_c is None, reason="no C compiler built it")
@pytest.mark.parametrize("job", [
    Copy(np.zeros(5, np.uint8), np.zeros(4, np.uint8)), Scale(np.zeros(4, np.float32), np.zeros(5, np.int16), 0, 1),
    Scale(np.zeros(4, np.float64), np.zeros(4, np.int16), 0, 1), Copy(np.zeros((2, 3), np.uint8), np.zeros((2, 3), np.uint8),
                                                                     np.array([0, 2])),
    Copy(np.zeros((2, 3), np.uint8), np.zeros((2, 3), np.uint8), np.array([-1, 0])),
    Copy(np.zeros((2, 3), np.uint8), np.zeros((2, 3), np.uint8), np.array([0, 1], np.int32)),
    Copy(np.zeros(4, np.uint8)[::2], np.zeros(2, np.uint8)), Copy(np.broadcast_to(np.uint8(0), 3), np.zeros(3, np.uint8)),
    (np.zeros(1), np.zeros(1)), 5])
def test_a_job_that_does_not_fit_is_refused_before_anything_is_copied(job) -> None:
    assert copies.in_c is not None
    first = np.zeros(3, np.uint8)
    with pytest.raises((ValueError, TypeError, BufferError)):
        copies.in_c([Copy(first, np.ones(3, np.uint8)), job])
    assert not first.any()


@pytest.mark.skipif(copies.in_c is None, reason="no C compiler built it")
def test_nothing_is_kept_of_what_was_copied() -> None:
    import sys

    assert copies.in_c is not None
    out, values = np.zeros(100, np.uint8), np.ones(100, np.uint8)
    before = sys.getrefcount(out), sys.getrefcount(values)
    for _ in range(100):
        copies.in_c([Copy(out, values)])
        with pytest.raises(ValueError):
            copies.in_c([Copy(out, values), Copy(out, values[1:])])
    assert (sys.getrefcount(out), sys.getrefcount(values)) == before


def test_what_is_not_a_list_is_refused() -> None:
    if copies.in_c is not None:
        with pytest.raises(TypeError):
            copies.in_c(7)
