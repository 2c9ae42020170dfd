"""The examples in the documentation of every module are right (those of `spec` run with its own tests)."""
from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

PACKAGES = ("asdstore", "adapters", "pipelines")


def modules() -> list[str]:
    paths = {name: importlib.import_module(name).__path__ for name in PACKAGES}
    return [module.name for name, path in paths.items() for module in pkgutil.walk_packages(path, f"{name}.")]


@pytest.mark.parametrize("name", modules())
def test_examples(name: str):
    assert doctest.testmod(importlib.import_module(name)).failed == 0
