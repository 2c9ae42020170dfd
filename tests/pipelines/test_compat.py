"""`compat="muvap"` against what the original program returned: chunks, values, batches, collation."""
from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
import pytest

import pipelines
from pipelines import compat
from pipelines.batching import Limits
from pipelines.chunks import history, starved, tile
from pipelines.compat import batch_numbers
from pipelines.projection import projection

PACKS = ["ava_val_full", "ava_train_small_shards", "wasd_train", "avcc", "msdwild_default"]


def digest(array: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def digest_batches(batches: list[list[int]]) -> str:
    return hashlib.sha256(json.dumps(batches, separators=(",", ":")).encode()).hexdigest()


def test_batches_of_every_case(golden):
    said = json.loads((golden / "batches.json").read_text())
    assert len(said["cases"]) == 7188
    for case in said["cases"]:
        lengths = np.array(said["lengths"][case["lengths"]], np.int64)
        limits = Limits(case["frame_budget"], case["min_batch"], case["max_batch"])
        found = compat.compose(lengths, limits, drop_last=case["drop_last"], shuffle=case["shuffle"], seed=case["seed"],
                               epoch=case["epoch"])
        numbers = batch_numbers(len(found), case["replicas"])[case["rank"]::case["replicas"]]
        members = [found.members(b).tolist() for b in numbers]
        assert (len(members), digest_batches(members)) == (case["steps"], case["sha256"]), case


def test_distributions(shared):
    folder = shared / "golden" / "dist"
    said = json.loads((folder / "distribution.json").read_text())["measured"]
    lengths = {name: np.load(folder / f"{name}.npy").astype(np.int64) for name in ("ava_like", "wasd")}
    lengths["ava_like+wasd"] = np.concatenate(list(lengths.values()))
    for name, facts in said.items():
        for case in facts["sampler"]:
            spans = tile(lengths[name], case["span"])
            before = history(spans.start, case["context"])
            fed = spans.length + before
            assert digest(fed) == case["chunk_lengths_sha256"]
            assert sum(starved(spans.start - before, fed, before, 50)) == case["starved_frames"]
            found = compat.compose(fed, Limits(2048), drop_last=case["drop_last"], shuffle=False)
            assert digest_batches([found.members(b).tolist() for b in range(len(found))]) == case["batches_sha256"]
            assert int(np.minimum(fed[found.ids], np.repeat(found.frames, found.sizes)).sum()) == case["used_fed_frames"]


def check_chunk(batch: dict, raw: dict, row: dict, faces: bool) -> None:
    assert digest(batch["audio"]) == row["waveform_sha256"]
    assert digest(batch["labels"]) == row["vad_sha256"]
    assert digest(batch["scored"]) == row["scored_sha256"]
    if faces:
        assert digest(batch["faces"]) == row["faces_sha256"]
    if "vap_sha256" in row:
        assert digest(batch["targets"]) == row["vap_sha256"]
        assert digest(raw["audio"]) == row["waveform_raw_sha256"]


def check_chunks(packs: list, config: dict, columns: list[str], fps: float, faces: bool) -> None:
    window, context = config["window"], config["context"]
    span = None if window is None else max(1, window - context)
    spans = [pipelines.resample(fps, samples_per_frame=round(16000 / fps)), pipelines.chunk(span), pipelines.prefix(context)]
    loader = pipelines.build(packs, pipelines.chain(*spans, pipelines.normalize(), pipelines.projection_targets()), threads=0)
    raw = pipelines.build(packs, pipelines.chain(*spans), threads=0)
    chunks = loader.chunks
    assert [list(map(int, row)) for row in chunks] == [row[:5] for row in config["chunks"]]
    for step, row in enumerate(config["chunks"]):
        check_chunk(loader[step], raw[step], dict(zip(columns, row, strict=True)), faces)


@pytest.mark.filterwarnings("ignore:.*shorter than one frame")
@pytest.mark.parametrize("name", [*PACKS, "two_roots_wasd_ava_val", "ava_val_full_model_fps_12.5"])
def test_values_of_every_chunk(golden, golden_pack, name):
    said = json.loads((golden / "loader" / f"{name}.json").read_text())
    packs = [golden_pack(pack) for pack in said["packs"]]
    for config in said.get("configs") or [said]:
        check_chunks(packs, config, said["columns"], said["model_fps"], faces=not name.startswith("msdwild"))


@pytest.mark.filterwarnings("ignore:.*shorter than one frame")
def test_collation_cropped_and_padded(golden, golden_pack):
    for item in json.loads((golden / "loader" / "collate.json").read_text())["items"]:
        given = {name: item[name] for name in ("window", "context", "frame_budget")}
        loader = pipelines.train(
            golden_pack(item["pack"]), **given, threads=0, compat="muvap", shuffle=False, drop_last=False,
            fit="pad" if item["pad"] else "crop", targets=pipelines.projection_targets())
        ids, offsets = loader.batches()
        members = [ids[a:b].tolist() for a, b in zip(offsets, offsets[1:], strict=False)]
        batch = loader[members.index(item["batch"])]
        assert batch["sample_ids"].tolist() == item["sample_ids"]
        found = {"audio": batch["audio"][:, None], "visual": batch["faces"].astype(np.float32), "vap": batch["targets"],
                 "vad": batch["labels"], "scored": batch["scored"]}
        for name, array in found.items():
            assert {"shape": list(array.shape), "dtype": str(array.dtype), "sha256": digest(array)} == item[name], name


@pytest.mark.filterwarnings("ignore:.*shorter than one frame")
def test_ranks_repeat_the_first_batches(golden, golden_pack):
    settings: dict[str, Any] = {"window": 60, "context": 15, "frame_budget": 500, "compat": "muvap", "seed": 3, "threads": 0}
    pack = golden_pack("ava_train_small_shards")
    count = len(pipelines.train(pack, **settings))
    read = [[tuple(batch["sample_ids"]) for batch in pipelines.train(pack, **settings, rank=r, world=4)] for r in range(4)]
    assert {len(batches) for batches in read} == {-(-count // 4)}
    flat = [read[i % 4][i // 4] for i in range(4 * len(read[0]))]
    assert flat[count:] == flat[:len(flat) - count]


def test_projection(golden):
    said = json.loads((golden / "vap" / "vap.json").read_text())
    for case in said["cases"]:
        labels = np.array(list(said["label_tracks"][case["labels"]]), np.uint8)
        config = case["config"]
        found = projection(labels, bins=case["bin_frames"], history=config["num_hist_bins"], threshold=config["threshold"],
                           cut_center_frame=config["cut_center_frame"])
        assert (list(found.shape), digest(found)) == (case["shape"], case["sha256"]), case["config"]
