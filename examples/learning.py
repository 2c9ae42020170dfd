"""What the training examples share: a corpus that they make for themselves, arguments, and a curve that shows them learn."""
from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

import asdstore
from adapters import ava
from examples.corpus import make_corpus

FOLDER = Path("demo/learning")
BANDS = 24  # of the sound that the networks look at
_SPLITS = (("train", 1, 10), ("val", 2, 4))  # name, seed, conversations: other people and other sentences in each
_BARS = "▁▂▃▄▅▆▇█"


def packs(folder: Path = FOLDER) -> list[Path]:
    """Packs of self-made conversations to learn from, and of others to be tested on. Made once."""
    found = []
    for split, seed, videos in _SPLITS:
        target = folder / "packed" / split
        if not target.exists():
            corpus = make_corpus(folder / "corpus", videos=videos, seed=seed, split=split)
            survey = ava.survey("ava", corpus.loader, corpus.visual_root, corpus.audio_root, split)
            asdstore.write_pack(target, survey.records, ava.load)
        found.append(target)
    return found


def arguments(description: str, argv: Sequence[str] | None = None) -> argparse.Namespace:
    """train, val (lists of packs), epochs, seed."""
    parser = argparse.ArgumentParser(description=description.partition("\n")[0])
    parser.add_argument("--train", nargs="+", metavar="PACK", help="packs to learn from; without any, small ones are made")
    parser.add_argument("--val", nargs="+", metavar="PACK", help="packs of held-out tracks")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    if bool(options.train) != bool(options.val):
        parser.error("--train and --val go together")
    if not options.train:
        options.train, options.val = ([pack] for pack in packs())
    return options


def mel_filters() -> np.ndarray:
    """Triangles on the mel scale from the power spectrum of 640 samples at 16 kHz: float32 [321, BANDS]."""
    mel = 2595 * np.log10(1 + np.linspace(0, 8000, 321) / 700)[:, None]
    edges = 2595 * np.log10(1 + np.array([60, 7600]) / 700)
    edges = np.linspace(edges[0], edges[1], BANDS + 2)
    low, peak, high = edges[:-2], edges[1:-1], edges[2:]
    return np.maximum(0, np.minimum((mel - low) / (peak - low), (high - mel) / (high - peak))).astype(np.float32)


class Score(NamedTuple):
    """How often a network is right about held-out frames, and how often one is that always says what is more frequent."""

    accuracy: float
    majority: float

    @classmethod
    def of(cls, right: float, speaking: float, frames: float) -> Score:
        """From counts: frames told right, frames of speech, frames in all."""
        return cls(right / frames, max(speaking, frames - speaking) / frames)


class Curve(NamedTuple):
    """What became of a run: the mean loss of each epoch, and the score after it."""

    loss: list[float]
    scores: list[Score]

    def add(self, loss: float, score: Score, say: Callable[[str], object] = print) -> None:
        """Note an epoch, and say how it went."""
        self.loss.append(loss)
        self.scores.append(score)
        say(f"epoch {len(self.loss):3}   loss {loss:.3f}   held-out frames right {score.accuracy:6.1%}")

    def __str__(self) -> str:
        accuracy = [score.accuracy for score in self.scores]
        return (f"loss      {sparkline(self.loss)}  {self.loss[0]:.3f} -> {self.loss[-1]:.3f}\n"
                f"accuracy  {sparkline(accuracy)}  {accuracy[0]:.1%} -> {accuracy[-1]:.1%} of held-out frames; "
                f"always saying the more frequent: {self.scores[-1].majority:.1%}")


def sparkline(values: Sequence[float]) -> str:
    """Bars for numbers.

    >>> sparkline([0, 7, 3])
    '▁█▄'
    """
    low, high = min(values), max(values)
    return "".join(_BARS[round((value - low) / (high - low or 1) * (len(_BARS) - 1))] for value in values)
