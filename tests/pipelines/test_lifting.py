from __future__ import annotations

import csv

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pipelines
from asdstore.errors import AsdError, FormatError, InputError
from pipelines.lifting import lift_scores
from spec.timeline import model_frame_count, model_indices, source_indices
from tests.pipelines.made import Kind, write

RATES = (15, 23.976, 24, 25, 29.97, 30, 50, 59.94, 60)
HEADER = "video_id,frame_timestamp,entity_box_x1,entity_box_y1,entity_box_x2,entity_box_y2,label,entity_id,label_id,instance_id"


@given(st.integers(1, 400), st.sampled_from(RATES))
def test_every_native_frame_gets_the_score_at_its_time(frames, fps):
    count = model_frame_count(frames, fps)
    lifted = lift_scores(np.arange(count, dtype=float), frames, fps, missing=-1.0)
    assert len(lifted) == frames
    if not count:
        assert (lifted == -1).all()
        return
    centres = (np.arange(frames) + 0.5) / fps
    inside = centres < count / 25
    assert (lifted[inside] / 25 <= centres[inside] + 1e-9).all() and (centres[inside] <= (lifted[inside] + 1) / 25 + 1e-9).all()
    assert (lifted[~inside] == count - 1).all()


@pytest.mark.parametrize("fps", RATES)
def test_scores_of_labels_come_back_as_labels(packed, fps):
    """Evaluation feeds a track; its labels, taken for scores and lifted, differ from the native ones by half a model frame."""
    pack = packed([Kind(300, fps)])
    batch = pipelines.evaluate(pack, threads=0)[0]
    lifted = pipelines.lift({"t0": batch["labels"][0]}, pack)["t0"]
    track = pack[0]
    assert np.array_equal(lifted, track.labels[source_indices(track.frames, fps)][model_indices(track.frames, fps)])
    if fps <= 25:
        assert (lifted != track.labels).mean() < 0.02


def test_a_padded_row_may_be_given_whole():
    assert lift_scores([1, 2, 3, 0, 0, 0], 3, 25.0).tolist() == [1, 2, 3]


@pytest.mark.parametrize("scores", [[1, 2], [[1, 2, 3]], 5, [1, float("nan"), 3], "abc"])
def test_scores_that_do_not_fit(scores):
    with pytest.raises(InputError) as error:
        lift_scores(scores, 3, 25.0)
    assert error.value.kind == "scores"


@pytest.fixture
def scored(packed):
    """A pack, and scores that tell the model frame."""
    pack = packed([Kind(5, 25.0), Kind(10, 30.0), Kind(1, 30.0), Kind(2, 60.0)])
    scores = {track.id: np.arange(model_frame_count(track.frames, track.fps)) + 0.25 for track in pack}
    return pack, {name: values for name, values in scores.items() if name != "t3"}  # t3 has no score at all


def table(pack, change=lambda rows: rows) -> str:
    """An `*_orig.csv`: the stamps of a track fall, through 100 so that texts sort otherwise, and their texts are odd."""
    rows = [f"v,{99.9 + (track.frames - k) / 25:.3f}0,0.1,0.20,3e-1,.4,NOT_SPEAKING,{track.id},0,{track.id}:x"
            for track in pack for k in range(track.frames)]
    return "\n".join([HEADER, *change(rows)]) + "\n"


def test_the_evaluation_table(scored, tmp_path):
    pack, scores = scored
    orig, output = tmp_path / "val_orig.csv", tmp_path / "scores.csv"
    orig.write_text(table(pack))
    lifted = pipelines.lift(scores, pack, orig, output, missing=-2.0)
    given_rows = list(csv.reader(orig.open()))[1:]
    header, *rows = csv.reader(output.open())
    assert header == [*HEADER.split(",")[:8], "score"]
    assert [row[:6] + row[7:8] for row in rows] == [row[:6] + row[7:8] for row in given_rows]  # texts as they were
    assert {row[6] for row in rows} == {"SPEAKING_AUDIBLE"}
    for name, values in lifted.items():
        of = [(float(row[1]), float(row[8])) for row in rows if row[7] == name]
        assert [score for _, score in sorted(of)] == values.tolist()
    assert lifted["t2"].tolist() == lifted["t3"][:1].tolist() == [-2.0]
    assert not list(tmp_path.glob(".*"))


def test_what_evaluation_gives_is_what_lift_takes(packed, tmp_path):
    pack = packed([Kind(40, 24.0), Kind(1, 30.0), Kind(33, 59.94)])
    orig, output = tmp_path / "orig.csv", tmp_path / "scores.csv"
    orig.write_text(table(pack))
    for budget in (None, 400):
        scores = {}
        for batch in pipelines.evaluate(pack, frame_budget=budget):
            for row in np.flatnonzero(batch["valid"]):
                scores[str(batch["sample_ids"][row])] = batch["faces"][row, :, 1, 1] / 7
        pipelines.lift(scores, pack, orig, output)
        assert len(output.read_text().splitlines()) == 1 + sum(track.frames for track in pack)


@pytest.mark.parametrize(("change", "kind"), [
    (lambda rows: rows[1:], "orig"), (lambda rows: [*rows, rows[0]], "orig"), (lambda rows: [*rows[1:], rows[1]], "orig"),
    (lambda rows: [*rows, rows[0].replace("t0", "unknown")], "orig"),
    (lambda rows: [rows[0].replace("v,100.", "v,nan "), *rows[1:]], "orig"),
    (lambda rows: [rows[0] + ",more", *rows[1:]], "orig"),
    (lambda rows: [rows[0].replace("v,100.", "v,x"), *rows[1:]], "orig")])
def test_tables_that_do_not_fit(scored, tmp_path, change, kind):
    pack, scores = scored
    orig = tmp_path / "orig.csv"
    orig.write_text(table(pack, change))
    with pytest.raises(AsdError) as error:
        pipelines.lift(scores, pack, orig, tmp_path / "scores.csv")
    assert error.value.kind == kind and not (tmp_path / "scores.csv").exists()


@pytest.mark.parametrize("cell", [b"\xff\xfe", b'"' + b"x" * 200_000 + b'"'])
def test_tables_that_are_no_text(scored, tmp_path, cell):
    pack, scores = scored
    orig = tmp_path / "orig.csv"
    orig.write_bytes(table(pack).encode() + cell)
    with pytest.raises(FormatError) as error:
        pipelines.lift(scores, pack, orig, tmp_path / "scores.csv")
    assert error.value.kind == "orig-text" and error.value.fault.row and not (tmp_path / "scores.csv").exists()


def test_tracks_that_share_an_id_are_refused(tmp_path):
    """Scores are known by id: the second track would get those of the first."""
    packs = [str(write(tmp_path / part, [Kind(5)])) for part in "ab"]
    with pytest.raises(InputError) as error:
        pipelines.lift({"t0": np.zeros(5)}, packs)
    assert error.value.kind == "duplicate-id"


def test_files_and_headers_that_are_not_there(scored, tmp_path):
    pack, scores = scored
    (tmp_path / "a.csv").write_text("")
    for orig, kind in (("a.csv", "orig-header"), ("none.csv", "missing")):
        with pytest.raises(AsdError) as error:
            pipelines.lift(scores, pack, tmp_path / orig, tmp_path / "scores.csv")
        assert error.value.kind == kind
    with pytest.raises(InputError):
        pipelines.lift(scores, pack, tmp_path / "a.csv")


def test_tracks_without_scores_are_named(scored):
    pack, scores = scored
    for change in ({"t1": scores["t1"][:-1]}, {}):
        missing = {name: values for name, values in scores.items() if name != "t1"} | change
        with pytest.raises(InputError) as error:
            pipelines.lift(missing, pack)
        assert error.value.kind == "scores" and error.value.fault.sample_id == "t1"
