"""The demo runs from media to arrays, with the media that it makes itself."""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("media", ["made", "real"])
def test_demo_runs(tmp_path: Path, media: str, request: pytest.FixtureRequest):
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    environment.pop("ASDSTORE_SHARED", None)
    if media == "real":
        environment["ASDSTORE_SHARED"] = str(request.getfixturevalue("shared"))
    for _ in range(2):  # a second run finds the packs of the first
        done = subprocess.run([sys.executable, "-m", "examples.demo", "--epochs", "3"], cwd=tmp_path, env=environment,
                              capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
    steps = [line.split("  ")[0] for line in done.stdout.splitlines()]
    assert {"media", "prepare ava", "prepare avcc", "check", "mirror ava", "mirror avcc", "read back"} <= set(steps)
    assert done.stdout.count("equal in asdstore, numpy, zarr-python and TensorStore") == 2
    assert done.stdout.count("epoch ") == 3 and "of held-out frames" in done.stdout  # it ends with a learning curve
