"""The laws of the loader: order, ranks, fillers, resume, buffers, bad input."""
from __future__ import annotations

import gc
import json
import pickle
import sys
import threading
import time

import numpy as np
import pytest

import pipelines
from asdstore.errors import InputError
from pipelines.buffers import Pool
from pipelines.prefetch import ordered
from tests.pipelines.made import Kind, flat, ids, small

pytestmark = pytest.mark.filterwarnings("ignore:.*shorter than one frame")


def scored_frames(loaders) -> dict[tuple[str, int], int]:
    """How often each model frame of each track is scored in one epoch of these ranks."""
    seen: dict[tuple[str, int], int] = {}
    for loader in loaders:
        for batch in loader:
            for row, column in zip(*np.nonzero(batch["scored"]), strict=True):
                frame = (str(batch["sample_ids"][row]), int(batch["starts"][row] + column))
                seen[frame] = seen.get(frame, 0) + 1
    return seen


def every_frame(pack) -> set[tuple[str, int]]:
    counts = np.floor(pack.index["source_frames"] / pack.index["source_fps"] * 25 + 1e-9).astype(int)
    return {(track.id, k) for track, count in zip(pack, counts, strict=True) for k in range(count)}


@pytest.mark.parametrize("more", [{}, {"jitter": True}, {"shapes": 3}, {"shapes": 3, "jitter": True}, {"context": 0},
                                  {"window": None, "context": 0}, {"group": 1}, {"audio": "int16"}])
@pytest.mark.parametrize("world", [1, 3])
def test_every_frame_is_scored_once(pack, more, world):
    loaders = [small(pack, **more, rank=rank, world=world) for rank in range(world)]
    for _ in range(2):
        seen = scored_frames(loaders)
        assert set(seen) == every_frame(pack) and set(seen.values()) == {1}


@pytest.mark.parametrize("world", [1, 2, 3, 8])
def test_rank_r_reads_batch_s_times_world_plus_r(pack, world):
    loaders = [small(pack, rank=rank, world=world) for rank in range(world)]
    for epoch in (0, 1):
        order = flat(loaders[0], epoch)
        steps = -(-len(order) // world)
        read = [[ids(batch) for batch in loader] for loader in loaders]
        assert {len(batches) for batches in read} == {steps} == {len(loader.at(epoch)) for loader in loaders}
        given_out = [read[i % world][i // world] for i in range(steps * world)]
        assert given_out[:len(order)] == order
        assert all(not any(valid for _, _, valid in batch) for batch in given_out[len(order):])


def test_the_order_does_not_depend_on_the_world(pack):
    assert flat(small(pack, rank=2, world=5), 3) == flat(small(pack), 3)


def test_epochs_and_seeds_differ_and_repeat(pack):
    orders = [flat(small(pack, seed=seed), epoch) for seed in (0, 1) for epoch in (0, 1)]
    assert len({tuple(order) for order in orders}) == 4
    assert flat(small(pack, seed=1), 1) == orders[3]


def test_fillers_are_never_scored_and_say_that_they_are_none(pack):
    loaders = [small(pack, group=1, rank=rank, world=7) for rank in range(7)]
    count = len(loaders[0].batches().offsets) - 1
    assert count % 7
    fillers = [loader[len(loader) - 1] for loader in loaders[count % 7:]]
    assert all(not batch["valid"].any() and not batch["scored"].any() for batch in fillers)
    last = loaders[count % 7 - 1][len(loaders[0]) - 1]
    assert all(batch["faces"].shape == last["faces"].shape for batch in fillers)


@pytest.mark.parametrize("world", [1, 3, 4])
@pytest.mark.parametrize("more", [{}, {"compat": "muvap"}, {"fit": "crop"}])
def test_scored_in_step_counts_all_ranks(pack, world, more):
    loaders = [small(pack, **more, rank=rank, world=world) for rank in range(world)]
    for step in zip(*loaders, strict=True):
        total = sum(int(batch["scored"].sum()) for batch in step)
        assert {batch["scored_in_step"] for batch in step} == {total}


def test_rows_end_in_zeros(pack):
    for _ in range(3):  # buffers are used again
        for batch in small(pack, shapes=2):
            for row, length in enumerate(batch["lengths"]):
                assert not batch["faces"][row, length:].any() and not batch["labels"][row, length:].any()
                assert not batch["audio"][row, 640 * length:].any() and not batch["scored"][row, length:].any()
                assert not batch["scored"][row, :batch["prefix"][row]].any()
                assert batch["valid"][row] == (batch["sample_ids"][row] != "")


def test_the_schema(pack):
    batch = small(pack, targets=pipelines.projection_targets())[0]
    rows, frames = batch["labels"].shape
    kinds = {name: (str(value.dtype), value.shape) for name, value in batch.items() if name != "scored_in_step"}
    names = {name: kinds.pop(name) for name in ("sample_ids", "recordings")}
    assert all(dtype.startswith("<U") and shape == (rows,) for dtype, shape in names.values())
    assert kinds == {
        "faces": ("uint8", (rows, frames, 8, 6)), "audio": ("float32", (rows, frames * 640)),
        "labels": ("float32", (rows, frames)), "targets": ("float32", (rows, frames, 6)),
        "scored": ("bool", (rows, frames)), "valid": ("bool", (rows,)),
        **{name: ("int64", (rows,)) for name in ("lengths", "starts", "prefix", "tracks")}}
    assert type(batch["scored_in_step"]) is int


def test_faces_are_those_of_the_chunk(pack):
    for batch in small(pack):
        for row, (track, start, length) in enumerate(zip(batch["tracks"], batch["starts"], batch["lengths"], strict=True)):
            of = pack[int(track)]
            source = np.clip(np.floor((np.arange(start, start + length) + 0.5) / 25 * of.fps), 0, of.frames - 1).astype(int)
            assert np.array_equal(batch["faces"][row, :length], of.faces[source]) and batch["sample_ids"][row] == of.id


# Access and iteration -------------------------------------------------------------------------------------------------------


def test_between_plan_and_apply_stands_gather(pack):
    loader = small(pack)
    for number in (0, len(loader) - 1):
        found, batch = pipelines.gather(loader.recipe.plan(0), number), loader[number]
        assert all(np.array_equal(value, batch[name]) for name, value in found.items()) and "faces" in found


def test_random_access_is_the_iteration(pack):
    loader = small(pack, rank=1, world=2)
    assert [ids(loader[step]) for step in range(len(loader))] == [ids(batch) for batch in loader.at(0)]
    assert ids(loader[-1]) == ids(loader[len(loader) - 1])
    assert ids(loader.batch(5, 1)) == ids(loader.at(5)[1])
    for step in (len(loader), -len(loader) - 1):
        with pytest.raises(IndexError):
            loader[step]


def test_the_iterator_advances_the_epoch_by_itself(pack):
    loader = small(pack)
    read = [[ids(batch) for batch in loader] for _ in range(3)]
    assert read == [flat(loader, epoch) for epoch in range(3)] and loader.epoch == 3


def test_an_epoch_that_was_begun_is_not_begun_again(pack):
    loader = small(pack)
    first = ids(next(iter(loader)))
    assert [ids(batch) for batch in loader] == flat(loader, 1) and first == flat(loader, 0)[0]


def test_set_epoch(pack):
    loader = small(pack)
    loader.set_epoch(4)
    assert ids(next(iter(loader))) == flat(loader, 4)[0]
    loader.set_epoch(4)
    assert ids(next(iter(loader))) == flat(loader, 4)[0]


def test_at_leaves_the_loader_alone(pack):
    loader = small(pack)
    iteration = iter(loader)
    next(iteration)
    other = loader.at(epoch=3)
    assert [ids(batch) for batch in other] == flat(loader, 3)
    assert loader.state_dict()["epoch"] == 0 and ids(next(iteration)) == flat(loader, 0)[1]
    with pytest.raises(InputError):
        loader.at(epoch=-1)


def test_loaders_pickle_where_they_stand(pack):
    loader = small(pack)
    iteration = iter(loader)
    next(iteration)
    data = pickle.dumps(loader)
    assert len(data) < 4000
    other = pickle.loads(data)
    other.load_state_dict(loader.state_dict())
    assert [ids(batch) for batch in other] == flat(loader, 0)[1:]


# Buffers and threads --------------------------------------------------------------------------------------------------------


def test_batches_stay_as_they_are_while_they_are_referred_to(pack):
    loader = small(pack, threads=2, prefetch=3)
    kept = list(loader)
    for epoch in range(2):
        faces = [batch["faces"][0] for batch in loader]  # a view of a view keeps its buffer too
        for view, step in zip(faces, range(len(faces)), strict=True):
            assert np.array_equal(view, loader.at(epoch + 1)[step]["faces"][0])
    for step, batch in enumerate(kept):
        assert all(np.array_equal(batch[name], value) for name, value in loader.at(0)[step].items())


def test_buffers_are_used_again(pack):
    loader = small(pack)
    places = set()
    for _ in range(3):
        for batch in loader:
            places.add(batch["faces"].ctypes.data)
            del batch
    assert len(places) <= 4


def test_a_pool_makes_room_for_larger_arrays():
    pool = Pool()
    first = pool.arrays([("a", (10,), "u1")])
    second = pool.arrays([("a", (5 << 20,), "u1"), ("b", (3, 2), "f4")])
    assert second["b"].shape == (3, 2) and second["b"].ctypes.data % 64 == 0 and len(pool._buffers) == 2
    first["a"][:] = 1
    del second
    third = pool.arrays([("a", (9 << 20,), "u1")])
    assert len(pool._buffers) == 2 and first["a"].all() and third["a"].nbytes == 9 << 20


@pytest.mark.parametrize("threads", [0, 1, 2, 5])
@pytest.mark.parametrize("prefetch", [0, 1, 3])
def test_threads_do_not_change_what_is_read(pack, threads, prefetch):
    loader = small(pack, threads=threads, prefetch=prefetch)
    assert [ids(batch) for batch in loader] == flat(loader, 0)


def test_prefetch_stays_in_order_and_within_its_depth():
    begun: list[int] = []

    def fetch(i: int) -> int:
        begun.append(i)
        time.sleep(0.002 * (i % 3))
        return i

    ahead = ordered(fetch, 20, depth=3, threads=3)
    for i in range(5):
        assert next(ahead) == i and max(begun) <= i + 3
    ahead.close()  # type: ignore[attr-defined]
    assert len(begun) <= 9


def test_an_error_comes_out_at_its_turn():
    def fetch(i: int) -> int:
        if i == 2:
            raise KeyError("two")
        return i

    ahead = ordered(fetch, 5, depth=4, threads=2)
    assert [next(ahead), next(ahead)] == [0, 1]
    with pytest.raises(KeyError):
        next(ahead)


def test_threads_end_with_their_iteration(pack):
    before = threading.active_count()
    loader = small(pack, threads=3)
    iteration = iter(loader)
    next(iteration)
    del iteration
    gc.collect()
    list(loader)
    assert threading.active_count() == before


# Evaluation -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("world", [1, 3, 8])
@pytest.mark.parametrize("more", [{}, {"frame_budget": 400}])
def test_evaluation_sees_every_track_once(packed, world, more):
    pack = packed([Kind(20 + 7 * i, fps=25 + i % 3) for i in range(11)] + [Kind(1, 30.0), Kind(2, 60.0)])
    loaders = [pipelines.evaluate(pack, **more, rank=rank, world=world) for rank in range(world)]
    read = [list(loader) for loader in loaders]
    assert len({len(batches) for batches in read}) == 1
    seen = [name for batches in read for batch in batches for name in batch["sample_ids"][batch["valid"]].tolist()]
    assert sorted(seen) == sorted(track.id for track in pack)
    frames = {name: int(batch["scored"][row].sum()) for batches in read for batch in batches
              for row, name in enumerate(batch["sample_ids"].tolist()) if batch["valid"][row]}
    assert frames["t11"] == frames["t12"] == 1 and frames["t0"] == 20
    assert [ids(batch) for batch in loaders[0]] == [ids(batch) for batch in read[0]]  # the same in the next epoch


def test_evaluation_is_in_the_order_of_the_packs(pack):
    assert [batch["sample_ids"][0] for batch in pipelines.evaluate(pack)] == [track.id for track in pack]


# The plan that can be seen --------------------------------------------------------------------------------------------------


def test_chunks_and_explanation_agree_with_the_batches(pack):
    loader = small(pack)
    chunks, said = loader.chunks, loader.explain()
    assert (chunks.prefix + chunks.predict_length == chunks.fed_length).all()
    assert chunks.dtype.names == ("track", "predict_start", "predict_length", "prefix", "fed_length")
    batches = list(loader.at(0))
    real = sum(int(batch["lengths"].sum()) for batch in batches)
    padded = sum(batch["scored"].size for batch in batches)
    assert said["utilisation"] == pytest.approx(real / padded, abs=1e-6)
    assert said["scored_frames"] == len(every_frame(pack)) == sum(int(batch["scored"].sum()) for batch in batches)
    assert said["batches"] == len(batches) == said["steps"] and said["chunks"] == len(chunks)
    assert said["prefix_cost"] == pytest.approx(chunks.fed_length.sum() / chunks.predict_length.sum(), abs=1e-6)
    assert said["frames_lost"] == 0
    assert json.loads(said.json()) == said and "utilisation" in str(said)


def test_cropping_reports_the_frames_that_it_loses(pack):
    loader = small(pack, fit="crop", group=1)
    scored = sum(int(batch["scored"].sum()) for batch in loader.at(0))
    assert loader.explain()["frames_lost"] == len(every_frame(pack)) - scored > 0


def test_what_min_batch_forces_above_the_budget_is_reported(pack):
    said = small(pack, frame_budget=100, min_batch=4).explain()
    assert said["over_budget"]["batches"] > 0 and said["over_budget"]["largest"] > 100


def test_waiting_is_measured(pack):
    loader = small(pack)
    for _ in loader:
        time.sleep(0.002)
    loop = loader.explain()["loop"]
    assert loop["batches"] == len(loader) and 0 < loop["waited_share"] < 1


def test_importing_pipelines_is_light():
    import subprocess
    code = "import sys, pipelines; sys.exit(any(m in sys.modules for m in ('numpy', 'torch', 'jax', 'grain', 'zarr')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
