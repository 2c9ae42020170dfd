"""Zarr v3 arrays as zarr-python writes them: mapped or decoded to the same rows, and every kind of lost data an error."""
from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from asdstore.errors import FormatError, IntegrityError, MissingError
from asdstore.zarr_arrays import extents, open_zarr_array

ROWS, SHAPE = 70, (70, 4, 6)


def values(dtype: str = "uint8") -> np.ndarray:
    return np.random.default_rng(0).integers(1, 200, SHAPE).astype(dtype)


def written(folder: Path, data: np.ndarray, chunks: tuple[int, ...], **options: object) -> Path:
    """An array that zarr-python writes, without compressors unless `options` say so."""
    import zarr

    array = zarr.create_array(str(folder), shape=data.shape, dtype=data.dtype, chunks=chunks,
                              **{"compressors": None, "fill_value": 0, **options})  # type: ignore[arg-type]
    array[...] = data
    return folder


def mapped(folder: Path, data: np.ndarray) -> np.ndarray:
    """The rows as the pieces give them."""
    pieces = extents(folder)
    assert pieces is not None
    found = np.zeros_like(data)
    at = 0
    for piece in pieces:
        assert piece.start == at and piece.rows > 0
        part = np.memmap(piece.path, data.dtype, "r", piece.offset, (piece.rows, *data.shape[1:]))
        found[at:at + piece.rows] = part
        at += piece.rows
    assert at == len(data)
    return found


def chunk_files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.is_file() and p.name != "zarr.json")


MAPPABLE = {
    "plain": dict(chunks=(16, 4, 6)), "one chunk": dict(chunks=(70, 4, 6)), "larger chunk": dict(chunks=(100, 4, 6)),
    "sharded": dict(chunks=(8, 4, 6), shards=(32, 4, 6)), "one shard": dict(chunks=(8, 4, 6), shards=(72, 4, 6)),
    "larger shard": dict(chunks=(8, 4, 6), shards=(160, 4, 6)),
}
DECODED = {
    "zstd": dict(chunks=(16, 4, 6), compressors="auto"), "three axes": dict(chunks=(16, 2, 3)),
    "sharded on three axes": dict(chunks=(8, 2, 3), shards=(32, 4, 6)), "wider chunk": dict(chunks=(16, 4, 9)),
    "sharded zstd": dict(chunks=(8, 4, 6), shards=(32, 4, 6), compressors="auto"),
    "wider shard": dict(chunks=(8, 2, 4), shards=(32, 4, 8)),
}


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32"])
@pytest.mark.parametrize("options", MAPPABLE.values(), ids=MAPPABLE)
def test_plain_bytes_are_mapped(tmp_path, options, dtype):
    folder = written(tmp_path / "a", values(dtype), **options)
    np.testing.assert_array_equal(mapped(folder, values(dtype)), values(dtype))


@pytest.mark.parametrize("options", [*DECODED.values(), *MAPPABLE.values()], ids=[*DECODED, *MAPPABLE])
def test_every_array_can_be_decoded(tmp_path, options):
    data = values("int16")
    folder = written(tmp_path / "a", data, **options)
    assert (extents(folder) is None) == (options in DECODED.values())
    found = open_zarr_array(folder)
    assert found.shape == SHAPE and found.dtype == np.int16 and len(found) == ROWS
    for rows in (slice(None), slice(3, 40), slice(69, 200), slice(40, 3), slice(-5, None), slice(None, None, -7)):
        part = found[rows]
        np.testing.assert_array_equal(part, data[rows])
        assert isinstance(part, np.ndarray) and not part.flags.writeable and part.dtype == np.int16


def test_bytes_of_the_other_order_are_decoded(tmp_path):
    from zarr.codecs import BytesCodec

    folder = written(tmp_path / "a", values("int16"), (16, 4, 6), serializer=BytesCodec(endian="big"))
    assert extents(folder) is None
    found = open_zarr_array(folder)[:]
    assert found.dtype == np.int16 and found.dtype.isnative
    np.testing.assert_array_equal(found, values("int16"))


def test_neighbouring_chunks_are_one_piece(tmp_path):
    pieces = extents(written(tmp_path / "a", values(), (8, 4, 6), shards=(72, 4, 6)))
    assert pieces is not None and sum(p.rows for p in pieces) == ROWS
    assert [(p.start, p.rows) for p in pieces] == [(0, ROWS)]


def test_no_rows_need_no_chunks(tmp_path):
    folder = written(tmp_path / "a", values()[:0], (8, 4, 6))
    assert extents(folder) == [] and chunk_files(folder) == []
    assert open_zarr_array(folder)[:].shape == (0, 4, 6)


@pytest.mark.parametrize("options", [*MAPPABLE.values(), *DECODED.values()], ids=[*MAPPABLE, *DECODED])
def test_a_lost_chunk_is_found_at_open(tmp_path, options):
    folder = written(tmp_path / "a", values(), **options)
    lost = chunk_files(folder)[-1]
    lost.rename(tmp_path / "elsewhere")
    for stand_in in (lambda: None, lambda: lost.symlink_to("nowhere"), lambda: lost.mkdir(), lambda: os.mkfifo(lost)):
        if os.path.lexists(lost):
            lost.rmdir() if lost.is_dir() else lost.unlink()
        stand_in()
        for way in (extents, open_zarr_array):
            with pytest.raises(MissingError) as caught:
                way(folder)
            assert caught.value.kind == "missing" and caught.value.fault.file == str(lost)


@pytest.mark.parametrize("options", [*MAPPABLE.values(), *DECODED.values()], ids=[*MAPPABLE, *DECODED])
def test_an_emptied_chunk_is_found_at_open(tmp_path, options):
    folder = written(tmp_path / "a", values(), **options)
    os.truncate(chunk_files(folder)[0], 0)
    for way in (extents, open_zarr_array):
        with pytest.raises(FormatError) as caught:
            way(folder)
        assert caught.value.kind == ("zarr-index" if "shards" in options else "size")


@pytest.mark.parametrize("options", [*MAPPABLE.values(), *(v for v in DECODED.values() if "shards" in v)])
@pytest.mark.parametrize("cut", [1, 30])
def test_a_cut_chunk_is_found_at_open(tmp_path, options, cut):
    folder = written(tmp_path / "a", values(), **options)
    file = chunk_files(folder)[0]
    os.truncate(file, file.stat().st_size - cut)
    for way in (extents, open_zarr_array):
        with pytest.raises(FormatError) as caught:
            way(folder)
        assert caught.value.kind == ("zarr-index" if "shards" in options else "size")


def test_a_cut_compressed_chunk_is_an_error_when_read(tmp_path):
    folder = written(tmp_path / "a", values(), (16, 4, 6), compressors="auto")
    file = chunk_files(folder)[0]
    os.truncate(file, file.stat().st_size - 5)
    with pytest.raises(FormatError, match="zarr-chunk"):
        open_zarr_array(folder)[:]


def test_a_chunk_lost_after_opening_is_no_zeros(tmp_path):
    folder = written(tmp_path / "a", values(), (16, 4, 6), compressors="auto")
    array = open_zarr_array(folder)
    chunk_files(folder)[1].unlink()
    with pytest.raises(MissingError):
        array[:]
    np.testing.assert_array_equal(array[:16], values()[:16])


def test_empty_chunks_that_were_not_written_are_an_error(tmp_path):
    data = values()
    data[8:16] = 0
    for options in (dict(chunks=(8, 4, 6)), dict(chunks=(8, 4, 6), shards=(72, 4, 6))):
        folder = written(tmp_path / f"{len(options)}", data, **options)
        for way in (extents, open_zarr_array):
            with pytest.raises(MissingError, match="empty chunks"):
                way(folder)
        whole = written(tmp_path / f"{len(options)} whole", data, **options, config={"write_empty_chunks": True})
        np.testing.assert_array_equal(mapped(whole, data), data)


def test_a_damaged_shard_index_is_found(tmp_path):
    folder = written(tmp_path / "a", values(), (8, 4, 6), shards=(72, 4, 6))
    file = chunk_files(folder)[0]
    data = bytearray(file.read_bytes())
    data[-10] ^= 1
    file.write_bytes(data)
    with pytest.raises(IntegrityError, match="zarr-index"):
        extents(folder)


def test_inner_chunks_of_another_size_are_refused(tmp_path):
    from spec.zarr3 import index_bytes, shard_index

    folder = written(tmp_path / "a", values(), (8, 4, 6), shards=(72, 4, 6))
    file = chunk_files(folder)[0]
    index = np.stack([np.arange(9) * 192, [192, 191, *[192] * 7]], axis=1)
    file.write_bytes(file.read_bytes()[:-index_bytes(9)] + shard_index(index))
    with pytest.raises(FormatError, match="expected inner chunks of 192 bytes, found chunk 1 with 191"):
        extents(folder)


def test_a_document_cannot_make_it_read_or_allocate_without_bound(tmp_path):
    import json

    folder = written(tmp_path / "a", values(), (8, 4, 6), shards=(72, 4, 6))
    document = json.loads((folder / "zarr.json").read_text())
    document["shape"] = document["chunk_grid"]["configuration"]["chunk_shape"] = [2**50, 1, 1]
    document["codecs"][0]["configuration"]["chunk_shape"] = [1, 1, 1]
    (folder / "zarr.json").write_text(json.dumps(document))
    with pytest.raises(FormatError, match="zarr-index"):
        extents(folder)
    document["chunk_grid"]["configuration"]["chunk_shape"] = [1, 1, 1]
    (folder / "zarr.json").write_text(json.dumps(document))
    with pytest.raises((FormatError, MissingError)):
        extents(folder)


def test_what_is_no_array_is_named(tmp_path):
    with pytest.raises(MissingError, match=r"nothing/zarr.json: expected a file"):
        extents(tmp_path / "nothing")
    written(tmp_path / "a", np.array(3, "uint8"), ())
    with pytest.raises(FormatError, match="zarr-document"):
        extents(tmp_path / "a")


def test_an_array_pickles_as_its_path(tmp_path):
    folder = written(tmp_path / "a", values(), (16, 4, 6), compressors="auto")
    data = pickle.dumps(open_zarr_array(folder))
    assert len(data) < 500
    np.testing.assert_array_equal(pickle.loads(data)[:], values())
    shutil.rmtree(folder)
    with pytest.raises(MissingError):
        pickle.loads(data)


def test_mapping_imports_neither_zarr_nor_tensorstore(tmp_path):
    folder = written(tmp_path / "a", values(), (16, 4, 6))
    code = ("import sys; from asdstore.zarr_arrays import extents; assert len(extents(sys.argv[1])) == 5;"
            "print([m for m in ('zarr', 'tensorstore', 'numcodecs') if m in sys.modules])")
    found = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True,
                           cwd=Path(__file__).parents[2])
    assert found.stdout.strip() == "[]"


def test_a_fork_after_decoding_is_an_error_and_no_abort(tmp_path):
    folder = written(tmp_path / "a", values(), (16, 4, 6), compressors="auto")
    code = """if True:
        import os, sys
        from asdstore.errors import StoreError
        from asdstore.zarr_arrays import open_zarr_array
        array = open_zarr_array(sys.argv[1])
        if os.fork():
            sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
        refused = 0
        for way in (lambda: array[:], lambda: open_zarr_array(sys.argv[1])):
            try:
                way()
            except StoreError as error:
                refused += error.kind == "forked"
        os._exit(10 + refused)
    """
    assert subprocess.run([sys.executable, "-c", code, str(folder)], cwd=Path(__file__).parents[2]).returncode == 12
