"""Batches made ahead by threads, handed out in order."""
from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def ordered(fetch: Callable[[int], Any], count: int, *, depth: int, threads: int) -> Iterator[Any]:
    """fetch(0), fetch(1), ... fetch(count - 1): up to `depth` ahead of the consumer, made by `threads` threads.

    Without threads or depth each is made when it is asked for. An exception comes out at its turn.

    >>> list(ordered(lambda i: i * i, 4, depth=2, threads=2))
    [0, 1, 4, 9]
    """
    if not threads or not depth:
        yield from (fetch(i) for i in range(count))
        return
    pool = ThreadPoolExecutor(threads, "asdstore-batch")
    waiting = deque(pool.submit(fetch, i) for i in range(min(depth, count)))
    try:
        for i in range(depth, depth + count):
            if i < count:
                waiting.append(pool.submit(fetch, i))
            yield waiting.popleft().result()  # nothing here holds on to it: its buffer is free once the consumer lets go
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
