"""A module that is a command and is called as a function too: `python -m asdstore.mirror PACK` and `asdstore.mirror(pack)`."""
from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class Verb(ModuleType):
    """A module whose call is the call of its function of the same name."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return getattr(self, self.__name__.rpartition(".")[2])(*arguments, **named)


def make_callable(module: str) -> None:
    """Let the module of that name be called."""
    sys.modules[module].__class__ = Verb
