"""The bar and its estimate."""
from __future__ import annotations

import io

from adapters.progress import Bar, watch


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_what_an_earlier_run_finished_does_not_make_the_estimate_rosy():
    clock = Clock()
    bar = Bar("packing", 1000, io.StringIO(), clock)
    for _ in range(500):  # a burst: the shards that were there
        bar.add(1)
    for _ in range(100):
        clock.now += 1
        bar.add(1)
    assert bar.text() == "packing  60%  about 6:40 left"


def test_the_estimate_follows_the_last_minute():
    clock = Clock()
    bar = Bar("packing", 100_000, io.StringIO(), clock)
    for step in range(400):
        clock.now += 1
        bar.add(100 if step < 200 else 10)
    assert bar.text() == "packing  22%  about 2:10:00 left"


def test_a_terminal_has_one_line_and_a_file_has_few():
    clock, terminal, file = Clock(), Terminal(), io.StringIO()
    bars = Bar("x", 1000, terminal, clock), Bar("x", 1000, file, clock)
    for _ in range(1000):
        clock.now += 0.1
        for bar in bars:
            bar.add(1)
    for bar in bars:
        bar.close()
    assert "\n" not in terminal.getvalue() and terminal.getvalue().endswith("\r\x1b[K")
    assert 5 <= file.getvalue().count("\n") <= 11 and "\r" not in file.getvalue()


def test_watch_gives_everything_in_order():
    assert list(watch("x")(["a", "b"])) == ["a", "b"] and list(watch("x")([])) == []
