"""The Zarr mirror of a pack: other readers see equal arrays, no document comes without its data, nothing else is replaced."""
from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asdstore
from asdstore import testing
from asdstore.errors import AsdError, FormatError, IntegrityError, MissingError, StoreError
from asdstore.mirror import CODECS, LINKS, main, mirror
from asdstore.zarr_arrays import extents, open_zarr_array
from spec import npy, seal, zarr3
from spec.document import parse_json
from spec.layout import ASD

HOW: list[dict[str, Any]] = [*({"link": link} for link in LINKS), *({"codec": codec} for codec in CODECS)]
STREAMS = [stream.name for stream in ASD.streams]


def arrays(pack: Path) -> dict[str, np.ndarray]:
    """The arrays of a pack as numpy reads them, by their name in the mirror."""
    return {f"{path.parent.name}/{path.stem}": np.load(path) for path in sorted(pack.glob("shard-*/*.npy"))}


def cut_tails(pack: Path) -> None:
    """Turns a pack into one of another program: no seal, npy files that end with their data."""
    (pack / seal.NAME).unlink()
    shutil.rmtree(pack / "columns")
    for path in pack.glob("shard-*/*.npy"):
        header = npy.parse_header(path.read_bytes()[:npy.MAX_HEAD])
        os.truncate(path, header.nbytes_header + header.nbytes_data)


def restore_tails(shard: Path) -> None:
    """Gives the npy files of a shard their padding and Zarr shard index again."""
    for stream in ASD.streams:
        with open(shard / stream.file, "r+b") as file:
            header = npy.parse_header(file.read(npy.MAX_HEAD))
            rows, chunk = header.shape[0], stream.chunk_rows(header.shape[0])
            file.seek(header.nbytes_header + header.nbytes_data)
            file.write(bytes(zarr3.padding_bytes(rows, stream.row_bytes, chunk)))
            file.write(zarr3.shard_tail(header.nbytes_header, rows, stream.row_bytes, chunk))


def assert_mirrors(target: Path, pack: Path) -> None:
    """zarr-python, without a single warning, and TensorStore read from `target` what numpy reads from `pack`."""
    import tensorstore
    import zarr

    wanted = arrays(pack)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        group = zarr.open_group(str(target), mode="r")
        members = dict(group.members(max_depth=None))
        shards = sorted({name.split("/")[0] for name in wanted})
        assert sorted(members) == sorted([*shards, *wanted])
        assert group.metadata.consolidated_metadata is not None
        for name, values in wanted.items():
            found = members[name]
            assert isinstance(found, zarr.Array)
            assert found.shape == values.shape and found.dtype == values.dtype and found.nchunks_initialized > 0
            np.testing.assert_array_equal(found[:], values)
        for shard in shards:
            rows = parse_json((pack / shard / "index.json").read_bytes())
            assert members[shard].attrs["index"] == rows == zarr.open_group(str(target / shard), mode="r").attrs["index"]
            assert sorted(dict(zarr.open_group(str(target / shard), mode="r").members())) == sorted(STREAMS)
        attributes: Any = group.attrs["asdstore"]
    assert attributes["shards"] == shards
    assert attributes["manifest"] == json.loads((pack / "dataset.json").read_bytes())
    assert attributes["seal"] == (json.loads((pack / "seal.json").read_bytes()) if (pack / "seal.json").exists() else None)
    for name, values in wanted.items():
        store = tensorstore.open({"driver": "zarr3", "kvstore": f"file://{target}/{name}/"}, read=True).result()
        np.testing.assert_array_equal(store.read().result(), values)
        np.testing.assert_array_equal(open_zarr_array(target / name)[:], values)


def left_over(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if name.startswith(".")]


@pytest.mark.parametrize("how", HOW, ids=str)
def test_other_readers_see_equal_arrays(make_pack, how):
    pack = make_pack(frames=(30, 12, 70, 1), max_shard_bytes=600_000).path
    target = mirror(pack, **how)
    assert target == pack / ("mirror-{codec}.zarr".format(**how) if "codec" in how else "mirror.zarr")
    assert_mirrors(target, pack)
    assert left_over(pack) == []


@pytest.mark.parametrize("link", LINKS)
def test_the_data_of_a_link_is_the_pack_and_mappable(make_pack, link):
    pack = make_pack().path
    target = mirror(pack, link=link)
    for name, values in arrays(pack).items():
        chunk = target / name / "c" / "/".join("0" * values.ndim)
        original = pack / f"{name}.npy"
        assert chunk.is_symlink() == (link == "symlink")
        assert os.path.samefile(chunk, original) == (link != "copy")
        assert chunk.read_bytes() == original.read_bytes()
        np.testing.assert_array_equal(np.load(chunk), values)
        pieces = extents(target / name)
        assert pieces is not None and [piece[1:] for piece in pieces] == [(128, 0, len(values))]


def test_links_hold_when_the_pack_is_moved_or_copied(make_pack, tmp_path):
    pack = make_pack().path
    mirror(pack)
    copied = tmp_path / "elsewhere" / "deeper"
    copied.parent.mkdir()
    subprocess.run(["cp", "-a", pack, copied], check=True)
    moved = pack.rename(tmp_path / "moved")
    for root in (copied, moved):
        assert_mirrors(root / "mirror.zarr", root)
        chunk = next((root / "mirror.zarr").rglob("c/0/0/0"))
        assert chunk.resolve().is_relative_to(root.resolve())


def test_a_target_elsewhere_and_a_pack_behind_a_link(make_pack, tmp_path):
    pack = make_pack().path
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "way").symlink_to(pack)
    target = mirror(tmp_path / "a" / "b" / "way", tmp_path / "new" / "there.zarr")
    assert target == (tmp_path / "new" / "there.zarr").resolve()
    assert_mirrors(target, pack)
    assert_mirrors(mirror(tmp_path / "a" / "b" / "way"), pack)


def test_packs_of_other_programs_are_copied_and_not_linked(make_pack):
    pack = make_pack().path
    cut_tails(pack)
    for link in ("symlink", "hard"):
        with pytest.raises(FormatError, match="faces.npy.*--link copy") as caught:
            mirror(pack, link=link)
        assert caught.value.kind == "zarr-index"
        assert not (pack / "mirror.zarr").exists() and left_over(pack) == []
    assert_mirrors(mirror(pack, link="copy"), pack)
    assert_mirrors(mirror(pack, codec="zstd"), pack)


def test_the_complete_pack_of_the_original_program(golden, tmp_path):
    pack = golden / "packs" / "ava_val_full"
    assert_mirrors(mirror(pack, tmp_path / "copy.zarr", link="copy"), pack)
    assert_mirrors(mirror(pack, tmp_path / "packed.zarr", codec="blosc"), pack)


def test_another_face_geometry(make_pack):
    pack = make_pack(face_shape=(24, 36)).path
    assert_mirrors(mirror(pack), pack)


def test_an_array_without_rows_has_no_chunk(make_pack):
    """A track of one frame at a rate far above the sample rate has no audio."""
    pack = make_pack(frames=(1,)).path
    cut_tails(pack)
    shard = pack / "shard-000000"
    row = json.loads((shard / "index.json").read_bytes())[0] | {"source_fps": 64_000.0, "audio_samples": 0, "model_frames": 0}
    (shard / "index.json").write_text(json.dumps([row]))
    (shard / "audio.npy").write_bytes(npy.header("<i2", (0,)))
    restore_tails(shard)
    for how in HOW:
        target = mirror(pack, pack.parent / "m.zarr", overwrite=True, **how)
        assert not (target / "shard-000000" / "audio" / "c").exists()
        assert open_zarr_array(target / "shard-000000" / "audio")[:].shape == (0,)


def test_a_compressed_archive_is_smaller_and_checksummed(make_pack):
    pack = make_pack().path
    for codec in CODECS:
        target = mirror(pack, codec=codec)
        labels = target / "shard-000000" / "labels"
        assert (labels / "c" / "0").stat().st_size < (pack / "shard-000000" / "labels.npy").stat().st_size
        chunk = labels / "c" / "0"
        data = bytearray(chunk.read_bytes())
        data[2] ^= 1
        chunk.write_bytes(data)
        with pytest.raises(FormatError, match="zarr-chunk"):
            open_zarr_array(labels)[:]


def test_damaged_data_of_a_sealed_pack_is_not_copied(make_pack):
    pack = make_pack(frames=(70,)).path
    faces = pack / "shard-000000" / "faces.npy"
    data = bytearray(faces.read_bytes())
    data[400_000] ^= 1
    faces.write_bytes(data)
    for how in HOW[2:]:
        with pytest.raises(IntegrityError, match="faces.npy, byte 262144"):
            mirror(pack, **how)
    assert [path for path in pack.iterdir() if "mirror" in path.name] == []


def test_a_damaged_shard_index_is_not_linked(make_pack):
    pack = make_pack(frames=(70,)).path
    (pack / seal.NAME).unlink()
    faces = pack / "shard-000000" / "faces.npy"
    data = bytearray(faces.read_bytes())
    data[-1] ^= 1
    faces.write_bytes(data)
    with pytest.raises(FormatError, match="other bytes"):
        mirror(pack)
    assert_mirrors(mirror(pack, link="copy"), pack)


def test_what_cannot_be_opened_is_not_mirrored(make_pack, tmp_path):
    with pytest.raises(MissingError):
        mirror(tmp_path / "nothing")
    pack = make_pack().path
    (pack / "shard-000001" / "labels.npy").unlink()
    with pytest.raises(MissingError, match="labels.npy"):
        mirror(pack)
    with pytest.raises(AsdError) as caught:
        mirror(pack, codec="lzma")
    assert caught.value.kind == "mirror"
    with pytest.raises(AsdError, match="a name that is not that of a shard"):
        mirror(make_pack("other").path, tmp_path / "other" / "shard-000007")


def test_nothing_is_replaced_but_a_mirror_and_only_when_asked(make_pack, tmp_path):
    pack = make_pack().path
    foreign = tmp_path / "precious"
    foreign.mkdir()
    assert mirror(pack, foreign) == foreign  # empty: fine
    shutil.rmtree(foreign)
    foreign.mkdir()
    (foreign / "zarr.json").write_text(json.dumps(zarr3.group_document({"title": "of somebody else"})))
    for target in (foreign, pack, pack / "shard-000000" / "index.json"):
        for overwrite in (False, True):
            with pytest.raises(StoreError, match="exists"):
                mirror(pack, target, overwrite=overwrite)
    assert sorted(os.listdir(foreign)) == ["zarr.json"]
    made = mirror(pack)
    before = made.stat().st_ino
    with pytest.raises(StoreError, match="found a mirror. Add --overwrite"):
        mirror(pack)
    assert mirror(pack, link="hard", overwrite=True) == made and made.stat().st_ino != before
    assert_mirrors(made, pack)
    assert left_over(pack) == []


@pytest.mark.parametrize("how", [{}, {"link": "copy"}], ids=str)
@pytest.mark.parametrize("old", [False, True])
def test_a_failing_disk_leaves_no_mirror_or_the_old_one(make_pack, how, old):
    pack = make_pack(frames=(3,)).path
    target = pack / "mirror.zarr"

    def state() -> list[str]:  # a lock file may stay behind: whoever comes next takes it over
        return sorted(str(path.relative_to(pack)) for path in pack.rglob("*") if path.suffix != ".lock")

    with testing.faults() as trace:
        mirror(pack, **how)
    shutil.rmtree(target)
    if old:
        mirror(pack, link="hard")
    before = state()
    published = next(n for n, operation in enumerate(trace) if operation.name == "rename")
    for at in (*range(0, published, 3), published):
        with testing.faults("io", at), pytest.raises(StoreError):
            mirror(pack, overwrite=True, **how)
        assert state() == before, trace[at]
    assert_mirrors(mirror(pack, overwrite=True, **how), pack)


def test_leftovers_of_a_killed_run_are_cleared(make_pack):
    pack = make_pack().path
    partial = pack / ".mirror.zarr.partial"
    partial.mkdir()
    (partial / "link").symlink_to(pack / "shard-000000")
    (pack / ".mirror.zarr.lock").touch()
    assert_mirrors(mirror(pack), pack)
    assert left_over(pack) == [] and (pack / "shard-000000" / "index.json").exists()


def test_two_runs_on_one_target_exclude_each_other(make_pack):
    from asdstore import files

    pack = make_pack().path
    with files.lock(pack / ".mirror.zarr.lock"), pytest.raises(StoreError, match="locked"):
        mirror(pack)


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: object) -> tuple[int, str, str]:
        code = main([str(a) for a in arguments])
        out, err = capsys.readouterr()
        return code, out, err
    return call


def test_the_command(make_pack, run, tmp_path):
    pack = make_pack().path
    code, out, err = run(pack)
    assert code == 0 and err == "" and out.startswith(f"{pack / 'mirror.zarr'}: a Zarr v3 mirror (symlink)")
    code, out, err = run(pack, tmp_path / "z", "--codec", "zstd", "--json")
    found = json.loads(out)
    assert code == 0 and found["how"] == "zstd" and found["mirror"] == str(tmp_path / "z")
    assert found["bytes"] == sum(p.stat().st_size for p in (tmp_path / "z").rglob("*") if p.is_file())
    code, out, err = run(pack)
    assert code == 2 and out == "" and "exists" in err
    assert run(pack, "--link", "hard", tmp_path / "hard")[0] == 0 and (tmp_path / "hard" / "zarr.json").exists()
    assert run(pack, "--overwrite", "--link", "hard")[0] == 0
    code, out, err = run(tmp_path / "nothing")
    assert code == 3 and "expected a folder" in err
    for wrong in (["--link", "soft"], ["--codec", "zip"], ["--codec", "zstd", "--link", "hard"], []):
        with pytest.raises(SystemExit) as caught:
            run(*([pack] if wrong else []), *wrong)
        assert caught.value.code == 2


def tracks(opened: asdstore.Pack) -> list[tuple]:
    return [(track.id, track.fps, track.frames, track.audio_rms, track.recording, track.faces.tobytes(), track.audio.tobytes(),
             track.labels.tobytes(), track.audio.dtype, track.faces.shape) for track in opened]


@pytest.mark.parametrize("how", HOW, ids=str)
def test_a_mirror_opens_as_the_pack(make_pack, how):
    pack = make_pack(frames=(30, 12, 70, 1), max_shard_bytes=600_000).path
    wanted, found = asdstore.open(pack), asdstore.open(mirror(pack, **how))
    assert tracks(found) == tracks(wanted) and found.digest == wanted.digest
    assert all(not part.flags.writeable for part in (found[2].faces, found[2].audio, found[2].labels))
    again = pickle.loads(pickle.dumps(found[1:]))
    assert tracks(again) == tracks(wanted[1:])


def test_a_mirror_of_another_programs_pack_opens_as_the_pack(make_pack):
    pack = make_pack().path
    cut_tails(pack)
    assert tracks(asdstore.open(mirror(pack, link="copy"))) == tracks(asdstore.open(pack))


@pytest.mark.parametrize("how", HOW, ids=str)
@pytest.mark.parametrize("stream", STREAMS)
def test_lost_data_of_a_mirror_is_an_error_at_open(make_pack, how, stream):
    target = mirror(make_pack().path, **how)
    chunk = next(path for path in (target / "shard-000001" / stream / "c").rglob("*") if path.is_file())
    chunk.unlink()
    with pytest.raises(MissingError, match=f"shard-000001/{stream}/c/0"):
        asdstore.open(target)
    chunk.touch()
    with pytest.raises(FormatError, match="zarr-index"):
        asdstore.open(target)


def test_a_mirror_of_a_mirror_is_refused(make_pack):
    target = mirror(make_pack().path)
    with pytest.raises(AsdError, match="expected a pack, found a mirror"):
        mirror(target)
