"""Pipelines of asdstore: plan, gather, apply, and the bridges to torch, Grain, JAX and Lightning.

    loader = pipelines.train("AVA/packed/train", "WASD/packed/train", window=250, context=50, frame_budget=2048, seed=0)
    for batch in loader: ...

Each name below is imported when it is first used.
"""
from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from asdstore.installation import verify_siblings

verify_siblings()

if TYPE_CHECKING:
    from pipelines.augment import augment_faces, mix_voice, substitute_voice
    from pipelines.bridges.grain import to_grain as to_grain
    from pipelines.bridges.jax import to_jax as to_jax
    from pipelines.bridges.lightning import PackedASDDataModule as PackedASDDataModule
    from pipelines.bridges.torch import to_torch as to_torch
    from pipelines.evaluation import evaluate
    from pipelines.frame_loader import frames
    from pipelines.frame_plan import context, ignore_labels, map_labels, partition, shuffle
    from pipelines.gather import gather
    from pipelines.keys import Key
    from pipelines.lifting import lift
    from pipelines.loader import Loader
    from pipelines.mixture_buckets import Buckets
    from pipelines.mixture_loader import mixture
    from pipelines.mixture_recipe import speech_recipe
    from pipelines.mixture_summary import mixture_weights
    from pipelines.plan import Plan
    from pipelines.presets import build, train
    from pipelines.projection import projection_targets
    from pipelines.spec_augment import SpecAugment
    from pipelines.tokenizers import Characters, SentencePiece
    from pipelines.transforms import Transform, budget_batch, chain, chunk, filter, map, normalize, prefix, resample, targets
    from pipelines.verify import verify

_HOME = {
    "augment": "augment_faces mix_voice substitute_voice",
    "bridges.grain": "to_grain",
    "bridges.jax": "to_jax",
    "bridges.lightning": "PackedASDDataModule",
    "bridges.torch": "to_torch",
    "evaluation": "evaluate",
    "frame_loader": "frames",
    "frame_plan": "context ignore_labels map_labels partition shuffle",
    "keys": "Key",
    "lifting": "lift",
    "loader": "Loader",
    "mixture_buckets": "Buckets",
    "mixture_loader": "mixture",
    "mixture_recipe": "speech_recipe",
    "mixture_summary": "mixture_weights",
    "plan": "Plan",
    "presets": "build train",
    "projection": "projection_targets",
    "spec_augment": "SpecAugment",
    "tokenizers": "Characters SentencePiece",
    "transforms": "Transform budget_batch chain chunk filter map normalize prefix resample targets",
}
_PLACES = {name: module for module, names in _HOME.items() for name in names.split()}
_VERBS = ("gather", "verify")  # modules that are called by their own name: pipelines.verify(path)


def __getattr__(name: str) -> Any:
    if name in _VERBS:
        return importlib.import_module(f"pipelines.{name}")
    if name not in _PLACES:
        raise AttributeError(f"module 'pipelines' has no attribute {name!r}")
    found = getattr(importlib.import_module(f"pipelines.{_PLACES[name]}"), name)
    globals()[name] = found
    return found


__all__ = ["Buckets", "Characters", "Key", "Loader", "Plan", "SentencePiece", "SpecAugment", "Transform", "augment_faces",
           "budget_batch", "build", "chain", "chunk", "context", "evaluate", "filter", "frames", "gather", "ignore_labels",
           "lift", "map", "map_labels", "mix_voice", "mixture", "mixture_weights", "normalize", "partition", "prefix",
           "projection_targets", "resample", "shuffle", "speech_recipe", "substitute_voice", "targets", "train", "verify"]
