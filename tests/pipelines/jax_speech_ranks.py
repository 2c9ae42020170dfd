"""One process of a JAX run on CPUs with two devices each: the global arrays of mixtures, and sums over them by jit."""
from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import pipelines
from asdstore.errors import InputError

LETTERS = pipelines.Characters("abcdefghij")
BASE: dict[str, Any] = {"block": 61, "sample_budget": 40_000, "group": 2, "tokenizer": LETTERS, "seed": 3,
                        "min_samples_per_char": 0}
BUCKETS = pipelines.Buckets(max_num_elements=20_000, num_seqs_multiple_of=2)
SETTINGS: dict[str, dict[str, Any]] = {
    "waveform": {"shapes": 3}, "log_mel": {"shapes": 3, "features": "log_mel"}, "any shape": {"group": 3},
    "no targets": {"shapes": 3, "tokenizer": None},
    "buckets": {"compat": "omnilingual", "max_audio_len": 8000, "buckets": BUCKETS}}


def load(source: str, name: str, **more: Any) -> pipelines.Loader:
    """A loader of a name, and "evaluate"; `source` has a clip that cannot be decoded."""
    if name == "evaluate":
        return pipelines.evaluate(source, sample_budget=12_000, tokenizer=LETTERS, features="log_mel", **more)
    return pipelines.mixture(source, **{**BASE, **SETTINGS[name], **more})


@jax.jit
def sums(batch: dict[str, Any]) -> dict[str, Any]:
    """What differs if rows are missing, or twice, or beside those of another name."""
    valid, source = batch["valid"], jnp.abs(batch["source_seqs"])
    found = {"valid": valid.sum(), "draws": (batch["draws"] * valid).sum(), "lengths": (batch["source_seq_lens"] * valid).sum(),
             "source": (source.reshape(len(valid), -1).sum(1) * valid).sum()}
    if "target_seqs" in batch:
        found["targets"] = ((batch["target_seqs"] * (batch["draws"] % 7 + 1)[:, None]).sum(1) * valid).sum()
    return found


def main(rank: int, world: int, folder: Path, source: str, port: str) -> None:
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", num_processes=world, process_id=rank)
    warnings.simplefilter("ignore")
    found: dict[str, Any] = {}
    for name in (*SETTINGS, "evaluate"):
        loader, steps = pipelines.to_jax(load(source, name)), []
        for batch in (batch for _ in range(2) for batch in loader):
            arrays = {key: value for key, value in batch.items() if isinstance(value, jax.Array)}
            mine = np.concatenate([np.asarray(part.data) for part in batch["draws"].addressable_shards])
            steps.append({"sums": {key: float(value) for key, value in sums(arrays).items()}, "draws": mine.tolist(),
                          "texts": batch["texts"].tolist(), "in_step": batch["scored_in_step"],
                          "shapes": {key: value.shape for key, value in arrays.items()}})
        found[name] = {"steps": steps, "state": loader.state_dict()}
    try:
        pipelines.to_jax(load(source, "waveform", group=3))
    except InputError as error:
        found["refused"] = error.kind
    (folder / f"{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4], sys.argv[5])
