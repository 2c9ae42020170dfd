"""The examples in the documentation of the formats and of frames are right."""
from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import asdstore.formats
import pipelines

NAMES = [*(f"asdstore.formats.{module.name}" for module in pkgutil.iter_modules(asdstore.formats.__path__)),
         *(f"pipelines.{module.name}" for module in pkgutil.iter_modules(pipelines.__path__) if module.name.startswith("frame")),
         "asdstore.frame_tracks"]


@pytest.mark.parametrize("name", NAMES)
def test_examples(name):
    found = doctest.testmod(importlib.import_module(name))
    assert found.failed == 0
