"""Ratios: two sides measured in turn, one line for each pair, and a command that runs several parts of them.

Both sides are measured alternately, in this process or both in fresh ones, and their medians compared, so that other work on
the machine meets both alike.
"""
from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np


class Ratio(NamedTuple):
    """Ours over the other's, and what it may be at most."""

    name: str
    ours: float
    other: float
    unit: str
    most: float | None  # None: for information

    @property
    def value(self) -> float:
        return self.ours / self.other

    @property
    def holds(self) -> bool:
        return self.most is None or self.value <= self.most


def in_turn(first: Callable[[int], object], second: Callable[[int], object], rounds: int,
            before: Callable[[], object] = lambda: None) -> tuple[float, float]:
    """Median seconds of two functions of the round's number, called alternately, each as often the first of the two.

    `before` clears up before each call; its time does not count.
    """
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds):
        for which in ((0, 1), (1, 0))[number % 2]:
            before()
            started = time.perf_counter()
            (first, second)[which](number)
            times[which].append(time.perf_counter() - started)
    return float(np.median(times[0])), float(np.median(times[1]))


def line(ratio: Ratio) -> str:
    """The ratio as a line of the table."""
    most = "" if ratio.most is None else f"<= {ratio.most:<6.3g}{'ok' if ratio.holds else 'MISSED'}"
    ours, other = _amount(ratio.ours, ratio.unit), _amount(ratio.other, ratio.unit)
    return f"{ratio.name:<58}{ours:>12}{other:>12}{ratio.value:7.3f}  {most}"


def _amount(value: float, unit: str) -> str:
    if unit != "s":
        return f"{value:.1f} {unit}"
    return f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.2f} ms" if value >= 1e-3 else f"{value * 1e6:.2f} us"


def run_parts(program: str, description: str, parts: Mapping[str, Callable[[Path], Iterator[Ratio]]],
              argv: Sequence[str] | None = None) -> int:
    """Run the parts, each in a temporary folder of its own. Exit code 0 if every ratio holds, 1 if not."""
    parser = argparse.ArgumentParser(prog=program, description=description)
    parser.add_argument("--only", nargs="+", choices=parts, default=list(parts), metavar="PART", help=f"of {', '.join(parts)}")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    ratios = []
    if not options.json:
        print(f"{'':<58}{'ours':>12}{'other':>12}{'ratio':>7}  at most")
    for name in options.only:
        with tempfile.TemporaryDirectory(prefix="asdstore-bench-") as folder:
            for ratio in parts[name](Path(folder)):
                ratios.append(ratio)
                if not options.json:
                    print(line(ratio), flush=True)
    if options.json:
        print(json.dumps([ratio._asdict() | {"ratio": ratio.value} for ratio in ratios], indent=1))
    return 0 if all(ratio.holds for ratio in ratios) else 1
