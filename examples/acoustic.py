"""A small acoustic classifier on frame features, in torch: python -m examples.acoustic [--train-data SPEC --valid-data SPEC]

    python -m examples.acoustic --train-data "train.pfile,context=5,ignore-label=0,map-label=1:0/2:1,random=true" \\
                                --valid-data "valid.pfile,context=5,ignore-label=0,map-label=1:0/2:1"

Specifications are PDNN's: pfiles, Kaldi scripts with label=, pickles, or packs of frames. Without any, speech-like frames are
made: every phone moves from one place to another, and phones come in pairs that pass the same places in opposite directions,
so that one frame tells little and its context tells which phone it is. Label 0 is silence, which is left out of training and
stays context.
"""
from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional

import pipelines
from asdstore.formats.pfile import write_pfile
from asdstore.formats.source import Memory

FOLDER = Path("demo/acoustic")
OPTIONS = "context=5,ignore-label=0,map-label=" + "/".join(f"{phone}:{phone - 1}" for phone in range(1, 9))
PAIRS, DIM = 4, 13
HIDDEN = 64


class Result(NamedTuple):
    """Of held-out frames, after each epoch: the share told right; and that of the most frequent class."""

    accuracy: list[float]
    majority: float


def speech(utterances: int, seed: int) -> Memory:
    """Utterances of moving phones between silences: features float32 [frames, DIM], labels 0 to 2 * PAIRS."""
    places = np.random.default_rng(0).normal(size=(PAIRS, 2, DIM))  # of each pair, the same for all speakers
    draw = np.random.default_rng(seed)
    features, labels = [], []
    for _ in range(utterances):
        x, y = [np.zeros((6, DIM))], [np.zeros(6, np.int32)]
        for _ in range(int(draw.integers(6, 14))):
            phone, length = int(draw.integers(2 * PAIRS)), int(draw.integers(6, 15))
            start, end = places[phone // 2] if phone % 2 else places[phone // 2][::-1]
            x.append(start + (end - start) * np.linspace(0, 1, length)[:, None])
            y.append(np.full(length, phone + 1, np.int32))
        features.append((np.concatenate(x) + draw.normal(0, 0.3, (sum(map(len, x)), DIM))).astype(np.float32))
        labels.append(np.concatenate(y))
    return Memory([f"u{k:04d}" for k in range(utterances)], features, labels)


def data(folder: Path = FOLDER) -> list[str]:
    """Specifications of pfiles to learn from and to be tested on. Made once."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, utterances, seed in (("train", 120, 1), ("valid", 30, 2)):
        if not (folder / f"{name}.pfile").exists():
            write_pfile(folder / f"{name}.pfile", speech(utterances, seed))
    return [f"{folder}/train.pfile,{OPTIONS},random=true", f"{folder}/valid.pfile,{OPTIONS}"]


def train(train_data: str, valid_data: str, epochs: int = 8, batch: int = 256, seed: int = 0, strict: bool = True) -> Result:
    """Learn, and say after each epoch how many held-out frames are told right."""
    loader = pipelines.to_torch(pipelines.frames(train_data, batch=batch, seed=seed, strict=strict))
    held_out = pipelines.to_torch(pipelines.frames(valid_data, batch=batch, keep_last=True, strict=strict))
    seen = torch.cat([step["labels"] for step in held_out])
    classes = 1 + int(max(seen.max(), *(step["labels"].max() for step in loader.at(0))))
    torch.manual_seed(seed)
    network = nn.Sequential(nn.LazyLinear(HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, classes))
    network(loader[0]["features"])
    optimizer = torch.optim.Adam(network.parameters(), 2e-3)
    result = Result([], float(torch.bincount(seen).max()) / len(seen))
    for epoch in range(epochs):
        losses = []
        for step in loader.at(epoch):
            loss = functional.cross_entropy(network(step["features"]), step["labels"].long())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        with torch.no_grad():
            right = sum(int((network(step["features"]).argmax(1) == step["labels"]).sum()) for step in held_out.at(0))
        result.accuracy.append(right / len(seen))
        print(f"epoch {epoch + 1:3}   loss {np.mean(losses):.3f}   held-out frames right {result.accuracy[-1]:6.1%}")
    print(f"always saying the most frequent class: {result.majority:.1%}")
    return result


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="A small acoustic classifier on frame features.")
    parser.add_argument("--train-data", metavar="SPEC", help="to learn from; without any, speech-like frames are made")
    parser.add_argument("--valid-data", metavar="SPEC", help="held-out frames")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--skip-unlabelled", action="store_true", help="leave out utterances without labels")
    options = parser.parse_args(argv)
    if bool(options.train_data) != bool(options.valid_data):
        parser.error("--train-data and --valid-data go together")
    specs = [options.train_data, options.valid_data] if options.train_data else data()
    train(*specs, epochs=options.epochs, batch=options.batch_size, seed=options.seed, strict=not options.skip_unlabelled)
    return 0


if __name__ == "__main__":
    sys.exit(main())
