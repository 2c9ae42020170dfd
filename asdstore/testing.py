"""Fault injection for tests of programs that write packs: a disk that fails, or a process that dies, at any chosen operation.

    with testing.faults() as trace:                      # how many operations are there, and which?
        write_pack(...)
    for at in range(len(trace)):
        with testing.faults("disk-full", at):            # or "io", "quota", "interrupt", "short-write", "kill"
            ...
"""
from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from asdstore import files

ERRORS = {"disk-full": errno.ENOSPC, "quota": errno.EDQUOT, "io": errno.EIO, "interrupt": errno.EINTR}
FAULTS = (*ERRORS, "short-write", "kill")
NEED_ROOM = ("open", "write", "fsync", "mkdir", "rename")


class Operation(NamedTuple):
    """One operation on the disk: what `asdstore.files` asked for, and of which path (of two, the one that changes)."""

    name: str  # open write fsync close mkdir rename exchange symlink link unlink rmdir lock
    path: Path


@contextmanager
def faults(fault: str = "", at: int = -1, *, after: bool = False, lasting: bool = False) -> Iterator[list[Operation]]:
    """Within the context, operation number `at` (from 0) of `asdstore.files` goes wrong. Gives the trace of all operations.

    Arguments:
        fault: one of FAULTS; "" for none. "short-write" takes half of the bytes of a write and leaves other operations alone.
        at: which operation; those of all threads count, those of other processes do not.
        after: do the operation first and fail then.
        lasting: every later operation that needs room fails too, as on a disk that stays full.
    """
    if fault and fault not in FAULTS:
        raise ValueError(f"expected one of {FAULTS}, found {fault!r}")
    trace: list[Operation] = []
    real = files._system

    def system(name: str, path: Path, function: Callable[..., Any], *arguments: Any) -> Any:
        number = len(trace)
        trace.append(Operation(name, Path(path)))
        if not fault or not (number == at or (lasting and number > at and name in NEED_ROOM)):
            return real(name, path, function, *arguments)
        if fault == "short-write":
            if name == "write":
                descriptor, data = arguments
                arguments = (descriptor, data[:max(1, len(data) // 2)])
            return real(name, path, function, *arguments)
        if after:
            real(name, path, function, *arguments)
        if fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise OSError(ERRORS[fault], os.strerror(ERRORS[fault]))

    files._system = system
    try:
        yield trace
    finally:
        files._system = real
