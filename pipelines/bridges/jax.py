"""The loader for JAX: batches as device arrays of few distinct shapes; over several processes, global arrays."""
from __future__ import annotations

from typing import Any

import numpy as np

from asdstore.errors import InputError
from pipelines.bridges import framework, plain
from pipelines.loader import Loader
from pipelines.recipe import Recipe
from pipelines.speech_source import SpeechRecipe
from pipelines.transforms import Transform, budget_batch, chain

jax = framework("jax")


class JaxLoader(Loader):
    """A `Loader` whose batches lie on devices; see `to_jax`."""

    sharding: Any
    of: type[Loader]

    def finish(self, batch: dict[str, Any], epoch: int, first: int) -> dict[str, Any]:
        batch = self.of.finish(self, batch, epoch, first)
        if self.sharding is not None and isinstance(self.recipe, SpeechRecipe):
            batch = self._padded_speech(batch, epoch, first)
        elif self.sharding is not None and type(self.recipe) is Recipe:
            batch = self._padded(batch, epoch, first)
        return {name: self._placed(value) for name, value in batch.items()}

    def _members(self, epoch: int, first: int) -> np.ndarray:
        """Which batches the ranks read in the step that starts with global batch `first`."""
        members, count = np.arange(first, first + self.world), self.recipe.count(epoch)
        return members % count if self.recipe.repeats(epoch) else np.minimum(members, count - 1)

    def _rows(self, least: int) -> int:
        """So many rows or a few more: as many for each device of this process."""
        parts = parts_of(self.sharding) // self.world
        return -(-least // parts) * parts

    def _padded_speech(self, batch: dict[str, Any], epoch: int, first: int) -> dict[str, Any]:
        """The batch with the rows, samples and tokens of its step's largest."""
        extent = self.recipe.extent(epoch, self._members(epoch, first))
        wide = {"source_seqs": extent.width, "target_seqs": extent.tokens}
        fills = {"draws": -1, "target_seqs": self.recipe.reading.pad_id}
        if "target_seqs" in batch and batch["target_seqs"].shape[1] > extent.tokens:
            raise InputError("tokenizer", file="to_jax", expected=f"at most {extent.tokens} tokens, as these texts had before",
                             found=str(batch["target_seqs"].shape[1]), cure="Use a tokenizer that draws nothing at random.")
        found = {}
        for name, value in batch.items():
            if isinstance(value, np.ndarray):
                columns = (wide[name], *value.shape[2:]) if name in wide else value.shape[1:]
                value = _grown(value, (self._rows(extent.rows), *columns), fills.get(name, 0))
            found[name] = value
        return found

    def _padded(self, batch: dict[str, Any], epoch: int, first: int) -> dict[str, Any]:
        """The batch with the rows and frames of its step's largest, as many rows for each device; the rest is not valid."""
        plan = self.recipe.plan(epoch)
        members = self._members(epoch, first)
        rows = self._rows(int(plan.batches.rows[members].max()))
        frames = int(plan.batches.frames[members].max())
        samples = plan.timeline.width(frames, plan.timeline.fps or float(plan.tracks.fps.min()))
        sounds = {read.name for read in plan.reads if read.stream == "audio"}
        has = batch["scored"].shape[1]
        found = {}
        for name, value in batch.items():
            if isinstance(value, np.ndarray):
                shape = (rows, *value.shape[1:])
                if value.ndim > 1 and (name in sounds or value.shape[1] == has):
                    shape = (rows, samples if name in sounds else frames, *value.shape[2:])
                value = _grown(value, shape, -1 if name == "tracks" else 0)
            found[name] = value
        return found

    def _placed(self, value: Any) -> Any:
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "biuf":
            return value
        if value.dtype == np.int64:  # JAX's own integers, unless it was told otherwise
            value = value.astype(np.int32)
        if self.sharding is None:
            return jax.device_put(value)
        shape = (len(value) * self.world, *value.shape[1:])
        return jax.make_array_from_process_local_data(self.sharding, value, shape)


def _grown(value: np.ndarray, shape: tuple[int, ...], fill: int) -> np.ndarray:
    """The array in the corner of a larger one."""
    if value.shape == shape:
        return value
    found = np.full(shape, "" if value.dtype.kind == "U" else fill, value.dtype)
    found[tuple(map(slice, value.shape))] = value
    return found


def to_jax(loader: Loader, shapes: int | None = 16, *, sharding: Any = None) -> JaxLoader:
    """The loader with jax.Array for arrays, put on the device while earlier batches are used.

    XLA compiles a program for every shape, so batches get at most `shapes` distinct ones. Everything else is the loader's:
    order, ranks, epochs, `state_dict()`. Integers are int32. Texts stay numpy arrays, and `scored_in_step` an int.

    In a run of several processes, and wherever `sharding` is given, the batches of a step are one global array for each name:
    rows of rank 0 first, completed to equal shapes by rows and frames that are not `valid` and not `scored`. Texts are this
    process's own. Mixtures are completed likewise, to the tokens of the step's longest target: each process makes the tokens
    of every text once, and a tokenizer must make as many of a text each time.

    Args:
        loader: of `train`, `evaluate`, `mixture` or `build`; the result begins where it stands and then goes its own way.
        shapes: the bound, where batches are made for a budget and `train(shapes=...)` did not bound them yet. This makes
            another plan: a state of the unbounded one is refused. None leaves the plan alone.
        sharding: of the global arrays, cut along rows only; by default along all devices where there are several processes.

    Raises: DependencyError without jax; InputError, "loader"; "world" where the loader's ranks are not JAX's processes;
    "group" where the batches of a step would not all have one of the few shapes; "sharding" for one that does not give each
    process as many parts.
    """
    found = plain(loader, "to_jax")
    if shapes is not None:
        found = _bounded(found, shapes)
    processes = jax.process_count()
    if processes > 1 and sharding is None:
        mesh = jax.sharding.Mesh(np.array(jax.devices()), ("rows",))
        sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("rows"))
    if sharding is not None:
        _check(found, sharding, processes)
    return found.like(JaxLoader, sharding=sharding, of=type(found))


def _bounded(loader: Loader, shapes: int) -> Loader:
    """The loader with at most so many shapes; itself where it has a bound already, or makes batches in another way."""
    stages = loader.recipe.transform.stages
    at, settings = _budget(loader)
    if settings.get("shapes", 0) is not None:
        return loader
    if loader.epoch or loader.state_dict()["batches"]:
        raise InputError("loader", file="to_jax", expected="one that has not begun, since a bound makes another plan",
                         found=str(loader), cure="Write train(..., shapes=16), or to_jax(loader, shapes=None).")
    bounded = budget_batch(**{**settings, "shapes": shapes})
    transform = chain(Transform(stages=stages[:at]), bounded, Transform(stages=stages[at + 1:]))
    return loader.like(type(loader), recipe=Recipe(loader.recipe.packs, transform, loader.recipe.seed))


def _budget(loader: Loader) -> tuple[int, dict[str, Any]]:
    """Which stage makes batches for a budget, and its settings; none where there is no such stage."""
    stages = loader.recipe.transform.stages
    return next(((i, dict(stage.settings)) for i, stage in enumerate(stages) if stage.name == "budget_batch"), (0, {}))


def parts_of(sharding: Any) -> int:
    """In how many parts a sharding cuts rows."""
    devices = len(sharding.device_set)
    return devices // sharding.shard_shape((devices,))[0]


def _check(loader: Loader, sharding: Any, processes: int) -> None:
    if (loader.rank, loader.world) != (jax.process_index(), processes):
        raise InputError("world", file="to_jax", expected=f"the loader of process {jax.process_index()} of {processes}",
                         found=f"rank {loader.rank} of {loader.world}",
                         cure="Make it after jax.distributed.initialize(), or pass rank= and world=.")
    if parts_of(sharding) % processes:
        raise InputError("sharding", file="to_jax", expected=f"rows in parts, as many for each of {processes} processes",
                         found=f"{parts_of(sharding)} parts")
    if type(loader.recipe) not in (Recipe, SpeechRecipe) and getattr(loader.recipe, "keep_last", True):
        raise InputError("loader", file="to_jax", expected="one that plans the shapes of all ranks' batches, or a constant one",
                         found=type(loader).__name__)
    speech = isinstance(loader.recipe, SpeechRecipe)
    settings = loader.recipe.batching._asdict() if speech else _budget(loader)[1]
    if settings.get("shapes") and not settings.get("buckets") and settings["group"] % processes:
        raise InputError("group", file="to_jax", expected=f"a multiple of {processes}, so that a step has batches of one shape",
                         found=str(settings["group"]), cure=f"Write {'mixture' if speech else 'train'}(..., group=...).")
