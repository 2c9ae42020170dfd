"""Log-mel features as Kaldi computes them: 25 ms every 10 ms, 80 bands from 20 Hz to 8 kHz, Povey window, no dither."""
from __future__ import annotations

from functools import cache

import numpy as np

from spec.layout import SAMPLE_RATE

FRAME, SHIFT, BANDS = 400, 160, 80  # samples at 16 kHz; bands
_FFT, _LOWEST, _PREEMPHASIS = 512, 20.0, 0.97
_FULL_SCALE = np.float32(1 << 15)  # Kaldi's waveforms are on 16 bits
_FLOOR = np.finfo(np.float32).eps
_ROWS = 1024  # frames transformed at a time


def frame_count(samples: int) -> int:
    """Frames of so many samples; only whole ones count.

    >>> [frame_count(n) for n in (399, 400, 559, 560)]
    [0, 1, 1, 2]
    """
    return max((samples - FRAME) // SHIFT + 1, 0)


def log_mel(samples: np.ndarray) -> np.ndarray:
    """float32 [frames, 80] of float32 [samples] on full scale 1, at 16 kHz.

    Source: kaldi-native-fbank's defaults with dither 0, snip_edges and 80 bins.
    """
    frames = frame_count(len(samples))
    found = np.empty((frames, BANDS), np.float32)
    if not frames:
        return found
    windows = np.lib.stride_tricks.sliding_window_view(samples, FRAME)[::SHIFT]
    for start in range(0, frames, _ROWS):
        part = windows[start:start + _ROWS] * _FULL_SCALE
        part -= np.cumsum(part, axis=1)[:, -1:] / np.float32(FRAME)  # one after the other, as Kaldi adds them
        part[:, 1:] -= np.float32(_PREEMPHASIS) * part[:, :-1]  # numpy reads all of the right side first
        part[:, 0] *= np.float32(1 - _PREEMPHASIS)
        part *= _window()
        spectrum = np.fft.rfft(part, _FFT)[:, :-1]
        power = (spectrum.real ** 2 + spectrum.imag ** 2).astype(np.float32)
        np.log(np.maximum(power @ _bands(), _FLOOR), out=found[start:start + _ROWS])
    return found


def standardize(features: np.ndarray) -> np.ndarray:
    """Each band with mean 0 and standard deviation 1 over the frames, in place; bands that never change become 0."""
    if not len(features):
        return features
    features -= features.mean(axis=0)
    deviation = features.std(axis=0, ddof=min(1, len(features) - 1))
    features *= np.where(deviation > 1e-6, 1 / np.maximum(deviation, 1e-6), 0).astype(np.float32)
    return features


@cache
def _window() -> np.ndarray:
    return ((0.5 - 0.5 * np.cos(2 * np.pi * np.arange(FRAME) / (FRAME - 1))) ** 0.85).astype(np.float32)


@cache
def _bands() -> np.ndarray:
    """Triangles of equal width in mel: float32 [256, 80]."""
    def mel(hertz: np.ndarray | float) -> np.ndarray:
        return 1127.0 * np.log1p(np.asarray(hertz) / 700.0)

    edges = np.linspace(mel(_LOWEST), mel(SAMPLE_RATE / 2), BANDS + 2)
    at = mel(np.arange(_FFT // 2) * SAMPLE_RATE / _FFT)[:, None]
    rising = (at - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - at) / (edges[2:] - edges[1:-1])
    return np.maximum(0, np.minimum(rising, falling)).astype(np.float32)
