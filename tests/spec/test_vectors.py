"""The reference packs: opening, checking and a reader of another hand come to the verdicts that are written beside them."""
from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import asdstore
from asdstore.check import check
from asdstore.errors import AsdError
from spec.rules_check import RULES
from tests.vectors.make import EXPECTED, HOME, make_all, verdicts

VERDICTS = json.loads((HOME / EXPECTED).read_bytes())
GOOD = [name for name in VERDICTS if name.startswith("good/")]
BYTES_READ_BY_THE_SECOND_READER = {"R029", "R034", "R035", "R038", "R045"}


def pairs(found: list[list[str]]) -> set[tuple[str, str]]:
    return {(rule, kind) for rule, kind in found}


@pytest.fixture(scope="module")
def second_reader() -> ModuleType:
    path = Path(__file__).parents[1] / "independent_reader.py"
    specification = importlib.util.spec_from_file_location(path.stem, path)
    assert specification and specification.loader
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def tree(folder: Path) -> dict[str, bytes | str]:
    """All files below a folder with their bytes, links with their targets."""
    paths = (Path(at, name) for at, folders, files in os.walk(folder) for name in files + folders)
    return {str(path.relative_to(folder)): os.readlink(path) if path.is_symlink() else path.read_bytes()
            for path in paths if path.is_symlink() or path.is_file()}


@pytest.mark.parametrize("name", VERDICTS)
def test_opening_comes_to_the_verdict(name):
    expected = VERDICTS[name]["open"]
    try:
        pack = asdstore.open(HOME / name)
    except AsdError as error:
        assert error.kind == expected
        assert str(HOME / name) in error.fault.file, "the message names the file"
    else:
        assert expected is None and len(pack) == len(pack.index["sample_id"])
        for track in pack:
            assert len(track.faces) == len(track.labels) == track.frames


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("name", VERDICTS)
def test_checking_comes_to_the_verdict(name, deep):
    report = check(HOME / name, deep)
    expected = pairs(VERDICTS[name]["check"]) | (pairs(VERDICTS[name]["deep"]) if deep else set())
    assert {(f.rule, f.kind) for f in report.packs[0].faults} == expected
    must = {rule.id for rule in RULES if rule.level == "MUST"}
    broken = any(rule in must for rule, _ in expected)
    assert report.exit_code == (3 if ("R001", "missing") in expected else int(broken))
    assert all(f.level == ("MUST" if f.rule in must else "SHOULD") for f in report.packs[0].faults)
    if VERDICTS[name]["open"]:
        assert broken, "what does not open breaks a rule"


@pytest.mark.parametrize("name", GOOD)
def test_a_reader_of_another_hand_reads_equal_arrays(name, second_reader):
    pack, tracks = asdstore.open(HOME / name), second_reader.read(str(HOME / name))
    assert len(pack) == len(tracks)
    for ours, theirs in zip(pack, tracks, strict=True):
        for stream in ("faces", "audio", "labels"):
            one, other = getattr(ours, stream), theirs[stream]
            assert one.dtype == other.dtype and np.array_equal(one, other)
        for field in ("dataset", "sample_id", "source_fps", "start_sec", "model_frames", "audio_rms", "speaking_ratio"):
            assert getattr(ours, field) == theirs[field]


@pytest.mark.parametrize("name", [name for name in VERDICTS if name.startswith("bad/")])
def test_a_reader_of_another_hand_refuses_what_opening_refuses(name, second_reader):
    found = pairs(VERDICTS[name]["check"]) | pairs(VERDICTS[name]["deep"])
    if VERDICTS[name]["open"] or any(rule in BYTES_READ_BY_THE_SECOND_READER for rule, _ in found):
        with pytest.raises(second_reader.Refused):
            second_reader.read(str(HOME / name))
    else:
        second_reader.read(str(HOME / name))


def test_the_second_reader_imports_nothing_of_ours(second_reader):
    text = Path(second_reader.__file__).read_text()
    imported = {line.split()[1] for line in text.splitlines() if line.startswith(("import ", "from "))}
    assert imported == {"__future__", "hashlib", "itertools", "json", "math", "os", "re", "numpy"}
    assert len(text.splitlines()) < 250


def test_the_script_makes_the_same_bytes_again(tmp_path):
    make_all(tmp_path)
    ours, again = tree(HOME), tree(tmp_path)
    assert sorted(ours) == sorted(again)
    assert [name for name in ours if ours[name] != again[name]] == []


def test_the_vectors_are_many_and_small():
    assert len(GOOD) >= 6 and len(VERDICTS) - len(GOOD) >= 30
    assert VERDICTS.keys() == verdicts().keys()
    on_disk = {f"{path.parent.name}/{path.name}" for part in ("good", "bad") for path in (HOME / part).iterdir()}
    assert on_disk == set(VERDICTS)
    assert sum(path.lstat().st_size for path in HOME.rglob("*") if path.is_file()) < 1_000_000


def test_every_rule_is_broken_by_a_vector():
    broken = {rule for verdict in VERDICTS.values() for rule, _ in verdict["check"] + verdict["deep"]}
    assert {rule.id for rule in RULES} - broken == {"R060"}, "R060 needs a disk that fails"
