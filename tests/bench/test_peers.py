"""The comparison measures what it says: the corpus is seeded, peers give what was written, and the checks would notice."""
from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import bench.__main__ as command
from bench.corpus import write_corpus
from bench.measure import check_epoch, check_window, memcpy_epoch, read
from bench.peers import asdstore_pack
from bench.peers.common import SAMPLES, Corpus, Plan, Records
from bench.report import NAMES, OURS, targets, write_report

FILES = sorted(path for path in Path(command.__file__).with_name("peers").glob("*.py") if path.stem != "common")
MEGABYTES = 12


class Made(NamedTuple):
    folder: Path
    corpus: Corpus
    plan: Plan


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("corpus")
    corpus = write_corpus(folder / "corpus", MEGABYTES)
    asdstore_pack.write(corpus, folder, None)  # type: ignore[arg-type]
    return Made(folder, corpus, asdstore_pack.plan_of(asdstore_pack.open(folder)))


def test_the_corpus_is_seeded_and_has_texture(made: Made, tmp_path: Path):
    again = write_corpus(tmp_path, MEGABYTES)
    assert all(np.array_equal(a, b) for a, b in zip(made.corpus, again, strict=True))
    frames = int(made.corpus.edges[-1])
    assert made.corpus.faces.shape == (frames, 112, 112) and made.corpus.audio.shape == (frames * SAMPLES,)
    assert abs(sum(array.nbytes for array in made.corpus[:3]) / 1e6 - MEGABYTES) < 0.1
    assert made.corpus.faces[0].std() > 20 and np.abs(np.diff(made.corpus.faces[:2].astype(int), axis=0)).mean() > 1
    other = write_corpus(tmp_path / "other", MEGABYTES, seed=21)
    assert not np.array_equal(made.corpus.faces[:5], other.faces[:5])


def test_the_plan_has_every_frame_once(made: Made):
    counts = np.zeros(int(made.corpus.edges[-1]), int)
    for number in range(len(made.plan.track)):
        track, start, stop = made.plan.chunk(number)
        assert 0 < stop - start <= 250
        counts[made.corpus.edges[track] + start:made.corpus.edges[track] + stop] += 1
    assert (counts == 1).all() and made.plan.frames == len(counts)


@pytest.mark.parametrize("name", [path.stem for path in FILES])
def test_a_peer_gives_what_was_written(made: Made, tmp_path: Path, name: str):
    """Those that can be imported here; the comparison itself checks the same of the others."""
    peer = importlib.import_module(f"bench.peers.{name}")
    if peer.VENV != "own":
        pytest.skip(f"{name} is installed in an environment of its own")
    for package in peer.PACKAGES:
        pytest.importorskip("cv2" if package == "opencv-python-headless" else package)
    peer.write(made.corpus, tmp_path, made.plan)
    handle = peer.open(tmp_path)
    for track, start, stop in ((0, 0, 7), (0, 3, 9), (made.corpus.count - 1, 0, 5)) if hasattr(peer, "read") else ():
        check_window(peer.read(handle, track, start, stop), made.corpus.window(track, start, stop))
    batches = peer.epoch(handle, made.plan, 0)
    assert check_epoch(batches, made.corpus, made.plan) == made.plan.frames
    assert len(list(batches)) == len(made.plan.batches)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_peer_is_short_and_listed(path: Path):
    assert len(path.read_text().splitlines()) < 80
    assert path.stem in command.PEERS and path.stem in NAMES


def test_windows_that_are_wrong_are_noticed(made: Made):
    expected = made.corpus.window(0, 0, 9)
    copies = tuple(np.array(view) for view in expected)
    check_window(copies, expected)
    for wrong in (expected, (copies[0][::-1] // 2, *copies[1:]), (copies[0][:8], *copies[1:])):
        with pytest.raises(AssertionError):
            check_window(wrong, expected)


def test_epochs_that_are_wrong_are_noticed(made: Made):
    batches = list(asdstore_pack.epoch(asdstore_pack.open(made.folder), made.plan, 0))
    assert check_epoch(batches, made.corpus, made.plan) == made.plan.frames
    quiet = [(faces, audio * np.float32(0.9), labels) for faces, audio, labels in batches]
    dark = [(np.maximum(faces, 1) // 2, audio, labels) for faces, audio, labels in batches]
    for wrong in (batches[:-1], quiet, dark):
        with pytest.raises(AssertionError):
            check_epoch(wrong, made.corpus, made.plan)


def test_a_window_may_lie_in_two_records(made: Made):
    plan = Plan(np.array([1, 0, 0]), np.array([0, 10, 0]), np.array([8, 30, 10]), np.array([0, 3]), np.zeros(2), np.ones(2))
    records = Records(plan)
    seen: list[int] = []

    def record(number: int) -> Any:
        seen.append(number)
        return made.corpus.window(*plan.chunk(number))

    check_window(records.read(record, 0, 5, 14), made.corpus.window(0, 5, 14))
    assert seen == [2, 1]


def test_memcpy_and_work_r_count_the_same_bytes(made: Made):
    memcpy_epoch(made.corpus, made.plan)()
    found = read(asdstore_pack, made.corpus, made.plan, made.folder)
    assert found["bytes"] > 0 and len(found["memcpy"]) == len(found["peer"]) >= 3


def _results() -> dict[str, Any]:
    def peer(speed: float) -> dict[str, Any]:
        return {"about": "used so", "versions": {"numpy": "2"},
                "read": {"memcpy": [1.0], "memmap": [1.5], "peer": [1.5 / speed]},
                "epoch_0": {"share": 1.0, "memcpy": [1.0], "peer": [1.25 / speed]},
                "write": {"seconds": 3.0, "save": 1.0, "bytes": 101, "raw": 100}, "open": {"seconds": 0.1, "bytes": 5e6}}

    costs = {"open": 1.0, "open_bytes": 1e8, "plan": 1.0, "first": 0.5, "batch": 1e-3, "all_bytes": 2e8, "chunks": 5}
    growth = [{"tracks": 10**n, "json": {"seconds": 4.0, "bytes": 1e9}, "open": costs} for n in (3, 6)]
    return {"about": {"date": "2026-01-01", "machine": "2 cores", "python": "3.11", "corpus_MB": 400}, "growth": growth,
            "peers": {OURS: peer(1.0), "hdf5": peer(0.4), "jpeg_wav": peer(0.02), "lance_file": {
                "about": "used so", "error": {"install": "no such package"}}},
            "writing": {"pictures": 100, "no option": 2.0, "one worker": 2.0, "two workers": 1.0, "decoding and resizing": 1.5}}


def test_targets_hold_and_are_missed():
    results = _results()
    held = {target.text.split(":")[0] + target.text[-4:]: target.holds for target in targets(results)}
    assert [t.text for t in targets(results) if not t.holds] == ["W: prepare over decoding and resizing alone: at most 1.25"]
    assert None not in held.values()
    results["peers"]["hdf5"]["epoch_2"] = {"share": 1.0, "memcpy": [1.0], "peer": [1.0]}
    assert any("next h5py 1" in t.found and t.holds is False for t in targets(results))


def test_nothing_measured_is_no_target_held():
    assert not [t for t in targets({"peers": {}}) if t.holds is not None]


def test_the_report_names_who_failed(tmp_path: Path):
    pytest.importorskip("matplotlib")
    write_report(_results(), tmp_path)
    text = (tmp_path / "RESULTS.md").read_text()
    assert "- Lance, install: no such package" in text and "**missed**" in text and "| **asdstore** | 0.67 | 1.00 |" in text
    for name in ("reading.png", "growth.png"):
        assert (tmp_path / name).read_bytes()[:4] == b"\x89PNG" and name in text


@pytest.fixture
def quick(tmp_path: Path) -> Iterator[list[str]]:
    yield ["--size", "4", "--entries", "300", "--growth", "200", "400", "--workers", "0", "--only", "memmap",
           "--results", str(tmp_path / "r.json"), "--folder", str(tmp_path / "stores"),
           "--parts", "peers", "growth", "--work", "write", "epoch", "open"]


def test_the_command_from_end_to_end(tmp_path: Path, quick: list[str]):
    pytest.importorskip("matplotlib")
    pytest.importorskip("torch")
    assert command.main(quick) == 0
    found = json.loads((tmp_path / "r.json").read_text())
    assert set(found["peers"]) == {"memmap"} and [row["tracks"] for row in found["growth"]] == [200, 400]
    assert {"write", "epoch_0", "open"} <= set(found["peers"]["memmap"])
    assert "np.memmap" in (tmp_path / "RESULTS.md").read_text()


def test_a_peer_that_fails_is_named(tmp_path: Path, quick: list[str], monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(command, "install", lambda name: {"numpy==9": "no such version"} if name == "own" else {})
    assert command.main(quick) == 1
    assert json.loads((tmp_path / "r.json").read_text())["peers"]["memmap"]["error"] == {"install": "numpy==9: no such version"}
