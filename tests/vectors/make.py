"""`python -m tests.vectors.make [TARGET]` writes the reference packs of the standard into spec/vectors/ and their verdicts.

Good vectors are made by the writer, bad ones by editing documents and bytes of such packs. Every run writes the same bytes.
"""
from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from tests.vectors.bad import BAD
from tests.vectors.good import GOOD

HOME = Path(__file__).parents[2] / "spec" / "vectors"
EXPECTED = "expected.json"


def verdicts() -> dict[str, dict[str, Any]]:
    """What each vector is about, the kind of error that opening it raises (null: none), and the broken rules with the kinds of
    their faults: those that checking finds, and those that it finds beside them when every byte is read."""
    good = {f"good/{make.__name__.replace('_', '-')}": {"about": make.__doc__, "open": None, "check": found, "deep": []}
            for make, found in GOOD.items()}
    bad = {f"bad/{one.name}": {"about": one.about, "open": one.open, "check": one.check, "deep": one.deep} for one in BAD}
    return good | bad


def make_all(target: Path) -> None:
    """Writes every vector and the verdicts into the folder `target`; vectors that are there are replaced."""
    makes = {f"good/{make.__name__.replace('_', '-')}": make for make in GOOD} | {f"bad/{one.name}": one.make for one in BAD}
    for part in ("good", "bad"):
        shutil.rmtree(target / part, ignore_errors=True)
    for name, make in makes.items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        make(target / name)
    (target / EXPECTED).write_text(json.dumps(verdicts(), indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    make_all(Path(sys.argv[1]) if len(sys.argv) > 1 else HOME)
