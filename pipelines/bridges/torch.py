"""The loader for torch: the same batches in the same order as tensors, for plain loops, DDP and Lightning."""
from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from asdstore.errors import InputError
from pipelines.bridges import framework, plain
from pipelines.loader import Loader

torch = framework("torch")
data = framework("torch.utils.data")


class TorchLoader(Loader, data.IterableDataset):
    """A `Loader` whose batches are tensors. It is no DataLoader, so that nothing shards it once more; see `to_torch`."""

    pin_memory: bool
    of: type[Loader]
    batch_sampler = None  # Lightning asks for it beside `sampler`

    @property
    def sampler(self) -> TorchLoader:
        """What trainers call `set_epoch` of."""
        return self

    def finish(self, batch: dict[str, Any], epoch: int, first: int) -> dict[str, Any]:
        batch = self.of.finish(self, batch, epoch, first)
        return {name: _value(value, self.pin_memory) for name, value in batch.items()}

    def _check_rank(self) -> None:
        super()._check_rank()
        if data.get_worker_info() is not None:
            raise InputError("processes", file="to_torch", expected="a DataLoader with num_workers=0",
                             found="one with processes, each of which would make all batches",
                             cure="Use the loader as it is, with processes=N of its own.")


def to_torch(loader: Loader, pin_memory: bool = False) -> TorchLoader:
    """The loader with torch tensors for arrays (in the memory of the arrays, not copied) and lists of str for texts.

    Everything else is the loader's: order, ranks, epochs, `state_dict()`. Use it as it is in a loop, also with DDP, which wraps
    the model only, and in a Lightning Trainer, whatever `use_distributed_sampler` says. A DataLoader or torchdata's
    StatefulDataLoader around it adds nothing; it needs batch_size=None, and num_workers=0: its worker processes are refused.

    A batch is valid for as long as one of its tensors lives: its memory is used again only after that.

    Args:
        loader: of `train`, `evaluate` or `build`; the result begins where it stands and then goes its own way.
        pin_memory: copy batches to page-locked memory, in the threads that make them, for `.to(device, non_blocking=True)`.
            torch does not use such memory again before the copy to the device has ended. No effect without an accelerator.

    Raises: DependencyError without torch; InputError "loader".
    """
    if pin_memory and not torch.cuda.is_available():
        warnings.warn("pin_memory has no effect without an accelerator", stacklevel=2)
        pin_memory = False
    own = plain(loader, "to_torch")
    return own.like(TorchLoader, pin_memory=pin_memory, of=type(own))


def _value(value: Any, pin_memory: bool) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype.kind in "USO":
        return value.tolist()
    if not value.flags.writeable or any(stride < 0 for stride in value.strides):
        value = value.copy()  # of a user's transform: torch has no read-only and no reversed tensors
    tensor = torch.from_numpy(value)
    return tensor.pin_memory() if pin_memory else tensor
