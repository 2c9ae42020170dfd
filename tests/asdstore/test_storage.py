"""Mapped arrays: bounded, without descriptors, right in threads, forks and spawned processes."""
from __future__ import annotations

import concurrent.futures
import gc
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import asdstore
from asdstore.errors import AsdError, StoreError
from asdstore.storage import Source, Storage, map_file, stamp
from spec.facts import Piece


def _maps_of(path: Path) -> int:
    return Path("/proc/self/maps").read_text().count(str(path))


def _source(path: Path, rows: int, offset: int = 0) -> Source:
    return Source("<i2", (rows,), (Piece(str(path), offset, 0, rows),), (stamp(str(path)),))


def test_maps_are_lazy_bounded_and_live_as_long_as_their_views(tmp_path):
    paths = [tmp_path / f"{k}.bin" for k in range(6)]
    for k, path in enumerate(paths):
        np.full(100, k, "<i2").tofile(path)
    storage = Storage([_source(p, 100) for p in paths], most=3)
    assert _maps_of(tmp_path) == 0
    kept = storage.array(0)[10:20]
    for k in range(6):
        assert storage.array(k)[50] == k
    assert _maps_of(tmp_path) == 4  # three, and the one that a view holds
    assert kept.tolist() == [0] * 10
    del kept
    gc.collect()
    assert _maps_of(tmp_path) == 3


def test_what_is_used_stays_mapped(tmp_path):
    paths = [tmp_path / f"{k}.bin" for k in range(12)]
    for k, path in enumerate(paths):
        np.full(100, k, "<i2").tofile(path)
    storage = Storage([_source(p, 100) for p in paths], most=3)
    storage.array(0)
    storage.array(1)
    for k in range(2, 12):
        storage.array(k)
        assert storage.array(0)[50] == 0
    assert sum(a is not None for a in storage.open) == 3
    first = storage.open[0]
    assert first is not None and storage.array(0) is first and storage.open[1] is None


def test_a_file_that_changed_its_size_is_stale_and_not_a_crash(tmp_path):
    path = tmp_path / "a.bin"
    np.arange(100, dtype="<i2").tofile(path)
    storage = Storage([_source(path, 100)])
    os.truncate(path, 10)
    with pytest.raises(StoreError) as caught:
        storage.array(0)
    assert caught.value.kind == "stale"
    np.arange(7, 107, dtype="<i2").tofile(tmp_path / "b.bin")
    (tmp_path / "b.bin").replace(path)
    with pytest.raises(StoreError) as caught:  # of the same size, but another file
        storage.array(0)
    assert caught.value.kind == "stale"
    path.unlink()
    with pytest.raises(FileNotFoundError):
        storage.array(0)
    assert map_file(os.devnull, 0).shape == (0,)


def test_rows_in_several_files_are_views_within_one_and_copies_across(tmp_path):
    pieces = []
    for k in range(3):
        path = tmp_path / f"{k}.bin"
        np.arange(10 * k - 4, 10 * k + 10, dtype="<i2").tofile(path)  # four values of something else before the rows
        pieces.append(Piece(str(path), 8, 10 * k, 10))
    array = Storage([Source("<i2", (30,), tuple(pieces), tuple(stamp(p.path) for p in pieces))]).array(0)
    for start in range(0, 31):
        for stop in range(start, 31):
            found = array[start:stop]
            assert found.tolist() == list(range(start, stop)) and not found.flags.writeable
    assert array[:].tolist() == list(range(30)) and array[-3:].tolist() == [27, 28, 29]
    assert not array[10:20].flags.owndata


def _sums(pack) -> list[int]:
    return [int(t.faces.sum()) + int(t.audio.sum()) + int(t.labels.sum()) for t in pack]


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_packs_travel_to_other_processes(make_pack, method):
    pack = asdstore.open(make_pack().path)
    here = _sums(pack)
    with concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context(method)) as pool:
        assert list(pool.map(_sums, [pack, pack, pack[::-1]])) == [here, here, here[::-1]]
    assert _sums(pack) == here


def test_threads_may_share_a_pack(make_pack):
    pack = asdstore.open(make_pack().path)
    pack.storage._most = 2
    here = _sums(pack)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(found == here for found in pool.map(lambda _: _sums(pack), range(40)))


def test_two_thousand_shards_under_a_limit_of_256_descriptors(make_pack):
    """Every track is held at once: maps keep no descriptors."""
    path = make_pack(frames=[2] * 2000, max_shard_bytes=1, face_shape=(4, 4)).path
    code = ("import resource, asdstore, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256));"
            "p = asdstore.open(sys.argv[1]); held = [(t.faces, t.audio, t.labels) for t in p];"
            "print(len(held), sum(int(f.sum()) for f, _, _ in held))")
    found = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    pack = asdstore.open(path)
    assert found.stdout.split() == ["2000", str(sum(int(t.faces.sum()) for t in pack))]


def test_opening_says_where_a_header_lies(make_pack):
    path = make_pack().path
    file = path / "shard-000000" / "audio.npy"
    data = file.read_bytes()
    (path / "seal.json").unlink()
    file.write_bytes(data[:6] + b"\x09" + data[7:])
    with pytest.raises(AsdError) as caught:
        asdstore.open(path)
    assert caught.value.kind == "npy-version" and caught.value.fault.offset == 6
