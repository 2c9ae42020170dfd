"""For tests of programs that write or read packs: a made-up corpus, and faults at any chosen operation on the disk.

    pack = write_pack(folder, testing.records(), testing.load, layout=testing.LAYOUT, max_shard_bytes=60_000)

    with testing.faults() as trace:                      # how many operations are there, and which?
        write_pack(...)
    for at in range(len(trace)):
        with testing.faults("disk-full", at):            # or "io", "quota", "interrupt", "short-write", "kill"
            ...
"""
from __future__ import annotations

import errno
import hashlib
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from asdstore import files
from asdstore.records import Media, Record
from spec.layout import ASD
from spec.timeline import audio_sample_count

LAYOUT = ASD.with_face_shape((8, 6))  # faces so small that a whole pack is written in milliseconds
LENGTHS = ((40, 25.0), (9, 29.97), (1, 30.0), (61, 24.0), (33, 25.0), (12, 59.94), (50, 30.0))  # the third has no model frame
ERRORS = {"disk-full": errno.ENOSPC, "quota": errno.EDQUOT, "io": errno.EIO, "interrupt": errno.EINTR}
FAULTS = (*ERRORS, "short-write", "kill")
NEED_ROOM = ("open", "reserve", "write", "fsync", "mkdir", "rename")


class Operation(NamedTuple):
    """One operation on the disk: what `asdstore.files` asked for, and of which path (of two, the one that changes)."""

    name: str  # open reserve write fsync close mkdir rename exchange symlink link unlink rmdir lock
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


def records(lengths: Sequence[tuple[int, float]] = LENGTHS) -> list[Record]:
    """Made-up tracks of (frames, fps) each: of two datasets, two to a recording, ids that are not ASCII."""
    return [Record("ava" if n % 2 else "wasd", f"vidéo_{n // 2}:{n}", fps, frames, n / 4, f"vidéo_{n // 2}", n)
            for n, (frames, fps) in enumerate(lengths)]


def load(record: Record) -> Media:
    """Random media of a made-up track for LAYOUT, always the same; the audio is up to 300 samples too short or too long."""
    random = np.random.default_rng(int(str(record.source)))
    samples = max(1, audio_sample_count(record.frames, record.fps) + int(random.integers(-300, 300)))
    return Media(random.integers(0, 256, (record.frames, *LAYOUT.face_shape), np.uint8),
                 random.normal(0, 0.3, samples).astype(np.float32), random.integers(0, 2, record.frames, np.uint8),
                 {"gaps": 1, "decoder": "made up", "seconds": 0.5})


def digests(folder: Path) -> dict[str, str]:
    """sha256 of every file in a folder, by its name."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}
