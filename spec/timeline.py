"""The laws of time and level: native frames, model frames, samples, gain and PCM, as pure functions.

Everything is float64 (PCM: float32) and evaluated in exactly the order in which it is written here: another order moves some
floors. The laws are those of the `muvap-asd-mmap` format, except `sample_edges`, which has no drift at rates that do not
divide the sample rate.
"""
from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from spec.errors import InputError
from spec.layout import SAMPLE_RATE

MODEL_FPS = 25.0
SILENCE = 1e-8  # at or below this rms or peak nothing is amplified


def _check(frames: int, *rates: float) -> None:
    if frames < 0:
        raise InputError("timeline", expected="a count that is not negative", found=str(frames))
    for rate in rates:
        if not (math.isfinite(rate) and rate > 0):
            raise InputError("timeline", expected="a finite rate above 0", found=str(rate))


def _whole(value: float) -> float:
    """`value`, or an error if it is beyond the integers that float64 holds exactly (an absurd ratio of rates)."""
    if not abs(value) < 2**53:
        raise InputError("timeline", expected="a count below 2**53", found=str(value))
    return value


def model_frame_count(frames: int, fps: float, model_fps: float = MODEL_FPS) -> int:
    """Model frames that `frames` native frames at `fps` give.

    Raises: InputError "timeline" for a negative count or a rate that is not finite and above 0.

    >>> model_frame_count(10, 30), model_frame_count(24, 23.976), model_frame_count(1, 30)
    (8, 25, 0)
    """
    _check(frames, fps, model_fps)
    return math.floor(_whole(frames / fps * model_fps + 1e-9))


def source_indices(frames: int, fps: float, model_fps: float = MODEL_FPS) -> NDArray[np.int64]:
    """Native frame of every model frame: int64 [model_frame_count]. One index for faces and labels.

    Raises: InputError "timeline", as `model_frame_count`.

    >>> source_indices(10, 30).tolist()
    [0, 1, 3, 4, 5, 6, 7, 9]
    """
    centres = np.arange(model_frame_count(frames, fps, model_fps), dtype=np.float64) + 0.5
    return np.clip(np.floor(centres / model_fps * fps), 0, frames - 1).astype(np.int64)


def model_indices(frames: int, fps: float, model_fps: float = MODEL_FPS) -> NDArray[np.int64]:
    """Model frame of every native frame, which lifts predictions back: int64 [frames].

    All zeros where there are no model frames at all. Raises: InputError "timeline", as `model_frame_count`.

    >>> model_indices(10, 30).tolist()
    [0, 1, 2, 2, 3, 4, 5, 6, 7, 7]
    """
    last = max(model_frame_count(frames, fps, model_fps) - 1, 0)
    centres = np.arange(frames, dtype=np.float64) + 0.5
    return np.clip(np.floor(centres / fps * model_fps), 0, last).astype(np.int64)


def audio_sample_count(frames: int, fps: float, rate: int = SAMPLE_RATE) -> int:
    """Audio samples of a track of `frames` native frames, half to even. Raises: InputError "timeline".

    >>> audio_sample_count(607, 25), audio_sample_count(10, 30), audio_sample_count(25, 29.97)
    (388480, 5333, 13347)
    """
    _check(frames, fps, rate)
    return round(_whole(frames / fps * rate))


def start_sample(start_sec: float, rate: int = SAMPLE_RATE) -> int:
    """First sample of a track that starts `start_sec` into its recording, half to even. Raises: InputError "timeline".

    >>> start_sample(0.333)
    5328
    """
    _check(0, rate)
    if not (math.isfinite(start_sec) and start_sec >= 0):
        raise InputError("timeline", expected="a finite start of 0 seconds or later", found=str(start_sec))
    return round(_whole(start_sec * rate))


def sample_edges(model_frames: int, model_fps: float = MODEL_FPS, rate: int = SAMPLE_RATE) -> NDArray[np.int64]:
    """First sample of every model frame, and the end: int64 [model_frames + 1], round(k * rate / model_fps), half to even.

    Frame k owns samples edges[k]:edges[k+1], within half a sample of the truth however long the track is.
    Raises: InputError "timeline".

    >>> sample_edges(3).tolist(), sample_edges(3, model_fps=30).tolist()
    ([0, 640, 1280, 1920], [0, 533, 1067, 1600])
    """
    _check(model_frames, model_fps, rate)
    _whole(model_frames * rate / model_fps)
    return np.rint(np.arange(model_frames + 1, dtype=np.int64) * rate / model_fps).astype(np.int64)


def gain(rms: ArrayLike, peak: ArrayLike, target_dbfs: float = -25.0, max_gain_db: float = 20.0, peak_limit: float = 0.99):
    """Factor that brings `rms` to the target without exceeding the largest gain or the peak limit; 1 for silence.

    `rms` and `peak` are those of the mean-free waveform on full scale 1: two numbers give a float, arrays a float64 array.
    NaN levels give a NaN gain.

    >>> round(gain(.155936, .949194), 6), gain(.001, .01), gain(1e-9, .1)
    (0.360623, 10.0, 1.0)
    """
    rms, peak = np.asarray(rms, np.float64), np.asarray(peak, np.float64)
    with np.errstate(divide="ignore", over="ignore"):
        wanted = np.minimum(np.minimum(10.0 ** (target_dbfs / 20.0) / rms, 10.0 ** (max_gain_db / 20.0)), peak_limit / peak)
    result = np.where((rms <= SILENCE) | (peak <= SILENCE), 1.0, wanted)
    return result if result.ndim else float(result)


def pcm16(samples: NDArray[np.float32]) -> NDArray[np.int16]:
    """Stored PCM of a float32 waveform, same shape: clamp to [-1, 1], times 32767 in float32, half to even.

    Full scale is 32767 here and 32768 in `pcm_to_float`, as the format has it: -32768 is never stored.
    Raises: InputError "audio-nan".

    >>> pcm16(np.float32([1, -1, .5, 1.5, .1, 1.526e-5])).tolist()
    [32767, -32767, 16384, 32767, 3277, 1]
    """
    scaled = np.clip(samples, -1.0, 1.0, dtype=np.float32)
    if np.isnan(scaled).any():
        raise InputError("audio-nan", expected="finite samples", found=f"NaN at sample {int(np.isnan(scaled).argmax())}")
    scaled *= np.float32(32767)
    return np.rint(scaled, out=scaled).astype(np.int16)


def pcm_to_float(samples: NDArray[np.int16]) -> NDArray[np.float32]:
    """Float32 waveform of stored PCM, same shape: divided by 32768.

    >>> pcm_to_float(np.int16([32767, -32767, 16384])).tolist()
    [0.999969482421875, -0.999969482421875, 0.5]
    """
    return samples.astype(np.float32) / np.float32(32768)


def full_scale16(samples: NDArray[np.float32]) -> NDArray[np.int16]:
    """Speech as it is stored, same shape: times 32768, half to even, clamped. It undoes `pcm_to_float`: 16 bits stay 16 bits.

    >>> full_scale16(np.float32([.5, -1, 1, 2])).tolist()
    [16384, -32768, 32767, 32767]
    """
    scaled = samples * np.float32(32768)
    return np.clip(np.rint(scaled, out=scaled), -32768, 32767, out=scaled).astype(np.int16)


class Level(NamedTuple):
    """Level of a waveform on full scale 1; rms and peak are those after the mean is subtracted."""

    mean: float
    rms: float
    peak: float


def level(samples: NDArray[np.float32]) -> Level:
    """Level of a float32 waveform [n], computed in float64. Raises: InputError "audio-empty".

    >>> level(np.float32([.5, 0, 0, .5]))
    Level(mean=0.25, rms=0.25, peak=0.25)
    """
    if not samples.size:
        raise InputError("audio-empty", expected="at least one sample", found="none")
    mean = np.add.reduce(samples, dtype=np.float64) / samples.size  # what ndarray.mean and ndarray.std do, to the last bit
    rest = samples - mean
    rest *= rest
    rms = math.sqrt(np.add.reduce(rest) / samples.size)
    return Level(float(mean), rms, float(max(samples.max() - mean, mean - samples.min())))
