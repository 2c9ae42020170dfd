"""The only module that changes the disk: reserve, write, sync, rename, exchange, link, remove, lock.

Every operation goes through `_system`, one operation at a time, so that `asdstore.testing.faults` can make any of them fail.
Interrupted calls are repeated, short writes continued. What the operating system refuses is a StoreError that names the file:
kind "disk-full" (no space, no quota), "locked" or "io".
"""
from __future__ import annotations

import ctypes
import errno
import fcntl
import hashlib
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np

from spec.errors import StoreError
from spec.seal import BLOCK_BYTES, SealedFile

_libc = ctypes.CDLL(None, use_errno=True)
_fallocate, _sync_file_range = getattr(_libc, "fallocate", None), getattr(_libc, "sync_file_range", None)
AHEAD = 2 << 20  # bytes of a file that is being written, from which on the disk begins with them
Data = bytes | bytearray | memoryview
RENAME_EXCHANGE = 2  # linux/fs.h
AT_FDCWD = -100  # linux/fcntl.h
SYNC_FILE_RANGE_WRITE = 2  # linux/fs.h
FALLOC_FL_KEEP_SIZE = 1  # linux/falloc.h


class StreamFile:
    """A file written piece by piece, whose size, sha256 and block checksums are known once it is finished.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, StreamFile(Path(folder, "a"), "a") as file:
    ...     file.write(b"one ")
    ...     file.write(b"two")
    ...     file.finish().bytes
    7
    """

    def __init__(self, path: Path, name: str):
        """Creates or empties the file at `path`; `name` is what the seal calls it."""
        self.path, self.name, self.bytes = path, name, 0
        self._sha256, self._blocks, self._crc, self._room = hashlib.sha256(), [], 0, BLOCK_BYTES
        self._begun = 0  # bytes that the disk was told to begin with
        self._descriptor: int | None = _open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)

    def reserve(self, size: int) -> None:
        """Takes the room of a file that is going to have `size` bytes, where the file system can; its size stays as it is.

        A full disk is found now and not when the work is done, and writing costs a fifth less. Raises StoreError.
        """
        _call("reserve", self.path, _reserve, self._descriptor, size)

    def write(self, data: Any) -> None:
        """Appends bytes or a C-contiguous array. Raises StoreError."""
        view = memoryview(data)
        if not view.nbytes:
            return
        view = view.cast("B").toreadonly()
        _write_all(self._descriptor, self.path, view)
        self.bytes += len(view)
        if self.bytes - self._begun >= AHEAD:
            _begin_sync(self._descriptor, self._begun, self.bytes - self._begun)
            self._begun = self.bytes
        self._sha256.update(view)
        rest = np.frombuffer(view, np.uint8)  # the checksum takes read-only arrays without a copy
        while len(rest):
            piece, rest = rest[:self._room], rest[self._room:]
            self._crc = google_crc32c.extend(self._crc, piece)
            self._room -= len(piece)
            if not self._room:
                self._end_block()

    def finish(self) -> SealedFile:
        """Puts the bytes on the disk and closes the file. Raises StoreError."""
        if self._room < BLOCK_BYTES:
            self._end_block()
        _call("fsync", self.path, os.fsync, self._descriptor)
        self.close()
        return SealedFile(self.name, self.bytes, self._sha256.hexdigest(), "".join(self._blocks))

    def close(self) -> None:
        """Closes the file, finished or given up."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            _close(descriptor, self.path)

    def _end_block(self) -> None:
        self._blocks.append(f"{self._crc:08x}")
        self._crc, self._room = 0, BLOCK_BYTES

    def __enter__(self) -> StreamFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Scratch:
    """Bytes put aside on the disk, in a file without a name that is gone when it is closed.

    >>> with Scratch(Path("/tmp")) as aside:
    ...     at = aside.write(b"one"), aside.write(b"two")
    ...     aside.read(at[1], 3)
    b'two'
    """

    def __init__(self, folder: Path):
        self.path, self.bytes = folder, 0
        self._file = _call("open", folder, partial(tempfile.TemporaryFile, dir=folder, buffering=0))

    def write(self, data: Data) -> int:
        """Appends bytes and returns where they begin. Raises StoreError."""
        at = self.bytes
        _write_all(self._file.fileno(), self.path, memoryview(data))
        self.bytes += len(data)
        return at

    def read(self, at: int, size: int) -> bytes:
        """Some of the bytes. Raises StoreError."""
        found = _call("read", self.path, os.pread, self._file.fileno(), size, at)
        if len(found) != size:
            raise StoreError("io", file=self.path, expected=f"{size} bytes that were put aside", found=str(len(found)))
        return found

    def __enter__(self) -> Scratch:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def write_file(path: Path, name: str, data: Data) -> SealedFile:
    """A whole file, on the disk when this returns; its entry in the seal. Raises StoreError."""
    with StreamFile(path, name) as file:
        file.write(data)
        return file.finish()


def write_bytes(path: Path, data: Data) -> None:
    """A whole file at once: readers see the old bytes or the new ones, never a part. Raises StoreError."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        write_file(partial, path.name, data)
        rename(partial, path)
    except BaseException:
        with suppress(OSError):
            remove(partial)
        raise
    fsync_folder(path.parent)


def make_folder(path: Path) -> None:
    """A folder and the ones above it; those that exist stay as they are. Raises StoreError."""
    if path.is_dir():
        return
    make_folder(path.parent)
    try:
        _call("mkdir", path, os.mkdir, path)
    except StoreError as error:
        if not isinstance(error.__cause__, FileExistsError) or not path.is_dir():  # another process was faster
            raise
    fsync_folder(path.parent)


def rename(source: Path, target: Path) -> None:
    """Renames; a file or an empty folder at `target` is replaced. Raises StoreError."""
    _call("rename", target, os.rename, source, target)


def exchange(one: Path, other: Path, aside: Path) -> None:
    """Exchanges two folders in one step where the file system can. Where it cannot, `other` is away for a moment, at `aside`.

    Raises StoreError.
    """
    try:
        _call("exchange", other, _rename_exchange, one, other)
    except StoreError as error:
        cause = error.__cause__
        if not isinstance(cause, OSError) or cause.errno not in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
            raise
        rename(other, aside)
        rename(one, other)
        rename(aside, one)


def symlink(target: str, path: Path) -> None:
    """A symbolic link at `path` with the text `target`. Raises StoreError."""
    _call("symlink", path, os.symlink, target, path)


def link(source: Path, path: Path) -> None:
    """A second name, `path`, for the file `source`. Raises StoreError."""
    _call("link", path, os.link, source, path)


def remove(path: Path) -> None:
    """Removes a file or a link, if it is there. Raises StoreError."""
    if os.path.lexists(path):
        _call("unlink", path, os.unlink, path)


def remove_tree(path: Path) -> None:
    """Removes a folder with all that is in it, or a file, if it is there; links are never followed. Raises StoreError."""
    if path.is_symlink() or not path.is_dir():
        return remove(path)
    for name in sorted(os.listdir(path)):
        remove_tree(path / name)
    _call("rmdir", path, os.rmdir, path)


def fsync_folder(path: Path) -> None:
    """Puts the names in a folder on the disk. Raises StoreError."""
    descriptor = _open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _call("fsync", path, os.fsync, descriptor)
    except StoreError as error:
        if not isinstance(error.__cause__, OSError) or error.__cause__.errno != errno.EINVAL:  # some network shares cannot
            raise
    finally:
        _close(descriptor, path)


@contextmanager
def lock(path: Path) -> Iterator[None]:
    """Holds an exclusive lock on the file `path`, which is there only while it is held or after a crash.

    Raises StoreError, kind "locked", at once if another process or thread holds it.
    """
    descriptor = _locked(path)
    try:
        yield
    finally:
        try:
            remove(path)  # before the lock goes: whoever opened the file meanwhile finds that it lost its name
        finally:
            _close(descriptor, path)


def _locked(path: Path) -> int:
    while True:
        descriptor = _open(path, os.O_RDWR | os.O_CREAT)
        try:
            _call("lock", path, fcntl.flock, descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.exists() and os.path.samestat(os.fstat(descriptor), os.stat(path)):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        _close(descriptor, path)


def _open(path: Path, flags: int) -> int:
    return _call("open", path, os.open, path, flags | os.O_CLOEXEC, stat.S_IRUSR | stat.S_IWUSR | stat.S_IRGRP | stat.S_IROTH)


def _close(descriptor: int, path: Path) -> None:
    _call("close", path, os.close, descriptor)


def _write_all(descriptor: int | None, path: Path, view: memoryview) -> None:
    while view:
        written = _call("write", path, os.write, descriptor, view)
        if not written:
            raise StoreError("io", file=path, expected=f"{len(view)} more bytes to be written", found="none taken")
        view = view[written:]


def _reserve(descriptor: int | None, size: int) -> None:
    if _fallocate is not None and _fallocate(descriptor, FALLOC_FL_KEEP_SIZE, ctypes.c_int64(0), ctypes.c_int64(size)):
        code = ctypes.get_errno()
        if code not in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
            raise OSError(code, os.strerror(code))


def _begin_sync(descriptor: int | None, at: int, size: int) -> None:
    """Lets the disk begin with what was written, while more is made: only a hint, which spares `finish` most of its wait."""
    if _sync_file_range is not None:
        _sync_file_range(descriptor, ctypes.c_int64(at), ctypes.c_int64(size), SYNC_FILE_RANGE_WRITE)


def _rename_exchange(one: Path, other: Path) -> None:
    renameat2 = getattr(_libc, "renameat2", None)
    if renameat2 is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if renameat2(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _call(operation: str, path: Path, function: Callable[..., Any], *arguments: Any) -> Any:
    while True:
        try:
            return _system(operation, path, function, *arguments)
        except InterruptedError:
            if operation == "close":  # the descriptor is gone all the same, and its number may be another file's by now
                return None
        except OSError as error:
            raise _store_error(operation, path, error) from error


def _system(operation: str, path: Path, function: Callable[..., Any], *arguments: Any) -> Any:
    """One operation on the disk. `asdstore.testing.faults` stands in for this function."""
    return function(*arguments)


def _store_error(operation: str, path: Path, error: OSError) -> StoreError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreError("disk-full", file=path, expected="room on the disk", found=os.strerror(error.errno),
                          cure="Free some space and run the same command again.")
    if operation == "lock" and error.errno in (errno.EAGAIN, errno.EACCES):
        return StoreError("locked", file=path, expected="no other writer", found="another process at work on the same target",
                          cure="Wait until it has finished.")
    return StoreError("io", file=path, expected=f"{operation} to work", found=error.strerror or str(error))
