"""The loader for Grain: a MapDataset whose elements are batches, epoch after epoch."""
from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from typing import Any

from asdstore.errors import InputError, StateError
from pipelines.bridges import framework, plain
from pipelines.loader import Loader

grain = framework("grain")

# Transforms that leave the lengths of the chunks alone, and with them the number of batches, though they draw anew each epoch.
_SAME_COUNT = ("budget_batch", "mix_voice", "substitute_voice", "augment_faces")


class Batches(grain.MapDataset):
    """Element i is the batch of a loader's rank at step i, counted from its current epoch on through all later ones.

    `repeat(n)` makes it n times as many epochs, `repeat()` endless; each epoch is its own plan, whatever its number of batches.
    Slices stay datasets of this kind: of a loader of rank 0 of 1, `to_grain(loader).repeat()[r::W]` is what rank r of W reads.
    """

    def __init__(self, loader: Loader, epochs: int | None, read_options: Any, places: range | None = None):
        super().__init__()
        self.loader, self.epochs, self.read_options = loader, epochs, read_options
        self._steps = _Steps(loader)
        self._total = sys.maxsize if epochs is None else self._steps.before(epochs)
        self._places = range(self._total) if places is None else places

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.slice(index)
        if index < 0 or not len(self):
            raise IndexError(f"element {index} of {len(self)}")
        again, place = divmod(int(index), len(self))  # beyond the end Grain means later epochs
        return self.loader.batch(*self._steps.find(self._places[place] + again * self._total))

    def slice(self, sl: slice) -> Batches:
        return Batches(self.loader, self.epochs, self.read_options, self._places[sl])

    def repeat(self, num_epochs: int | None = None, *, reseed_each_epoch: bool = True) -> Batches:
        whole = len(self) == self._total and self.epochs is not None
        if not whole or not reseed_each_epoch or (num_epochs is not None and num_epochs < 1):
            raise InputError("order", file="to_grain", expected="repeat(n) of all of so many epochs, each its own",
                             found=f"repeat({num_epochs}, reseed_each_epoch={reseed_each_epoch}) of {self}",
                             cure="Write to_grain(loader).repeat(n)[r::W].")
        return Batches(self.loader, None if num_epochs is None else (self.epochs or 1) * num_epochs, self.read_options)

    def to_iter_dataset(self, read_options: Any = None, *, allow_nones: bool = False) -> Any:
        """As every MapDataset's, with this dataset's own `read_options` where none are given."""
        return _Checked(super().to_iter_dataset(read_options or self.read_options, allow_nones=allow_nones), self.loader)

    def __str__(self) -> str:
        return f"Batches(of {self.loader}, epochs={self.epochs}, {self._places})"


class _Steps:
    """Which epoch and step of a loader's rank each number is, counted from the beginning of its current epoch."""

    def __init__(self, loader: Loader):
        stages = loader.recipe.transform.stages
        self._even = all(stage.still or stage.name in _SAME_COUNT for stage in stages)
        self._loader, self._first = loader, loader.epoch
        self._ends: list[int] = []  # after each epoch, as far as they are known
        self._lock = threading.Lock()

    def __reduce__(self):
        return _Steps, (self._loader,)

    def before(self, epochs: int) -> int:
        """Steps of so many epochs."""
        if self._even:
            return epochs * len(self._loader)
        with self._lock:
            while len(self._ends) < epochs:
                steps = len(self._loader.at(self._first + len(self._ends)))
                self._ends.append(steps + (self._ends[-1] if self._ends else 0))
            return self._ends[epochs - 1] if epochs else 0

    def find(self, number: int) -> tuple[int, int]:
        """(epoch, step)."""
        if self._even:
            epoch, step = divmod(number, len(self._loader))
            return self._first + epoch, step
        epoch = 0
        while self.before(epoch + 1) <= number:
            epoch += 1
        return self._first + epoch, number - self.before(epoch)


class _Checked(grain.IterDataset):
    """An IterDataset whose iterators refuse the state of another plan."""

    def __init__(self, parent: Any, loader: Loader):
        super().__init__(parent)
        self._loader = loader

    def __iter__(self) -> Any:
        return _CheckedIterator(iter(self._parent), self._loader)

    def __str__(self) -> str:
        return str(self._parent)


class _CheckedIterator(grain.DatasetIterator):
    def __init__(self, parent: Any, loader: Loader):
        super().__init__(parent)
        self._recipe = loader.recipe

    def __next__(self) -> Any:
        return next(self._parent)

    def get_state(self) -> dict[str, Any]:
        return {**self._parent.get_state(), "plan": self._recipe.digest, "seed": self._recipe.seed}

    def set_state(self, state: Mapping[str, Any]) -> None:
        own = {**state}
        self._recipe.expect(str(own.pop("plan", None)))
        if own.pop("seed", None) != self._recipe.seed:
            raise StateError("seed", expected=f"a state of seed {self._recipe.seed}", found=str(state.get("seed")))
        self._parent.set_state(own)

    def __str__(self) -> str:
        return str(self._parent)


def to_grain(loader: Loader, epochs: int | None = 1, *, threads: int = 2, buffer: int = 2) -> Batches:
    """The loader as a Grain MapDataset of batches; iterating over it, or `to_iter_dataset()`, reads with few threads.

    Grain's own defaults, 16 threads and 500 elements read ahead, would hold 500 batches in memory. They return where further
    transformations make another dataset of this one; there write `dataset.map(f).to_iter_dataset(batches.read_options)`.

    Iterators are checkpointed as Grain does, by `get_state()` and `set_state()`: {"next_index", "plan", "seed"}; a state of
    another plan is refused. In a run of another number of ranks set next_index to next_index * W // W'.

    Args:
        loader: of `train`, `evaluate` or `build`. Elements are its rank's batches, from the beginning of its current epoch on.
        epochs: how many; None for no end. Epochs with different numbers of batches (`jitter=True`) are counted one by one.
        threads, buffer: that read ahead, and batches that they hold ready. `read_options` of the result.

    Raises: DependencyError without grain; InputError "loader", "epochs".
    """
    if epochs is not None and epochs < 1:
        raise InputError("epochs", file="to_grain", expected="at least 1, or None", found=str(epochs))
    options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=max(buffer, threads))
    own = plain(loader, "to_grain")
    return Batches(own.at(own.epoch), epochs, options)
