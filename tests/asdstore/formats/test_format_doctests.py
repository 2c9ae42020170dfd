"""The examples in the documentation of the formats and of frames are right."""
from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import asdstore.formats

FORMATS = [f"asdstore.formats.{module.name}" for module in pkgutil.iter_modules(asdstore.formats.__path__)]
FRAMES = [f"pipelines.frame_{name}" for name in ("gather", "loader", "plan", "spec")]


@pytest.mark.parametrize("name", [*FORMATS, *FRAMES, "asdstore.frame_tracks"])
def test_examples(name):
    found = doctest.testmod(importlib.import_module(name))
    assert found.failed == 0
