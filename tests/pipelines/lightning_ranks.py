"""What the Lightning tests train with, and as a program one rank of a run of two processes that goes on from a checkpoint."""
from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint

import pipelines

CONFIG: Any = {"train_window": 60, "hist_frames": 15, "frame_budget": 500, "val_frame_budget": 600, "val_max_batch": 8,
               "seed": 3, "num_workers": 1}


class Recorder(LightningModule):
    """Learns next to nothing, and remembers what it was shown: (epoch, batch index, [(sample id, start, valid), ...])."""

    def __init__(self, estimates: bool = False):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.estimates = estimates
        self.trained: list[list] = []
        self.validated: list[str] = []

    def training_step(self, batch: dict, index: int) -> torch.Tensor:
        names = zip(batch["sample_ids"], batch["starts"].tolist(), batch["valid"].tolist(), strict=True)
        self.trained.append([self.current_epoch, index, [list(name) for name in names]])
        means = self.layer(batch["faces"].float().mean((2, 3))[..., None])[..., 0]
        return (means * batch["scored"]).sum() / max(batch["scored_in_step"], 1)

    def validation_step(self, batch: dict, index: int) -> None:
        self.validated += [name for name, valid in zip(batch["sample_ids"], batch["valid"].tolist(), strict=True) if valid]

    def configure_optimizers(self) -> Any:
        if self.estimates:  # Lightning makes the training loader for it, before it restores the loops
            assert self.trainer.estimated_stepping_batches > 0
        return torch.optim.SGD(self.parameters(), 0.01)


def trainer(folder: Path, epochs: int, save_every: int | None = None, **more: Any) -> Trainer:
    saving = ModelCheckpoint(folder, "{step}", save_top_k=-1, every_n_train_steps=save_every)
    return Trainer(accelerator="cpu", max_epochs=epochs, logger=False, enable_progress_bar=False, enable_model_summary=False,
                   num_sanity_val_steps=0, default_root_dir=folder, callbacks=[saving] if save_every else [],
                   enable_checkpointing=bool(save_every), **more)


def main(rank: int, world: int, folder: Path, pack: str, port: str, checkpoint: str) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, LOCAL_RANK=str(rank), NODE_RANK="0")
    model = Recorder(estimates=True)
    data = pipelines.PackedASDDataModule(packed_asd={"train": [pack], "val": [pack]}, asd=CONFIG)
    # use_distributed_sampler stays at its default, True: it must not matter
    run = trainer(folder, 2, save_every=3, strategy="ddp", devices=world)
    run.fit(model, datamodule=data, ckpt_path=checkpoint, weights_only=False)
    assert data._train is not None
    found = {"trained": model.trained, "validated": model.validated, "rank": [data._train.rank, data._train.world]}
    (folder / f"{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), *sys.argv[4:7])
