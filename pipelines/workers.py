"""Processes that make batches, for transforms of the user's that are heavy in Python. Threads are faster for everything else.

A worker writes a batch into a nameless memory file that it shares with the parent, and only shapes go through the pipe. The
file is used again once the parent refers to no array in it. Batches are pure functions of their number: one whose worker was
killed is made again by the next worker.
"""
from __future__ import annotations

import mmap
import multiprocessing
import os
import signal
import sys
import tempfile
import traceback
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from multiprocessing import reduction
from typing import Any, NamedTuple

import numpy as np

from asdstore.errors import InputError
from pipelines.buffers import ALIGN, GRAIN

_MOST_FILES = 16  # of a worker: more batches than these alive at once are copied out
_ATTEMPTS = 3  # workers that may die over one batch
_DEAD = (EOFError, ConnectionError, BrokenPipeError)


class _Answer(NamedTuple):
    """What a worker sends: the error, or where the batch lies in which memory file."""

    turn: int
    error: BaseException | None = None
    number: int = -1
    size: int = 0
    made: bool = False  # the file is new, its descriptor follows
    dropped: tuple[int, ...] = ()  # files that are gone
    places: dict[str, tuple[str, tuple[int, ...], int]] = {}  # dtype, shape and offset of each array
    rest: dict[str, Any] = {}  # what is no array


def memory_file(size: int) -> int:
    """The descriptor of a file of `size` bytes that has no name and lives in memory where the system can do that."""
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("asdstore-batch", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as stream:
            file = os.dup(stream.fileno())
    os.ftruncate(file, size)
    return file


# In the worker --------------------------------------------------------------------------------------------------------------


def _work(make: Callable[..., dict], connection: Any) -> None:
    """Serve until the parent says so, closes the pipe or is gone: receive (turn, arguments, freed files), send an answer."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which ends its workers
    parent, files = os.getppid(), _Files()
    try:
        while asked := _received(connection, parent):
            turn, arguments, freed = asked
            files.free |= {number: files.used.pop(number) for number in freed}
            file = -1
            try:
                answer, file = files.put(turn, make(*arguments))
                message = reduction.ForkingPickler.dumps(answer)
            except BaseException as error:  # told to the parent, which raises it
                message = reduction.ForkingPickler.dumps(_Answer(turn, _travelling(error)))
            connection.send_bytes(message)
            if file >= 0:
                reduction.send_handle(connection, file, parent)
                os.close(file)
    except _DEAD:
        return


def _received(connection: Any, parent: int) -> Any:
    """The next task; None where there will be none."""
    while not connection.poll(2.0):
        if os.getppid() != parent:
            return None
    return connection.recv()


class _Files:
    """The memory files of a worker, by number: those that the parent reads, and those that are free."""

    def __init__(self) -> None:
        self.free: dict[int, mmap.mmap] = {}
        self.used: dict[int, mmap.mmap] = {}

    def put(self, turn: int, batch: dict[str, Any]) -> tuple[_Answer, int]:
        """Copy a batch into a file; the answer, and the descriptor of the file if it is new, else -1."""
        places, size = _places(batch)
        number = next((n for n, memory in self.free.items() if len(memory) >= size), -1)
        file, dropped = -1, ()
        if number < 0:
            dropped = tuple(self.free)  # too small
            self.free.clear()
            number = max(self.used, default=-1) + 1
            file = memory_file(-(-size // GRAIN) * GRAIN)
            self.free[number] = mmap.mmap(file, 0)
        memory = self.used[number] = self.free.pop(number)
        for name, (dtype, shape, at) in places.items():
            np.ndarray(shape, dtype, memory, at)[...] = batch[name]
        rest = {name: None if name in places else value for name, value in batch.items()}
        return _Answer(turn, None, number, len(memory), file >= 0, dropped, places, rest), file


def _travelling(error: BaseException) -> BaseException:
    """The error, or its traceback where it does not pickle."""
    try:
        error.add_note("in a worker process:\n" + traceback.format_exc())
        reduction.ForkingPickler.loads(reduction.ForkingPickler.dumps(error))  # type: ignore[attr-defined]
        return error
    except Exception:
        return RuntimeError(traceback.format_exc())


def _places(batch: dict[str, Any]) -> tuple[dict[str, tuple[str, tuple[int, ...], int]], int]:
    """Where each array of a batch goes in a file, and the bytes that takes."""
    at, found = 0, {}
    for name, value in batch.items():
        if isinstance(value, np.ndarray) and not value.dtype.hasobject:
            found[name] = (value.dtype.str, value.shape, at)
            at += -(-value.nbytes // ALIGN) * ALIGN
    return found, max(at, 1)


# In the parent --------------------------------------------------------------------------------------------------------------


class _Worker:
    """One process, its pipe, the memory files that it shares, and what it was asked for and has not sent yet."""

    def __init__(self, context: Any, make: Callable[..., dict]):
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(make, theirs), daemon=True)
        self.process.start()
        theirs.close()
        self.memory: dict[int, np.ndarray] = {}
        self.busy: set[int] = set()

    def ask(self, turn: int, arguments: tuple) -> None:
        freed = [n for n in self.busy if sys.getrefcount(self.memory[n]) == _UNUSED]
        self.busy.difference_update(freed)
        self.connection.send((turn, arguments, freed))

    def answer(self) -> tuple[_Answer, dict[str, Any]]:
        """The next answer and its batch, whose arrays lie in shared memory, or in their own where many batches are alive."""
        answer: _Answer = self.connection.recv()
        if answer.error is not None:
            return answer, {}
        for number in answer.dropped:
            del self.memory[number]
        if answer.made:
            file = reduction.recv_handle(self.connection)
            self.memory[answer.number] = np.frombuffer(mmap.mmap(file, answer.size), np.uint8)
            os.close(file)
        self.busy.add(answer.number)
        memory = self.memory[answer.number]
        batch = {name: _part(memory, *answer.places[name]) if name in answer.places else value
                 for name, value in answer.rest.items()}
        if len(self.busy) > _MOST_FILES:
            batch |= {name: batch[name].copy() for name in answer.places}
        return answer, batch

    def stop(self) -> None:
        """End the process: it is asked to, and killed if it does not soon."""
        try:  # siblings that were forked later hold copies of the pipe, so that closing it is not enough
            self.connection.send(None)
        except _DEAD:
            pass
        self.connection.close()
        self.process.join(0.2)
        if self.process.is_alive():
            self.process.kill()
        self.process.join()


def _part(memory: np.ndarray, dtype: str, shape: tuple[int, ...], at: int) -> np.ndarray:
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return memory[at:at + size].view(dtype).reshape(shape)


def _counted(memory: dict[int, np.ndarray]) -> int:
    return sys.getrefcount(memory[0])


_UNUSED = _counted({0: np.empty(1)})


class Workers:
    """`count` processes that call `make(*arguments) -> dict` of arrays. `make` must pickle."""

    def __init__(self, make: Callable[..., dict], count: int, start_method: str | None = None):
        methods = multiprocessing.get_all_start_methods()
        start_method = start_method or ("forkserver" if "forkserver" in methods else "spawn")
        if start_method not in methods:
            raise InputError("start_method", expected=", ".join(methods), found=start_method)
        try:
            reduction.ForkingPickler.dumps(make)
        except Exception as error:
            raise InputError("processes", expected="transforms that pickle, to send them to processes", found=str(error),
                             cure="Make functions of the user's top-level ones, not lambdas; or use threads.") from error
        self._context, self._make = multiprocessing.get_context(start_method), make
        self._workers = [_Worker(self._context, make) for _ in range(count)]
        self._turn = self._first = 0
        self._closed = weakref.finalize(self, _stop_all, self._workers)

    @property
    def pids(self) -> list[int]:
        """Process ids, in the order in which batches are dealt to them."""
        return [worker.process.pid or 0 for worker in self._workers]

    def close(self) -> None:
        """End all processes."""
        self._closed()

    def ordered(self, arguments: Callable[[int], tuple], count: int, depth: int) -> Iterator[dict[str, Any]]:
        """make(*arguments(0)), ... make(*arguments(count - 1)) in order, `depth` for each process ahead of the consumer."""
        first = self._first = self._turn
        self._turn += count
        depth = max(depth, 1) * len(self._workers)
        waiting: deque[int] = deque()
        for i in range(min(depth, count)):
            self._ask(i, first, arguments, waiting)
        for i in range(depth, depth + count):
            if i < count:
                self._ask(i, first, arguments, waiting)
            yield self._next(first, arguments, waiting)

    def _ask(self, i: int, first: int, arguments: Callable[[int], tuple], waiting: deque[int]) -> None:
        waiting.append(i)
        try:
            self._workers[i % len(self._workers)].ask(first + i, arguments(i))
        except _DEAD:
            pass  # found dead when its batch is due

    def _next(self, first: int, arguments: Callable[[int], tuple], waiting: deque[int]) -> dict[str, Any]:
        if first != self._first:
            raise InputError("iterator", expected="one iteration at a time over a loader with processes", found="a later one",
                             cure="Take `loader.at(epoch)` for another.")
        i = waiting.popleft()
        place = i % len(self._workers)
        for _ in range(_ATTEMPTS):
            try:
                answer, batch = self._answer(place, first + i)
                break
            except _DEAD:
                self._workers[place].stop()
                code = self._workers[place].process.exitcode
                self._workers[place] = _Worker(self._context, self._make)
                for again in (i, *(k for k in waiting if k % len(self._workers) == place)):
                    self._workers[place].ask(first + again, arguments(again))
        else:
            raise InputError("worker", expected="a process that makes the batch", row=i,
                             found=f"{_ATTEMPTS} processes that died over it, the last with exit code {code}",
                             cure="What it said stands on stderr. Packs must be where they were and functions importable; if "
                                  "memory ran out, use fewer processes.")
        if answer.error is not None:
            raise answer.error
        return batch

    def _answer(self, place: int, turn: int) -> tuple[_Answer, dict[str, Any]]:
        """The answer of a turn; those before it are left over from an iteration that was given up."""
        while True:
            answer, batch = self._workers[place].answer()
            if answer.turn == turn:
                return answer, batch


def _stop_all(workers: list[_Worker]) -> None:
    for worker in workers:
        worker.stop()
