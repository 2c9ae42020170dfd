"""Do the four top-level packages come from one installation?

`adapters`, `pipelines` and `spec` are common names: a folder or file of the user's in the working directory, or another
distribution, can stand before ours on the import path. Nothing found is executed here; it is only located.
"""
from __future__ import annotations

import importlib.util
import os
import sys

PACKAGES = ("asdstore", "adapters", "pipelines", "spec")
_MARK = b"asdstore"  # stands in the docstring of each of our packages


def verify_siblings() -> None:
    """Refuse to go on when one of `PACKAGES` would be imported from somewhere else than beside this package.

    Raises:
        ImportError: names the path that shadows ours, and the cure.

    >>> verify_siblings()
    """
    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for name in PACKAGES:
        found = locate(name)
        if not _same(found, os.path.join(home, name, "__init__.py")):
            raise ImportError(_shadowed(name, found, home), name=name, path=found or None)
        if not _ours(found):
            raise ImportError(_overwritten(name, found), name=name, path=found)


def locate(name: str) -> str:
    """Where `import name` finds a top-level module: its file, the folder of a package without `__init__.py`, or "".

    >>> os.path.basename(locate("asdstore"))
    '__init__.py'
    >>> locate("no_such_module_anywhere")
    ''
    """
    try:
        found = importlib.util.find_spec(name)
    except ValueError:  # already imported, by hand and without a spec
        return getattr(sys.modules[name], "__file__", None) or f"an object in sys.modules[{name!r}]"
    if found is None:
        return ""
    if found.has_location and found.origin:
        return os.path.abspath(found.origin)
    return next((os.path.abspath(folder) for folder in found.submodule_search_locations or ()), found.origin or "")


def _same(found: str, ours: str) -> bool:
    if found == ours or os.path.basename(found) != os.path.basename(ours):
        return found == ours
    try:  # one folder under two names, through a link
        return os.path.samefile(os.path.dirname(found), os.path.dirname(ours))
    except OSError:
        return False


def _ours(file: str) -> bool:
    """False if another distribution has put its `__init__.py` over ours in the same folder."""
    try:
        with open(file, "rb") as stream:
            return _MARK in stream.read(4096)
    except OSError:  # inside an archive: cannot be looked at this way
        return True


def _shadowed(name: str, found: str, home: str) -> str:
    if not found:
        return f"the package {name!r} of asdstore is missing from {home}. Install asdstore again."
    folder = found if os.path.isdir(found) else os.path.dirname(found)
    entry = os.path.dirname(folder) if os.path.basename(found) == "__init__.py" or os.path.isdir(found) else folder
    return (f"{found} shadows the package {name!r} of asdstore, expected in {os.path.join(home, name)}. "
            f"Rename it, run from another folder than {entry}, or take {entry} off the import path (PYTHONPATH).")


def _overwritten(name: str, found: str) -> str:
    from importlib.metadata import packages_distributions

    owners = [owner for owner in packages_distributions().get(name, []) if owner != "asdstore"]
    who = " or ".join(sorted(set(owners))) or "another distribution"
    return (f"{found} is not the package {name!r} of asdstore: {who} has put its own file there. "
            f"Install asdstore in an environment without it.")
