"""Shared test data: `shared` is the folder that ASDSTORE_SHARED names, or the test is skipped with that reason."""
from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared() -> Path:
    folder = os.environ.get("ASDSTORE_SHARED")
    if not folder or not Path(folder).is_dir():
        pytest.skip("ASDSTORE_SHARED names no folder with the shared media")
    return Path(folder).resolve()


@pytest.fixture(scope="session")
def golden(shared: Path) -> Path:
    """Outputs of the original programs on known inputs, for the active-speaker packs."""
    return shared / "golden" / "asd"
