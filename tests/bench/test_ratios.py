"""The bench command tells by its exit code whether every ratio holds."""
from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.ratios import Ratio, in_turn, run_parts


def good(folder: Path) -> Iterator[Ratio]:
    assert folder.is_dir()
    yield Ratio("fast", 1e-3, 2e-3, "s", 0.5)
    yield Ratio("told only", 3.0, 1.0, "MB", None)


def bad(folder: Path) -> Iterator[Ratio]:
    yield Ratio("slow", 1.2, 1.0, "s", 1.1)


def test_exit_code_and_table(capsys: pytest.CaptureFixture[str]):
    assert run_parts("bench", "", {"good": good, "bad": bad}, ["--only", "good"]) == 0
    assert "fast" in capsys.readouterr().out
    assert run_parts("bench", "", {"good": good, "bad": bad}, []) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].endswith("ok") and lines[3].endswith("MISSED") and lines[2].rstrip().endswith("3.000")


def test_json(capsys: pytest.CaptureFixture[str]):
    assert run_parts("bench", "", {"good": good}, ["--json"]) == 0
    assert [ratio["ratio"] for ratio in json.loads(capsys.readouterr().out)] == [0.5, 3.0]


def test_both_sides_take_turns_at_being_first():
    seen: list[tuple[str, int]] = []
    in_turn(lambda n: seen.append(("a", n)), lambda n: seen.append(("b", n)), 4)
    assert [seen[2 * n][0] for n in range(4)] == ["a", "b", "a", "b"] and [n for _, n in seen] == [0, 0, 1, 1, 2, 2, 3, 3]
