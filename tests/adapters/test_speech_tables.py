"""Tables and folders as sources of speech: where their files are found, and which columns are what."""
from __future__ import annotations

from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
import pyarrow.parquet as pq  # noqa: E402

ENGLISH = ("--language", "eng_Latn", "--split", "train")


def texts(found: Any) -> list[str]:
    return list(found.texts)


def test_a_folder_is_found_from_where_the_program_runs(speech: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (speech.root / "clips").mkdir(parents=True)
    (speech.root / "clips/a.wav").write_bytes(speech.tone())
    (speech.root / "clips/a.txt").write_text("One")
    monkeypatch.chdir(speech.root)
    speech.report("--input", "clips", *ENGLISH)
    assert texts(speech.open()) == ["one"]


@pytest.mark.parametrize("table", ["sound\tsaid\tid\na.wav\tOne\tx\n", '{"sound": "a.wav", "said": "One", "id": "x"}\n'])
def test_columns_of_tables_by_any_name(speech: Any, table: str) -> None:
    speech.root.mkdir()
    (speech.root / "a.wav").write_bytes(speech.tone())
    path = speech.root / ("t.jsonl" if table[0] == "{" else "t.tsv")
    path.write_text(table)
    assert speech.faults("--input", path, *ENGLISH, "--audio-column", "voice")[0]["kind"] == "column"
    speech.report("--input", path, *ENGLISH, "--audio-column", "sound", "--text-column", "said")
    assert [(one.text, one.id) for one in speech.open()] == [("one", "x")]
    path.write_text(table.replace("sound", "audio").replace("said", "raw_transcription"))
    speech.report("--input", path, *ENGLISH, "--preset", "fleurs", output="preset")
    assert [(one.text, one.id) for one in speech.open("preset")] == [("one", "a")]  # numbers of sentences are no ids of clips


@pytest.mark.parametrize(("column", "cells"), [("audio", [[1, 2]]), ("text", [["a"]]), ("language", [["eng_Latn"]])])
def test_columns_of_other_types_name_the_file(speech: Any, column: str, cells: list) -> None:
    speech.root.mkdir()
    table = pa.table({"audio": [speech.tone()], "text": ["a"], "language": ["eng_Latn"]} | {column: cells})
    pq.write_table(table, speech.root / "a.parquet")
    fault, = speech.faults("--input", speech.root / "a.parquet", "--split", "train")
    assert fault["file"].endswith("a.parquet") and column in fault["cure"] + fault["expected"] and "list" in fault["found"]


def test_columns_that_disagree_with_the_path(speech: Any) -> None:
    rows = [row | {"split": "validation", "language": "jpn_Jpan"} for row in speech.rows(3)]
    speech.parquet("in/split=dev/language=jpn_Jpan/x.parquet", rows)
    rows[1]["language"] = "deu_Latn"
    path = speech.parquet("in/split=dev/language=jpn_Jpan/y.parquet", rows)
    fault, = speech.faults("--input", speech.root / "in")
    assert (fault["kind"], fault["row"], fault["found"]) == ("partition", 1, "'deu_Latn' in 1 rows")
    assert fault["file"].endswith("y.parquet") and "'jpn_Jpan', as its path says" in fault["expected"]
    path.unlink()
    assert speech.report("--input", speech.root / "in")["utterances"] == 3


@pytest.mark.parametrize("old", [b"Hello 1", b"text"])
@pytest.mark.parametrize("arrow", [False, True])
def test_bytes_that_are_no_texts(speech: Any, old: bytes, arrow: bool) -> None:
    speech.root.mkdir()
    path = speech.root / ("a.arrow" if arrow else "a.parquet")
    table = pa.table({"audio": [speech.tone()] * 2, "text": ["Hello 1", "Hello 2"]})
    if arrow:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
            stream.write_table(table)
    else:
        pq.write_table(table, path, compression="none", store_schema=False)
    path.write_bytes(path.read_bytes().replace(old, old[:-1] + b"\xff"))
    fault, = speech.faults("--input", path, *ENGLISH)
    assert fault["kind"] in ("parquet", "column") and fault["file"] == str(path)


def test_offsets_beyond_the_data(speech: Any) -> None:
    speech.root.mkdir()
    path = speech.root / "a.arrow"
    table = pa.table({"audio": [speech.tone()] * 3, "text": ["one", "two", "three"]})
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table)
    offsets = b"".join(n.to_bytes(4, "little") for n in (0, 3, 6, 11))
    assert offsets in path.read_bytes()
    path.write_bytes(path.read_bytes().replace(offsets, offsets[:4] + b"\xff\xff\xff\x7f" + offsets[8:]))
    assert speech.faults("--input", path, *ENGLISH)[0]["kind"] == "parquet"  # Arrow itself would crash
