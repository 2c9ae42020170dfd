"""asdstore: decode a corpus once into memory-mapped packs, check them, and read any track as a view.

    import asdstore
    pack = asdstore.open("AVA/packed/train")
    pack[0].faces, pack[0].audio, pack[0].labels

Importing it loads neither numpy nor anything heavier; each name below is imported when it is first used.
"""
from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from asdstore.installation import verify_siblings

verify_siblings()

if TYPE_CHECKING:
    from asdstore import errors
    from asdstore.check import check
    from asdstore.mirror import mirror
    from asdstore.pack import Pack, Track
    from asdstore.pack import open_pack as open
    from asdstore.stats import compute_stats
    from asdstore.writer import write_pack

_HOME = {"open": ("asdstore.pack", "open_pack"), "Pack": ("asdstore.pack", "Pack"), "Track": ("asdstore.pack", "Track"),
         "compute_stats": ("asdstore.stats", "compute_stats"), "write_pack": ("asdstore.writer", "write_pack"),
         "errors": ("asdstore.errors", "")}
_VERBS = ("check", "mirror")  # modules that are commands too, and are called by their own name: asdstore.mirror(pack)


def __getattr__(name: str) -> Any:
    if name in _VERBS:
        return importlib.import_module(f"asdstore.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'asdstore' has no attribute {name!r}")
    module, attribute = _HOME[name]
    found = importlib.import_module(module)
    globals()[name] = value = getattr(found, attribute) if attribute else found
    return value


__all__ = ["Pack", "Track", "check", "compute_stats", "errors", "mirror", "open", "write_pack"]
