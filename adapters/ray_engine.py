"""The engine on Ray: the same tasks on the processors of one machine or of a cluster, with the same bytes.

Every task is one Ray task. At most as many as there are workers are at hand at a time, so memory, open files and half-written
shards stay bounded; a task whose worker or node dies begins anew elsewhere, the others go on. All machines must see the sources
and the target under the same paths, and have this package installed.
"""
from __future__ import annotations

import logging
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import redirect_stdout
from typing import Any

from adapters.engine import Run
from asdstore.errors import AsdError, DependencyError, StoreError

RETRIES = 3  # of a task whose worker or node dies
KNOCK = 10.0  # seconds in which a cluster has to answer
PERIOD = 0.2  # seconds between two looks at what tasks have to say


def cluster(workers: int | None = None, address: str = "", heard: Callable[[Any], object] | None = None,
            name: Callable[[Any], str] = repr) -> Run:
    """An engine with at most `workers` tasks at a time, by default one for each processor.

    `address` is that of a running cluster, "auto" or "host:port"; "" starts Ray on this machine and ends it after the run.
    `heard` and `name` are those of `engine.processes`. Results come as they are ready.

    Raises (the engine): what a task raised; StoreError kind "worker" where a task's workers died again and again, or
    "cluster" where there is no cluster; DependencyError without Ray.
    """
    def run(function: Callable[..., Any], tasks: Iterable[Any]) -> Generator[Any, None, None]:
        jobs = list(tasks)
        if not jobs:
            return
        ray = _ray()
        ours = not ray.is_initialized()
        with redirect_stdout(sys.stderr):  # where Ray writes of nodes that die; stdout is for reports
            if ours:
                _start(ray, workers, address)
            try:
                limit = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
                yield from _results(ray, function, jobs, limit, heard, name)
            finally:
                if ours:
                    ray.shutdown()
    return run


def _ray() -> Any:
    try:
        import ray
    except ImportError as why:
        raise DependencyError("dependency", expected="the package ray", found=str(why),
                              cure="pip install 'asdstore[ray]'") from why
    return ray


def _start(ray: Any, workers: int | None, address: str) -> None:
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    host, _, port = address.rpartition(":")
    try:
        if host and port.isdecimal():
            socket.create_connection((host.removeprefix("ray://"), int(port)), KNOCK).close()  # Ray itself tries for minutes
        if address:
            ray.init(address, **quiet)
        else:
            ray.init("local", num_cpus=workers, include_dashboard=False, **quiet)
    except (OSError, ValueError, RuntimeError) as why:
        raise StoreError("cluster", expected=f"a Ray cluster at {address or 'this machine'}", found=str(why)[:200],
                         cure="Is `ray start --head` running, and the address right?") from why


def _results(ray: Any, function: Callable[..., Any], jobs: list[Any], limit: int,
             heard: Callable[[Any], object] | None, name: Callable[[Any], str]) -> Iterator[Any]:
    ear = _ear(ray) if heard else None
    work = ray.remote(num_cpus=1, max_retries=RETRIES, scheduling_strategy="SPREAD")(_work)
    waiting, busy = iter(enumerate(jobs)), {}
    errors: dict[int, Exception] = {}
    try:
        while True:
            for number, job in _next(waiting, 0 if errors else limit - len(busy)):
                busy[work.remote(function, job, ear, os.getcwd())] = number
            if not busy:
                break
            ready, _ = ray.wait(list(busy), timeout=PERIOD)
            for value in _taken(ray, ear) if ear and heard else ():
                heard(value)  # type: ignore[misc]
            for reference in ready:
                number = busy.pop(reference)
                try:
                    word, value = ray.get(reference)
                except ray.exceptions.RayError as why:
                    word, value = "error", _lost(name(jobs[number]), why)
                if word == "error":
                    errors[number] = value
                    continue
                yield value
    finally:
        for reference in busy:
            ray.cancel(reference, force=True)
    if errors:
        first, *others = sorted(errors)
        for other in others:
            errors[first].add_note(str(errors[other]))
        raise errors[first]


def _next(waiting: Iterator[tuple[int, Any]], count: int) -> Iterator[tuple[int, Any]]:
    for _ in range(count):
        found = next(waiting, None)
        if found is None:
            return
        yield found


def _lost(name: str, why: Exception) -> StoreError:
    return StoreError("worker", expected="workers that live", found=f"those of {name} died {RETRIES + 1} times: {why}"[:300],
                      cure="If memory ran out, use fewer workers.")


def _ear(ray: Any) -> Any:
    """An actor on this machine that keeps what tasks have to say until it is asked."""
    here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    return ray.remote(num_cpus=0, scheduling_strategy=here)(_Ear).remote()


def _taken(ray: Any, ear: Any) -> list[Any]:
    try:
        return ray.get(ear.take.remote())
    except ray.exceptions.RayError as why:
        lines = [line for line in str(why).splitlines() if line.strip()]
        raise StoreError("cluster", expected="a cluster that runs this program", found=lines[-1][:200] if lines else "an error",
                         cure="Is this package installed on every machine, in the same version?") from None


class _Ear:
    def __init__(self) -> None:
        self.values: list[Any] = []

    def hear(self, values: list[Any]) -> None:
        self.values += values

    def take(self) -> list[Any]:
        values, self.values = self.values, []
        return values


def _work(function: Callable[..., Any], task: Any, ear: Any, folder: str) -> tuple[str, Any]:
    """Run one task in the folder of the program. Errors are answers: Ray retries the death of a worker and nothing else."""
    notes = _Notes(ear)
    try:
        os.chdir(folder)  # paths in tasks, and those inside of the files that they name, may be relative
        answer = "result", function(task, *((notes.add,) if ear else ()))
    except AsdError as error:
        answer = "error", error
    except Exception as error:  # may not pickle, and its traceback would be lost
        answer = "error", RuntimeError(f"{type(error).__name__}: {error}\n{traceback.format_exc()}")
    notes.send()
    return answer


class _Notes:
    """What a task says, sent a few times a second."""

    def __init__(self, ear: Any):
        self.ear, self.values, self.sent = ear, [], time.monotonic()

    def add(self, value: Any) -> None:
        self.values.append(value)
        if time.monotonic() - self.sent > PERIOD:
            self.send()

    def send(self) -> None:
        if self.values:
            self.ear.hear.remote(self.values)
            self.values, self.sent = [], time.monotonic()
