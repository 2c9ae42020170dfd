"""The examples in the documentation of `spec` are right."""
from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import spec


@pytest.mark.parametrize("name", [module.name for module in pkgutil.iter_modules(spec.__path__)])
def test_examples(name):
    found = doctest.testmod(importlib.import_module(f"spec.{name}"))
    assert found.failed == 0
