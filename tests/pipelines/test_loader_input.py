"""What a loader refuses or reports, and several packs together."""
from __future__ import annotations

import shutil

import numpy as np
import pytest

import pipelines
from asdstore.errors import AsdError, InputError
from tests.pipelines.made import Kind, small

pytestmark = pytest.mark.filterwarnings("ignore:.*shorter than one frame")


@pytest.mark.parametrize(("change", "kind"), [
    ({"window": 0}, "window"), ({"window": -5}, "window"), ({"context": 60}, "context"), ({"context": 61}, "context"),
    ({"context": -1}, "context"), ({"frame_budget": 59}, "budget"), ({"frame_budget": 0}, "budget"),
    ({"min_batch": 0}, "min_batch"),
    ({"max_batch": 3}, "max_batch"), ({"shapes": 0}, "shapes"), ({"group": 0}, "group"), ({"fit": "stretch"}, "fit"),
    ({"fps": 0}, "fps"), ({"fps": float("nan")}, "fps"), ({"fps": float("inf")}, "fps"), ({"audio": "float64"}, "dtype"),
    ({"rank": 3, "world": 3}, "rank"), ({"rank": -1, "world": 3}, "rank"), ({"rank": 0, "world": 0}, "rank"),
    ({"rank": 1}, "rank"), ({"threads": -1}, "threads"), ({"prefetch": -1}, "prefetch"), ({"compat": "other"}, "compat"),
    ({"drop_last": True}, "drop_last"), ({"window": 60.5}, "window"), ({"window": "60"}, "window"),
    ({"context": None}, "context"), ({"frame_budget": "500"}, "budget"), ({"frame_budget": None}, "budget"),
    ({"min_batch": 1.5}, "min_batch"), ({"max_batch": None}, "max_batch"), ({"group": 2.5}, "group"),
    ({"seed": 1.5}, "seed"), ({"seed": None}, "seed"), ({"rank": 0.5, "world": 2}, "rank"),
    ({"shapes": "4"}, "shapes"), ({"rank": "0", "world": "2"}, "rank"), ({"compat": "muvap", "jitter": True}, "jitter")])
def test_settings_that_cannot_hold(pack, change, kind):
    with pytest.raises(InputError) as error:
        small(pack, **change)
    assert error.value.kind == kind


def test_packs_of_different_geometry(packed):
    with pytest.raises(InputError) as error:
        pipelines.train(packed([Kind(30)], "a"), packed([Kind(30)], "b", face_shape=(9, 6)))
    assert error.value.kind == "geometry"


@pytest.mark.parametrize("given", [5, None, np.zeros(3)])
def test_what_is_no_pack(given):
    with pytest.raises(InputError) as error:
        pipelines.train(given)
    assert error.value.kind == "layout"


@pytest.mark.parametrize("fps", ["0.0", "-25.0", "NaN", "1e999"])
def test_rates_that_are_none(golden, tmp_path, fps):
    shutil.copytree(golden / "packs" / "ava_val_full", tmp_path / "pack", copy_function=shutil.copyfile)
    index = tmp_path / "pack" / "shard-000000" / "index.json"
    (tmp_path / "pack" / "shard-000000").chmod(0o755)
    text = index.read_text()
    index.unlink()
    index.write_text(text.replace('"source_fps":25.0', f'"source_fps":{fps}', 1))
    with pytest.raises(AsdError, match="index.json"):
        pipelines.train(tmp_path / "pack")


def test_an_empty_pack(pack):
    with pytest.raises(InputError) as error:
        pipelines.train(pack.select(np.zeros(len(pack), bool)))
    assert error.value.kind == "empty"
    with pytest.raises(InputError):
        pipelines.train()


def test_tracks_shorter_than_a_frame_are_counted_and_named(packed):
    pack = packed([Kind(1, 30.0), Kind(60), Kind(2, 60.0)])
    with pytest.warns(UserWarning, match="2 tracks shorter .*t0, t2"):
        loader = pipelines.train(pack)
    assert loader.explain()["too_short"] == {"tracks": 2, "sample_ids": ["t0", "t2"]}
    with pytest.raises(InputError) as error:
        pipelines.train(packed([Kind(1, 30.0)], "short"))
    assert error.value.kind == "empty"


def test_several_packs_are_one_corpus(pack, packed):
    other = packed([Kind(50), Kind(80)], "other")
    loader = small([pack, other])
    assert set(loader.chunks.track.tolist()) >= {40, 41}
    names = {name for batch in loader for name in batch["sample_ids"].tolist()}
    assert {"other0", "other1", "t0"} <= names
    assert loader.state_dict() == small(pack, other.paths[0]).state_dict() | {"epoch": 1}


def test_the_draws_of_a_pack_do_not_depend_on_its_company(pack, packed):
    def drawn(*packs) -> dict:
        faces = {}
        for batch in small(*packs, augment=pipelines.augment_faces(0.5, 0, 0)):
            for row, name in enumerate(batch["sample_ids"].tolist()):
                faces[name, int(batch["starts"][row])] = batch["faces"][row, :batch["lengths"][row]].copy()
        return faces

    alone, together = drawn(pack), drawn(packed([Kind(70)], "other"), pack)
    assert all(np.array_equal(faces, together[place]) for place, faces in alone.items())


