"""Converting frame features: what comes out reads back as what went in."""
from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from asdstore.convert import main
from asdstore.formats.kaldi import open_kaldi
from asdstore.formats.open import open_source
from asdstore.formats.pfile import open_pfile, write_pfile
from asdstore.formats.source import Memory, Source


@pytest.fixture
def source() -> Memory:
    random = np.random.default_rng(0)
    lengths = [7, 3, 12]
    return Memory(["a", "b", "c"], [random.normal(size=(n, 4)).astype(np.float32) for n in lengths],
                  [random.integers(0, 50, n) for n in lengths])


def same(one: Source, other: Source) -> bool:
    mine, theirs = one.read(0, one.frames), other.read(0, other.frames)
    return one.offsets.tolist() == other.offsets.tolist() and all(map(np.array_equal, mine, theirs))


def test_pfile_to_kaldi_and_back(tmp_path, source, capsys):
    write_pfile(tmp_path / "a.pfile", source)
    assert main([f"{tmp_path}/a.pfile", f"{tmp_path}/k.scp"]) == 0
    assert "3 utterances, 22 frames of 4 values" in capsys.readouterr().out
    kaldi = open_kaldi(tmp_path / "k.scp", tmp_path / "k.ali")
    assert same(kaldi, source) and kaldi.ids == ["0", "1", "2"]
    assert main([f"{tmp_path}/k.scp", f"{tmp_path}/b.pfile", "--label", f"{tmp_path}/k.ali", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["frames"] == 22 and told["written"] == [f"{tmp_path}/b.pfile"]
    assert (tmp_path / "b.pfile").read_bytes() == (tmp_path / "a.pfile").read_bytes()
    assert main([f"{tmp_path}/a.pfile", f"{tmp_path}/t.scp", "--text"]) == 0
    assert same(open_kaldi(tmp_path / "t.scp", tmp_path / "t.ali"), source)
    assert (tmp_path / "t.ark").read_text().startswith("0  [\n")


def test_several_files_and_names_that_repeat(tmp_path, source, capsys):
    for name in ("x", "y"):
        write_pfile(tmp_path / f"{name}.pfile", source)
    assert main([f"{tmp_path}/[xy].pfile", f"{tmp_path}/k.scp"]) == 0
    kaldi = open_kaldi(tmp_path / "k.scp")
    assert kaldi.ids[:4] == ["x.pfile:0", "x.pfile:1", "x.pfile:2", "y.pfile:0"] and kaldi.frames == 44
    assert main([f"{tmp_path}/[xy].pfile", f"{tmp_path}/z.pfile", "--no-table"]) == 0
    assert open_pfile(tmp_path / "z.pfile").offsets.tolist() == [0, 7, 10, 22, 29, 32, 44]
    assert not open_pfile(tmp_path / "z.pfile").header.table


def test_files_of_one_name_in_several_folders(tmp_path, source):
    from adapters.frames import survey_frames

    for name in ("x", "y"):
        (tmp_path / name).mkdir()
        write_pfile(tmp_path / name / "a.pfile", source)
    assert main([f"{tmp_path}/?/a.pfile", f"{tmp_path}/k.scp"]) == 0
    names = [f"{folder}/a.pfile:{n}" for folder in "xy" for n in range(3)]
    assert open_kaldi(tmp_path / "k.scp").ids == names
    assert [record.sample_id for record in survey_frames(f"{tmp_path}/?/a.pfile").records] == names


def test_pickles_and_packs(tmp_path, source):
    from adapters.frames import load_frames, survey_frames
    from asdstore.writer import write_pack

    whole = source.read(0, 22)
    (tmp_path / "a.pkl").write_bytes(pickle.dumps((whole.features, whole.labels[:, 0])))
    assert main([f"{tmp_path}/a.pkl", f"{tmp_path}/p.pfile"]) == 0
    assert np.array_equal(open_pfile(tmp_path / "p.pfile").read(0, 22).features, whole.features)
    write_pfile(tmp_path / "a.pfile", source)
    survey = survey_frames(f"{tmp_path}/a.pfile")
    write_pack(tmp_path / "pack", survey.records, load_frames, layout=survey.layout)
    assert main([f"{tmp_path}/pack", f"{tmp_path}/q.pfile"]) == 0
    assert (tmp_path / "q.pfile").read_bytes() == (tmp_path / "a.pfile").read_bytes()
    assert same(open_source(tmp_path / "pack"), source)


def test_htk_to_pfile(tmp_path, capsys):
    import struct

    x = np.arange(12, dtype=np.float32).reshape(6, 2)
    for name in ("a", "b"):
        (tmp_path / f"{name}.mfc").write_bytes(struct.pack(">iihH", 6, 100000, 8, 6) + x.astype(">f4").tobytes())
    (tmp_path / "all.mlf").write_text('#!MLF!#\n"*/a.lab"\n0 600000 ah\n.\n"*/b.lab"\n0 300000 sil\n300000 600000 ah\n.\n')
    (tmp_path / "names").write_text("sil\nah\n")
    arguments = [f"{tmp_path}/*.mfc", f"{tmp_path}/h.pfile", "--htk", "--mlf", f"{tmp_path}/all.mlf"]
    assert main(arguments) == 1 and "--label-list" in capsys.readouterr().err
    assert main([*arguments, "--label-list", f"{tmp_path}/names"]) == 0
    found = open_pfile(tmp_path / "h.pfile")
    assert found.offsets.tolist() == [0, 6, 12] and found.read(0, 12).labels.ravel().tolist() == [1] * 6 + [0] * 3 + [1] * 3
    assert found[1].features.tolist() == x.tolist()


def test_what_is_left_out_is_said(tmp_path, source, capsys):
    write_pfile(tmp_path / "a.pfile", source)
    assert main([f"{tmp_path}/a.pfile", f"{tmp_path}/k.scp"]) == 0
    (tmp_path / "k.ali").write_text("0 " + "1 " * 7 + "\n")
    arguments = [f"{tmp_path}/k.scp", f"{tmp_path}/b.pfile", "--label", f"{tmp_path}/k.ali"]
    assert main(arguments) == 1 and not (tmp_path / "b.pfile").exists()
    assert main([*arguments, "--skip-unlabelled"]) == 0
    assert "utterances without labels, left out: 2" in capsys.readouterr().out


def test_exit_codes(tmp_path, source, capsys):
    write_pfile(tmp_path / "a.pfile", source)
    assert main([f"{tmp_path}/none.pfile", f"{tmp_path}/b.pfile"]) == 3
    assert main([f"{tmp_path}/a.pfile", f"{tmp_path}/a.pfile"]) == 2  # exists
    (tmp_path / "bad.pfile").write_bytes((tmp_path / "a.pfile").read_bytes()[:-4])
    assert main([f"{tmp_path}/bad.pfile", f"{tmp_path}/b.pfile", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["faults"][0]["kind"] == "pfile-truncated"
    for wrong in ([f"{tmp_path}/a.pfile", "b.txt"], [f"{tmp_path}/a.pfile", "b.pfile", "--mlf", "x"], []):
        with pytest.raises(SystemExit) as e:
            main(wrong)
        assert e.value.code == 2
    two = Memory(["a"], [np.ones((2, 1))], [np.ones((2, 2), int)])
    write_pfile(tmp_path / "two.pfile", two)
    assert main([f"{tmp_path}/two.pfile", f"{tmp_path}/two.scp"]) == 1 and "one label column" in capsys.readouterr().err
    assert not list(Path(tmp_path).glob("two.a*"))


def test_all_files_of_a_script_or_none(tmp_path, source, capsys):
    write_pfile(tmp_path / "a.pfile", source)
    (tmp_path / "k.ali").write_text("old")
    assert main([f"{tmp_path}/a.pfile", f"{tmp_path}/k.scp"]) == 2 and "k.ali" in capsys.readouterr().err
    assert sorted(os.listdir(tmp_path)) == ["a.pfile", "k.ali"]
    data = bytearray((tmp_path / "a.pfile").read_bytes())
    data[32768 + 28 * 3 + 3] = 9  # the sentence of a row amid others: found when it is read
    (tmp_path / "bad.pfile").write_bytes(data)
    assert main([f"{tmp_path}/bad.pfile", f"{tmp_path}/b.scp"]) == 1 and "pfile-ids" in capsys.readouterr().err
    assert sorted(os.listdir(tmp_path)) == ["a.pfile", "bad.pfile", "k.ali"]
