"""`prepare frames`: packs of frame features, the same from any number of workers, read back with the same options."""
from __future__ import annotations

import hashlib
import json
import pickle
from pathlib import Path

import numpy as np
import pytest

import asdstore.mirror
import pipelines
from adapters.prepare import main
from asdstore.check import check
from asdstore.errors import FormatError, InputError
from asdstore.formats.kaldi_write import write_alignments, write_ark
from asdstore.formats.open import open_source
from asdstore.formats.packed import Packed, open_packed
from asdstore.formats.pfile import open_pfile, write_pfile
from asdstore.formats.source import Memory
from asdstore.frame_tracks import FrameMedia, encode_frames, frame_layout
from asdstore.pack import open_pack
from asdstore.records import Record


def corpus(columns: int = 1) -> Memory:
    random = np.random.default_rng(0)
    lengths = [40, 3, 120, 77]
    labels = [random.integers(0, 9, (n, columns)) for n in lengths] if columns else None
    return Memory([f"u{k}" for k in range(4)], [random.normal(size=(n, 5)).astype(np.float32) for n in lengths], labels)


@pytest.fixture
def pfile(tmp_path: Path) -> Path:
    write_pfile(tmp_path / "a.pfile", corpus())
    return tmp_path / "a.pfile"


def digests(pack: Path) -> dict[str, str]:
    files = [path for path in sorted(pack.rglob("*")) if path.is_file()]
    return {str(path.relative_to(pack)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.parametrize("columns", [0, 1, 3])
def test_a_pack_gives_the_frames_of_its_pfile(tmp_path, columns, capsys):
    source = corpus(columns)
    write_pfile(tmp_path / "a.pfile", source)
    assert main(["frames", f"{tmp_path}/a.pfile", "--output", f"{tmp_path}/pack"]) == 0
    packed = open_packed(tmp_path / "pack")
    assert (packed.dim, packed.label_columns, packed.offsets.tolist()) == (5, columns, source.offsets.tolist())
    assert packed.ids == [f"a.pfile:{k}" for k in range(4)]
    for a, b in ((0, 240), (0, 0), (39, 44), (200, 240)):
        for mine, theirs in zip(packed.read(a, b), source.read(a, b), strict=True):
            assert np.array_equal(mine, theirs) and mine.dtype == theirs.dtype
    found = packed.read(10, 200).features
    assert found.dtype == np.float32 and found.dtype.isnative and not found.flags.owndata and not found.flags.writeable
    assert check(tmp_path / "pack", deep=True).exit_code == 0
    report = json.loads((tmp_path / "pack" / "report.json").read_bytes())
    assert report["frames"] == 240 and report["datasets"] == {"pfile": {"tracks": 4, "frames": 240}}


def test_options_mean_the_same_for_a_pack(tmp_path, pfile):
    assert main(["frames", str(pfile), "--output", f"{tmp_path}/pack"]) == 0
    for options in ("", ",context=2:1,ignore-label=0:3-4,map-label=1:0/2:1", ",random=true",
                    ",random=true,stream=true,context=1"):
        mine = list(pipelines.frames(f"{tmp_path}/pack{options}", batch=20, compat="pdnn"))
        theirs = list(pipelines.frames(f"{pfile}{options}", batch=20, compat="pdnn"))
        assert len(mine) == len(theirs) > 0
        for a, b in zip(mine, theirs, strict=True):
            assert np.array_equal(a["features"], b["features"]) and np.array_equal(a["labels"], b["labels"])
    assert len(pipelines.frames(open_pack(tmp_path / "pack"), batch=20)) == 12
    half = pipelines.frames(open_pack(tmp_path / "pack")[1:3], batch=1)
    assert len(half) == 123


@pytest.mark.parametrize("shard", ["0.0000005", "0.000004"])
def test_several_shards_and_the_mirror(tmp_path, pfile, shard):
    """Shards that hold one utterance each, and two."""
    assert main(["frames", str(pfile), "--output", f"{tmp_path}/pack", "--max-shard-gb", shard]) == 0
    pack = open_pack(tmp_path / "pack")
    assert len(pack.storage.sources) > 2
    source, packed = open_pfile(pfile), open_packed(tmp_path / "pack")
    assert np.array_equal(packed.read(0, 240).features, source.read(0, 240).features)
    assert np.array_equal(packed.read(41, 165).labels, source.read(41, 165).labels)
    asdstore.mirror.mirror(tmp_path / "pack")
    mirrored = open_source(tmp_path / "pack" / "mirror.zarr")
    assert np.array_equal(mirrored.read(0, 240).features, source.read(0, 240).features)
    assert check(tmp_path / "pack" / "mirror.zarr").exit_code == 0
    again = pickle.loads(pickle.dumps(packed))
    assert again.digest == packed.digest and np.array_equal(again.read(5, 50).features, packed.read(5, 50).features)


def test_any_number_of_workers_writes_the_same_bytes(tmp_path, pfile):
    for workers in ("1", "2"):
        assert main(["frames", str(pfile), "--output", f"{tmp_path}/w{workers}", "--max-shard-gb", "0.000004",
                     "--workers", workers]) == 0
    assert digests(tmp_path / "w1") == digests(tmp_path / "w2")


def test_kaldi_keeps_its_names_and_says_what_it_left_out(tmp_path, capsys):
    source = corpus()
    write_ark(tmp_path / "a.ark", [(u.id, u.features) for u in source], scp=tmp_path / "a.scp")
    write_alignments(tmp_path / "a.ali", [(u.id, np.asarray(u.labels)) for u in source[:3]])
    spec = f"{tmp_path}/a.scp,label={tmp_path}/a.ali"
    assert main(["frames", spec, "--output", f"{tmp_path}/pack"]) == 1
    assert "u3: none" in capsys.readouterr().err and not (tmp_path / "pack").exists()
    assert main(["frames", spec, "--output", f"{tmp_path}/pack", "--skip-unlabelled", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["left_out"] == {"utterances without labels, left out": ["a.scp: u3"]} and told["tracks"] == 3
    assert open_packed(tmp_path / "pack").ids == ["u0", "u1", "u2"]
    assert open_packed(tmp_path / "pack")["u2"].frames == 120


def test_several_files(tmp_path, pfile, capsys):
    write_pfile(tmp_path / "b.pfile", corpus())
    assert main(["frames", f"{tmp_path}/[ab].pfile", "--output", f"{tmp_path}/pack", "--dry-run"]) == 0
    assert "would write" in capsys.readouterr().out and not (tmp_path / "pack").exists()
    assert main(["frames", f"{tmp_path}/[ab].pfile", "--output", f"{tmp_path}/pack"]) == 0
    assert open_packed(tmp_path / "pack").frames == 480
    assert main(["frames", f"{tmp_path}/[ab].pfile", "--output", f"{tmp_path}/pack"]) == 2  # exists
    write_pfile(tmp_path / "c.pfile", corpus(0))
    assert main(["frames", f"{tmp_path}/[ac].pfile", "--output", f"{tmp_path}/other"]) == 1
    assert main(["frames", f"{tmp_path}/nothing*", "--output", f"{tmp_path}/other"]) == 3
    assert main(["frames", f"{tmp_path}/a.pfile,context=5", "--output", f"{tmp_path}/other"]) == 2
    assert "pipelines.frames" in capsys.readouterr().err


def test_what_cannot_be_stored():
    record, layout = Record("pfile", "u", 100.0, 3, 0.0, "", None), frame_layout(2, 1)
    good = FrameMedia(np.zeros((3, 2), np.float32), np.zeros((3, 1), np.int32))
    assert encode_frames(record, good, layout).arrays["labels"].shape == (3,)
    for kind, media in (("dimension", good._replace(features=np.zeros((3, 3), np.float32))),
                        ("dimension", good._replace(features=np.zeros((3, 2)))),
                        ("frames", good._replace(features=np.zeros((4, 2), np.float32))),
                        ("labels", good._replace(labels=np.zeros((2, 1), np.int32))),
                        ("labels", good._replace(labels=np.zeros((3, 1), np.int64)))):
        with pytest.raises(InputError) as e:
            encode_frames(record, media, layout)
        assert e.value.kind == kind and e.value.fault.sample_id == "u"
    features = good.features.copy()
    features[1, 0] = np.nan
    assert encode_frames(record, good._replace(features=features), layout).tally["notes"] == {"frames with NaN or infinity": 1}


def test_a_pack_of_tracks_is_refused(make_pack):
    with pytest.raises(FormatError, match="pipelines.train"):
        Packed(open_pack(make_pack().path))
