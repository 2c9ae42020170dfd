"""`asdstore.open`, `Pack` and `Track`: what is read is what was packed, and damage is an error at open that names the file."""
from __future__ import annotations

import json
import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest

import asdstore
from asdstore.errors import AsdError, StoreError, TrackError
from spec.timeline import pcm16


def test_tracks_equal_their_source(make_pack):
    made = make_pack()
    pack = asdstore.open(made.path)
    assert len(pack) == len(made.records) and pack.sealed
    for track, record in zip(pack, made.records, strict=True):
        media = made.media[record.sample_id]
        assert (track.id, track.fps, track.frames) == (record.sample_id, record.fps, record.frames)
        assert (track.recording, track.duration) == (record.recording, record.frames / record.fps)
        assert np.array_equal(track.faces, media.faces)
        assert np.array_equal(track.labels, media.labels)
        assert np.array_equal(track.audio, pcm16(media.audio))


def test_views_are_plain_read_only_arrays_without_a_copy(make_pack):
    pack = asdstore.open(make_pack().path)
    faces = pack[0].faces
    assert type(faces) is np.ndarray and not faces.flags.writeable and not faces.flags.owndata
    with pytest.raises(ValueError):
        faces[0] = 0
    with pytest.raises(ValueError):
        faces.flags.writeable = True
    assert np.shares_memory(faces, pack[0].faces)


def test_positions_slices_ids_and_selections(make_pack):
    made = make_pack()
    pack = asdstore.open(made.path)
    ids = [r.sample_id for r in made.records]
    assert [t.id for t in pack] == ids == list(pack.index["sample_id"])
    assert pack[-1].id == ids[-1] and pack[np.int64(1)].id == ids[1]
    assert [t.id for t in pack[1:4]] == ids[1:4] and [t.id for t in pack[::-1]] == ids[::-1]
    assert [t.id for t in pack[::-2][1:]] == ids[::-2][1:]
    assert pack[ids[2]].id == ids[2] and ids[2] in pack and "nobody" not in pack
    assert list(pack[::-1].index["source_frames"]) == list(pack.index["source_frames"])[::-1]
    long = pack.select(lambda index: index["source_frames"] > 20)
    assert [t.frames for t in long] == [n for n in (30, 12, 70, 1, 45) if n > 20]
    assert [t.id for t in pack.select(recording="video000001")] == ids[2:4]
    assert [t.id for t in long.select(source_fps=[23.976])] == [ids[2]]
    assert len(pack.select(dataset="wasd")) == 0
    for wrong in (len(pack), -len(pack) - 1):
        with pytest.raises(IndexError):
            pack[wrong]
    with pytest.raises(TrackError) as caught:
        pack["nobody"]
    assert caught.value.kind == "unknown-id" and isinstance(caught.value, KeyError) and "nobody" in str(caught.value)
    with pytest.raises(AttributeError, match="speaking_ratio"):
        pack[0].no_such_field  # noqa: B018
    with pytest.raises(ValueError, match="bool"):
        pack.select(np.zeros(2))


def test_several_packs_are_one_corpus_and_duplicates_are_reported(make_pack):
    a, b = make_pack("a"), make_pack("b", frames=(9, 8), seed=1)
    pack = asdstore.open([a.path, b.path])
    assert len(pack) == 7
    assert np.array_equal(pack[5].faces, b.media[b.records[0].sample_id].faces)
    twice = [r.sample_id for r in b.records]
    assert pack.duplicates == {twice[0]: [0, 5], twice[1]: [1, 6]}
    with pytest.raises(TrackError, match="positions 0, 5") as caught:
        pack[twice[0]]
    assert caught.value.kind == "duplicate-id"
    assert pack[5].id == twice[0]
    assert pack.digest != asdstore.open([b.path, a.path]).digest


def test_geometry_comes_from_the_manifest_and_is_never_mixed(make_pack):
    small, other = make_pack("small", face_shape=(8, 6)), make_pack("other", face_shape=(6, 8))
    assert asdstore.open(small.path)[0].faces.shape == (30, 8, 6)
    with pytest.raises(AsdError) as caught:
        asdstore.open([small.path, other.path])
    assert caught.value.kind == "geometry" and "[8, 6]" in str(caught.value) and "[6, 8]" in str(caught.value)


def test_pickles_are_small_and_know_their_pack(make_pack):
    made = make_pack()
    pack = asdstore.open(made.path)
    pack[0].faces.sum()
    for kept in (pack, pack[1:4], pack[::-1], pack.select(lambda index: index["source_frames"] > 20)):
        text = pickle.dumps(kept)
        again = pickle.loads(text)
        assert len(text) < 2000 and again.digest == kept.digest
        assert [t.id for t in again] == [t.id for t in kept]
    text = pickle.dumps(pack)
    shutil.rmtree(made.path)
    make_pack(seed=5)
    with pytest.raises(StoreError) as caught:
        pickle.loads(text)
    assert caught.value.kind == "stale"


def test_a_digest_knows_content_and_order_but_not_the_place(make_pack, tmp_path):
    made = make_pack()
    pack = asdstore.open(made.path)
    shutil.copytree(made.path, tmp_path / "elsewhere")
    assert asdstore.open(tmp_path / "elsewhere").digest == pack.digest
    assert make_pack("other", seed=9).path != made.path
    digests = {pack.digest, pack[::-1].digest, pack[:2].digest, asdstore.open(tmp_path / "other").digest}
    assert len(digests) == 4


def _writable(path: Path) -> None:
    for folder, _, names in os.walk(path):
        for name in names:
            os.chmod(Path(folder, name), 0o644)


@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize("name", ["faces.npy", "audio.npy", "labels.npy", "index.json"])
@pytest.mark.parametrize("how", ["cut", "empty", "gone", "longer"])
def test_damaged_shards_are_an_error_at_open_that_names_the_file(make_pack, sealed, name, how):
    path = make_pack().path
    victim = path / "shard-000001" / name
    if not sealed:
        (path / "seal.json").unlink()
        shutil.rmtree(path / "columns")
    data = victim.read_bytes()
    if how == "gone":
        victim.unlink()
    else:
        victim.write_bytes({"cut": data[:-1], "empty": b"", "longer": data + b"x"}[how])
    with pytest.raises(AsdError, match=f"shard-000001/{name}"):
        asdstore.open(path)


@pytest.mark.parametrize("sealed", [True, False])
def test_a_lost_or_an_extra_shard_is_an_error_at_open(make_pack, sealed):
    path = make_pack().path
    shards = sorted(path.glob("shard-*"))
    assert len(shards) >= 2
    if not sealed:
        (path / "seal.json").unlink()
        shutil.rmtree(path / "columns")
    extra = path / f"shard-{len(shards):06d}"
    shutil.copytree(shards[-1], extra)
    with pytest.raises(AsdError, match=extra.name) as caught:
        asdstore.open(path)
    assert caught.value.kind == "extra-shard"
    shutil.rmtree(extra)
    (path / "shard-000007.tmp").mkdir()  # a leftover of another program is no shard
    asdstore.open(path)
    shutil.rmtree(shards[1])
    with pytest.raises(AsdError, match="shard-000001") as caught:
        asdstore.open(path)
    assert caught.value.kind == "missing" and isinstance(caught.value, FileNotFoundError)


@pytest.mark.parametrize("name", ["faces.npy", "audio.npy", "labels.npy"])
def test_exchanged_files_of_equal_size_are_found_in_a_sealed_pack(make_pack, name):
    path = make_pack(frames=(44, 44), fps=(25.0,), max_shard_bytes=600_000).path
    one, two = path / "shard-000000" / name, path / "shard-000001" / name
    a, b = one.read_bytes(), two.read_bytes()
    assert len(a) == len(b) and a != b
    one.write_bytes(b)
    two.write_bytes(a)
    with pytest.raises(AsdError) as caught:
        asdstore.open(path)
    assert caught.value.kind == "digest" and name in str(caught.value)


def test_an_edited_index_of_equal_size_is_found_in_a_sealed_pack(make_pack):
    file = make_pack().path / "shard-000001" / "index.json"
    file.write_bytes(file.read_bytes().replace(b'"ava"', b'"avb"', 1))
    with pytest.raises(AsdError, match="shard-000001/index.json") as caught:
        asdstore.open(file.parent.parent)
    assert caught.value.kind == "digest"


def test_deep_verification_reads_every_byte(make_pack):
    path = make_pack(frames=(60, 60)).path
    victim = path / "shard-000000" / "faces.npy"
    data = bytearray(victim.read_bytes())
    data[600_000] ^= 1
    victim.write_bytes(data)
    asdstore.open(path)
    with pytest.raises(AsdError) as caught:
        asdstore.open(path, verify="deep")
    assert caught.value.kind == "digest" and caught.value.fault.offset == 600_000 // 262_144 * 262_144
    with pytest.raises(ValueError, match="verify"):
        asdstore.open(path, verify="some")


def test_an_unsealed_pack_opens_and_says_that_it_cannot_be_verified(make_pack):
    path = make_pack().path
    (path / "seal.json").unlink()
    pack = asdstore.open(path)
    assert not pack.sealed and "not sealed" in repr(pack) and "not sealed" in pack.describe()


@pytest.mark.parametrize("change", [{"face_offset": -1}, {"face_offset": 10**9}, {"audio_offset": 7}, {"source_frames": 0},
                                    {"source_fps": 0.0}, {"audio_samples": 5}, {"label_offset": 2**62}, {"source_fps": None}])
def test_index_values_that_do_not_fit_are_refused_before_anything_is_mapped(make_pack, change):
    path = make_pack().path
    (path / "seal.json").unlink()
    file = path / "shard-000000" / "index.json"
    rows = json.loads(file.read_bytes())
    rows[0] |= change
    file.write_text(json.dumps(rows))
    with pytest.raises(AsdError) as caught:
        asdstore.open(path)
    assert caught.value.fault.row == 0 and caught.value.fault.file.endswith("shard-000000/index.json")


def test_golden_packs_of_the_original_open_and_give_the_golden_bytes(golden):
    import hashlib
    path = golden / "packs" / "ava_val_full"
    pack = asdstore.open(path)
    entries = json.loads((path / "arrays.json").read_bytes())["entries"]
    assert [e["sample_id"] for e in entries] == list(pack.index["sample_id"])
    for track, entry in zip(pack, entries, strict=True):
        found = {name: hashlib.sha256(getattr(track, name).tobytes()).hexdigest() for name in ("faces", "audio", "labels")}
        assert set(found.values()) <= set(map(str, entry.values()))
    assert pack[0].recording == "4ZpjKfu6Cl8"


def test_a_path_that_is_no_pack(tmp_path):
    for path in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(FileNotFoundError) as caught:
            asdstore.open(path)
        assert isinstance(caught.value, AsdError) and str(path) in str(caught.value)
    with pytest.raises(AsdError):
        asdstore.open([])


def test_mirrors_and_checks_are_called_by_the_name_of_their_module(make_pack):
    made = make_pack()
    mirror = asdstore.mirror(made.path)  # type: ignore[operator]
    asdstore.check(made.path)  # type: ignore[operator]
    pack, mirrored = asdstore.open(made.path), asdstore.open(mirror, verify="deep")
    assert mirrored.digest == pack.digest
    for track, other in zip(pack, mirrored, strict=True):
        assert track.id == other.id and np.array_equal(track.faces, other.faces) and np.array_equal(track.audio, other.audio)


def test_a_pack_that_was_overwritten_is_stale_and_never_mixed(make_pack, tmp_path):
    old, new = make_pack("old", max_shard_bytes=300_000), make_pack("new", max_shard_bytes=300_000, seed=3)
    pack = asdstore.open(old.path)
    first = pack[0].faces
    old.path.rename(tmp_path / "aside")
    new.path.rename(old.path)
    assert np.array_equal(first, old.media[old.records[0].sample_id].faces)
    with pytest.raises(StoreError) as caught:
        pack[-1].faces  # noqa: B018
    assert caught.value.kind == "stale"
