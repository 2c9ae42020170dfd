"""asdstore.files: bytes and checksums, errors that name the file, locks, exchange, and that nobody else changes the disk."""
from __future__ import annotations

import ast
import ctypes
import errno
import hashlib
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import google_crc32c
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import asdstore
from asdstore import files, testing
from asdstore.errors import StoreError
from spec.seal import BLOCK_BYTES, SealedFile


def sealed(name: str, data: bytes) -> SealedFile:
    blocks = [google_crc32c.value(data[i:i + BLOCK_BYTES]) for i in range(0, len(data), BLOCK_BYTES)]
    return SealedFile(name, len(data), hashlib.sha256(data).hexdigest(), "".join(f"{crc:08x}" for crc in blocks))


@given(st.lists(st.sampled_from([0, 1, 7, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 3 * BLOCK_BYTES]), max_size=5))
def test_stream_file_seals_what_it_wrote(tmp_path_factory: pytest.TempPathFactory, sizes: list[int]):
    path = tmp_path_factory.getbasetemp() / "stream"
    pieces = [bytes([i + 1]) * size for i, size in enumerate(sizes)]
    with files.StreamFile(path, "a/b") as file:
        for piece in pieces:
            file.write(piece)
        facts = file.finish()
    assert facts == sealed("a/b", b"".join(pieces))
    assert path.read_bytes() == b"".join(pieces)


def test_stream_file_takes_arrays_of_any_shape(tmp_path: Path):
    arrays = [np.arange(24, dtype="<i2").reshape(2, 3, 4), np.zeros((0, 5), np.uint8), np.ones(1, np.float32)]
    with files.StreamFile(tmp_path / "a", "a") as file:
        for array in arrays:
            file.write(array)
        facts = file.finish()
    assert facts == sealed("a", b"".join(array.tobytes() for array in arrays))


def test_room_is_taken_before_anything_is_written(tmp_path: Path):
    with files.StreamFile(tmp_path / "a", "a") as file:
        file.reserve(1 << 20)
        found = os.stat(tmp_path / "a")
        if not found.st_blocks:
            pytest.skip("this file system takes no room ahead")
        assert found.st_size == 0 and found.st_blocks * 512 >= 1 << 20
        file.write(b"data")
        assert file.finish() == sealed("a", b"data")
    assert (tmp_path / "a").read_bytes() == b"data"


def test_a_disk_that_is_full_is_known_at_once_and_one_that_takes_no_room_ahead_is_fine(tmp_path, monkeypatch):
    for fault, code in (("disk-full", errno.ENOSPC), (None, errno.ENOTSUP), (None, errno.ENOSYS)):
        monkeypatch.setattr(files, "_fallocate", lambda *_, code=code: ctypes.set_errno(code) or -1)
        with files.StreamFile(tmp_path / "a", "a") as file:
            if fault:
                with pytest.raises(StoreError) as found:
                    file.reserve(9)
                assert found.value.kind == fault and str(tmp_path / "a") in str(found.value)
            else:
                file.reserve(9)


def test_the_disk_begins_with_small_pieces_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    begun: list[tuple[int, int]] = []
    monkeypatch.setattr(files, "_begin_sync", lambda descriptor, at, size: begun.append((at, size)))
    with files.StreamFile(tmp_path / "a", "a") as file:
        for size in [100_000] * 100 + [5 << 20]:
            file.write(bytes(size))
    ends = np.cumsum([size for _, size in begun])
    assert [at for at, _ in begun] == [0, *ends[:-1]] and ends[-1] == 100 * 100_000 + (5 << 20)
    assert all(files.AHEAD <= size for _, size in begun) and len(begun) == 5


def test_write_bytes_replaces_whole_or_not_at_all(tmp_path: Path):
    path, old, new = tmp_path / "state", b"old" * 9, b"new" * 99
    with testing.faults() as trace:
        files.write_bytes(path, new)
    assert [op.name for op in trace] == ["open", "write", "fsync", "close", "rename", "open", "fsync", "close"]
    for fault in ("disk-full", "io", "quota"):
        for at in range(len(trace)):
            path.write_bytes(old)
            with pytest.raises(StoreError), testing.faults(fault, at):
                files.write_bytes(path, new)
            assert path.read_bytes() == (old if at < 5 else new)
            assert os.listdir(tmp_path) == ["state"]


@pytest.mark.parametrize(("fault", "kind"), [("disk-full", "disk-full"), ("quota", "disk-full"), ("io", "io")])
def test_errors_say_the_file_and_the_reason(tmp_path: Path, fault: str, kind: str):
    with testing.faults() as trace:
        files.write_file(tmp_path / "a", "a", b"data")
    for at in range(len(trace)):
        with pytest.raises(StoreError) as found, testing.faults(fault, at):
            files.write_file(tmp_path / "a", "a", b"data")
        assert found.value.kind == kind
        assert str(tmp_path / "a") in str(found.value) and os.strerror(testing.ERRORS[fault]) in str(found.value)


@pytest.mark.parametrize("fault", ["interrupt", "short-write"])
def test_interrupted_calls_are_repeated_and_short_writes_continued(tmp_path: Path, fault: str):
    data = os.urandom(2 * BLOCK_BYTES + 5)

    def work() -> SealedFile:
        files.make_folder(tmp_path / "folder" / "inner")
        with files.StreamFile(tmp_path / "folder" / "a", "a") as file:
            file.reserve(len(data))
            file.write(data)
            facts = file.finish()
        files.link(tmp_path / "folder" / "a", tmp_path / "folder" / "b")
        files.symlink("a", tmp_path / "folder" / "c")
        files.exchange(tmp_path / "folder" / "a", tmp_path / "folder" / "inner", tmp_path / "aside")
        files.rename(tmp_path / "folder" / "b", tmp_path / "b")
        with files.lock(tmp_path / "lock"):
            files.fsync_folder(tmp_path)
        files.remove_tree(tmp_path / "folder")
        return facts

    with testing.faults() as trace:
        work()
    assert {op.name for op in trace} == {"open", "reserve", "write", "fsync", "close", "mkdir", "rename", "exchange", "symlink",
                                         "link", "unlink", "rmdir", "lock"}
    for at in range(len(trace)):
        (tmp_path / "b").unlink()
        with testing.faults(fault, at):
            assert work() == sealed("a", data)
        assert (tmp_path / "b").read_bytes() == data
        assert os.listdir(tmp_path) == ["b"]


def test_a_write_that_takes_nothing_is_an_error_and_no_endless_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "write", lambda descriptor, data: 0)
    with pytest.raises(StoreError) as found:
        files.write_file(tmp_path / "a", "a", b"data")
    assert found.value.kind == "io"


def test_real_file_size_limit(tmp_path: Path):
    """The kernel itself takes the first part of a write and refuses the rest."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limit[1]))
    try:
        with pytest.raises(StoreError) as found:
            files.write_file(tmp_path / "a", "a", bytes(10_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert found.value.kind == "io" and str(tmp_path / "a") in str(found.value)
    assert isinstance(found.value.__cause__, OSError) and found.value.__cause__.errno == errno.EFBIG


def test_descriptors_are_closed_after_errors(tmp_path: Path):
    with testing.faults() as trace:
        files.write_bytes(tmp_path / "a", b"data")
    before = len(os.listdir("/proc/self/fd"))
    for at in (at for at, op in enumerate(trace) if op.name != "close"):  # a close that never began has closed nothing
        with pytest.raises(StoreError), testing.faults("io", at):
            files.write_bytes(tmp_path / "a", b"data")
    assert len(os.listdir("/proc/self/fd")) == before


def test_lock_refuses_a_second_holder_at_once_and_leaves_nothing(tmp_path: Path):
    path = tmp_path / "lock"
    with files.lock(path):
        with pytest.raises(StoreError) as found, files.lock(path):
            pass
        assert found.value.kind == "locked"
        assert path.exists()  # the refused one has not removed it
    assert not path.exists()
    with files.lock(path):
        pass


def test_lock_of_a_killed_process_is_free(tmp_path: Path):
    path = tmp_path / "lock"
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        with files.lock(path):
            os.write(writer, b"x")
            signal.pause()
    os.read(reader, 1)
    with pytest.raises(StoreError), files.lock(path):
        pass
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(reader)
    os.close(writer)
    assert path.exists()
    with files.lock(path):
        pass
    assert not path.exists()


def test_lock_on_a_file_that_lost_its_name_is_not_a_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Between open and flock the former holder removes the file and a third writer makes a new one."""
    path, stale = tmp_path / "lock", []
    real = files.fcntl.flock

    def flock(descriptor: int, flags: int) -> None:
        if not stale:
            stale.append(os.fstat(descriptor).st_ino)
            os.link(path, tmp_path / "keeps the inode")
            path.unlink()
        real(descriptor, flags)

    monkeypatch.setattr(files.fcntl, "flock", flock)
    with files.lock(path):
        assert path.stat().st_ino != stale[0]


@pytest.mark.parametrize("able", [True, False])
def test_exchange_of_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, able: bool):
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    if not able:
        def refuse(one: Path, other: Path) -> None:
            raise OSError(errno.EINVAL, "Invalid argument")
        monkeypatch.setattr(files, "_rename_exchange", refuse)
    with testing.faults() as trace:
        files.exchange(tmp_path / "one", tmp_path / "other", tmp_path / "aside")
    assert (tmp_path / "one" / "file").read_text() == "other"
    assert (tmp_path / "other" / "file").read_text() == "one"
    assert sorted(os.listdir(tmp_path)) == ["one", "other"]
    assert [op.name for op in trace] == ["exchange"] + ["rename"] * 3 * (not able)


def test_exchange_with_a_missing_folder_is_an_error(tmp_path: Path):
    (tmp_path / "one").mkdir()
    with pytest.raises(StoreError) as found:
        files.exchange(tmp_path / "one", tmp_path / "other", tmp_path / "aside")
    assert found.value.kind == "io" and (tmp_path / "one").is_dir()


def test_remove_tree_does_not_follow_links(tmp_path: Path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("kept")
    (tmp_path / "gone" / "deep").mkdir(parents=True)
    (tmp_path / "gone" / "deep" / "folder").symlink_to(tmp_path / "kept", target_is_directory=True)
    (tmp_path / "gone" / "dangling").symlink_to("nowhere")
    files.remove_tree(tmp_path / "gone")
    files.remove_tree(tmp_path / "gone")  # nothing there is fine
    assert os.listdir(tmp_path) == ["kept"] and (tmp_path / "kept" / "file").read_text() == "kept"


def test_a_folder_that_cannot_be_synced_is_no_error_but_a_failing_disk_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for code in (errno.EINVAL, errno.EIO):
        def fsync(descriptor: int, code: int = code) -> None:
            raise OSError(code, os.strerror(code))
        monkeypatch.setattr(os, "fsync", fsync)
        if code == errno.EINVAL:
            files.fsync_folder(tmp_path)
        else:
            with pytest.raises(StoreError):
                files.fsync_folder(tmp_path)


def test_faults_count_from_zero_and_end_with_the_context(tmp_path: Path):
    with testing.faults("io", 1, after=True) as trace, pytest.raises(StoreError):
        files.write_file(tmp_path / "a", "a", b"data")
    assert (tmp_path / "a").read_bytes() == b"data"  # written first, refused then
    assert trace[1] == testing.Operation("write", tmp_path / "a")
    files.write_file(tmp_path / "a", "a", b"again")
    with pytest.raises(ValueError), testing.faults("flood", 0):
        pass


WRITERS = {
    "os": {"rename", "renames", "replace", "remove", "removedirs", "unlink", "mkdir", "makedirs", "rmdir", "symlink", "link",
           "mkfifo", "truncate", "ftruncate", "write", "fsync"},
    "shutil": {"copy", "copy2", "copyfile", "copytree", "move", "rmtree"},
    "np": {"save", "savez", "savez_compressed", "memmap"},
}
PATH_WRITERS = {"write_text", "mkdir", "touch", "unlink", "rmdir", "symlink_to", "hardlink_to", "tofile"}


def _changes_disk(call: ast.Call) -> bool:
    function = call.func
    if isinstance(function, ast.Name) and function.id == "open":
        modes = [*call.args[1:2], *(keyword.value for keyword in call.keywords if keyword.arg == "mode")]
        return any(set(str(mode.value)) & set("wax+") for mode in modes if isinstance(mode, ast.Constant))
    if not isinstance(function, ast.Attribute):
        return False
    owner = function.value.id if isinstance(function.value, ast.Name) else ""
    if owner == "files":
        return False
    return function.attr in PATH_WRITERS | {"write_bytes"} or function.attr in WRITERS.get(owner, ())


def test_only_files_changes_the_disk():
    root = Path(asdstore.__file__).parent.parent
    modules = [p for folder in ("asdstore", "spec") for p in (root / folder).rglob("*.py") if p.name != "files.py"]
    assert len(modules) > 10
    found = [f"{path.relative_to(root)}:{node.lineno}" for path in modules if "vectors" not in path.parts
             for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call) and _changes_disk(node)]
    assert not found, f"use asdstore.files in {found}"


def test_files_imports_nothing_heavy():
    heavy = ("zarr", "tensorstore", "cv2", "torch", "soundfile")
    code = f"import sys, asdstore.files; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
