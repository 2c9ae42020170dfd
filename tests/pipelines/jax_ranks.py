"""One process of a JAX run on CPUs with two devices each: the global arrays of two epochs, and sums over them by jit."""
from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import pipelines
from asdstore.errors import InputError

SHAPES: Any = {"window": 60, "context": 15, "frame_budget": 400, "group": 2, "seed": 3, "shapes": 4}


@jax.jit
def sums(batch: dict) -> dict:
    """What differs if rows are missing, or twice, or beside those of another name."""
    scored = batch["scored"]
    faces = batch["faces"].astype(jnp.float32).mean((2, 3))
    audio = jnp.abs(batch["audio"]).reshape(*scored.shape, -1).mean(2)
    return {"scored": scored.sum(), "labels": (batch["labels"] * scored).sum(), "faces": (faces * scored).sum(),
            "audio": (audio * scored).sum(), "starts": batch["starts"].sum(), "valid": batch["valid"].sum()}


def summed(batch: dict) -> dict:
    arrays = {name: value for name, value in batch.items() if isinstance(value, jax.Array)}
    return {name: float(value) for name, value in sums(arrays).items()}


def main(rank: int, world: int, folder: Path, pack: str, port: str) -> None:
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    early = pipelines.train(pack, **SHAPES)  # before it is known that there are other processes
    jax.distributed.initialize(f"127.0.0.1:{port}", num_processes=world, process_id=rank)
    loader = pipelines.to_jax(pipelines.train(pack, **SHAPES))
    steps, shapes = [], set()
    for _ in range(2):
        for batch in loader:
            mine = np.concatenate([np.asarray(part.data) for part in batch["starts"].addressable_shards])
            shapes.add(tuple(batch["faces"].shape))
            faces = batch["faces"]
            steps.append({"sums": summed(batch), "starts": mine.tolist(), "ids": batch["sample_ids"].tolist(),
                          "shape": faces.shape, "scored": batch["scored_in_step"], "devices": len(faces.sharding.device_set),
                          "rows": faces.addressable_shards[0].data.shape[0]})
    refused = []
    for wrong in (lambda: pipelines.to_jax(early), lambda: pipelines.to_jax(pipelines.train(pack, **SHAPES | {"group": 3})),
                  lambda: pipelines.to_jax(pipelines.train(pack, **SHAPES, rank=1 - rank, world=2))):
        try:
            wrong()
        except InputError as error:
            refused.append(error.kind)
    tracks = []
    for batch in pipelines.to_jax(pipelines.evaluate(pack)):  # one track for each process: completed to the longer one
        assert batch["faces"].shape[0] == 2 * world and not batch["scored"].shape[1] * 640 - batch["audio"].shape[1]
        tracks.append([batch["sample_ids"].tolist(), int(summed(batch)["scored"])])
    (folder / f"{rank}.json").write_text(json.dumps({"rank": [loader.rank, loader.world], "steps": steps, "refused": refused,
                                                     "compiled": len(shapes), "state": loader.state_dict(), "tracks": tracks}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4], sys.argv[5])
