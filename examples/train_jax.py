"""A small causal network that learns who speaks, in JAX: python -m examples.train_jax [--train PACK ... --val PACK ...]

What to look at: `to_jax` gives batches of at most SHAPES shapes, so that `step` is compiled as often and not for every
length, already on the device; a loss that is a sum over scored frames, divided by those of the whole step, so that padding,
prefixes and steps without any are right without a special case. In several processes (jax.distributed.initialize before
anything else) the same program trains on global arrays.
"""
from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import pipelines
from examples.learning import BANDS, Curve, Score, arguments, mel_filters

SHAPES = 3
SIDE = 14  # pixels that the network sees of a face's side
HIDDEN = 32
TAPS = 5  # of each convolution over time, which looks back only
DILATIONS = (1, 2, 4)
RATE = 3e-3
_USED = ("faces", "audio", "labels", "scored", "scored_in_step")

Parameters = dict[str, jax.Array]


def initial(seed: int) -> Parameters:
    """Parameters as drawn from a seed."""
    widths = {"face": (SIDE * SIDE, HIDDEN), "sound": (BANDS, HIDDEN), "out": (HIDDEN, 1),
              **{f"conv{d}": (TAPS, HIDDEN * (3 if d == 1 else 1), HIDDEN) for d in DILATIONS}}
    keys = jax.random.split(jax.random.key(seed), len(widths))
    drawn = {name: jax.random.normal(key, shape) * np.sqrt(2 / np.prod(shape[:-1]))
             for key, (name, shape) in zip(keys, widths.items(), strict=True)}
    return drawn | {"bias": jnp.zeros(1)} | {f"bias{d}": jnp.zeros(HIDDEN) for d in DILATIONS}


def changes(values: jax.Array) -> jax.Array:
    """[B, T, n] less their mean so far: what a person or a room looks or sounds like all the time tells nothing."""
    return values - jnp.cumsum(values, 1) / jnp.arange(1, values.shape[1] + 1)[:, None]


def scores(parameters: Parameters, faces: jax.Array, audio: jax.Array) -> jax.Array:
    """One score for each frame, from it and earlier ones: float32 [B, T], above 0 for speech."""
    rows, frames, height, width = faces.shape
    small = faces.reshape(rows, frames, SIDE, height // SIDE, SIDE, width // SIDE).mean((3, 5), dtype=jnp.float32) / 64
    spectrum = jnp.abs(jnp.fft.rfft(audio.reshape(rows, frames, 640) * np.hanning(640).astype(np.float32)))
    bands = jnp.log(spectrum**2 @ mel_filters() + 1e-3) / 2
    seen = jnp.tanh(changes(small.reshape(rows, frames, -1)) @ parameters["face"])
    heard = jnp.tanh(changes(bands) @ parameters["sound"])
    hidden = jnp.concatenate([seen, heard, seen * heard], -1)  # products: do they move together?
    for dilation in DILATIONS:
        past = [((TAPS - 1) * dilation, 0)]
        mixed = jax.lax.conv_general_dilated(hidden, parameters[f"conv{dilation}"], (1,), past, rhs_dilation=(dilation,),
                                             dimension_numbers=("NWC", "WIO", "NWC"))
        mixed = jax.nn.relu(mixed + parameters[f"bias{dilation}"])
        hidden = mixed if dilation == 1 else hidden + mixed
    return (hidden @ parameters["out"])[..., 0] + parameters["bias"]


def loss(parameters: Parameters, batch: dict[str, jax.Array]) -> jax.Array:
    """Cross-entropy of the scored frames, as a mean over all of the step; 0 where there are none."""
    logits = scores(parameters, batch["faces"], batch["audio"])
    entropy = jax.nn.softplus(logits) - logits * batch["labels"]
    return (entropy * batch["scored"]).sum() / jnp.maximum(batch["scored_in_step"], 1)


@jax.jit
def step(parameters: Parameters, moments: Any, number: jax.Array, batch: dict[str, Any]) -> tuple[Parameters, Any, jax.Array]:
    """One step of Adam."""
    value, gradient = jax.value_and_grad(loss)(parameters, batch)
    mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments[0], gradient)
    square = jax.tree.map(lambda m, g: 0.99 * m + 0.01 * g * g, moments[1], gradient)
    parameters = jax.tree.map(lambda p, m, s: p - RATE * m / (1 - 0.9**number) / (jnp.sqrt(s / (1 - 0.99**number)) + 1e-8),
                              parameters, mean, square)
    return parameters, (mean, square), value


@jax.jit
def counts(parameters: Parameters, batch: dict[str, jax.Array]) -> jax.Array:
    """Of the scored frames: told right, speech, all."""
    told = scores(parameters, batch["faces"], batch["audio"]) > 0
    return jnp.stack([((told == batch["labels"]) & batch["scored"]).sum(), (batch["labels"] * batch["scored"]).sum(),
                      batch["scored"].sum()])


def used(batch: dict[str, Any]) -> dict[str, Any]:
    """What the compiled functions take of a batch; texts stay outside."""
    return {name: batch[name] for name in _USED}


def train(train_packs: Sequence[Any], val_packs: Sequence[Any], *, epochs: int = 10, seed: int = 0) -> Curve:
    """Learn for so many epochs and print how it goes."""
    loader = pipelines.train(*train_packs, window=100, context=25, frame_budget=1024, seed=seed, group=8)
    learned = pipelines.to_jax(loader, SHAPES)
    held_out = pipelines.to_jax(pipelines.evaluate(*val_packs, frame_budget=2048), SHAPES)
    parameters = initial(seed)
    moments = (jax.tree.map(jnp.zeros_like, parameters),) * 2
    curve, number = Curve([], []), 0
    for _ in range(epochs):
        losses = []
        for batch in learned:
            number += 1
            parameters, moments, value = step(parameters, moments, jnp.float32(number), used(batch))
            losses.append(value)
        totals = np.sum([counts(parameters, used(batch)) for batch in held_out], axis=0)
        curve.add(float(np.mean([float(value) for value in losses])), Score.of(*totals.tolist()))
    print(curve)
    return curve


def main(argv: Sequence[str] | None = None) -> int:
    options = arguments(__doc__ or "", argv)
    train(options.train, options.val, epochs=options.epochs, seed=options.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
