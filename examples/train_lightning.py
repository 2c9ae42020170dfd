"""A small causal network that learns who speaks, in Lightning: python -m examples.train_lightning [--train PACK --val PACK]

The network is that of examples/train_torch.py. What to look at: `PackedASDDataModule` takes the configuration and gives both
loaders; the trainer need not know anything of them.
"""
from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer

import pipelines
from examples.learning import Curve, Score, arguments
from examples.train_torch import RATE, Network, counts, loss_sum


class Speaking(LightningModule):
    """The network and what is done with a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.network, self.curve = Network(), Curve([], [])
        self.losses: list[torch.Tensor] = []
        self.totals: list[torch.Tensor] = []

    def training_step(self, batch: dict[str, Any], index: int) -> torch.Tensor:
        loss = loss_sum(self.network(batch["faces"], batch["audio"]), batch) / max(batch["scored_in_step"], 1)
        self.losses.append(loss.detach())
        return loss * self.trainer.world_size  # DDP takes the mean over ranks

    def validation_step(self, batch: dict[str, Any], index: int) -> None:
        self.totals.append(counts(self.network(batch["faces"], batch["audio"]), batch))

    def on_validation_epoch_end(self) -> None:
        totals, losses = (self.trainer.strategy.reduce(torch.stack(values).double(), reduce_op="sum")
                          for values in (self.totals, self.losses))
        self.curve.add(float(losses.mean()), Score.of(*totals.sum(0).tolist()), self.print)
        self.totals.clear()
        self.losses.clear()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), RATE, (0.9, 0.99))


def train(train_packs: Sequence[Any], val_packs: Sequence[Any], *, epochs: int = 10, seed: int = 0, **trainer: Any) -> Curve:
    """Learn for so many epochs and print how it goes; `trainer` are further options of the Trainer."""
    torch.manual_seed(seed)
    config = {"packed_asd": {"train": train_packs, "val": val_packs},
              "asd": {"train_window": 100, "hist_frames": 25, "frame_budget": 1024, "val_frame_budget": 2048, "seed": seed}}
    model = Speaking()
    run = Trainer(max_epochs=epochs, use_distributed_sampler=False, num_sanity_val_steps=0, logger=False,
                  enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, **trainer)
    run.fit(model, datamodule=pipelines.PackedASDDataModule(config))
    model.print(model.curve)
    return model.curve


def main(argv: Sequence[str] | None = None) -> int:
    options = arguments(__doc__ or "", argv)
    train(options.train, options.val, epochs=options.epochs, seed=options.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
