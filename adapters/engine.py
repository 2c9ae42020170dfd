"""Engines: run one function over many tasks, in this process or in several, with results in the order of the tasks.

A task's result depends on the task alone, so any number of workers gives the same bytes.
"""
from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

from asdstore.errors import AsdError, StoreError

Run = Callable[[Callable[..., Any], Iterable[Any]], Generator[Any, None, None]]
TRIES = 2  # of a task whose worker dies
NO_MEMORY = 77  # exit code of a worker that ran out of memory
SIGNALS = {number.value: number.name for number in signal.Signals}  # most real-time ones have no name


def alone(heard: Callable[[Any], object] | None = None) -> Run:
    """An engine that runs the tasks one after another in this process. `heard` as in `processes`."""
    def run(function: Callable[..., Any], tasks: Iterable[Any]) -> Generator[Any, None, None]:
        for task in tasks:
            yield function(task) if heard is None else function(task, heard)
    return run


def processes(workers: int, say: Callable[[str], None] = lambda text: print(text, file=sys.stderr),
              heard: Callable[[Any], object] | None = None, name: Callable[[Any], str] = repr) -> Run:
    """An engine with `workers` processes (started anew, never forked), each with one task at a time.

    `function` and the tasks must pickle. With `heard`, `function` gets a second argument, a function of its own to call with
    whatever `heard` shall be called with here: progress inside a task. A worker that dies is named through `say`, with its
    task by `name`, and the task is tried once more. After an error no task is begun, those at work end (what they wrote
    stays), and the error of the earliest task is raised with the others as notes. Ctrl-C, or closing the generator, ends
    the workers at once.

    Raises (the engine): what a task raised; StoreError kind "worker" where a task's workers died twice.
    """
    def run(function: Callable[..., Any], tasks: Iterable[Any]) -> Generator[Any, None, None]:
        jobs = list(tasks)
        crew = _Crew(function, jobs, say, heard, name)
        try:
            for number in range(len(jobs)):
                while number not in crew.results:
                    crew.step(min(workers, len(jobs)))
                yield crew.results.pop(number)
        finally:
            crew.stop()
    return run


def chosen(kind: str, workers: int | None, address: str, say: Callable[[str], None], heard: Callable[[Any], object],
           name: Callable[[Any], str]) -> Run | None:
    """The engine that a command line asks for: "local" or "ray"; None where it names no number of local workers."""
    if kind == "ray":
        from adapters.ray_engine import cluster

        return cluster(workers, address, heard, name)
    if workers is None:
        return None
    return alone(heard) if workers == 1 else processes(workers, say, heard, name)


class _Worker(NamedTuple):
    process: BaseProcess
    connection: Connection


class _Crew:
    """The workers of one run, the tasks that wait, and the results that nobody has fetched yet."""

    def __init__(self, function: Callable[..., Any], jobs: list[Any], say: Callable[[str], None],
                 heard: Callable[[Any], object] | None, name: Callable[[Any], str]):
        self.function, self.jobs, self.say, self.heard, self.name = function, jobs, say, heard, name
        self.waiting = deque(range(len(jobs)))
        self.idle: list[_Worker] = []
        self.busy: dict[Connection, tuple[_Worker, int]] = {}
        self.results: dict[int, Any] = {}
        self.errors: dict[int, Exception] = {}
        self.deaths: Counter[int] = Counter()

    def step(self, workers: int) -> None:
        """Hand out tasks, then wait until a worker answers or dies."""
        while self.waiting and not self.errors and len(self.busy) < workers:
            self._hand_out(self.waiting.popleft())
        if not self.busy:
            first, *others = sorted(self.errors)
            for other in others:
                self.errors[first].add_note(str(self.errors[other]))
            raise self.errors[first]
        for connection in wait(list(self.busy)):
            worker, number = self.busy[connection]  # type: ignore[index]
            try:
                word, value = worker.connection.recv()
            except (EOFError, OSError):
                self._bury(worker, number)
                continue
            if word == "note":
                self.heard(value)  # type: ignore[misc]
                continue
            del self.busy[worker.connection]
            self.idle.append(worker)
            {"result": self.results, "error": self.errors}[word][number] = value

    def _hand_out(self, number: int) -> None:
        worker = self.idle.pop() if self.idle else _start(self.function, self.heard is not None)
        try:
            worker.connection.send(self.jobs[number])
        except OSError:
            self._bury(worker, number)
        else:
            self.busy[worker.connection] = worker, number

    def _bury(self, worker: _Worker, number: int) -> None:
        self.busy.pop(worker.connection, None)
        worker.connection.close()
        worker.process.join()
        code = worker.process.exitcode or 0
        why = "ran out of memory" if code == NO_MEMORY else f"ended with exit code {code}"
        if code < 0:
            why = f"was killed by {SIGNALS.get(-code, f'signal {-code}')}"
        who = f"worker process {worker.process.pid} {why} at work on {self.name(self.jobs[number])}"
        self.deaths[number] += 1
        if self.deaths[number] < TRIES:
            self.say(f"{who}; it is tried once more")
            self.waiting.appendleft(number)
        else:
            self.errors[number] = StoreError("worker", expected="workers that live", found=f"{who}, again",
                                             cure="If memory ran out, use fewer workers.")

    def stop(self) -> None:
        """End every worker, whatever it is doing."""
        workers = [*self.idle, *(worker for worker, _ in self.busy.values())]
        for worker in workers:
            worker.process.terminate()
            worker.connection.close()
        for worker in workers:
            worker.process.join()


def _start(function: Callable[..., Any], notes: bool) -> _Worker:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(function, notes, theirs), daemon=True)
    resource_tracker.ensure_running()  # else it is started by the first worker's start, and unblocks the signal
    with ThreadPoolExecutor(1) as thread:  # Ctrl-C interrupts the main thread only: a start is never torn in two
        thread.submit(_begin, process).result()
    theirs.close()  # so that the worker's death is an end of file here
    return _Worker(process, ours)


def _begin(process: BaseProcess) -> None:
    """Start it with SIGINT blocked for good: Ctrl-C reaches the whole group, but the parent ends its workers."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # in this thread, and so in what it starts
    process.start()


def _work(function: Callable[..., Any], notes: bool, connection: Connection) -> None:
    threading.Thread(target=_die_with_parent, daemon=True).start()
    more = (lambda value: connection.send(("note", value)),) if notes else ()
    while True:
        try:
            task = connection.recv()
        except (EOFError, OSError):
            return
        try:
            answer = "result", function(task, *more)
        except AsdError as error:
            answer = "error", error
        except MemoryError:  # what it holds is free for others only when it ends
            os._exit(NO_MEMORY)
        except Exception as error:  # may not pickle, and its traceback would be lost
            answer = "error", RuntimeError(f"{type(error).__name__}: {error}\n{traceback.format_exc()}")
        connection.send(answer)


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
