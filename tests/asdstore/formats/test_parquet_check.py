"""Check on Parquet sets: one test for each rule that can be broken, all faults at once, exit codes and words."""
from __future__ import annotations

import json
import shutil
from typing import Any

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")
import pyarrow.parquet as pq  # noqa: E402

from asdstore import check as command  # noqa: E402
from asdstore.check import check  # noqa: E402
from asdstore.errors import FormatError  # noqa: E402
from asdstore.formats.parquet_check import RULES  # noqa: E402

PART = "split=train/language=deu_Latn/part-00000.parquet"


@pytest.fixture
def made(speech: Any) -> Any:
    rows = [row | {"language": ("deu_Latn", "fra_Latn")[n % 2]} for n, row in enumerate(speech.rows(8))]
    speech.report("--input", speech.parquet("a.parquet", rows), "--split", "train", "--rows-per-file", 3)
    speech.corpus = speech.root / "set/version=0/corpus=tones"
    return speech


def broken(speech: Any, deep: bool = False) -> list[str]:
    """The rules that check finds broken, each once."""
    return list(dict.fromkeys(fault.rule for fault in check(speech.root / "set", deep).packs[0].faults))


def foreign(speech: Any, path: str = "corpus=c/split=train/language=deu_Latn/a.parquet", rows: int = 3, **columns: Any) -> None:
    file = speech.root / "set/version=0" / path
    file.parent.mkdir(parents=True, exist_ok=True)
    whole = {"text": ["a", "b", "c"], "audio_bytes": pa.array([np.frombuffer(speech.tone(n), np.int8) for n in range(3)],
                                                              pa.list_(pa.int8())),
             "audio_size": pa.array([4000] * 3, pa.int64())} | columns
    pq.write_table(pa.table({name: column for name, column in whole.items() if column is not None}), file)


def edit(speech: Any, **changes: Any) -> None:
    """Changes the manifest's entry of PART."""
    path = speech.corpus / "_manifest.json"
    document = json.loads(path.read_text())
    next(entry for entry in document["files"] if entry["name"] == PART).update(changes)
    path.write_text(json.dumps(document))


def test_whole_sets_are_clean(made: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for deep in (False, True):
        report = check(made.root / "set", deep)
        assert report.exit_code == 0 and report.packs[0].faults == () and report.packs[0].sealed
        assert (report.packs[0].shards, report.packs[0].tracks) == (4, 8)
    assert command.main([str(made.root / "set"), "--deep"]) == 0
    assert capsys.readouterr().out.endswith("clean (Parquet set of 4 files, 8 utterances, sealed, every byte read)\n")
    foreign(made)
    assert check(made.root / "set").packs[0].faults == () and not check(made.root / "set").packs[0].sealed


@pytest.mark.parametrize(("file", "rule"), [("_manifest.json", "P001"), (PART, "P002"), (PART.replace("part-", "_part-")
                                                                              .replace(".parquet", ".rows.parquet"), "P002")])
def test_files_cut_short_or_lost(made: Any, file: str, rule: str) -> None:
    path = made.corpus / file
    data = path.read_bytes()
    path.write_bytes(data[:-20])
    assert broken(made) == [rule]
    path.unlink()
    assert rule in broken(made) or file == "_manifest.json"


def test_files_that_nobody_named(made: Any) -> None:
    shutil.copy(made.corpus / PART, made.corpus / PART.replace("00000", "00007"))
    assert broken(made) == ["P003"]
    assert check(made.root / "set").packs[0].faults[0].file.endswith("part-00007.parquet")


def test_damaged_files(made: Any) -> None:
    path = made.corpus / PART
    data = bytearray(path.read_bytes())
    data[-6] ^= 0xFF
    path.write_bytes(data)
    assert "P004" in broken(made)


def test_texts_of_other_bytes_than_utf8(made: Any) -> None:
    path = made.corpus / PART
    path.write_bytes(path.read_bytes().replace(b"clip c", b"clip \xff"))
    assert broken(made) == ["P004"]
    with pytest.raises(FormatError) as error:
        _ = made.open().texts
    assert error.value.kind == "parquet" and PART in str(error.value)


def test_companions_without_their_columns(made: Any) -> None:
    path = made.corpus / PART.replace("part-", "_part-").replace(".parquet", ".rows.parquet")
    path.write_bytes(path.read_bytes().replace(b"at", b"it"))
    assert broken(made) == ["P011"]
    with pytest.raises(FormatError) as error:
        _ = made.open()[0].audio_bytes
    assert error.value.kind == "companion"


@pytest.mark.parametrize(("columns", "rule"), [
    ({"audio_size": None}, "P005"), ({"text": [1, 2, 3]}, "P005"),
    ({"audio_bytes": pa.array([[1]] * 3, pa.list_(pa.uint8()))}, "P005"),
    ({"language": ["deu_Latn", "deu_Latn", "fra_Latn"]}, "P006"), ({"other": [1, 2, 3]}, "P007"),
    ({"text": ["a", None, "c"]}, "P009"), ({"audio_size": pa.array([4000, None, 4000], pa.int64())}, "P009"),
    ({"audio_size": pa.array([4000, 0, 4000], pa.int64())}, "P009"), ({"text": ["a", " ", "c"]}, "P010")])
def test_columns_of_other_programs(speech: Any, columns: dict, rule: str) -> None:
    foreign(speech, **columns)
    assert broken(speech) == [rule]


@pytest.mark.parametrize("path", ["corpus=c/split=train/language=nan/a.parquet",
                                  "corpus=c/split=dev_x/language=deu_Latn/a.parquet"])
def test_names_of_partitions(speech: Any, path: str) -> None:
    foreign(speech, path)
    assert broken(speech) == ["P010"] and check(speech.root / "set").exit_code == 0  # a warning


def test_row_groups_of_more_than_a_hundred(speech: Any) -> None:
    many = 150
    foreign(speech, text=["a"] * many, audio_size=pa.array([1] * many, pa.int64()),
            audio_bytes=pa.array([[1]] * many, pa.list_(pa.int8())))
    assert broken(speech) == ["P007"]


@pytest.mark.parametrize("changes", [{"rows": 2}, {"samples": 17}])
def test_counts_of_the_manifest(made: Any, changes: dict) -> None:
    edit(made, **changes)
    assert broken(made) == ["P008"]


def test_companions(made: Any) -> None:
    path = made.corpus / PART.replace("part-", "_part-").replace(".parquet", ".rows.parquet")
    table = pq.read_table(path)
    elsewhere = table.set_column(2, "at", pa.array([5] * len(table), pa.int64()))
    for wrong in (elsewhere, table.slice(1), table.rename_columns(list("abcd"))):
        pq.write_table(wrong, path)
        edit(made, rows_bytes=path.stat().st_size)
        assert broken(made) == ["P011"]


def test_every_altered_byte_is_found(made: Any) -> None:
    path = made.corpus / PART
    data = path.read_bytes()
    for at in range(0, len(data), 97):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1:])
        assert check(made.root / "set", deep=True).exit_code == 1, at
    path.write_bytes(data)
    assert check(made.root / "set", deep=True).exit_code == 0


def test_audio_is_decoded_when_asked(speech: Any) -> None:
    foreign(speech, audio_size=pa.array([4000, 3999, 4000], pa.int64()))
    assert broken(speech) == [] and broken(speech, deep=True) == ["P021"]
    fault, = check(speech.root / "set", deep=True).packs[0].faults
    assert (fault.row, fault.expected, fault.found) == (1, "audio_size 4000, as the audio is", "3999")
    foreign(speech, audio_bytes=pa.array([[1, 2], None, []], pa.list_(pa.int8())))
    assert [fault.rule for fault in check(speech.root / "set", deep=True).packs[0].faults] == ["P009", "P021", "P021"]


def test_all_faults_at_once_and_in_order(made: Any, capsys: pytest.CaptureFixture[str]) -> None:
    (made.corpus / PART).unlink()
    foreign(made, text=["a", None, ""])
    foreign(made, "corpus=d/split=train/language=eng_Latn/a.parquet", audio_size=None)
    assert broken(made) == ["P002", "P005", "P009", "P010"]
    assert command.main([str(made.root / "set"), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)["packs"][0]
    assert [fault["rule"] for fault in told["faults"]] == ["P002", "P005", "P009", "P010"] and told["what"] == "Parquet set"
    assert command.main([str(made.root / "set")]) == 1
    assert "P009 MUST: No value is null" in capsys.readouterr().out


def test_what_cannot_be_judged_is_unreadable(speech: Any) -> None:
    for version in (0, 1):
        (speech.root / f"set/version={version}").mkdir(parents=True)
    assert check(speech.root / "set").exit_code == 3
    (speech.root / "set/version=1").rmdir()
    assert check(speech.root / "set").exit_code == 3


def test_rules_are_numbered_once() -> None:
    assert len({rule.id for rule in RULES}) == len(RULES) and {rule.level for rule in RULES} == {"MUST", "SHOULD"}
