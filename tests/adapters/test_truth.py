"""Ground-truth tables: checked against the tracks, kept byte for byte."""
from __future__ import annotations

import pytest

from adapters.truth import COLUMNS, parse_truth, read_truth
from asdstore.errors import InputError

A, B = "HV0H6oc4Kvs_0960_1020:1", "HV0H6oc4Kvs_0960_1020:2"
HEADER = ",".join(COLUMNS)
TALKNET = HEADER + ",label_id,instance_id"
STAMPS = [960 + n / 25 for n in range(4)]
LABELS = [0, 1, 1, 0]


def rows(entity: str = A, stamps=STAMPS, labels=LABELS, talknet: bool = False) -> list[str]:
    names = ("SPEAKING_NOT_AUDIBLE", "SPEAKING_AUDIBLE")
    more = [(f",{2 - label},{entity}:0" if talknet else "") for label in labels]
    return [f"HV0H6oc4Kvs,{stamp:.6f},0.1234560,.2,3e-1,0.4,{names[label]},{entity}{end}"
            for stamp, label, end in zip(stamps, labels, more, strict=True)]


def add(tree, sample_id: str = A, labels=LABELS) -> None:
    tree.add(sample_id, 4, labels=labels, stamps=[f"{stamp:.2f}" for stamp in STAMPS])


@pytest.mark.parametrize("talknet", [True, False], ids=["talknet", "official"])
def test_rows_are_kept_byte_for_byte_in_their_order(clip_tree, talknet):
    add(clip_tree)
    wanted, other = rows(talknet=talknet), rows(B, talknet=talknet)
    lines = [wanted[2], other[0], wanted[0], wanted[3], wanted[1], *other[1:]]
    orig = clip_tree.root / "train_orig.csv"
    orig.write_text("\n".join([TALKNET, *lines] if talknet else lines) + "\n")
    report = clip_tree.report("--orig", str(orig))
    kept = [TALKNET if talknet else HEADER, wanted[2], wanted[0], wanted[3], wanted[1]]
    assert (clip_tree.pack / "ground_truth.csv").read_text() == "\n".join(kept) + "\n"
    assert report["ground_truth"] == {"rows": 4, "rows_of_other_tracks": 4}


def test_a_folder_of_official_files(clip_tree):
    add(clip_tree)
    add(clip_tree, "2qQs3Y9OJX0_0960_1020:1")
    folder = clip_tree.root / "official"
    folder.mkdir()
    (folder / "HV0H6oc4Kvs-activespeaker.csv").write_text("\n".join(rows()))
    (folder / "2qQs3Y9OJX0-activespeaker.csv").write_text("\r\n".join(rows("2qQs3Y9OJX0_0960_1020:1")))
    (folder / "._HV0H6oc4Kvs-activespeaker.csv").write_bytes(b"\0\5\x16\7\xff")
    assert clip_tree.report("--orig", str(folder))["ground_truth"]["rows"] == 8
    text = (clip_tree.pack / "ground_truth.csv").read_text()
    assert text.splitlines() == [HEADER, *rows("2qQs3Y9OJX0_0960_1020:1"), *rows()]


@pytest.mark.parametrize("first", [[], [TALKNET]], ids=["official", "talknet"])
def test_blank_lines_are_nothing_at_the_top_too(tmp_path, first):
    (tmp_path / "t.csv").write_text("\n".join(["", " ", *first, *rows(talknet=bool(first)), ""]))
    truth = read_truth(tmp_path / "t.csv", frozenset([A]))
    assert not truth.faults and len(truth.stamps[A]) == 4 and truth.text.decode().splitlines()[0] == (first or [HEADER])[0]


@pytest.mark.parametrize(("lines", "expected", "found"), [
    (rows()[:3], "4 rows", "3 rows"), ([], "4 rows", "0 rows"),
    (rows(labels=[0, 1, 0, 0]), "the labels of the loader table", "1 others, first at frame 2"),
    (rows(stamps=[960, 960.04, 960.08, 960.16]), "a frame at 960.160 s, within 0.005 s,", "one at 960.12 s"),
    (rows(stamps=[960, 960.04, 960.04, 960.12]), "every time stamp once", "repeated")])
def test_a_track_and_its_truth_that_disagree(clip_tree, lines, expected, found):
    add(clip_tree)
    orig = clip_tree.root / "train_orig.csv"
    orig.write_text("\n".join([*lines, *rows(B)]))
    (fault,) = clip_tree.faults("--orig", str(orig))
    assert (fault["kind"], fault["sample_id"], fault["file"]) == ("truth", A, str(orig))
    assert expected in fault["expected"] and found in fault["found"]


@pytest.mark.parametrize("row", [
    "v,x,.1,.2,.3,.4,NOT_SPEAKING,e", "v,1_0,.1,.2,.3,.4,NOT_SPEAKING,e",
    "v,1,.1,.2,.3,nan,NOT_SPEAKING,e", "v,1,.1,.2,.3,.4,SINGING,e",
    "v,1,.1,.2,.3,.4,NOT_SPEAKING"])
def test_rows_that_are_faults(row):
    with pytest.raises(InputError) as caught:
        parse_truth(row.split(","), 8)
    assert caught.value.kind == "truth"


def test_a_label_and_its_number_must_agree():
    with pytest.raises(InputError, match="label_id 1"):
        parse_truth("v,1,.1,.2,.3,.4,SPEAKING_AUDIBLE,e,0,e:0".split(","), 10)


def test_every_faulty_row_is_found(tmp_path):
    (tmp_path / "t.csv").write_text("\n".join([TALKNET, *rows(talknet=True), "nonsense", *rows()]))
    truth = read_truth(tmp_path / "t.csv", frozenset([A]))
    assert [fault.row for fault in truth.faults] == [6, 7, 8, 9, 10] and len(truth.stamps[A]) == 4


def test_headers_that_are_none(tmp_path):
    (tmp_path / "t.csv").write_text(HEADER.replace("entity_id", "id") + "\n")
    with pytest.raises(InputError) as caught:
        read_truth(tmp_path / "t.csv", frozenset())
    assert caught.value.kind == "columns"
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError):
        read_truth(tmp_path / "empty", frozenset())
