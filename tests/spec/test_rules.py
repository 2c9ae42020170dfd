"""The rules as data: the written standard says the same, and what they judge is right in the corners."""
from __future__ import annotations

import hashlib
import re
from pathlib import Path

import numpy as np
import pytest

import spec
from spec import index, npy, zarr3
from spec.facts import ArrayFacts, Facts, Piece
from spec.layout import ASD
from spec.manifest import Manifest
from spec.rules import OPEN_RULES, Rule, faults
from spec.rules_check import CHECK_RULES, RULES, differences

README = (Path(spec.__file__).parent / "README.md").read_text()


def test_the_written_standard_has_the_same_rules():
    written = re.findall(r"^\| (R\d{3}) \| (\w+) \| (\w+) \| (.*) \|$", README, re.MULTILINE)
    assert written == sorted((r.id, r.level, r.at, r.text) for r in RULES)


def test_ids_are_unique_and_named_in_prose_only_if_they_exist():
    ids = [rule.id for rule in RULES]
    assert len(ids) == len(set(ids)) and all(re.fullmatch(r"R\d{3}", one) for one in ids)
    assert set(re.findall(r"R\d{3}", README)) == set(ids)
    assert {r.level for r in RULES} == {"MUST", "SHOULD"} and {r.at for r in RULES} == {"open", "check", "deep"}
    assert all(r.at == "open" for r in OPEN_RULES) and all(r.at != "open" for r in CHECK_RULES)


def test_the_worked_example_is_right():
    data = npy.header("|u1", (5,)) + bytes([0, 1, 1, 0, 1, 0, 0, 0]) + zarr3.shard_tail(128, 5, 1, 4)
    assert len(data) == 172 and hashlib.sha256(data).hexdigest() in README
    shown = README.split("128..135")[1].split("```")[0]
    assert bytes.fromhex("".join(re.findall(r"(?<![\w.])[0-9a-f]{2}(?![\w.])", shown))) == data[128:]


def pack(frames: list[int], shards: list[int], **columns: list) -> Facts:
    """Facts of a whole pack whose tracks follow one another, some columns replaced."""
    def rows(counts: list[int], first: int) -> list[dict]:
        ends, found = np.cumsum([0, *counts]), []
        for k, n in enumerate(counts):
            found.append({
                "dataset": "ava", "sample_id": f"{first + k}", "source_fps": 25.0, "source_frames": n, "start_sec": 0.0,
                "model_frames": n, "face_offset": int(ends[k]), "audio_offset": int(ends[k]) * 640, "audio_samples": n * 640,
                "label_offset": int(ends[k]), "audio_mean": 0.0, "audio_rms": 0.1, "audio_peak": 0.2, "speaking_ratio": 0.5})
        return found

    parts, arrays, first = [], [], 0
    for shard, count in enumerate(shards):
        own = frames[first:first + count]
        parts.append(index.of_rows(rows(own, first), ASD, shard))
        arrays.append(tuple(array(f"shard-{shard:06d}/{s.file}", s, sum(own) * (640 if s.name == "audio" else 1))
                            for s in ASD.streams))
        first += count
    whole = index.concat(parts)
    for name, values in columns.items():
        whole.columns[name] = np.array(values, whole.numbers(name).dtype)
    return Facts("pack", Manifest(ASD, len(shards), len(frames)), whole, tuple(f"shard-{k:06d}" for k in range(len(shards))),
                 tuple(arrays))


def array(file: str, stream, rows: int) -> ArrayFacts:
    header = npy.header(stream.dtype, (rows, *stream.item_shape))
    end = len(header) + rows * stream.row_bytes
    return ArrayFacts(file, stream.dtype, (rows, *stream.item_shape), end, end, header, (Piece(file, len(header), 0, rows),))


def found(facts: Facts, rules: tuple[Rule, ...] = RULES) -> list[tuple]:
    return [(f.rule, f.file, f.row) for f in faults(rules, facts) if f.kind != "unsealed"]


def test_a_whole_pack_breaks_no_rule():
    assert found(pack([3, 4, 5], [2, 1])) == []
    assert found(Facts("nothing")) == [], "facts without a manifest have faults of their own"


def test_rows_need_not_be_in_order_of_their_offsets():
    facts = pack([3, 3, 5], [2, 1], face_offset=[3, 0, 0], label_offset=[3, 0, 0], audio_offset=[1920, 0, 0])
    assert found(facts) == []


@pytest.mark.parametrize("offset", [-1, 10**18, 2**63 - 1, -2**63])
def test_offsets_that_leave_the_array_or_64_bits(offset):
    facts = pack([3, 4], [2], audio_offset=[0, offset])
    assert ("R025", "shard-000000/index.json", 1) in found(facts, OPEN_RULES)


@pytest.mark.parametrize("count", [-1, 10**18, 2**63 - 1])
def test_counts_that_leave_the_array_or_64_bits(count):
    facts = pack([3, 4], [2], audio_samples=[count, 2560])
    assert ("R025", "shard-000000/index.json", 0) in found(facts, OPEN_RULES)


@pytest.mark.parametrize("first", [3, 1])
def test_overlap_and_gap_name_the_row(first):
    facts = pack([2, 2, 4], [2, 1], face_offset=[0, first, 0])
    assert ("R026", "shard-000000/index.json", 1) in found(facts, OPEN_RULES)


def test_rows_behind_the_last_track_are_a_fault_of_the_file():
    facts = pack([3, 4], [1, 1])
    longer = facts.arrays[1][0]._replace(shape=(6, *ASD.face_shape))
    facts = facts._replace(arrays=(facts.arrays[0], (longer, *facts.arrays[1][1:])))
    assert ("R026", "shard-000001/faces.npy", None) in found(facts, OPEN_RULES)


def test_a_shard_without_rows_is_a_fault():
    facts = pack([3], [1])
    assert facts.manifest
    empty = tuple(array(f"shard-000001/{s.file}", s, 0) for s in ASD.streams)
    facts = facts._replace(shards=("shard-000000", "shard-000001"), arrays=(*facts.arrays, empty))
    assert ("R026", "shard-000001/index.json", None) in found(facts, OPEN_RULES)


def test_both_forms_of_a_file_have_the_right_size_and_no_other():
    facts = pack([3], [1])
    faces, rows = facts.arrays[0][0], ASD.stream("faces").row_bytes
    for size, right in ((faces.size, True), (128 + 64 * rows + 20, True), (faces.size + 1, False), (128 + 64 * rows, False)):
        sized = facts._replace(arrays=((faces._replace(size=size), *facts.arrays[0][1:]),))
        assert (found(sized, OPEN_RULES) == []) is right


@pytest.mark.parametrize("fps", [0.0, -1.0, float("nan"), float("inf"), 5e-324])
def test_rates_that_are_none(fps):
    rules = [rule for rule, _, row in found(pack([3, 4], [2], source_fps=[25.0, fps])) if row == 1]
    assert ("R023" in rules) is not (fps == 5e-324) and (fps != 5e-324 or "R024" in rules)


def test_differences_of_indexes_name_the_column_and_the_first_row():
    one, other = pack([3, 4], [2]).index, pack([3, 4], [2], start_sec=[0.0, 1.0]).index
    assert one and other
    assert list(differences(one, one)) == []
    assert list(differences(one, other)) == [("start_sec", 1, "0.0", "1.0")]
    assert list(differences(one, one.take(slice(0, 1)))) == [("", None, "2 rows", "1 rows")]
    renamed = index.Index({**one.columns, "sample_id": one.texts("dataset")}, one.shard)
    assert list(differences(one, renamed)) == [("sample_id", 0, "0", "ava")]
