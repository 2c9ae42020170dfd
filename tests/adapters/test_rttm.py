"""RTTM lines, files and their rasterisation."""
from __future__ import annotations

import json

import numpy as np
import pytest

from adapters.rttm import parse_speaker, rasterise, read_rttm
from asdstore.errors import InputError, MissingError


@pytest.mark.parametrize("line", [
    "SPEAKER v 0 1.0 2.0 <NA> <NA> a <NA> <NA>", "SPEAKER v 0 1.0 2.0 <NA> <NA> a <NA>", "SPEAKER v 0 1.0 2.0 <NA> <NA> a",
    "SPEAKER v  1\t1.0   2.0 <NA> <NA> a 0.93 <NA>"])
def test_eight_to_ten_fields(line):
    assert parse_speaker(line) == ("v", "a", 1.0, 3.0)


@pytest.mark.parametrize("line", [
    "SPEAKER my v 0 1.0 2.0 <NA> <NA> a <NA> <NA>", "SPEAKER my v 0 1.0 2.0 <NA> <NA> a",
    "SPEAKER my v 0 1.0 2.0 <NA> <NA> a <NA>",
    "SPEAKER v 0 1.0 2.0 <NA> <NA> speaker a", "SPEAKER v 0 1.0 2.0 <NA> <NA> speaker a <NA> <NA>",
    "SPEAKER v 0 1.0 2.0 <NA> <NA> speaker a <NA>", "SPEAKER v 0 1.0 2.0 <NA> <NA>", "SPEAKER v 0 x 2.0 <NA> <NA> a",
    "SPEAKER v 0 1_0.0 2.0 <NA> <NA> a", "SPEAKER v 0 nan 2.0 <NA> <NA> a",
    "SPEAKER v 0 1.0 inf <NA> <NA> a", "SPEAKER v 0 1.0 -0.5 <NA> <NA> a",
    "SPEAKER v 0 -1.0 0.5 <NA> <NA> a", "SPEAKER v 0 1.0 2.0 <NA> <NA> <NA> <NA> <NA>"])
def test_lines_that_are_faults(line):
    with pytest.raises(InputError) as caught:
        parse_speaker(line)
    assert caught.value.kind == "rttm"


def test_other_lines_and_zero_durations_are_counted(tmp_path):
    (tmp_path / "a.rttm").write_text(
        ";; a comment\n\nSPKR-INFO v 1 <NA> <NA> <NA> unknown a <NA>\nSPEAKER v 0 3.0 0.000 <NA> <NA> a <NA> <NA>\n"
        "SPEAKER v 0 2.0 1.0 <NA> <NA> b\nSPEAKER v 0 0.5 1.0 <NA> <NA> b\n")
    speech = read_rttm(tmp_path / "a.rttm")
    assert speech.recordings == {"v": {"a": (), "b": ((0.5, 1.5), (2.0, 3.0))}}
    assert speech.other_lines == {";;": 1, "SPKR-INFO": 1} and speech.zero_durations == 1 and not speech.faults
    assert not rasterise(speech.recordings["v"]["a"], 0, 100, 25.0).any()


def test_a_folder_without_rttm(tmp_path):
    (tmp_path / "._all.rttm").write_bytes(b"\xff")  # what an archive of macOS leaves
    with pytest.raises(MissingError, match="RTTM files"):
        read_rttm(tmp_path)


def test_every_fault_of_a_folder_is_found_with_file_and_row(tmp_path):
    (tmp_path / "a.rttm").write_text("SPEAKER v 0 1 1 <NA> <NA> a\nSPEAKER v 0 1 -1 <NA> <NA> a\n")
    (tmp_path / "b.rttm").write_text("SPEAKER w w 0 1 1 <NA> <NA> a\nSPEAKER v 0 1 1 <NA> <NA> a\n")
    speech = read_rttm(tmp_path)
    found = [(fault.file, fault.row) for fault in speech.faults]
    assert found == [(str(tmp_path / "a.rttm"), 2), (str(tmp_path / "b.rttm"), 1)]
    assert speech.recordings == {"v": {"a": ((1.0, 2.0),)}}


def test_an_interval_is_half_open_at_frame_centres():
    assert rasterise(((0.14, 0.30),), 0, 10, 25.0).tolist() == [0, 0, 0, 1, 1, 1, 1, 0, 0, 0]  # centres .14 ... .30
    assert rasterise(((0.15, 0.30),), 3, 2, 25.0).tolist() == [0, 1]


def test_golden_real_rasterisation_at_several_rates(golden):
    cases = [case for case in json.loads((golden / "rttm" / "windows.json").read_text())["cases"] if case.get("whole_video")]
    assert len(cases) >= 5
    for case in cases:
        speakers = read_rttm(golden / "rttm" / case["rttm"]).recordings[case["video"]]
        for speaker, labels in case["speakers"].items():
            found = rasterise(speakers.get(speaker, ()), 0, case["video_frames"], case["fps"])
            assert "".join(map(str, found)) == labels, (case["fps"], speaker)


@pytest.mark.parametrize(("split", "videos", "lines"), [("few.val", 490, 14209), ("many.val", 177, 7241)])
def test_the_official_lists_parse(shared, split, videos, lines):
    speech = read_rttm(shared / "data" / "msdwild" / f"{split}.rttm")
    assert not speech.faults and not speech.other_lines and not speech.zero_durations
    assert len(speech.recordings) == videos
    assert sum(len(spans) for speakers in speech.recordings.values() for spans in speakers.values()) == lines
    for speakers in speech.recordings.values():  # the labels of a speaker agree with the time spoken, at any rate
        for spans in speakers.values():
            spoken = np.sum(np.diff(np.array(spans), axis=1))
            for fps in (25.0, 29.97):
                frames = int(spans[-1][1] * fps) + 2
                assert abs(int(rasterise(spans, 0, frames, fps).sum()) / fps - spoken) <= len(spans) / fps
