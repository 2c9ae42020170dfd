"""A Lightning data module that takes the configuration of the original program and gives the loaders of `pipelines`."""
from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from asdstore.errors import InputError
from asdstore.pack import Pack
from pipelines.augment import augment_faces, mix_voice, substitute_voice
from pipelines.bridges import framework
from pipelines.bridges.torch import TorchLoader, to_torch
from pipelines.loader import Loader
from pipelines.presets import evaluate, train
from pipelines.sections import check_keys, read_section
from pipelines.transforms import Transform

lightning = framework("lightning")

_MOST_THREADS = 4  # enough to fill the memory bus; more only wait for one another


class Packs(NamedTuple):
    """`packed_asd:` the packs to train on and, optionally, to validate on."""

    train: Sequence[Any] = ()
    val: Sequence[Any] = ()


class Settings(NamedTuple):
    """`asd:` how they are fed.

    `num_workers` threads make `prefetch_factor` batches ahead, 0 makes each when it is asked for. `persistent_workers` is taken
    and changes nothing: threads are begun in no time. `augment` is True for the original's augmentation, or transforms.
    """

    train_window: int | None = 250
    hist_frames: int = 50
    frame_budget: int = 2048
    min_batch: int = 4
    max_batch: int = 16
    val_frame_budget: int | None = 8192
    val_max_batch: int = 64
    seed: int = 0
    num_workers: int = 2
    persistent_workers: bool = True
    prefetch_factor: int = 2
    pin_memory: bool = False
    augment: Any = False


class Augmentation(NamedTuple):
    """`augment:` as a mapping; the defaults are the original's."""

    audio_mix_prob: float = 0.5
    audio_mix_snr_db: tuple[float, float] = (-5.0, 5.0)
    substitute_audio_prob: float = 0.0
    visual: bool = True


class PackedASDDataModule(lightning.LightningDataModule):
    """Loaders for a Lightning Trainer, from the configuration of packs and settings.

        data = PackedASDDataModule({"packed_asd": {"train": ["AVA/packed/train"], "val": ["AVA/packed/val"]},
                                    "asd": {"train_window": 250, "hist_frames": 50, "frame_budget": 2048}})
        Trainer(use_distributed_sampler=False, ...).fit(model, datamodule=data)

    The two sections may also be given as keywords. Ranks are the trainer's. The loaders shard themselves and are no
    DataLoaders, so `use_distributed_sampler=False` only says what happens anyway. Training goes on exactly where a checkpoint
    was saved: within an epoch too, with another number of devices too, and where `configure_optimizers` reads
    `estimated_stepping_batches`, which makes Lightning forget a loader's state. For a chain of your own override
    `train_loader` or `val_loader`.

    Raises: InputError "config", with what was probably meant, for an unknown key or a value of another type; what `train` and
    `evaluate` raise, when the trainer asks for the loaders.
    """

    def __init__(self, config: Mapping[str, Any] | None = None, /, **sections: Any):
        super().__init__()
        given = {**(config or {}), **sections}
        check_keys(given, ("packed_asd", "asd"), "")
        packs = read_section(Packs, given.get("packed_asd"), "packed_asd")
        self.packs = Packs(_packs(packs.train, "train"), _packs(packs.val, "val"))
        if not self.packs.train:
            raise InputError("config", file="packed_asd.train", expected="a list of packs", found=repr(packs.train))
        self.settings = read_section(Settings, given.get("asd") or {}, "asd")
        self._augment = _augmentation(self.settings.augment)
        self._train: _Training | None = None
        self._state: Mapping[str, Any] | None = None

    # Loaders ----------------------------------------------------------------------------------------------------------------
    def train_loader(self, **running: Any) -> Loader:
        """The loader to train with; `running` are rank, world, prefetch and threads."""
        s = self.settings
        return train(*self.packs.train, window=s.train_window, context=s.hist_frames, frame_budget=s.frame_budget,
                     min_batch=s.min_batch, max_batch=s.max_batch, seed=s.seed, augment=self._augment, **running)

    def val_loader(self, **running: Any) -> Loader:
        """The loader to validate with: whole tracks."""
        s = self.settings
        return evaluate(*self.packs.val, frame_budget=s.val_frame_budget, max_batch=s.val_max_batch, seed=s.seed, **running)

    def train_dataloader(self) -> TorchLoader:
        loader = to_torch(self.train_loader(**self._running()), pin_memory=self.settings.pin_memory)
        self._train = loader.like(_Training, module=self)
        if self._state is not None:
            self._train.load_state_dict(self._state)
        return self._train

    def val_dataloader(self) -> TorchLoader | list:
        if not self.packs.val:
            return []
        return to_torch(self.val_loader(**self._running()), pin_memory=self.settings.pin_memory)

    def _running(self) -> dict[str, int]:
        threads = min(self.settings.num_workers, _MOST_THREADS)
        found = {"threads": threads, "prefetch": max(self.settings.prefetch_factor, threads)}
        if self.trainer is None:
            return found
        return {**found, "rank": self.trainer.global_rank, "world": self.trainer.world_size}

    # State ------------------------------------------------------------------------------------------------------------------
    def state_dict(self) -> dict[str, Any]:
        return {} if self._train is None else {"train": self._train.state_dict()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self._state = state_dict.get("train")
        if self._train is not None and self._state is not None:
            self._train.load_state_dict(self._state)

    def epoch_begins(self, epoch: int) -> None:
        """Called by the training loader when the trainer begins an epoch, or goes on within one from a checkpoint.

        Lightning counts the steps of the epoch that it has done, of as many devices as there were. What the loader knows is
        right: from it follow the steps that are left, and the count is moved so that Lightning expects just those.
        """
        loader, state, self._state = self._train, self._state, None
        if loader is None or state is None or self.trainer is None or state["epoch"] != epoch:
            return
        loader.load_state_dict(state)
        progress = self.trainer.fit_loop.epoch_loop.batch_progress.current
        moved = loader.steps_done() - progress.ready
        for name in ("ready", "started", "processed", "completed"):
            setattr(progress, name, getattr(progress, name) + moved)


class _Training(TorchLoader):
    """The training loader, which tells its module when an epoch begins."""

    module: PackedASDDataModule

    def steps_done(self) -> int:
        """Steps of this rank that lie before where the loader stands, in all those of the epoch."""
        return len(self) - self._steps(self.epoch, self._done)

    def set_epoch(self, epoch: int) -> None:
        super().set_epoch(epoch)
        self.module.epoch_begins(epoch)


# Configuration --------------------------------------------------------------------------------------------------------------


def _packs(given: Any, key: str) -> list[Any]:
    if given is not None and not isinstance(given, (str, os.PathLike, Pack, Sequence)):
        raise InputError("config", file=f"packed_asd.{key}", expected="a pack, or a list of packs", found=repr(given)[:100])
    return [given] if isinstance(given, (str, os.PathLike, Pack)) else list(given or ())


def _augmentation(given: Any) -> Sequence[Transform]:
    """The transforms that `augment` asks for."""
    if isinstance(given, Transform):
        return [given]
    if isinstance(given, Sequence) and not isinstance(given, str):
        return list(given)
    if not isinstance(given, (bool, Mapping, type(None))):
        raise InputError("config", file="asd.augment", expected="true, false, a mapping or transforms", found=repr(given)[:100])
    if not given:
        return []
    asked = read_section(Augmentation, {} if given is True else given, "asd.augment")
    voices = [substitute_voice(asked.substitute_audio_prob)] if asked.substitute_audio_prob else []
    voices += [mix_voice(asked.audio_mix_prob, asked.audio_mix_snr_db)] if asked.audio_mix_prob else []
    return [*voices, augment_faces()] if asked.visual else voices
