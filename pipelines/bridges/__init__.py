"""Bridges: the loader of `pipelines` as torch, Grain, JAX and Lightning want it. Each imports its framework when it is used."""
from __future__ import annotations

import importlib
from typing import Any

from asdstore.errors import DependencyError, InputError
from pipelines.loader import Loader


def framework(name: str) -> Any:
    """The module of a framework. Raises: DependencyError where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as why:
        raise DependencyError("dependency", expected=f"the package {name}", found=str(why),
                              cure=f"pip install 'asdstore[{name.partition('.')[0]}]'.") from why


def plain(loader: Any, bridge: str) -> Loader:
    """`loader`, if it is one and no bridge's. Raises: InputError "loader"."""
    if not isinstance(loader, Loader) or type(loader).__module__.startswith(f"{__name__}."):
        raise InputError("loader", file=bridge, expected="a loader of pipelines.train, evaluate, frames or build",
                         found=type(loader).__name__)
    return loader
