"""Which rank of how many this process is: given, or found where a distributed run has been initialised; never guessed."""
from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from asdstore.errors import InputError
from pipelines.settings import whole

# Set by launchers: how many processes there are. Seen without an initialised run, rank 0 of 1 would be wrong.
_LAUNCHED = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "JAX_NUM_PROCESSES")


def find_rank(rank: int | None = None, world: int | None = None, environ: Mapping[str, str] = os.environ) -> tuple[int, int]:
    """(rank, world) as given, or of torch.distributed or JAX where one of them is initialised, or (0, 1) in a single process.

    Raises: InputError, "rank" for a rank out of range, half of the two given, or two runs that disagree; "world" where a
    launcher started several processes but none of the two is initialised yet.

    >>> find_rank(1, 4), find_rank(environ={})
    ((1, 4), (0, 1))
    """
    if rank is not None and world is not None:
        rank, world = whole("rank", rank), whole("world", world)
        if not (world >= 1 and 0 <= rank < world):
            raise InputError("rank", expected="world >= 1 and 0 <= rank < world", found=f"rank {rank}, world {world}")
        return rank, world
    if rank is not None or world is not None:
        raise InputError("rank", expected="both rank and world, or neither", found=f"rank {rank}, world {world}")
    found = running()
    if found:
        return found
    for name in _LAUNCHED:
        if environ.get(name, "1").strip() not in ("", "0", "1"):
            raise InputError("world", expected="an initialised torch.distributed or JAX run, since the environment says "
                             f"{name}={environ[name]}", found="none",
                             cure="Initialise it before the loader is made, or pass rank= and world=.")
    return 0, 1


def running() -> tuple[int, int] | None:
    """(rank, world) of the torch.distributed or JAX run that is initialised in this process.

    Raises: InputError "rank" where both are, and disagree.
    """
    found = {name: place for name, place in (("torch.distributed", _torch()), ("JAX", _jax())) if place}
    if len(set(found.values())) > 1:
        raise InputError("rank", expected="one rank and world", found=", ".join(f"{k}: {v}" for k, v in found.items()),
                         cure="Pass rank= and world=.")
    return next(iter(found.values()), None)


def _torch() -> tuple[int, int] | None:
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed.get_rank(), distributed.get_world_size()


def _jax() -> tuple[int, int] | None:
    jax = sys.modules.get("jax")
    if jax is None or not jax.distributed.is_initialized():
        return None
    return jax.process_index(), jax.process_count()
