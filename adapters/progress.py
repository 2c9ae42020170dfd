"""Progress on stderr: a bar with the time that remains, told from the work of the last minute and never from a guess."""
from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TextIO

Watch = Callable[[Sequence[Any]], Iterator[Any]]
PERIOD = 60.0  # seconds of work that the estimate rests on
TICK = 0.2  # seconds between two pictures on a terminal; elsewhere a line comes every 50 ticks


class Bar:
    """Shows how much of `total` is done: on a terminal one line that is drawn again, elsewhere a line now and then."""

    def __init__(self, title: str, total: float, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic):
        self.title, self.total, self.stream, self.clock = title, total, stream or sys.stderr, clock
        self.done = 0.0
        self.marks: deque[tuple[float, float]] = deque()  # (time, done)
        self.terminal = self.stream.isatty()
        self.shown = -float("inf") if self.terminal else self.clock()

    def add(self, amount: float) -> None:
        """Count `amount` more as done."""
        self.done += amount
        now = self.clock()
        if self.marks and now - self.marks[-1][0] < TICK:
            self.marks[-1] = (self.marks[-1][0], self.done)  # a burst (what an earlier run had finished) is no rate
        else:
            self.marks.append((now, self.done))
        while len(self.marks) > 2 and now - self.marks[1][0] > PERIOD:
            self.marks.popleft()
        if now - self.shown >= (TICK if self.terminal else 50 * TICK):
            self.shown = now
            self._show(self.text())

    def text(self) -> str:
        """The bar as text.

        >>> bar = Bar("packing", 200, clock=iter([0.0, 0.0, 5.0]).__next__); bar.add(50); bar.add(50); bar.text()
        'packing  50%  about 0:10 left'
        """
        share = self.done / self.total if self.total else 1.0
        (first, before), (last, done) = (self.marks[0], self.marks[-1]) if self.marks else ((0.0, 0.0), (0.0, 0.0))
        if last <= first or done <= before:
            return f"{self.title} {share:4.0%}"
        left = round((self.total - self.done) * (last - first) / (done - before))
        hours, minutes = divmod(left // 60, 60)
        return f"{self.title} {share:4.0%}  about {f'{hours}:{minutes:02}' if hours else minutes}:{left % 60:02} left"

    def say(self, text: str) -> None:
        """A line of its own."""
        self.close()
        self.stream.write(f"{text}\n")

    def close(self) -> None:
        """Leave the line."""
        if self.terminal and self.marks:
            self.stream.write("\r\x1b[K")
            self.stream.flush()

    def _show(self, text: str) -> None:
        self.stream.write(f"\r{text}\x1b[K" if self.terminal else f"{text}\n")
        self.stream.flush()


def watch(title: str) -> Watch:
    """A function that passes the items of a sequence on and shows how far it is."""
    def walk(items: Sequence[Any]) -> Iterator[Any]:
        bar = Bar(title, len(items))
        for item in items:
            yield item
            bar.add(1)
        bar.close()
    return walk
