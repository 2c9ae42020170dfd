from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pipelines
from asdstore.errors import InputError
from pipelines.augment import donors, warp
from pipelines.keys import Key
from pipelines.plan import whole_tracks
from pipelines.tracks import Tracks
from tests.pipelines.made import Kind

PLAIN: dict[str, Any] = {"window": 60, "context": 15, "frame_budget": 500, "threads": 0}


def test_donors_come_from_another_recording_and_every_one_is_drawn(packed):
    pack = packed([Kind(20, recording=name) for name in ("a", "a", "b", "c", "c", "c", "")])
    plan = whole_tracks(Tracks.of([pack]))
    drawn = np.stack([donors(plan, Key.of(seed).fold(plan.identity())) for seed in range(400)])
    names = [track.recording or "" for track in pack]
    for track, name in enumerate(names):
        expected = {k for k, other in enumerate(names) if name and other and other != name} or {-1}
        counts = {k: int((drawn[:, track] == k).sum()) for k in expected}
        assert set(drawn[:, track].tolist()) == expected
        assert min(counts.values()) > 0.6 * 400 / len(expected)


def test_recordings_are_told_apart_over_all_packs(packed):
    first, second = packed([Kind(20, recording="x")] * 3, "a"), packed([Kind(20, recording="x"), Kind(20, recording="y")], "b")
    plan = whole_tracks(Tracks.of([first, second]))
    assert donors(plan, Key.of(0).fold(plan.identity())).tolist()[:4] == [4] * 4


@pytest.mark.parametrize("names", [["a", "a"], ["", ""], ["a", ""]])
def test_without_another_recording_voices_are_refused(packed, names):
    pack = packed([Kind(20, recording=name) for name in names])
    for transform in (pipelines.mix_voice(), pipelines.substitute_voice()):
        with pytest.raises(InputError) as error:
            pipelines.train(pack, augment=transform)
        assert error.value.kind == "recording"
    pipelines.train(pack, augment=pipelines.mix_voice(0.0))


def test_a_track_without_a_recording_has_no_donor_and_the_plan_says_so(packed):
    pack = packed([Kind(20, recording=name) for name in ("a", "", "b", "")])
    loader = pipelines.train(pack, augment=pipelines.mix_voice(1.0), min_batch=1, threads=0)
    assert loader.explain()["mix_voice_chunks"] == 2 and loader.explain()["mix_voice_chunks_without_donor"] == 2
    plain = pipelines.train(pack, min_batch=1, threads=0)
    for before, after in zip(plain, loader, strict=True):
        for row, name in enumerate(before["recordings"]):
            assert np.array_equal(before["audio"][row], after["audio"][row]) == (name == "")


@pytest.mark.parametrize("level", [0.00003, 0.001, 0.1])
@pytest.mark.parametrize("snr", [-5.0, 0.0, 5.0])
def test_the_ratio_is_right_at_any_level(packed, level, snr):
    """As asked, to a tenth of a decibel; the original's floor makes 0 dB into -20 at -60 dBFS."""
    pack = packed([Kind(100, level=level), Kind(60, level=0.1), Kind(200, level=0.01)])
    chain = [pipelines.resample(25), pipelines.chunk(None)]
    plain = pipelines.build(pack, pipelines.chain(*chain), threads=0)
    mixed = pipelines.build(pack, pipelines.chain(*chain, pipelines.mix_voice(1.0, (snr, snr))), threads=0)
    for step in range(3):
        clean, both = plain[step]["audio"][0].astype(np.float64), mixed[step]["audio"][0].astype(np.float64)
        assert 10 * np.log10(np.mean(clean**2) / np.mean((both - clean) ** 2)) == pytest.approx(snr, abs=0.1)
        assert np.array_equal(plain[step]["labels"], mixed[step]["labels"])


def test_ratios_are_drawn_evenly(packed):
    pack = packed([Kind(30, level=0.01) for _ in range(60)])
    loader = pipelines.build(pack, pipelines.chain(pipelines.resample(25), pipelines.mix_voice(1.0, (-5, 5))), threads=0)
    plain = pipelines.build(pack, pipelines.resample(25), threads=0)
    ratios = []
    for clean, both in zip(plain, loader, strict=True):
        a, b = clean["audio"].astype(np.float64), both["audio"].astype(np.float64)
        ratios.append(10 * np.log10(np.mean(a**2) / np.mean((b - a) ** 2)))
    assert -5 <= min(ratios) < -4 and 4 < max(ratios) <= 5 and abs(np.mean(ratios)) < 1.2


def test_silence_is_left_alone(packed):
    pack = packed([Kind(30, level=0.0), Kind(30, level=0.1)])
    for batch in pipelines.train(pack, augment=pipelines.mix_voice(1.0), min_batch=1, threads=0):
        assert np.isfinite(batch["audio"]).all()
        silent = [row for row, name in enumerate(batch["sample_ids"]) if name == "t0"]
        assert not batch["audio"][silent].any()


def test_a_short_donor_is_repeated(packed):
    pack = packed([Kind(100, level=0.01), Kind(10, level=0.01)])
    chain = [pipelines.resample(25), pipelines.chunk(None)]
    clean = pipelines.build(pack, pipelines.chain(*chain), threads=0)[0]["audio"][0].astype(np.float64)
    both = pipelines.build(pack, pipelines.chain(*chain, pipelines.mix_voice(1.0)), threads=0)[0]["audio"][0]
    voice = both - clean
    assert np.allclose(voice[:6400], voice[6400:12800], atol=1e-6) and np.abs(voice[-6400:]).max() > 0


def test_a_substituted_voice_has_no_labels_and_no_targets(packed):
    pack = packed([Kind(90, recording=f"v{i}") for i in range(12)])
    ones = pipelines.targets(lambda labels: labels.astype(np.float32)[:, None] + 1)
    plain = pipelines.train(pack, **PLAIN, targets=ones)
    for order in ([pipelines.substitute_voice(0.5)], [ones, pipelines.substitute_voice(0.5)]):
        loader = pipelines.train(pack, **PLAIN, augment=order, targets=None if ones in order else ones)
        changed = 0
        for before, after in zip(plain.at(0), loader.at(0), strict=True):
            for row in range(len(before["lengths"])):
                length = before["lengths"][row]
                if np.array_equal(before["audio"][row], after["audio"][row]):
                    assert np.array_equal(before["targets"][row], after["targets"][row])
                else:
                    changed += 1
                    assert not after["labels"][row].any() and (after["targets"][row, :length] == 1).all()
        assert changed == loader.at(0).explain()["substitute_voice_chunks"] > 0


def test_a_substituted_voice_is_scaled_by_its_own_level(packed):
    pack = packed([Kind(60, level=0.3), Kind(60, level=0.01)])
    batch = pipelines.train(pack, augment=pipelines.substitute_voice(1.0), min_batch=1, threads=0)[0]
    assert np.sqrt((batch["audio"].astype(np.float64) ** 2).mean(axis=1)) == pytest.approx([10 ** (-25 / 20)] * 2, rel=0.05)


def test_a_substituted_voice_is_not_mixed(packed):
    pack = packed([Kind(60) for _ in range(8)])
    loader = pipelines.train(pack, augment=[pipelines.substitute_voice(1.0), pipelines.mix_voice(1.0)], threads=0)
    assert loader.explain()["mix_voice_chunks"] == 0


def test_faces_change_alike_in_all_frames_of_a_chunk(packed):
    pack = packed([Kind(40) for _ in range(40)], face_shape=(32, 32))
    plain, loader = pipelines.train(pack, **PLAIN), pipelines.train(pack, **PLAIN, augment=pipelines.augment_faces())
    kinds = []
    for before, after in zip(plain, loader, strict=True):
        for a, b, length in zip(before["faces"], after["faces"], before["lengths"], strict=True):
            kinds.append("same" if np.array_equal(a, b) else "flip" if np.array_equal(a[..., ::-1], b) else "warp")
            assert not b[length:].any()
    assert all(kinds.count(kind) >= count for kind, count in (("same", 3), ("flip", 3), ("warp", 8)))


def test_the_same_chunk_changes_alike_in_any_order_of_work(packed):
    pack = packed([Kind(90) for _ in range(12)])
    augment = [pipelines.substitute_voice(0.2), pipelines.mix_voice(), pipelines.augment_faces()]
    threaded = pipelines.train(pack, **(PLAIN | dict[str, Any](threads=3)), augment=augment)
    plain = pipelines.train(pack, **PLAIN, augment=augment)
    for _ in range(2):
        for first, second in zip(threaded, plain, strict=True):
            assert all(np.array_equal(first[name], second[name]) for name in first)


def test_draws_change_with_the_epoch(packed):
    pack = packed([Kind(60) for _ in range(10)])
    loader = pipelines.build(pack, pipelines.chain(pipelines.resample(25), pipelines.augment_faces(0.5, 0, 0.5)), threads=0)
    assert any(not np.array_equal(loader.batch(0, i)["faces"], loader.batch(1, i)["faces"]) for i in range(10))


def test_warp_agrees_with_opencv():
    cv2 = pytest.importorskip("cv2")
    from pipelines.augment import _cropped, _rotated
    faces = cv2.GaussianBlur(np.random.default_rng(0).integers(0, 256, (112, 112), dtype=np.uint8), (5, 5), 0)
    turned, part = faces[None].copy(), faces[None].copy()
    warp(turned, *_rotated((112, 112), np.deg2rad(12)))
    expected = cv2.warpAffine(faces, cv2.getRotationMatrix2D((56, 56), 12, 1), (112, 112))
    assert np.abs(expected.astype(int) - turned[0]).max() <= 3
    warp(part, *_cropped((112, 112), 0.8, 0.2, 0.3))
    side, top, left = 89, int(0.3 * 24), int(0.2 * 24)
    expected = cv2.resize(faces[top:top + side, left:left + side], (112, 112))
    assert np.abs(expected.astype(int) - part[0]).max() <= 3


@pytest.mark.parametrize(("make", "kind"), [
    (lambda: pipelines.mix_voice(1.5), "prob"), (lambda: pipelines.mix_voice(0.5, (5, -5)), "snr"),
    (lambda: pipelines.mix_voice(0.5, 5), "snr"),  # type: ignore[arg-type]
    (lambda: pipelines.substitute_voice(-0.1), "prob"), (lambda: pipelines.augment_faces(0.5, 0.5, 0.5), "prob"),
    (lambda: pipelines.mix_voice(float("nan")), "prob"), (lambda: pipelines.mix_voice(0.5, (float("nan"), 1)), "snr")])
def test_settings_that_cannot_hold(make, kind):
    with pytest.raises(InputError) as error:
        make()
    assert error.value.kind == kind
