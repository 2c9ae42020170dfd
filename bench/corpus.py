"""The corpus that all peers store: seeded, with the lengths of AVA and WASD where the shared length files are at hand.

Faces are crops that drift over a textured picture, with a mouth that opens while the person talks and the grain of a camera,
so that JPEG has as much to do as with real ones; audio is noise shaped by syllables.
"""
from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from bench.loader import lengths
from bench.peers.common import SAMPLES, Corpus, load_corpus

SIDE = 112
GRAIN = 64  # pictures of grain, taken in turn from random places on


def track_lengths(frames: int, seed: int) -> np.ndarray:
    """Frames of tracks, `frames` in all: drawn from the shared length files, or from distributions like theirs."""
    shared = os.environ.get("ASDSTORE_SHARED")
    if shared and (home := Path(shared, "golden", "dist")).is_dir():
        known = np.concatenate([np.load(home / name) for name in ("ava_like.npy", "wasd.npy")])
        drawn = np.random.default_rng(seed).permutation(known)
    else:
        drawn = np.array(lengths(frames, seed))
    stop = int(np.searchsorted(np.cumsum(drawn), frames)) + 1
    found = drawn[:stop].astype(np.int64)
    found[-1] -= found.sum() - frames
    return found[found > 0]


def write_corpus(folder: Path, megabytes: float, seed: int = 20) -> Corpus:
    """Write `folder/{faces,audio,labels,edges}.npy`; the same arguments give the same bytes."""
    frames = int(megabytes * 1e6 / (SIDE * SIDE + 2 * SAMPLES + 1))
    counts = track_lengths(frames, seed)
    folder.mkdir(parents=True, exist_ok=True)
    made = [_track(int(count), np.random.default_rng([seed, n])) for n, count in enumerate(counts)]
    for name, arrays in zip(Corpus._fields, zip(*made, strict=True), strict=False):
        np.save(folder / f"{name}.npy", np.concatenate(arrays))
    np.save(folder / "edges.npy", np.concatenate([[0], np.cumsum(counts)]))
    return load_corpus(folder)


def write_small(folder: Path, tracks: int, seed: int = 20) -> Corpus:
    """A corpus of many tracks of one frame of 8 x 8 pixels, for what opening costs."""
    draw = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "faces.npy", draw.integers(0, 256, (tracks, 8, 8), np.uint8))
    np.save(folder / "audio.npy", draw.integers(-3000, 3000, tracks * SAMPLES, np.int16))
    np.save(folder / "labels.npy", draw.integers(0, 2, tracks, np.uint8))
    np.save(folder / "edges.npy", np.arange(tracks + 1))
    return load_corpus(folder)


def _track(frames: int, draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    talking = np.repeat(draw.integers(0, 2, frames // 25 + 1), 25)[:frames].astype(np.uint8)
    syllables = talking * (0.5 + 0.5 * np.sin(np.arange(frames) * draw.uniform(0.9, 1.3)))
    picture = _texture(draw)
    grain = draw.integers(-5, 6, (GRAIN, SIDE, SIDE), np.int8)
    drift = np.clip(np.cumsum(draw.integers(-1, 2, (frames, 2)), axis=0) + 16, 0, 32)
    faces = np.empty((frames, SIDE, SIDE), np.uint8)
    for k in range(frames):
        y, x = drift[k]
        face = picture[y:y + SIDE, x:x + SIDE] + grain[draw.integers(GRAIN)]
        mouth = int(3 + 9 * syllables[k])
        face[80 - mouth:80 + mouth, 40:72] -= 40
        np.clip(face, 0, 255, out=face)
        faces[k] = face
    voice = draw.normal(0, 0.02, frames * SAMPLES) * (0.2 + np.repeat(syllables, SAMPLES)) * draw.uniform(1, 5)
    return faces, np.clip(np.rint(voice * 32768 + 20), -32768, 32767).astype(np.int16), talking


def _texture(draw: np.random.Generator) -> np.ndarray:
    """A picture with the spectrum of natural ones, int16 [144, 144]."""
    size = SIDE + 32
    rate = np.hypot(np.fft.fftfreq(size)[:, None], np.fft.rfftfreq(size)[None])
    waves = np.fft.rfft2(draw.normal(size=(size, size))) / (rate + 0.01) ** 1.8
    waves[0, 0] = 0
    picture = np.fft.irfft2(waves, (size, size))
    return (128 + 45 * picture / picture.std()).astype(np.int16)
