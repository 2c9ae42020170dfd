from __future__ import annotations

import pickle
from functools import partial
from typing import Any

import numpy as np
import pytest

import pipelines
from asdstore.errors import InputError
from pipelines.keys import Key
from pipelines.plan import Plan, whole_tracks
from pipelines.projection import projection
from pipelines.tracks import Tracks
from pipelines.transforms import Transform, described, text
from spec.timeline import gain, model_frame_count, sample_edges, source_indices
from tests.pipelines.made import Kind

COLUMNS = ("track", "start", "length", "prefix")


def louder(batch, key):
    return {**batch, "audio": batch["audio"] * np.float32(2)}


def same(first: Plan, second: Plan) -> bool:
    columns = all(np.array_equal(getattr(first, name), getattr(second, name)) for name in COLUMNS)
    return columns and all(np.array_equal(a, b) for a, b in zip(first.batches or (), second.batches or (), strict=True))


STAGES = [pipelines.resample(25), pipelines.chunk(60, jitter=True), pipelines.prefix(15), pipelines.mix_voice(0.5),
          pipelines.budget_batch(500, 2, 8), pipelines.targets(np.cumsum)]


def test_a_chain_is_its_parts_by_hand(pack):
    key, plan = Key.of(3, 1), whole_tracks(Tracks.of([pack]))
    by_hand = plan
    for stage in STAGES:
        by_hand = stage.plan(by_hand, key)
    assert same(by_hand, pipelines.chain(*STAGES).plan(plan, key))


@pytest.mark.parametrize("at", range(1, len(STAGES)))
def test_chain_is_associative(pack, at):
    left = pipelines.chain(pipelines.chain(*STAGES[:at]), pipelines.chain(*STAGES[at:]))
    flat = pipelines.chain(*STAGES)
    key, plan = Key.of(0, 2), whole_tracks(Tracks.of([pack]))
    assert text(left) == text(flat) and same(left.plan(plan, key), flat.plan(plan, key))


def test_an_empty_chain_changes_nothing(pack):
    plan, batch = whole_tracks(Tracks.of([pack])), {"a": 1}
    assert pipelines.chain().plan(plan, Key.of(0)) is plan and pipelines.chain().apply(batch, Key.of(0)) is batch


r, c, p, b = pipelines.resample(25), pipelines.chunk(60), pipelines.prefix(15), pipelines.budget_batch(500)
n, m, s, t = pipelines.normalize(), pipelines.mix_voice(), pipelines.substitute_voice(), pipelines.targets(np.abs)


@pytest.mark.parametrize("order", [
    (b, p), (b, c), (c, r), (p, c), (p, r), (b, pipelines.filter(bool)), (c, pipelines.filter(bool)), (m, p), (m, c), (m, s),
    (m, n), (c, c), (r, r), (b, b), (n, n), (pipelines.normalize(dtype="int16"), m), (t, t), ("b",)])
def test_orders_that_cannot_hold(order):
    with pytest.raises(InputError) as error:
        pipelines.chain(*order)
    assert error.value.kind == "order"


@pytest.mark.parametrize("order", [
    (r, c, p, b, n, m), (r, c, p, m, b), (n, r, c), (pipelines.filter(bool), r, pipelines.filter(bool)), (s, m), (t, s),
    (pipelines.map(dict), pipelines.map(dict))])
def test_orders_that_hold(order):
    pipelines.chain(*order)


@pytest.mark.parametrize("level", [{"rms_dbfs": np.nan}, {"max_gain_db": np.inf}, {"peak": 0}, {"peak": -1}, {"peak": np.nan}])
def test_levels_that_would_make_noise_or_nothing_of_audio(level):
    with pytest.raises(InputError) as error:
        pipelines.normalize(**level)
    assert error.value.kind == "level"


def forgetful(value: Any, key: Any = None) -> Any:
    """Returns nothing."""


@pytest.mark.parametrize("transform", [Transform(apply=forgetful), Transform(plan=forgetful), pipelines.map(forgetful)])
def test_a_function_that_returns_nothing_is_named(pack, transform):
    with pytest.raises(InputError) as error:
        pipelines.build(pack, pipelines.chain(pipelines.resample(25), transform), threads=0)[0]
    assert error.value.kind == "transform" and error.value.fault.file in ("map", "forgetful")


def test_the_text_tells_settings_apart_and_names_functions():
    assert text(pipelines.chunk(60)) != text(pipelines.chunk(61))
    assert text(pipelines.budget_batch(500, group=24)) != text(pipelines.budget_batch(500, group=12))
    assert described(partial(projection, bins=[1, 2])) == "projection(bins=[1, 2])"
    assert "0x" not in text(pipelines.chain(pipelines.map(lambda batch: batch), Transform(apply=louder), t))


def test_transforms_pickle():
    made = pickle.loads(pickle.dumps(pipelines.chain(*STAGES, Transform(apply=louder))))
    assert text(made) == text(pipelines.chain(*STAGES, Transform(apply=louder)))


# Values ---------------------------------------------------------------------------------------------------------------------


def test_resampling_follows_the_laws_at_every_rate(pack):
    loader = pipelines.build(pack, pipelines.resample(25), threads=0)
    for step, chunk in enumerate(loader.chunks):
        track, batch = pack[int(chunk.track)], loader[step]
        assert chunk.predict_length == model_frame_count(track.frames, track.fps)
        source = source_indices(track.frames, track.fps)
        assert np.array_equal(batch["faces"][0], track.faces[source])
        assert np.array_equal(batch["labels"][0], track.labels[source])
        assert np.array_equal(batch["audio"][0], track.audio[:640 * len(source)].astype(np.float32) / 32768)


def test_label_edges_stay_within_half_a_model_frame(packed):
    pack = packed([Kind(200, fps) for fps in (15, 23.976, 24, 25, 29.97, 30, 50, 59.94, 60)])
    for batch, track in zip(pipelines.build(pack, pipelines.resample(25)), pack, strict=True):
        truth, found = np.flatnonzero(np.diff(track.labels)) + 1, np.flatnonzero(np.diff(batch["labels"][0])) + 1
        seconds = truth[truth / track.fps <= len(batch["labels"][0]) / 25 - 0.02] / track.fps
        assert np.abs(found[:len(seconds)] / 25 - seconds).max() <= 0.02 + 1e-9


@pytest.mark.parametrize("fps", [12.5, 24, 29.97, 30])
def test_audio_edges_do_not_drift(packed, fps):
    pack = packed([Kind(900, 25.0)])
    spans = pipelines.chain(pipelines.resample(fps), pipelines.chunk(37), pipelines.prefix(5))
    loader = pipelines.build(pack, spans, threads=0)
    samples, width = pack[0].audio, int(np.ceil(42 * 16000 / fps))
    for step, chunk in enumerate(loader.chunks):
        edges = sample_edges(10_000, fps)
        first, end = edges[chunk.predict_start - chunk.prefix], edges[chunk.predict_start + chunk.predict_length]
        audio = loader[step]["audio"][0]
        expected = samples[first:end].astype(np.float32) / 32768
        assert len(audio) <= width and np.array_equal(audio[:len(expected)], expected) and not audio[len(expected):].any()


def test_without_resampling_tracks_keep_their_frames(pack):
    loader = pipelines.build(pack, pipelines.budget_batch(1000, 1, 4), threads=0)
    for batch in loader:
        for row, number in enumerate(batch["tracks"]):
            track = pack[int(number)]
            assert np.array_equal(batch["faces"][row, :track.frames], track.faces)
            assert np.array_equal(batch["audio"][row, :len(track.audio)], track.audio / np.float32(32768))


def test_any_slice_of_a_track_is_scaled_alike(packed):
    pack = packed([Kind(500, level=level) for level in (0.001, 0.05, 0.9)])
    chunked = pipelines.build(pack, pipelines.chain(r, pipelines.chunk(50), pipelines.prefix(10), n), threads=0)
    for step, chunk in enumerate(chunked.chunks):
        track, start = pack[int(chunk.track)], int(chunk.predict_start - chunk.prefix)
        factor = np.float32(gain(track.audio_rms, track.audio_peak))
        whole = (track.audio.astype(np.float32) / 32768 - np.float32(track.audio_mean)) * factor
        assert np.array_equal(chunked[step]["audio"][0], whole[640 * start:640 * (start + int(chunk.fed_length))])


def test_int16_is_normalised_on_the_device_to_the_same(pack):
    settings: dict[str, Any] = {"window": 60, "context": 15, "frame_budget": 500, "threads": 0}
    for floats, stored in zip(pipelines.train(pack, **settings), pipelines.train(pack, audio="int16", **settings), strict=True):
        assert stored["audio"].dtype == np.int16
        scaled = (stored["audio"].astype(np.float32) / 32768 - stored["audio_mean"][:, None]) * stored["audio_gain"][:, None]
        inside = np.arange(scaled.shape[1]) < 640 * stored["lengths"][:, None]
        assert np.array_equal(np.where(inside, scaled, 0), floats["audio"])


def test_targets_are_those_of_the_whole_track(pack):
    loader = pipelines.train(pack, window=60, context=15, frame_budget=500, targets=pipelines.projection_targets(), threads=0)
    for batch in loader:
        for row, number in enumerate(batch["tracks"]):
            track, start, length = pack[int(number)], batch["starts"][row], batch["lengths"][row]
            whole = projection(track.labels[source_indices(track.frames, track.fps)], bins=(20, 15, 10, 5, 5, 10), history=4)
            assert np.array_equal(batch["targets"][row, :length], whole[start:start + length])
            assert not batch["targets"][row, length:].any()


def test_targets_of_the_wrong_length_name_the_track(pack):
    with pytest.raises(InputError) as error:
        pipelines.train(pack, targets=lambda labels: labels[:-1], threads=0)[0]
    assert error.value.kind == "targets" and error.value.fault.sample_id


def test_filter_keeps_what_it_is_told_to(pack):
    loader = pipelines.build(pack, pipelines.chain(pipelines.filter(lambda track: track.fps > 29), r, pipelines.chunk(40)))
    assert {pack[int(t)].fps > 29 for t in loader.chunks.track} == {True}
    assert loader.explain()["filtered_tracks"] == sum(track.fps <= 29 for track in pack)


def test_a_filter_that_removes_all_is_refused(pack):
    with pytest.raises(InputError) as error:
        pipelines.build(pack, pipelines.filter(lambda track: False))
    assert error.value.kind == "empty"


def test_map_and_own_transforms_change_batches(pack):
    plain = pipelines.train(pack, window=60, context=15, frame_budget=500, threads=0)
    mapped = pipelines.train(pack, window=60, context=15, frame_budget=500, threads=0, augment=[
        pipelines.map(lambda batch: {**batch, "half": batch["audio"] / 2}), Transform(apply=louder)])
    for before, after in zip(plain, mapped, strict=True):
        assert np.array_equal(after["audio"], before["audio"] * 2) and np.array_equal(after["half"], before["audio"] / 2)


def noise(batch, key):
    return {**batch, "noise": key.uniform()}


def test_own_draws_belong_to_the_chunk_and_not_to_its_batch(pack):
    seen: list[dict] = []
    for budget in (300, 500):
        loader = pipelines.train(pack, window=60, context=15, frame_budget=budget, min_batch=1, threads=0,
                                 augment=Transform(apply=noise))
        drawn = {}
        for batch in loader:
            rows = zip(batch["tracks"], batch["starts"], batch["noise"], strict=True)
            drawn |= {(int(track), int(start)): float(value) for track, start, value in rows}
        seen.append(drawn)
    assert seen[0] == seen[1] and len(set(seen[0].values())) == len(seen[0])


def test_bounded_shapes_are_those_of_every_epoch(pack):
    loader = pipelines.train(pack, window=60, context=15, frame_budget=500, jitter=True, shapes=3, group=2)
    shapes = {epoch: {tuple(batch["scored"].shape) for batch in loader.at(epoch)} for epoch in range(5)}
    assert len(set().union(*shapes.values())) <= 3 and loader.explain()["shapes"] == len(shapes[0])


def test_plans_pickle_as_a_recipe(pack):
    loader = pipelines.train(pack, window=60, context=15, frame_budget=500, jitter=True)
    plan = loader.recipe.plan(4)
    data = pickle.dumps(plan)
    assert len(data) < 4000 and same(pickle.loads(data), plan)
