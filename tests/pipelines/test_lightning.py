"""The Lightning bridge: epochs, exact resume within them, other numbers of devices, the configuration."""
from __future__ import annotations

from pathlib import Path

import pytest

import pipelines
from asdstore.errors import InputError
from tests.pipelines.launch import free_port, run_ranks
from tests.pipelines.test_loader import flat

pytest.importorskip("lightning")
from tests.pipelines.lightning_ranks import CONFIG, Recorder, trainer  # noqa: E402

pytestmark = [pytest.mark.filterwarnings("ignore")]


def module(pack, **more) -> pipelines.PackedASDDataModule:
    return pipelines.PackedASDDataModule({"packed_asd": {"train": [pack]}, "asd": {**CONFIG, **more}})


def reference(pack):
    return pipelines.train(pack, window=60, context=15, frame_budget=500, seed=3, rank=0, world=1)


def order(pack, *epochs: int) -> list[tuple]:
    """(epoch, batch index, batch) of one process."""
    loader = reference(pack)
    return [(epoch, index, batch) for epoch in epochs for index, batch in enumerate(flat(loader, epoch))]


def read(trained: list) -> list[tuple]:
    return [(epoch, index, tuple(map(tuple, names))) for epoch, index, names in trained]


def fit(data, folder: Path, epochs: int, checkpoint: Path | None = None, *, estimates: bool = False, **more) -> list[tuple]:
    model = Recorder(estimates)
    trainer(folder, epochs, **more).fit(model, datamodule=data, ckpt_path=checkpoint, weights_only=False)
    return read(model.trained)


def test_every_epoch_is_its_own(pack, tmp_path: Path):
    assert fit(module(pack), tmp_path, 3) == order(pack, 0, 1, 2)


def test_a_loader_by_itself_does_for_a_trainer(pack, tmp_path: Path):
    model = Recorder()
    train, val = pipelines.to_torch(reference(pack)), pipelines.to_torch(pipelines.evaluate(pack))
    run = trainer(tmp_path, 2, save_every=4)
    run.fit(model, train, val)
    assert read(model.trained) == order(pack, 0, 1)
    assert sorted(model.validated) == sorted([track.id for track in pack] * 2)
    again = Recorder()
    checkpoint = tmp_path / "step=4.ckpt"
    trainer(tmp_path, 2).fit(again, pipelines.to_torch(reference(pack)), val, ckpt_path=checkpoint, weights_only=False)
    assert read(again.trained) == order(pack, 0, 1)[4:]


@pytest.mark.parametrize("estimates", [False, True])
@pytest.mark.parametrize("step", [1, 4, 8, 9, 13, 18])
def test_training_goes_on_where_a_checkpoint_was_saved(pack, tmp_path: Path, step: int, estimates: bool):
    assert len(flat(reference(pack), 0)) == 9  # steps 9 and 18 are the ends of epochs
    whole = fit(module(pack), tmp_path, 2, save_every=1, estimates=estimates)
    assert whole == order(pack, 0, 1)
    rest = fit(module(pack), tmp_path, 3, tmp_path / f"step={step}.ckpt", estimates=estimates)
    assert rest == order(pack, 0, 1, 2)[step:]


def test_a_checkpoint_of_a_resumed_run(pack, tmp_path: Path):
    fit(module(pack), tmp_path, 1, save_every=1)
    fit(module(pack), tmp_path / "again", 2, tmp_path / "step=2.ckpt", save_every=1, estimates=True)
    for step in (3, 5, 11):
        assert fit(module(pack), tmp_path, 2, tmp_path / "again" / f"step={step}.ckpt") == order(pack, 0, 1)[step:]


def test_validation_in_between_changes_nothing(pack, tmp_path: Path):
    data = pipelines.PackedASDDataModule(packed_asd={"train": [pack], "val": pack}, asd=CONFIG)
    model = Recorder()
    trainer(tmp_path, 2, save_every=2, val_check_interval=3).fit(model, datamodule=data)
    assert read(model.trained) == order(pack, 0, 1)
    assert sorted(model.validated) == sorted([track.id for track in pack] * 6)
    again = Recorder(estimates=True)
    checkpoint = tmp_path / "step=4.ckpt"
    trainer(tmp_path, 2, val_check_interval=3).fit(again, datamodule=data, ckpt_path=checkpoint, weights_only=False)
    assert read(again.trained) == order(pack, 0, 1)[4:]


@pytest.mark.parametrize("more", [{"limit_train_batches": 4}, {"reload_dataloaders_every_n_epochs": 1}])
def test_options_of_the_trainer(pack, tmp_path: Path, more):
    expected = [one for one in order(pack, 0, 1, 2) if one[1] < more.get("limit_train_batches", 9)]
    assert fit(module(pack), tmp_path, 3, **more) == expected


def test_a_checkpoint_of_another_plan_is_refused(pack, tmp_path: Path):
    fit(module(pack), tmp_path, 1, save_every=4)
    with pytest.raises(ValueError, match="plan"):
        fit(module(pack, train_window=61), tmp_path, 1, tmp_path / "step=4.ckpt")


def test_two_processes_from_one_and_back(pack, tmp_path: Path):
    """One process stops after 3 of 9 batches; two go on to the end of epoch 1; one goes on from within that epoch."""
    fit(module(pack), tmp_path, 1, save_every=3)
    found = run_ranks("lightning_ranks.py", 2, tmp_path / "two", pack.paths[0], free_port(), tmp_path / "step=3.ckpt")
    assert [each["rank"] for each in found] == [[0, 2], [1, 2]]
    ranks = [read(each["trained"]) for each in found]
    assert [(epoch, index) for epoch, index, _ in ranks[0]] == [(epoch, index) for epoch, index, _ in ranks[1]]
    for epoch, expected in ((0, flat(reference(pack), 0)[3:]), (1, flat(reference(pack), 1))):
        steps = list(zip(*([batch for at, _, batch in rank if at == epoch] for rank in ranks), strict=True))
        given_out = [batch for step in steps for batch in step]
        assert given_out[:len(expected)] == expected
        assert not any(valid for batch in given_out[len(expected):] for _, _, valid in batch)
    assert ranks[0][-1][:2] == (1, 4) and ranks[0][2][:2] == (0, 4)  # of 5 steps each, as Lightning counts them
    seen = [each["validated"] for each in found]
    assert sorted(seen[0] + seen[1]) == sorted([track.id for track in pack] * 2)
    # 3 steps by one process, 3 by two to the end of epoch 0, then 3 steps: step 9 of all is batch 6 of epoch 1
    rest = fit(module(pack), tmp_path, 2, tmp_path / "two" / "step=9.ckpt")
    assert [batch for _, _, batch in rest] == flat(reference(pack), 1)[6:] and [index for _, index, _ in rest] == [6, 7, 8]


# Configuration --------------------------------------------------------------------------------------------------------------


def test_the_documented_configuration_is_taken_whole(pack):
    asd = {"train_window": 250, "hist_frames": 50, "frame_budget": 2048, "min_batch": 4, "max_batch": 16,
           "val_frame_budget": 8192, "val_max_batch": 64, "seed": 7, "num_workers": 16, "persistent_workers": True,
           "prefetch_factor": 2, "pin_memory": False, "augment": True}
    data = pipelines.PackedASDDataModule({"packed_asd": {"train": [pack], "val": [pack]}, "asd": asd})
    train, val = data.train_dataloader(), data.val_dataloader()
    assert not isinstance(val, list)
    same = pipelines.train(pack, seed=7, augment=[pipelines.mix_voice(0.5, (-5, 5)), pipelines.augment_faces()])
    assert train.state_dict() == same.state_dict()
    assert val.state_dict() == pipelines.evaluate(pack, frame_budget=8192, max_batch=64, seed=7).state_dict()
    assert (train.threads, train.processes, train.prefetch) == (4, 0, 4)


def test_defaults_are_those_of_train(pack):
    data = pipelines.PackedASDDataModule(packed_asd={"train": str(pack.paths[0])})
    assert data.train_dataloader().state_dict() == pipelines.train(pack).state_dict()
    assert data.val_dataloader() == []


@pytest.mark.parametrize(("augment", "expected"), [
    (False, ""), ({"visual": False}, "mix_voice"), ({"audio_mix_prob": 0, "visual": True}, "augment_faces"),
    ({"substitute_audio_prob": 0.1}, "substitute_voice mix_voice augment_faces"), (pipelines.augment_faces(), "augment_faces"),
    ([pipelines.mix_voice(0.1), pipelines.augment_faces()], "mix_voice augment_faces")])
def test_augmentation(pack, augment, expected):
    stages = module(pack, augment=augment).train_dataloader().recipe.transform.stages
    assert " ".join(stage.name for stage in stages if "voice" in stage.name or "augment" in stage.name) == expected


PACKS = {"packed_asd": {"train": ["p"]}}


@pytest.mark.parametrize(("config", "said"), [
    ({**PACKS, "asd": {"train_windw": 250}}, "found 'train_windw'. Did you mean 'train_window'?"),
    ({**PACKS, "asd": {"Frame_Budget": 8}}, "Did you mean 'frame_budget'?"), ({**PACKS, "asd": {"lr": 8}}, "Remove it"),
    ({"packed_asd": {"train": ["p"], "valid": ["q"]}}, "Did you mean 'val'?"),
    ({"packed": {"train": ["p"]}}, "Did you mean 'packed_asd'?"), ({**PACKS, "trainer": {}}, "one of packed_asd, asd"),
    ({**PACKS, "asd": {"augment": {"audio_mix": 1}}}, "Did you mean 'audio_mix_prob'?"),
    ({"packed_asd": {"train": 5}}, "a list of packs"), ({"packed_asd": {"train": []}}, "a list of packs"),
    ({"packed_asd": None}, "a mapping"), ({}, "a mapping"), ({**PACKS, "asd": {"seed": "0"}}, "int, as 0"),
    ({**PACKS, "asd": [1]}, "a mapping"), ({**PACKS, "asd": {"frame_budget": None}}, "int"),
    ({**PACKS, "asd": {"pin_memory": 1}}, "bool"),
    ({**PACKS, "asd": {"seed": True}}, "int"), ({**PACKS, "asd": {"augment": "yes"}}, "true, false, a mapping or transforms")])
def test_a_configuration_that_is_wrong(config, said):
    with pytest.raises(InputError) as error:
        pipelines.PackedASDDataModule(config)
    assert error.value.kind == "config" and said in str(error.value)


def test_what_the_loaders_refuse_comes_out(pack):
    with pytest.raises(InputError) as error:
        module(pack, hist_frames=60).train_dataloader()
    assert error.value.kind == "context"
