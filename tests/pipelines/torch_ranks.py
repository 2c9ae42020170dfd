"""One rank of a gloo run: what it reads in two epochs and an evaluation, and the gradient of its first step after DDP."""
from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as distributed

import pipelines

RANKS: Any = {"window": 60, "context": 15, "frame_budget": 400, "group": 1, "seed": 3}


def readable(batch: dict) -> list:
    return list(zip(batch["sample_ids"], batch["starts"].tolist(), batch["valid"].tolist(), strict=True))


class Score(torch.nn.Module):
    """Scores frames by their mean face and loudness."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
        with torch.no_grad():
            self.layer.weight.copy_(torch.tensor([[0.3, -0.7]]))
            self.layer.bias.fill_(0.1)

    def forward(self, batch: dict) -> torch.Tensor:
        rows, frames = batch["scored"].shape
        faces = batch["faces"].float().mean((2, 3)) / 255
        sound = batch["audio"].reshape(rows, frames, -1).square().mean(2)
        return self.layer(torch.stack([faces, sound], 2))[..., 0]


def loss_sum(model: torch.nn.Module, batch: dict) -> torch.Tensor:
    losses = torch.nn.functional.binary_cross_entropy_with_logits(model(batch), batch["labels"], reduction="none")
    return (losses * batch["scored"]).sum()


def main(rank: int, world: int, folder: Path, pack: str) -> None:
    distributed.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=world)
    loader = pipelines.to_torch(pipelines.train(pack, **RANKS))
    model = torch.nn.parallel.DistributedDataParallel(Score())
    read, states, gradient = [], [], None
    for _ in range(2):
        for batch in loader:
            model.zero_grad()
            loss = loss_sum(model, batch) * world / max(batch["scored_in_step"], 1)  # DDP takes the mean over ranks
            loss.backward()  # waits for all ranks: one step too few anywhere hangs here
            assert torch.isfinite(loss)
            if gradient is None:
                gradient = [p.grad.flatten().tolist() for p in model.parameters() if p.grad is not None]
            read.append(readable(batch))
            states.append(loader.state_dict())
    evaluated = [readable(batch) for batch in pipelines.to_torch(pipelines.evaluate(pack))]
    found = {"rank": [loader.rank, loader.world], "read": read, "states": states, "gradient": gradient, "evaluated": evaluated}
    (folder / f"{rank}.json").write_text(json.dumps(found))
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4])
