"""A small causal network that learns who speaks, in torch: python -m examples.train_torch [--train PACK ... --val PACK ...]

In several processes: torchrun --nproc-per-node 2 -m examples.train_torch. The loader finds its rank; DDP wraps the network.

What to look at: the loss is a sum over this rank's scored frames divided by `scored_in_step`, those of all ranks, so that it
is the mean over frames whatever the ranks hold, and a batch that completes the last step adds nothing; `checkpoint` has a
state of one line that goes on exactly, within an epoch too and with another number of ranks.
"""
from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, distributed, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import pipelines
from examples.learning import BANDS, Curve, Score, arguments, mel_filters

SIDE = 14  # pixels that the network sees of a face's side
HIDDEN = 32
TAPS = 5  # of each convolution over time, which looks back only
DILATIONS = (1, 2, 4)
RATE = 3e-3


def changes(values: Tensor) -> Tensor:
    """[B, T, n] less their mean so far: what a person or a room looks or sounds like all the time tells nothing."""
    return values - values.cumsum(1) / torch.arange(1, values.shape[1] + 1, device=values.device)[:, None]


class Network(nn.Module):
    """Scores each frame from it and earlier ones."""

    def __init__(self) -> None:
        super().__init__()
        self.face, self.sound = nn.Linear(SIDE * SIDE, HIDDEN, bias=False), nn.Linear(BANDS, HIDDEN, bias=False)
        self.mix = nn.ModuleList(nn.Conv1d(HIDDEN * (3 if d == 1 else 1), HIDDEN, TAPS, dilation=d) for d in DILATIONS)
        self.out = nn.Linear(HIDDEN, 1)
        self.filters: Tensor
        self.taper: Tensor
        self.register_buffer("filters", torch.from_numpy(mel_filters()), persistent=False)
        self.register_buffer("taper", torch.from_numpy(np.hanning(640).astype(np.float32)), persistent=False)

    def forward(self, faces: Tensor, audio: Tensor) -> Tensor:
        """faces uint8 [B, T, height, width], audio float32 [B, T * 640] -> float32 [B, T], above 0 for speech."""
        rows, frames, height, width = faces.shape
        small = faces.view(rows, frames, SIDE, height // SIDE, SIDE, width // SIDE).float().mean((3, 5)) / 64
        spectrum = torch.fft.rfft(audio.view(rows, frames, 640) * self.taper).abs()
        bands = (spectrum**2 @ self.filters + 1e-3).log() / 2
        seen = torch.tanh(self.face(changes(small.flatten(2))))
        heard = torch.tanh(self.sound(changes(bands)))
        hidden = torch.cat([seen, heard, seen * heard], 2).transpose(1, 2)  # products: do they move together?
        for layer, dilation in zip(self.mix, DILATIONS, strict=True):
            mixed = layer(functional.pad(hidden, ((TAPS - 1) * dilation, 0))).relu()
            hidden = mixed if dilation == 1 else hidden + mixed
        return self.out(hidden.transpose(1, 2))[..., 0]


def loss_sum(logits: Tensor, batch: dict[str, Any]) -> Tensor:
    """Cross-entropy, summed over the scored frames."""
    entropy = functional.binary_cross_entropy_with_logits(logits, batch["labels"], reduction="none")
    return (entropy * batch["scored"]).sum()


def counts(logits: Tensor, batch: dict[str, Any]) -> Tensor:
    """Of the scored frames: told right, speech, all."""
    scored, speech = batch["scored"], batch["labels"] > 0
    return torch.stack([(((logits > 0) == speech) & scored).sum(), (speech & scored).sum(), scored.sum()])


def on(device: torch.device, batch: dict[str, Any]) -> dict[str, Any]:
    return {name: value.to(device, non_blocking=True) if isinstance(value, Tensor) else value for name, value in batch.items()}


class Run:
    """A network, its optimizer and its loader, which are saved together."""

    def __init__(self, packs: Sequence[Any], seed: int):
        cuda = torch.cuda.is_available()
        self.device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if cuda else torch.device("cpu")
        loader = pipelines.train(*packs, window=100, context=25, frame_budget=1024, seed=seed)
        self.loader = pipelines.to_torch(loader, pin_memory=cuda)
        torch.manual_seed(seed)
        self.network = Network().to(self.device)
        self.optimizer = torch.optim.Adam(self.network.parameters(), RATE, (0.9, 0.99))
        together = distributed.is_available() and distributed.is_initialized()
        self.trained = DistributedDataParallel(self.network) if together else self.network

    def step(self, batch: dict[str, Any]) -> float:
        """Learn from a batch; the loss of its frames, in units of the mean over the step."""
        batch = on(self.device, batch)
        loss = loss_sum(self.trained(batch["faces"], batch["audio"]), batch) / max(batch["scored_in_step"], 1)
        self.optimizer.zero_grad()
        (loss * self.loader.world).backward()  # DDP takes the mean over ranks
        self.optimizer.step()
        return float(loss.detach())

    def score(self, packs: Sequence[Any]) -> Score:
        """How often the network is right about every frame of these packs."""
        totals = torch.zeros(3, dtype=torch.int64, device=self.device)
        with torch.no_grad():
            for batch in pipelines.to_torch(pipelines.evaluate(*packs, frame_budget=2048)):
                batch = on(self.device, batch)
                totals += counts(self.network(batch["faces"], batch["audio"]), batch)
        return Score.of(*self.summed(totals).tolist())

    def summed(self, values: Tensor) -> Tensor:
        """Over all ranks."""
        if self.trained is not self.network:
            distributed.all_reduce(values)
        return values

    def save(self, path: Path) -> None:
        if self.loader.rank == 0:
            torch.save({"network": self.network.state_dict(), "optimizer": self.optimizer.state_dict(),
                        "loader": self.loader.state_dict()}, path)

    def load(self, path: Path) -> None:
        saved = torch.load(path, self.device, weights_only=True)
        self.network.load_state_dict(saved["network"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.loader.load_state_dict(saved["loader"])


def train(train_packs: Sequence[Any], val_packs: Sequence[Any], *, epochs: int = 10, seed: int = 0,
          checkpoint: Path | None = None) -> Curve:
    """Learn until so many epochs are done, from where the checkpoint stands if there is one, and print how it goes."""
    run, curve = Run(train_packs, seed), Curve([], [])
    if checkpoint is not None and checkpoint.exists():
        run.load(checkpoint)
    while run.loader.epoch < epochs:
        losses = run.summed(torch.tensor([run.step(batch) for batch in run.loader], device=run.device))
        curve.add(float(losses.mean()), run.score(val_packs), print if run.loader.rank == 0 else lambda text: None)
        if checkpoint is not None:
            run.save(checkpoint)
    if run.loader.rank == 0 and curve.loss:
        print(curve)
    return curve


def main(argv: Sequence[str] | None = None) -> int:
    rank = int(os.environ.get("RANK", -1))  # of torchrun
    if rank >= 0:
        distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    if rank > 0:
        distributed.barrier()  # rank 0 makes the packs, if there are none
    options = arguments(__doc__ or "", argv)
    if rank == 0:
        distributed.barrier()
    train(options.train, options.val, epochs=options.epochs, seed=options.seed)
    if rank >= 0:
        gc.collect()  # what still refers to the process group goes before it, not while the interpreter ends
        distributed.barrier()
        distributed.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
