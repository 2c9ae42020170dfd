"""`check`: all faults and not the first, each with its place; readable reports; no input that ends it."""
from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import asdstore
from asdstore import reading
from asdstore.check import check, document, main, text
from asdstore.errors import AsdError, Fault
from asdstore.frame_tracks import FrameMedia, frame_layout
from asdstore.mirror import mirror
from asdstore.records import Record
from asdstore.writer import write_pack
from spec import npy
from tests.vectors.make import HOME
from tests.vectors.tools import edit_bytes, edit_json, edit_rows, reseal, resize, write_npy


def copy(name: str, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    return Path(shutil.copytree(HOME / name, target, symlinks=True))


def found(path: Path, deep: bool = False) -> list[Fault]:
    return [f for f in check(path, deep).packs[0].faults if f.kind != "unsealed"]


def test_golden_packs_are_clean_but_not_sealed(golden):
    report = check(golden / "packs" / "ava_val_full", deep=True)
    assert [(f.rule, f.kind, f.level) for f in report.packs[0].faults] == [("R036", "unsealed", "SHOULD")]
    assert report.exit_code == 0 and report.packs[0].tracks == 8 and not report.packs[0].sealed


def test_golden_packs_without_their_faces_have_that_fault_and_no_other(golden):
    for path in sorted((golden / "packs").glob("*/dataset.json")):
        faults = found(path.parent, deep=True)
        if path.parent.name != "ava_val_full":
            assert {f.rule for f in faults} == {"R010"} and all(f.file.endswith(".npy") for f in faults)


def test_packs_of_ours_and_their_mirrors_are_clean(make_pack):
    pack = make_pack().path
    for target in (pack, mirror(pack), mirror(pack, codec="zstd"), mirror(pack, pack.with_name("copy.zarr"), link="copy")):
        report = check(target, deep=True)
        assert report.packs[0].faults == () and report.exit_code == 0
        assert report.packs[0].tracks == 5 and report.packs[0].sealed
    assert check(pack, deep=True).packs[0].faults == (), "with two mirrors in it"


def test_all_faults_are_told_with_their_places(tmp_path):
    path = copy("good/unknown-fields", tmp_path / "pack")
    edit_rows(path / "shard-000000/index.json", lambda row: row.update(speaking_ratio=2.0), 0)
    edit_rows(path / "shard-000000/index.json", lambda row: row.update(audio_peak=0.9, label_offset=1), 1)
    edit_bytes(path / "shard-000000/labels.npy", 192 + 4, b"\x07")
    resize(path / "shard-000000/faces.npy", 128 + 100)
    by_rule = {f.rule: f for f in found(path, deep=True)}
    assert by_rule.keys() == {"R022", "R026", "R028", "R040", "R041", "R042", "R043"}
    assert by_rule["R022"].file == "shard-000000/faces.npy" and by_rule["R022"].offset == 228
    label = by_rule["R041"]
    assert (label.file, label.sample_id, label.row, label.offset) == ("shard-000000/labels.npy", "video1_0000_0060:1", 0, 196)
    assert label.expected == "labels 0 or 1" and label.found == "7 at frame 1" and label.cure
    assert by_rule["R043"].sample_id == "video0_0000_0060:0" and by_rule["R043"].row == 1


def test_every_label_fault_of_a_pack_names_its_track(make_pack):
    pack = make_pack(frames=(5, 6, 7), max_shard_bytes=200_000).path
    (pack / "seal.json").unlink()
    for shard, at in ((0, 0), (0, 10), (1, 6)):
        edit_bytes(pack / f"shard-00000{shard}/labels.npy", 128 + at, b"\xff")
    faults = [f for f in found(pack) if f.rule == "R041"]
    assert [(f.file, f.row, f.offset, f.found) for f in faults] == [
        ("shard-000000/labels.npy", 0, 128, "255 at frame 0"), ("shard-000000/labels.npy", 1, 138, "255 at frame 5"),
        ("shard-000001/labels.npy", 0, 134, "255 at frame 6")]


def test_every_byte_of_a_sealed_pack_counts(tmp_path):
    path = copy("good/sealed-shards", tmp_path / "pack")
    random = np.random.default_rng(0)
    for name in sorted(str(p.relative_to(path)) for p in path.rglob("*") if p.is_file() and p.name != "seal.json"):
        data = (path / name).read_bytes()
        for at in random.integers(0, len(data), 3):
            edit_bytes(path / name, int(at), bytes([data[at] ^ (1 << random.integers(8))]))
            assert any(f.level == "MUST" for f in found(path, deep=True)), f"{name}, byte {at}"
            with pytest.raises(AsdError):
                asdstore.open(path, verify="deep")
            (path / name).write_bytes(data)
    assert found(path, deep=True) == []


def test_ids_are_compared_over_shards(make_pack):
    pack = make_pack(frames=(5, 6, 7), max_shard_bytes=1).path
    (pack / "seal.json").unlink()
    shutil.rmtree(pack / "columns")
    name = asdstore.open(pack)[0].id
    edit_rows(pack / "shard-000002/index.json", lambda row: row.update(sample_id=name))
    fault, = found(pack)
    assert (fault.rule, fault.file, fault.row, fault.sample_id) == ("R015", "shard-000002/index.json", 0, name)
    assert "shard-000000/index.json, row 0" in fault.found
    assert asdstore.open(pack).duplicates == {name: [0, 2]}


def test_progress_names_packs_and_files(make_pack):
    pack, told = make_pack().path, []
    check(pack, deep=True, progress=told.append)
    assert told[0] == str(pack) and {f"{pack}/shard-000000/faces.npy", f"{pack}/shard-000000/audio.npy"} <= set(told)


def test_levels_of_clamped_audio_may_be_higher(make_pack):
    pack = make_pack(frames=(5,), fps=(25.0,)).path
    (pack / "seal.json").unlink()
    shutil.rmtree(pack / "columns")
    pcm = np.tile(np.array([32767, -32767], "<i2"), 1600)
    path = pack / "shard-000000/audio.npy"
    write_npy(path, pcm)
    for rms, peak, broken in ((1.0, 1.0, False), (1.1, 1.4, False), (0.9, 1.0, True), (1.0, 0.9, True)):
        edit_rows(pack / "shard-000000/index.json", lambda row, r=rms, p=peak: row.update(
            audio_mean=0.0, audio_rms=r, audio_peak=p))
        assert [f.rule for f in found(pack, deep=True)] == (["R043"] if broken else [])


def test_unlisted_files_are_found_in_folders_too(make_pack):
    pack = make_pack().path
    (pack / "more/deep").mkdir(parents=True)
    for name in ("more/deep/a", "columns/a.npy", ".hidden"):
        (pack / name).touch()
    (pack / "more/up").symlink_to("..")
    names = {f.file for f in found(pack) if f.rule == "R037"}
    assert {"more/deep/a", "columns/a.npy", ".hidden"} <= names


def test_stale_columns_name_the_column_and_the_row(make_pack):
    pack = make_pack().path
    edit_rows(pack / "shard-000000/index.json", lambda row: row.update(start_sec=9.5), 0)
    reseal(pack, 262144)
    fault, = found(pack)
    assert (fault.rule, fault.file, fault.row) == ("R038", "columns/start_sec", 0)
    assert fault.expected.startswith("9.5") and fault.found == "0.0"


def test_mirrors_in_a_pack_are_compared_whole_only_when_deep(make_pack):
    pack = make_pack(frames=(400,), fps=(25.0,), max_shard_bytes=10**8).path
    (pack / "seal.json").unlink()
    target = mirror(pack, link="copy")
    edit_bytes(target / "shard-000000/faces/c/0/0/0", 128 + 399 * 12544 + 5, b"\x01\x02")
    assert found(pack) == []
    fault, = found(pack, deep=True)
    assert (fault.rule, fault.kind, fault.file) == ("R052", "mirror-data", "mirror.zarr/shard-000000/faces")
    assert "399" in fault.found and "mirror" in fault.cure


def test_links_to_another_file_are_found(make_pack):
    pack = make_pack(frames=(5, 5), fps=(25.0,), max_shard_bytes=1).path
    (pack / "seal.json").unlink()
    chunk = mirror(pack) / "shard-000001/faces/c/0/0/0"
    chunk.unlink()
    chunk.symlink_to("../../../../../../shard-000000/faces.npy")
    fault, = found(pack)
    assert (fault.rule, fault.file) == ("R052", "mirror.zarr/shard-000001/faces")


def test_consolidated_metadata_that_say_something_else(make_pack):
    pack = make_pack().path
    own = mirror(pack)
    edit_json(own / "zarr.json", lambda d: d["consolidated_metadata"]["metadata"]["shard-000000/faces"].update(shape=[1, 2, 3]))
    for path, prefix in ((pack, "mirror.zarr/"), (own, "")):
        fault, = found(path)
        assert (fault.rule, fault.file) == ("R051", f"{prefix}zarr.json") and "shard-000000/faces" in fault.expected


def test_levels_are_those_of_all_packs_together(make_pack):
    report = check([make_pack("a").path, make_pack("b", dataset="wasd").path, make_pack("c", seed=1).path])
    assert report.levels and [(one.dataset, one.tracks) for one in report.levels.datasets] == [("ava", 10), ("wasd", 5)]


def test_a_pack_without_an_index_still_has_a_report(tmp_path):
    path = copy("good/unknown-fields", tmp_path / "pack")
    (path / "shard-000000/index.json").write_text("[")
    report = check(path)
    assert report.levels is None and report.packs[0].tracks is None and report.exit_code == 1
    assert "R012" in text(report)


@pytest.mark.parametrize(("name", "code"), [("good/sealed-shards", 0), ("good/unknown-fields", 0), ("bad/labels-7", 1),
                                            ("bad/shard-temporary", 0), ("nowhere", 3), ("bad/no-manifest", 3)])
def test_exit_codes(name, code, capsys):
    assert main([str(HOME / name)]) == code
    assert main([str(HOME / "good/sealed-shards"), str(HOME / name), "--deep", "--json"]) == code
    told = capsys.readouterr().out
    assert json.loads(told[told.index("\n{") if "\n{" in told else 0:])["exit_code"] == code


def test_usage_is_exit_code_2():
    for wrong in ([], ["--no-such-option", "x"]):
        with pytest.raises(SystemExit) as caught:
            main(wrong)
        assert caught.value.code == 2


def test_text_is_to_be_read():
    said = text(check([HOME / "bad/labels-7", HOME / "good/sealed-shards"]))
    lines = said.splitlines()
    assert lines[0] == f"{HOME / 'bad/labels-7'}: 2 faults, 1 warning (pack of 1 shard, 2 tracks, not sealed)"
    assert "  R041 MUST: Labels are 0 or 1." in lines
    assert ("    shard-000000/labels.npy, row 1, sample 'video1_0000_0060:1', byte 132: expected labels 0 or 1, "
            "found 7 at frame 1. Correct the labels and pack again. [label]") in lines
    assert f"{HOME / 'good/sealed-shards'}: clean (pack of 3 shards, 3 tracks, sealed)" in lines
    assert any(line.startswith("Levels of ava: 5 tracks") for line in lines)
    assert max(map(len, lines)) < 300


def test_many_faults_of_a_rule_are_counted_and_all_are_in_json(make_pack):
    pack = make_pack(frames=tuple(range(5, 40)), fps=(100.0,), face_shape=(4, 4)).path
    (pack / "seal.json").unlink()
    shutil.rmtree(pack / "columns")
    edit_rows(pack / "shard-000000/index.json", lambda row: row.update(model_frames=0))
    report = check(pack)
    said = text(report)
    assert "... and 25 more; --json lists all" in said and "pack: 36 warnings (pack of" in said
    faults = document(report)["packs"][0]["faults"]
    assert len(faults) == 36 and faults[0]["rule"] == "R027" and faults[0]["shard"] == "shard-000000"
    assert faults[3]["sample_id"] == asdstore.open(pack)[3].id and faults[3]["row"] == 3
    assert report.exit_code == 0, "warnings are no faults"


def test_as_a_command_from_a_folder_of_any_name(make_pack):
    pack = make_pack().path
    strange = Path(os.fsdecode(os.fsencode(pack.parent) + b"/n\xff\n"))
    shutil.copytree(pack, strange)
    run = subprocess.run([sys.executable, "-m", "asdstore.check", str(pack), strange], capture_output=True,
                         cwd=Path(__file__).parents[2], env=os.environ | {"PYTHONIOENCODING": "ascii"})
    assert run.returncode == 0 and b": clean (pack of" in run.stdout and run.stderr == b""


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.data())
def test_no_damage_ends_the_check(tmp_path, data):
    """Any bytes in any file, files for folders, and the other way round: a report, whose faults are of a known kind."""
    bases = ("sealed-shards", "unknown-fields", "mirrored", "mirror-alone", "mirror-of-another-program")
    path = copy(f"good/{data.draw(st.sampled_from(bases))}", tmp_path / "pack")
    names = sorted(str(p.relative_to(path)) for p in path.rglob("*") if p.is_file())
    for _ in range(data.draw(st.integers(1, 3))):
        file = path / data.draw(st.sampled_from(names))
        how = data.draw(st.sampled_from(["bytes", "bytes", "cut", "json", "folder", "gone"]))
        if not file.is_file():
            continue
        content = file.read_bytes()
        at = data.draw(st.integers(0, min(len(content), 800)))
        if file.is_symlink() or how in ("folder", "gone"):
            file.unlink()
        if how == "bytes":
            junk = data.draw(st.binary(min_size=1, max_size=9))
            file.write_bytes(content[:at] + junk + content[at + len(junk):])
        elif how == "cut":
            file.write_bytes(content[:at])
        elif how == "json":
            file.write_text(json.dumps(data.draw(st.recursive(
                st.none() | st.integers() | st.floats() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)))))
        elif how == "folder":
            file.mkdir()
        if data.draw(st.booleans()) and (path / "seal.json").is_file():
            (path / "seal.json").unlink()
    for deep in (False, True):
        report = check(path, deep)
        json.dumps(document(report))
        assert text(report)
        assert not any(f.cure == "Please report this message." for f in report.packs[0].faults), report.packs[0].faults
        try:
            asdstore.open(path)
        except AsdError:
            assert report.exit_code > 0


def load_frames(record: Record) -> FrameMedia:
    values = np.arange(record.frames * 3, dtype=np.float32).reshape(-1, 3)
    return FrameMedia(values, np.arange(record.frames, dtype=np.int32) + 1000)


def test_packs_of_frames_are_checked_as_far_as_they_go(tmp_path):
    records = [Record("digits", f"u{k}", 100.0, 5 + k, 0.0, f"s{k}", None) for k in range(3)]
    pack = write_pack(tmp_path / "frames", records, load_frames, layout=frame_layout(3, 1))
    report = check(pack, deep=True)
    assert report.exit_code == 0 and report.packs[0].faults == () and report.packs[0].tracks == 3 and report.levels is None
    assert asdstore.open(pack).describe().splitlines()[-1].split()[:4] == ["digits", "3", "18", "5"]
    edit_bytes(pack / "shard-000000/features.npy", 140, b"\x01")
    assert {f.rule for f in found(pack, deep=True)} == {"R032", "R034"}


def test_a_disk_that_fails_is_a_fault(make_pack, monkeypatch):
    pack = make_pack().path
    real = reading.open_file

    def failing(path: str):
        if path.endswith(("audio.npy", "labels.npy")):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(path)

    monkeypatch.setattr(reading, "open_file", failing)
    for deep, files in ((False, {"labels"}), (True, {"labels", "audio"})):
        faults = [f for f in found(pack, deep) if f.rule == "R060"]
        assert {Path(f.file).stem for f in faults} >= files
        assert all(f.kind == "unreadable" and f.found == os.strerror(errno.EIO) for f in faults)


def test_a_fault_of_this_program_is_told_and_ends_nothing(make_pack, monkeypatch):
    monkeypatch.setattr("asdstore.contents.read_contents", lambda facts, deep, progress: 1 // 0)
    report = check([make_pack().path, "nowhere"])
    assert [f.rule for f in report.packs[0].faults] == ["R060"] and "ZeroDivisionError" in text(report)


def test_headers_of_npy_files_are_never_run(tmp_path):
    path = copy("bad/npy-code", tmp_path / "pack")
    assert [f.rule for f in found(path)] == ["R020"]
    assert npy.MAGIC in (path / "shard-000000/faces.npy").read_bytes()
