"""Boxes, windows, and who stays in them."""
from __future__ import annotations

import json

import pytest

from adapters.boxes import parse_box, read_boxes
from adapters.rttm import rasterise, read_rttm
from adapters.windows import Choice, Window, lay_windows, present
from asdstore.errors import InputError
from spec.timeline import start_sample


@pytest.mark.parametrize("line", [
    "1,face,0,1,2,3,4", "1_0,face,0,1,2,3,4,0", "1,face,0,1_0,2,3,4,0", "1,face,0,1,2,3,nan,0", "1,face,0,1,2,inf,4,0",
    "-1,face,0,1,2,3,4,0", "١,face,0,1,2,3,4,0", "1.5,face,0,1,2,3,4,0", "1,face,,1,2,3,4,0", "frame,face,id,x1,y1,x2,y2,0",
    "1,face,../a,1,2,3,4,0", "1,face,a\\b,1,2,3,4,0", "1,face,\0,1,2,3,4,0"])
def test_boxes_that_are_none(line):
    with pytest.raises(InputError) as caught:
        parse_box(line)
    assert caught.value.kind == "box"


def test_all_faults_of_a_box_file_and_repeated_rows(tmp_path):
    path = tmp_path / "v.csv"
    path.write_text("0,face,0,1,2,3,4,0\n0,face,0,5,6,7,8,0\n1,face,0,1,2,3,nan,0\n2,face,a,9,9,1,1,0\nx\n")
    boxes = read_boxes(path)
    assert [fault.row for fault in boxes.faults] == [3, 5] and boxes.repeated == 1
    assert boxes.faces == {"0": {0: (5.0, 6.0, 7.0, 8.0)}, "a": {2: (9.0, 9.0, 1.0, 1.0)}} and boxes.frames == [0, 2]


def test_documented_windows_overlap_and_drop_the_tail():
    windows = lay_windows(range(10, 2000), 2000, 25.0)
    assert windows == [Window(0, 10, 750), Window(1, 510, 750), Window(2, 1010, 750)]


def test_a_kept_tail_is_as_long_as_asked():
    choice = Choice(overlap_seconds=0, tail="keep")
    assert [w.frames for w in lay_windows(range(800), 800, 25.0, choice)] == [750, 50]
    assert [w.frames for w in lay_windows(range(799), 799, 25.0, choice)] == [750]


def test_windows_begin_only_while_there_are_annotations():
    choice = Choice(10, 0, "keep")
    assert [w.start for w in lay_windows(range(260), 1000, 25.0, choice)] == [0, 250]
    assert lay_windows([1000, 1001], 1000, 25.0, choice) == [] and lay_windows([], 1000, 25.0) == []


def test_an_overlap_of_a_whole_clip_is_refused():
    with pytest.raises(InputError) as caught:
        lay_windows(range(100), 100, 25.0, Choice(2, 2))
    assert caught.value.kind == "window"


def test_ninety_percent_are_enough_and_faces_are_sorted_as_text():
    faces = {"b": dict.fromkeys(range(90)), "10": dict.fromkeys(range(100)), "2": dict.fromkeys(range(100)),
             "brief": dict.fromkeys(range(89))}
    assert present(faces, Window(0, 0, 100)) == ["10", "2", "b"]


def test_golden_windows(golden):
    cases = [case for case in json.loads((golden / "rttm" / "windows.json").read_text())["cases"] if "csv" in case]
    assert len(cases) == 20
    for case in cases:
        boxes = read_boxes(golden / "rttm" / case["csv"])
        speakers = read_rttm(golden / "rttm" / case["rttm"]).recordings[case["video"]]
        choice = Choice(case["clip_seconds"], case["overlap_seconds"], "keep", case["min_clip_seconds"], case["min_face_ratio"])
        fps, made = case["fps"], []
        for window in lay_windows(boxes.frames, case["video_frames"], fps, choice):
            for face in present(boxes.faces, window, choice):
                labels = rasterise(speakers.get(face, ()), window.start, window.frames, fps)
                span = range(window.start, window.start + window.frames)
                made.append({
                    "sample_id": f"{case['video']}_{window.segment:05d}_{face}", "source_frames": window.frames,
                    "start_sec": window.start / fps, "first_audio_sample": start_sample(window.start / fps),
                    "labels": "".join(map(str, labels)),
                    "blank_frames": "".join("01"[frame not in boxes.faces[face]] for frame in span)})
        assert made == [{key: sample[key] for key in made[0]} for sample in case["samples"]], case["csv"]
