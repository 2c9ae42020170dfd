"""SpecAugment: bands of frequency and stretches of time of an utterance become silent, drawn by a key of its own.

Of log-mel features the masked values become 0, their mean; a waveform goes through its short-time spectrum and back. The
original ignores its time parameter and shortens the waveform; here every parameter holds and lengths stay.
Source: https://arxiv.org/abs/1904.08779 and Omnilingual ASR, whose defaults these are.
"""
from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from asdstore.errors import InputError
from pipelines.keys import Key

_FFT, _HOP = 400, 200  # samples
_BINS = _FFT // 2 + 1
_WIDTHS = (20, 80)  # of the original, in bins


class SpecAugment(NamedTuple):
    """What is masked. Widths are drawn from least to most, both included; a mask lies anywhere.

    `probability`: of an utterance to be changed. `frequency`: least and most width of a band, in bins: of 201 up to 8 kHz for
    waveforms, of 80 bands for log-mel; None for 20 to 80 of the 201, and as large a share of others. `time`: the most frames of
    a stretch, of 12.5 ms for waveforms and 10 ms for log-mel, and `share` the most of an utterance that one may take. `bands`,
    `stretches`: how many of each.
    """

    probability: float = 0.5
    frequency: tuple[int, int] | None = None
    time: int = 80
    share: float = 0.25
    bands: int = 1
    stretches: int = 1

    def check(self, bins: int) -> None:
        """Raises InputError "spec_augment" for parameters that cannot hold where there are so many bins."""
        low, high = self.widths(bins)
        if not (0 <= self.probability <= 1 and 0 <= low <= high < bins and self.time >= 0 and 0 <= self.share < 1
                and self.bands >= 0 and self.stretches >= 0):
            raise InputError("spec_augment", found=str(self), expected=f"a probability, widths of 0 <= least <= most < {bins} "
                             "bins, time of 0 or more, a share below 1")

    def widths(self, bins: int) -> tuple[int, int]:
        """Least and most width of a band where there are so many bins.

        >>> SpecAugment().widths(201), SpecAugment().widths(80)
        ((20, 80), (8, 32))
        """
        if self.frequency is not None:
            return self.frequency
        low, high = (round(width * bins / _BINS) for width in _WIDTHS)
        return low, high

    def waveform(self, samples: np.ndarray, key: Key) -> None:
        """Mask float32 [samples] in place."""
        frames = len(samples) // _HOP + 1
        mask = self._mask(frames, _BINS, key)
        if mask is not None:
            spectrum = _spectrum(samples)
            spectrum[mask] = 0
            samples[:] = _inverse(spectrum, len(samples))

    def features(self, features: np.ndarray, key: Key) -> None:
        """Mask float32 [frames, bands] in place."""
        mask = self._mask(len(features), features.shape[1], key)
        if mask is not None:
            features[mask] = 0

    def _mask(self, frames: int, bins: int, key: Key) -> np.ndarray | None:
        """What to silence: bool [frames, bins], None for nothing."""
        if key.fold("whether").uniform()[0] >= self.probability:
            return None
        mask = np.zeros((frames, bins), bool)
        low, high = self.widths(bins)
        for n in range(self.bands):
            start, stop = _span(low, high, bins, key.fold("band", n))
            mask[:, start:stop] = True
        for n in range(self.stretches):
            start, stop = _span(0, min(self.time, int(frames * self.share)), frames, key.fold("stretch", n))
            mask[start:stop] = True
        return mask


def _span(least: int, most: int, size: int, key: Key) -> tuple[int, int]:
    width = least + int(key.fold("width").integers(most - least + 1)[0])
    start = int(key.fold("start").integers(size - width + 1)[0])
    return start, start + width


def _spectrum(samples: np.ndarray) -> np.ndarray:
    """complex64 [frames, 201]: frame k is centred on sample k * 200; ends are reflected where there is enough to reflect."""
    half = _FFT // 2
    padded = np.pad(samples, half, "reflect" if len(samples) > half else "constant")
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(padded, (0, _HOP)), _FFT)[:(len(samples) // _HOP + 1) * _HOP:_HOP]
    return np.fft.rfft(windows * _hann())


def _inverse(spectrum: np.ndarray, size: int) -> np.ndarray:
    """The waveform whose spectrum is nearest: windows overlap by half, so that each sample lies in two of them."""
    window = _hann()
    parts = np.fft.irfft(spectrum, _FFT) * window
    sums = np.zeros((len(parts) + 1, _HOP), np.float32)
    sums[:-1] += parts[:, :_HOP]
    sums[1:] += parts[:, _HOP:]
    weights = np.zeros_like(sums)
    weights[:-1] += window[:_HOP] ** 2
    weights[1:] += window[_HOP:] ** 2
    whole = (sums / np.maximum(weights, 1e-8)).ravel()[_HOP:]
    return whole[:size] if len(whole) >= size else np.pad(whole, (0, size - len(whole)))


@cache
def _hann() -> np.ndarray:
    return (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(_FFT) / _FFT)).astype(np.float32)
