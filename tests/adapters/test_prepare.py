"""The command: exit codes, the same bytes from any number of workers and after any way of stopping, and what it says."""
from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import cv2
import numpy as np
import pytest

import asdstore
from adapters import ava, prepare, progress
from spec.plan import track_bytes
from tests.processes import running_in_group

A, B = "HV0H6oc4Kvs_0960_1020:1", "-5KQ66BBWC4_0900_0960:2"
HOME = Path(prepare.__file__).parent.parent
ONE_EACH = ("--max-shard-gb", "0.0001")  # a shard for every track


def fill(tree, tracks: int = 9) -> None:
    for number in range(tracks):
        tree.add(f"HV0H6oc4Kvs_0960_1020:{number}", 20 + number % 5, (25.0, 29.97)[number % 2])


def digest(pack: Path) -> str:
    """Of every file of a pack: names and bytes."""
    found = hashlib.sha256()
    for path in sorted(path for path in pack.rglob("*") if path.is_file()):
        found.update(f"{path.relative_to(pack)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()


def command(tree, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "adapters.prepare", "ava", "--loader", str(tree.loader), *ONE_EACH, *arguments]


def wait_for(path: Path) -> None:
    end = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < end, f"{path} never came"
        time.sleep(0.005)


def test_the_same_bytes_from_any_number_of_workers(clip_tree):
    fill(clip_tree)
    digests = set()
    for workers in ([], ["--workers", "1"], ["--workers", "2"], ["--workers", "4"]):
        assert clip_tree.report(*ONE_EACH, *workers, "--overwrite")["tracks"] == 9
        digests.add(digest(clip_tree.pack))
    assert len(digests) == 1 and len(asdstore.open(clip_tree.pack, verify="deep")) == 9


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_stopped_and_run_again(clip_tree, workers, how):
    fill(clip_tree, 30)
    partial = clip_tree.pack.with_name(".train.partial")
    run = subprocess.Popen(command(clip_tree, "--workers", workers), stderr=subprocess.PIPE, start_new_session=True,
                           cwd=HOME)
    wait_for(partial / "pack" / "shard-000003")
    if how == signal.SIGINT:
        os.killpg(run.pid, how)  # as a terminal does
    else:
        run.kill()
    _, err = run.communicate(timeout=60)
    assert run.returncode == (130 if how == signal.SIGINT else -9) and not clip_tree.pack.exists()
    if how == signal.SIGINT:
        assert b"stopped" in err and b"Traceback" not in err
    kept = {path.name: path.stat().st_mtime_ns for path in (partial / "pack").glob("shard-*")}
    clip_tree.report(*ONE_EACH, "--workers", workers)
    again = {path.name: path.stat().st_mtime_ns for path in clip_tree.pack.glob("shard-*")}
    assert len(again) == 30 and all(again[name] == stamp for name, stamp in kept.items() if name < "shard-000003")
    assert not partial.exists()
    stopped = digest(clip_tree.pack)
    clip_tree.report(*ONE_EACH, "--overwrite")
    assert digest(clip_tree.pack) == stopped


def test_a_face_extracted_again_in_place_while_the_work_is_stopped(clip_tree):
    fill(clip_tree, 3)
    clip_tree.add(B, 10, seconds=0)  # stops the work after three shards
    assert clip_tree.prepare(*ONE_EACH)[0] == 1
    partial = clip_tree.pack.with_name(".train.partial") / "pack"
    before = {shard.name: shard.stat().st_ino for shard in partial.iterdir()}
    jpeg = sorted((clip_tree.visual / "train" / "HV0H6oc4Kvs" / "HV0H6oc4Kvs_0960_1020:1").iterdir())[4]
    jpeg.write_bytes(cv2.imencode(".jpg", np.full((20, 16), 200, np.uint8))[1].tobytes())
    assert clip_tree.prepare(*ONE_EACH)[0] == 1  # the sound is the same, so that the plan is
    after = {shard.name: shard.stat().st_ino for shard in partial.iterdir()}
    assert [name for name in sorted(after) if after[name] != before[name]] == ["shard-000001"]
    assert (np.load(partial / "shard-000001" / "faces.npy")[4] == 200).all()


def test_faults_of_two_workers_are_both_in_the_json(clip_tree):
    for name in (A, B):
        next(clip_tree.add(name).iterdir()).write_bytes(b"")
    code, out, _ = clip_tree.prepare(*ONE_EACH, "--workers", "2", "--json")
    said = json.loads(out)
    assert code == 1 and [fault["sample_id"] for fault in said["faults"]] == [A]
    assert len(said["notes"]) == 1 and B in said["notes"][0] and "faces-corrupt" in said["notes"][0]


def test_a_worker_that_is_killed_is_named_and_its_shard_written_again(clip_tree):
    fill(clip_tree, 40)
    shard = clip_tree.pack.with_name(".train.partial") / "pack" / "shard-000002"

    def kill_one() -> None:
        wait_for(shard)
        multiprocessing.active_children()[0].kill()

    killer = threading.Thread(target=kill_one)
    killer.start()
    code, _, err = clip_tree.prepare(*ONE_EACH, "--workers", "2")
    killer.join()
    assert code == 0 and "was killed by SIGKILL at work on shard-" in err
    assert len(asdstore.open(clip_tree.pack, verify="deep")) == 40


def test_nobody_outlives_a_killed_parent(clip_tree):
    fill(clip_tree, 60)
    run = subprocess.Popen(command(clip_tree, "--workers", "2"), stderr=subprocess.DEVNULL, start_new_session=True,
                           cwd=HOME)
    wait_for(clip_tree.pack.with_name(".train.partial") / "pack" / "shard-000001")
    run.kill()
    run.wait()
    end = time.monotonic() + 20
    while running_in_group(run.pid) and time.monotonic() < end:
        time.sleep(0.05)
    assert not running_in_group(run.pid)


def test_an_error_of_a_worker_is_the_error_of_the_command(clip_tree):
    fill(clip_tree)
    clip_tree.add(B, 10, seconds=0)
    (fault,) = clip_tree.faults("--workers", "2", *ONE_EACH)
    assert (fault["kind"], fault["sample_id"]) == ("audio-empty", B)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_the_bar_counts_every_track_once_while_shards_are_at_work(clip_tree, monkeypatch, workers):
    bars = []

    class Bar(progress.Bar):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            self.steps = []
            bars.append(self)

        def add(self, amount: float) -> None:
            self.steps.append(amount)
            super().add(amount)

    fill(clip_tree, 6)
    monkeypatch.setattr(progress, "Bar", Bar)
    clip_tree.report("--workers", workers)  # one shard, six steps
    assert len(bars[-1].steps) == 6 and bars[-1].done == bars[-1].total == sum(bars[-1].steps)


def test_dry_run_says_what_would_be_and_writes_nothing(clip_tree):
    fill(clip_tree, 3)
    plan = clip_tree.report("--dry-run", *ONE_EACH)
    assert (plan["output"], plan["shards"], plan["tracks"], plan["frames"]) == (str(clip_tree.pack), 3, 3, 63)
    assert plan["bytes"] == track_bytes(20, 25.0) + track_bytes(21, 29.97) + track_bytes(22, 25.0)
    assert not clip_tree.pack.parent.exists()


def test_exit_codes(clip_tree, tmp_path):
    code, _, err = clip_tree.prepare()
    assert code == 3 and "train_loader.csv" in err and "[missing]" in err
    fill(clip_tree, 2)
    assert clip_tree.prepare()[0] == 0
    code, _, err = clip_tree.prepare()
    assert code == 2 and "overwrite" in err
    clip_tree.add(B, labels=[5])
    code, _, err = clip_tree.prepare("--overwrite")
    assert code == 1 and "faults found: 1; nothing was packed" in err and f"sample '{B}'" in err
    assert len(asdstore.open(clip_tree.pack)) == 2  # the old pack stands


def test_a_folder_that_may_not_be_read(clip_tree, monkeypatch):
    fill(clip_tree, 1)

    def refuse(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "scandir", refuse)
    code, _, err = clip_tree.prepare()
    assert code == 3 and err == f"{clip_tree.visual / 'train'}: expected it to open, found Permission denied [io]\n"


def test_no_memory_in_this_process(clip_tree, monkeypatch):
    fill(clip_tree, 1)
    monkeypatch.setattr(ava.faces, "read_jpegs", lambda *_: bytearray(1 << 60))
    code, _, err = clip_tree.prepare()
    assert code == 3 and A.replace(":1", ":0") in err and err.endswith("[memory]\n") and not clip_tree.pack.exists()


def test_nothing_left_is_a_fault_with_the_report(clip_tree):
    fill(clip_tree, 7)
    for wav in clip_tree.audio.rglob("*.wav"):
        wav.unlink()
    code, out, err = clip_tree.prepare("--skip-missing", "--json")
    said = json.loads(out)
    assert code == 1 and not err and [fault["kind"] for fault in said["faults"]] == ["no-tracks"]
    assert len(said["skipped"]["audio-missing"]) == 7
    code, out, err = clip_tree.prepare("--skip-missing")
    assert code == 1 and not out and "and 2 more, --json names all" in err and "[no-tracks]" in err


@pytest.mark.parametrize("arguments", [["ava"], ["lrs3"], [], ["ava", "--loader", "x", "--workers", "0"],
                                       ["ava", "--loader", "x", "--max-shard-gb", "nan"],
                                       ["frames", "x", "--output", "y", "--max-shard-gb", "inf"],
                                       ["speech", "--input", "x", "--pack", "--max-shard-gb", "0"],
                                       ["msdwild", "--input", "x", "--rttm", "y", "--min-face-ratio", "90"],
                                       ["msdwild", "--input", "x"]])
def test_usage(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        prepare.main(arguments)
    err = capsys.readouterr().err
    assert caught.value.code == 2 and "usage:" in err and "invalid _" not in err


def test_the_table_for_people(clip_tree):
    fill(clip_tree, 3)
    clip_tree.add(B, 1, 30.0)
    clip_tree.add(A.replace(":1", ":9"), 10)
    clip_tree.wav(A.replace(":1", ":9")).unlink()
    code, out, _ = clip_tree.prepare("--skip-missing")
    rows = dict(line.strip().rsplit("  ", 1) for line in out.splitlines() if "  " in line.strip())
    figures = {label.strip(): value.strip() for label, value in rows.items()}
    assert code == 0 and out.startswith(f"{clip_tree.pack}\n")
    assert figures["tracks"] == "4" and figures["frames"] == "64" and figures["skipped: audio-missing"] == "1"
    assert figures["no frame at 25 Hz, tracks"] == "1" and B in out


def test_report_json_in_the_pack_is_what_json_prints(clip_tree):
    fill(clip_tree, 2)
    printed = clip_tree.report()
    assert json.loads((clip_tree.pack / "report.json").read_text()) == {k: v for k, v in printed.items() if k != "pack"}


def test_help_is_quick_and_imports_nothing_heavy():
    code = ("import sys\nfrom adapters import prepare\ntry:\n    prepare.main(['ava', '--help'])\n"
            "except SystemExit:\n    pass\n"
            "print([m for m in ('numpy', 'cv2', 'av', 'soundfile', 'soxr', 'zarr') if m in sys.modules])")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=HOME)
    assert done.stdout.splitlines()[-1] == "[]", done.stdout + done.stderr
