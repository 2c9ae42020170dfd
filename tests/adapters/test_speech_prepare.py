"""`prepare speech`: every kind of source gives the documented set, the same bytes from any workers and after any stop."""
from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

pa = pytest.importorskip("pyarrow")
import pyarrow.parquet as pq  # noqa: E402

from adapters import prepare  # noqa: E402
from asdstore import testing  # noqa: E402
from asdstore.errors import StoreError  # noqa: E402
from asdstore.testing import digests  # noqa: E402

ENGLISH = ("--language", "eng_Latn", "--split", "train")
REPOSITORY = Path(__file__).resolve().parents[2]


def texts(found: Any) -> list[str]:
    return list(found.texts)


# ---- what is written

def test_the_documented_set(speech: Any) -> None:
    source = speech.parquet("a.parquet", speech.rows(230, language="deu_Latn", split="train") + speech.rows(
        7, language="fra_Latn", split="dev"))
    report = speech.report("--input", source)
    assert report["utterances"] == 237 and report["left_out"] == {} and report["files"] == 2
    found = speech.root / "set/version=0/corpus=tones"
    path = found / "split=train/language=deu_Latn/part-00000.parquet"
    file = pq.ParquetFile(path)
    assert str(file.schema_arrow).splitlines()[:4] == [
        "text: string", "audio_bytes: list<element: int8>", "  child 0, element: int8", "audio_size: int64"]
    assert [file.metadata.row_group(n).num_rows for n in range(3)] == [100, 100, 30]
    table = pq.ParquetDataset(speech.root / "set/version=0").read()
    assert table.schema.names == ["text", "audio_bytes", "audio_size", "corpus", "split", "language"]
    texts = pa.dictionary(pa.int32(), pa.string())
    assert {table.schema.field(name).type for name in ("corpus", "split", "language")} == {texts}
    assert table["audio_size"].to_pylist() == [1000 + 100 * n for n in (*range(7), *range(230))]
    assert Counter(zip(table["split"].to_pylist(), table["language"].to_pylist(), strict=True)) == {
        ("train", "deu_Latn"): 230, ("dev", "fra_Latn"): 7}


def test_utterances_are_what_they_were(speech: Any) -> None:
    rows = speech.rows(5, language="deu_Latn", split="train")
    speech.report("--input", speech.parquet("a.parquet", rows))
    found = speech.open()
    assert [one.text for one in found] == ["clip a", "clip b", "clip c", "clip d", "clip e"]
    assert [one.id for one in found] == [f"clip{n}" for n in range(5)]
    assert [one.speaker for one in found] == ["s0", "s1", "s2", "s0", "s1"]
    for one, row in zip(found, rows, strict=True):
        wave, _ = soundfile.read(io.BytesIO(row["audio"]["bytes"]), dtype="int16")
        assert np.array_equal(one.audio, wave) and one.audio_size == len(wave)
        data, rate = soundfile.read(io.BytesIO(one.audio_bytes), dtype="int16")
        assert rate == 16000 and np.array_equal(data, wave) and one.audio_bytes[:4] == b"fLaC"


@pytest.mark.parametrize("flags", [(), ("--keep-case",), ("--rules", "none"), ("--rules", "unicode"), ("--keep-numbers",),
                                   ("--remove-brackets",)])
def test_text_options(speech: Any, flags: tuple[str, ...]) -> None:
    source = speech.parquet("a.parquet", [speech.rows(1)[0] | {"text": "Ein, Zwei 3 (vier) #5"}])
    speech.report("--input", source, "--language", "deu_Latn", "--split", "train", *flags)
    expected = {(): "ein zwei vier #5", ("--keep-case",): "Ein Zwei vier #5", ("--rules", "none"): "Ein, Zwei 3 (vier) #5",
                ("--rules", "unicode"): "ein zwei vier", ("--keep-numbers",): "ein zwei 3 vier #5",
                ("--remove-brackets",): "ein zwei #5"}
    assert texts(speech.open()) == [expected[flags]]
    manifest = json.loads((speech.root / "set/version=0/corpus=tones/_manifest.json").read_text())
    assert manifest["text"]["rules"] == (flags[1] if flags[:1] == ("--rules",) else "omnilingual")


@pytest.mark.parametrize(("audio_format", "magic"), [("flac", b"fLaC"), ("ogg", b"OggS"), ("wav", b"RIFF")])
def test_audio_formats_are_the_same_bytes_each_time(speech: Any, audio_format: str, magic: bytes) -> None:
    source = speech.parquet("a.parquet", speech.rows(4))
    for name in ("one", "two"):
        speech.report("--input", source, *ENGLISH, "--audio-format", audio_format, output=name)
    assert digests(speech.root / "one") == digests(speech.root / "two")
    assert all(one.audio_bytes[:4] == magic and len(one.audio) == one.audio_size for one in speech.open("one"))


# ---- sources

def test_save_to_disk_folders(speech: Any) -> None:
    datasets = pytest.importorskip("datasets")
    rows = speech.rows(5, language="deu_Latn")

    def saved(part: list[dict]) -> Any:
        return datasets.Dataset(pa.Table.from_pylist(part)).cast_column("audio", datasets.Audio(decode=False))

    saved(rows).save_to_disk(speech.root / "one", num_shards=2)
    speech.report("--input", speech.root / "one", "--split", "train", output="from_one")
    assert texts(speech.open("from_one")) == [f"clip {letter}" for letter in "abcde"]
    datasets.DatasetDict({"train": saved(rows[:3]), "validation": saved(rows[3:])}).save_to_disk(speech.root / "both")
    speech.report("--input", speech.root / "both", output="from_both")
    found = speech.open("from_both")
    assert [(one.split, one.text) for one in found] == [
        ("dev", "clip d"), ("dev", "clip e"), ("train", "clip a"), ("train", "clip b"), ("train", "clip c")]


@pytest.mark.parametrize("kind", ["tsv", "csv", "jsonl"])
def test_tables_of_files(speech: Any, kind: str) -> None:
    speech.root.mkdir()
    for n in range(3):
        (speech.root / f"clip{n}.flac").write_bytes(speech.tone(n, kind="FLAC"))
    names = {"tsv": ("path", "sentence", "locale"), "csv": ("audio", "text", "language"),
             "jsonl": ("audio_filepath", "text", "lang")}
    rows = [dict(zip(names[kind], (f"clip{n}.flac", f'Say "{n}" a, b', "deu_Latn"), strict=True)) for n in range(3)]
    path = speech.root / f"table.{kind}"
    if kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif kind == "csv":
        path.write_text(",".join(names[kind]) + "\n" + "".join(
            f'{row["audio"]},"Say ""{n}"" a, b",deu_Latn\n' for n, row in enumerate(rows)))
    else:
        path.write_text("\t".join(names[kind]) + "\n" + "".join("\t".join(row.values()) + "\n" for row in rows))
    speech.report("--input", f"train={path}")
    found = speech.open()
    assert texts(found) == ["say a b"] * 3 and [one.id for one in found] == ["clip0", "clip1", "clip2"]
    assert {one.split for one in found} == {"train"} and {one.audio_size for one in found} == {4000}


def test_a_folder_of_audio_with_transcripts_beside_it(speech: Any) -> None:
    folder = speech.root / "clips"
    for n, name in enumerate(("b/two", "a/one", "a/three")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.wav").write_bytes(speech.tone(n))
        if name != "a/three":
            (folder / f"{name}.txt").write_text(f"The {name[2:]}.\n", encoding="utf-8")
    (folder / "a/.hidden.wav").write_bytes(b"junk")
    report = speech.report("--input", folder, *ENGLISH)
    assert texts(speech.open()) == ["the one", "the two"]
    assert report["left_out"] == {"text-null": 1} and report["rejected"][0]["id"] == "three"


def test_a_folder_with_a_metadata_table(speech: Any) -> None:
    folder = speech.root / "clips"
    folder.mkdir(parents=True)
    (folder / "x.wav").write_bytes(speech.tone())
    (folder / "metadata.jsonl").write_text('{"file_name": "x.wav", "transcription": "Hello", "speaker_id": 7}\n')
    speech.report("--input", folder, *ENGLISH)
    one, = speech.open()
    assert (one.text, one.speaker, one.id) == ("hello", "7", "x")


def test_splits_and_languages_are_told_by_paths(speech: Any) -> None:
    rows = [row | {"raw_transcription": row["text"], "transcription": "no"} for row in speech.rows(2)]
    for config, file in (("de_de", "train-00000-of-00001"), ("de_de", "validation-00000-of-00001"), ("fr_fr", "test/0000")):
        speech.parquet(f"fleurs/{config}/{file}.parquet", rows)
    report = speech.report("--preset", "fleurs", "--input", speech.root / "fleurs", corpus="fleurs")
    assert [(one["split"], one["language"]) for one in report["partitions"]] == [
        ("dev", "deu_Latn"), ("test", "fra_Latn"), ("train", "deu_Latn")]
    assert texts(speech.open())[:2] == ["clip a", "clip b"]


def test_presets_by_their_folders(speech: Any) -> None:
    rows = [{"audio": row["audio"], "transcript": row["text"], "speaker_id": 4, "id": f"4_5_{n}"}
            for n, row in enumerate(speech.rows(2))]
    for config in ("german", "polish", "portuguese"):
        speech.parquet(f"mls/data/mls_{config}/dev-0.parquet", rows)
    report = speech.report("--preset", "mls", "--short", "--input", speech.root / "mls")
    assert [one["language"] for one in report["partitions"]] == ["pol_Latn", "por_Latn"]
    assert [(one.id, one.speaker) for one in speech.open()][:2] == [("4_5_0", "4"), ("4_5_1", "4")]


def test_a_hive_partitioned_source(speech: Any) -> None:
    speech.parquet("in/split=dev/language=jpn_Jpan/x.parquet", speech.rows(2))
    speech.report("--input", speech.root / "in")
    assert {(one.split, one.language) for one in speech.open()} == {("dev", "jpn_Jpan")}


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.list_(pa.int8()), pa.string()])
def test_every_type_of_audio_column(speech: Any, kind: Any) -> None:
    speech.root.mkdir()
    (speech.root / "a.wav").write_bytes(speech.tone())
    cell: Any = speech.tone()
    if kind == pa.string():
        cell = str(speech.root / "a.wav")
    elif kind == pa.list_(pa.int8()):
        cell = np.frombuffer(cell, np.int8)
    pq.write_table(pa.table({"audio": pa.array([cell], kind), "text": ["Hello"]}), speech.root / "a.parquet")
    speech.report("--input", speech.root / "a.parquet", *ENGLISH)
    assert speech.open()[0].audio_size == 4000


def test_a_set_as_a_source(speech: Any) -> None:
    speech.report("--input", speech.parquet("a.parquet", speech.rows(5)), *ENGLISH, "--rules", "none")
    speech.report("--input", speech.root / "set/version=0/corpus=tones", output="again", corpus="tones")
    one, other = speech.open(), speech.open("again")
    assert texts(other) == [f"clip {letter}" for letter in "abcde"] and texts(one)[0] == "Clip a!"
    assert all(np.array_equal(a.audio, b.audio) for a, b in zip(one, other, strict=True))
    assert {(two.split, two.language) for two in other} == {("train", "eng_Latn")}


def test_several_inputs_each_with_its_split(speech: Any) -> None:
    a, b = (speech.parquet(f"{name}.parquet", speech.rows(2, first)) for name, first in (("x", 0), ("y", 2)))
    speech.report("--input", f"train={a}", "--input", f"test={b}", "--language", "eng_Latn")
    assert [(one.split, one.id) for one in speech.open()] == [
        ("test", "clip2"), ("test", "clip3"), ("train", "clip0"), ("train", "clip1")]


# ---- the plan

def order(speech: Any, *arguments: Any) -> list[str]:
    name = f"set{len(list(speech.root.iterdir()))}"
    speech.report("--input", speech.root / "a.parquet", *ENGLISH, *arguments, output=name)
    return [one.id for one in speech.open(name)]


def test_shuffling_within_windows(speech: Any) -> None:
    speech.parquet("a.parquet", speech.rows(40))
    plain = order(speech)
    shuffled = order(speech, "--shuffle-window", 10)
    assert shuffled != plain and all(sorted(shuffled[n:n + 10]) == sorted(plain[n:n + 10]) for n in range(0, 40, 10))
    assert order(speech, "--shuffle-window", 10) == shuffled != order(speech, "--shuffle-window", 10, "--seed", 1)
    assert order(speech, "--rows-per-file", 5, "--shuffle-window", 40) == order(speech, "--shuffle-window", 40)


def test_rows_of_a_file(speech: Any) -> None:
    speech.parquet("a.parquet", speech.rows(23))
    report = speech.report("--input", speech.root / "a.parquet", *ENGLISH, "--rows-per-file", 10)
    assert report["files"] == 3
    found = speech.open()
    assert np.diff(found.first).tolist() == [10, 10, 3]
    assert [one.id for one in found] == [f"clip{n}" for n in range(23)]


def test_interleaved_partitions_from_many_row_groups(speech: Any) -> None:
    rows = [row | {"language": ("deu_Latn", "fra_Latn", "eng_Latn")[n * n % 3], "split": ("train", "test")[n % 2]}
            for n, row in enumerate(speech.rows(50))]
    speech.report("--input", speech.parquet("a.parquet", rows, group=7), "--rows-per-file", 4)
    found = speech.open()
    assert len(found) == 50
    by_id = {f"clip{n}": row for n, row in enumerate(rows)}
    assert all((by_id[one.id]["language"], by_id[one.id]["split"]) == (one.language, one.split) for one in found)
    for (_, _), group in {(one.language, one.split): [two.id for two in found if (two.language, two.split) == (
            one.language, one.split)] for one in found}.items():
        assert group == sorted(group, key=lambda name: int(name[4:]))


@pytest.mark.parametrize("shuffle", [0, 6])
def test_any_number_of_workers_writes_the_same_bytes(speech: Any, shuffle: int) -> None:
    rows = [row | {"language": ("deu_Latn", "fra_Latn")[n % 2]} for n, row in enumerate(speech.rows(30))]
    rows[7]["audio"] = {"bytes": b"garbage", "path": None}  # the report is of the same bytes, too
    source = speech.parquet("a.parquet", rows)
    for workers in (1, 2, 3):
        speech.report("--input", source, "--split", "train", "--rows-per-file", 6, "--shuffle-window", shuffle,
                      "--workers", workers, output=f"by{workers}")
    assert digests(speech.root / "by1") == digests(speech.root / "by2") == digests(speech.root / "by3")


def test_a_second_corpus_and_a_corpus_that_is_there(speech: Any) -> None:
    source = speech.parquet("a.parquet", speech.rows(3))
    speech.report("--input", source, *ENGLISH)
    before = digests(speech.root / "set")
    speech.report("--input", source, *ENGLISH, corpus="other")
    assert {one.corpus for one in speech.open()} == {"tones", "other"}
    code, _, err = speech.prepare("--input", source, *ENGLISH)
    assert code == 2 and "overwrite" in err
    assert before.items() <= digests(speech.root / "set").items()
    speech.report("--input", source, *ENGLISH, "--keep-case", "--overwrite")
    assert [one.text for one in speech.open() if one.corpus == "tones"][0] == "Clip a"


def test_dry_run_writes_nothing(speech: Any) -> None:
    source = speech.parquet("a.parquet", speech.rows(3))
    code, out, _ = speech.prepare("--input", source, *ENGLISH, "--dry-run", "--json")
    assert code == 0 and json.loads(out)["partitions"] == [{"split": "train", "language": "eng_Latn", "rows": 3}]
    assert not (speech.root / "set").exists()


# ---- bad input

def test_what_cannot_be_used_is_left_out_and_named(speech: Any) -> None:
    nan, claim = io.BytesIO(), bytearray(speech.tone())
    soundfile.write(nan, np.array([0, np.nan, 0], np.float32), 16000, format="WAV", subtype="FLOAT")
    claim[40:44] = (0x7FFFFFFF).to_bytes(4, "little")
    good = speech.rows(1)[0]
    cells = {"corrupt": b"garbage", "cut": speech.tone(kind="FLAC")[:90], "empty": speech.tone(0, 0), "nan": nan.getvalue(),
             "null": None, "nothing": b"", "claims": bytes(claim), "good": speech.tone()}
    rows = [good | {"audio": {"bytes": data, "path": f"{name}.wav"}} for name, data in cells.items()]
    rows += [good | {"text": text, "audio": {"bytes": speech.tone(), "path": f"{name}.wav"}}
             for name, text in (("no text", None), ("blank", "  "), ("digits", "(1) 23 4!"))]
    report = speech.report("--input", speech.parquet("a.parquet", rows), *ENGLISH)
    assert [one.id for one in speech.open()] == ["claims", "good"]
    assert {one["id"]: one["why"] for one in report["rejected"]} == {
        "corrupt": "audio-corrupt", "cut": "audio-corrupt", "nothing": "audio-empty", "empty": "audio-empty",
        "nan": "audio-nan", "null": "audio-missing", "no text": "text-null", "blank": "text-empty", "digits": "text-empty"}
    assert sum(report["left_out"].values()) == 9 and report["utterances"] == 2
    assert report["notes"]["audio_header_wrong"][0].startswith("claims: 1073741823 samples claimed, 4000 decoded")
    table = pq.ParquetDataset(speech.root / "set/version=0").read()
    assert all(column.null_count == 0 for column in table.columns)


def test_nothing_left_is_an_error(speech: Any) -> None:
    rows = [row | {"audio": {"bytes": b"x", "path": None}} for row in speech.rows(3)]
    fault, = speech.faults("--input", speech.parquet("a.parquet", rows), *ENGLISH)
    assert fault["kind"] == "no-rows" and "audio-corrupt" in fault["cure"]


def test_every_unknown_language_and_split_is_reported_at_once(speech: Any) -> None:
    rows = [row | {"language": language, "split": split} for row, language, split in zip(
        speech.rows(7), ("de", "eng_Latn", "nan", "xnb_Latn", None, "de", "deu_Latn"),
        ("train", "train_clean", "dev", "train", "train", "train", ""), strict=True)]
    faults = speech.faults("--input", speech.parquet("a.parquet", rows))
    assert [(fault["kind"], fault["row"], fault["found"], fault["cure"][:22]) for fault in faults] == [
        ("language", 0, "'de' in 2 rows", "Did you mean deu_Latn?"), ("split", 1, "'train_clean'", "Name it with --split; "),
        ("language", 2, "'nan'", "Did you mean nan_Latn?"), ("language", 3, "'xnb_Latn'", "Did you mean xtn_Latn "),
        ("language", 4, "null", ""), ("split", 6, "''", "Name it with --split; ")]


def test_a_language_called_nan_is_a_text(speech: Any) -> None:
    rows = [row | {"language": "nan"} for row in speech.rows(2)]
    speech.report("--input", speech.parquet("a.parquet", rows), "--split", "train", "--any-language")
    found = speech.open()
    assert [one.language for one in found] == ["nan", "nan"] and found.index["language"].tolist() == ["nan", "nan"]
    assert len(found.select(language="nan")) == 2


@pytest.mark.parametrize("keep", [0.5, 0.99, 4])
def test_a_parquet_file_cut_short(speech: Any, keep: float) -> None:
    good, path = speech.parquet("a.parquet", speech.rows(5)), speech.parquet("b.parquet", speech.rows(5))
    data = path.read_bytes()
    path.write_bytes(data[:keep if keep > 1 else round(len(data) * keep)])  # type: ignore[misc]
    fault, = speech.faults("--input", good, "--input", path, *ENGLISH)
    assert fault["kind"] == "parquet" and fault["file"] == str(path)


def test_a_parquet_file_with_a_damaged_page(speech: Any) -> None:
    path = speech.parquet("a.parquet", speech.rows(40))
    data = bytearray(path.read_bytes())
    data[200:2000] = bytes(1800)
    path.write_bytes(data)
    code, out, _ = speech.prepare("--input", path, *ENGLISH, "--json")
    found = json.loads(out)
    if code == 0:
        assert found["left_out"]
    else:
        assert found["faults"][0]["kind"] == "parquet" and found["faults"][0]["file"] == str(path)
        assert not list((speech.root / "set/version=0").glob("corpus=*"))


@pytest.mark.parametrize(("text", "kind"), [
    ("", "table"), ("audio\ttext\n", "table"), ("audio\ttext\ttext\na.wav\ta\tb\n", "table"),
    ("audio\ttext\na.wav\n", "table"), ("sound\ttext\na.wav\tb\n", "column"),
    ("audio\twords\na.wav\tb\n", "column"), ("audio\ttext\na.wav\t\udcff\n", "table")])
def test_bad_tables(speech: Any, text: str, kind: str) -> None:
    speech.root.mkdir()
    (speech.root / "t.tsv").write_text(text, errors="surrogateescape")
    fault, = speech.faults("--input", speech.root / "t.tsv", *ENGLISH)
    assert fault["kind"] == kind and fault["file"].endswith("t.tsv")


@pytest.mark.parametrize("line", ["{", "[]", '{"a": 1, "a": 2}', '{"a": NaN}', "[" * 5000])
def test_bad_json_lines(speech: Any, line: str) -> None:
    speech.root.mkdir()
    (speech.root / "t.jsonl").write_text('{"audio": "a.wav", "text": "b"}\n' + line + "\n")
    fault, = speech.faults("--input", speech.root / "t.jsonl", *ENGLISH)
    assert (fault["kind"], fault["row"]) == ("table", 2)


def test_what_is_missing_is_said(speech: Any) -> None:
    source = speech.parquet("a.parquet", speech.rows(2))
    assert speech.faults("--input", source, "--split", "train")[0]["cure"] == "Say it with --language, or --language-column."
    assert speech.faults("--input", source, "--language", "eng_Latn")[0]["kind"] == "split"
    assert speech.faults("--input", source, *ENGLISH, "--text-column", "words")[0]["kind"] == "column"
    code, _, err = speech.prepare(*ENGLISH)
    assert code == 2 and "--input, --hub or --preset" in err
    code, _, err = speech.prepare("--input", speech.root / "nowhere", *ENGLISH)
    assert code == 3 and "nowhere" in err
    for bad in (("--rows-per-file", 0), ("--shuffle-window", -1), ("--dataset-version", "../1")):
        assert speech.prepare("--input", source, *ENGLISH, *bad)[0] == 2
    assert prepare.main(["speech", "--input", str(source)]) == 2
    (speech.root / "odd.xyz").write_bytes(b"")
    assert speech.faults("--input", speech.root / "odd.xyz", *ENGLISH)[0]["kind"] == "source"


def test_missing_audio_files_are_left_out_by_name(speech: Any) -> None:
    speech.root.mkdir()
    (speech.root / "a.wav").write_bytes(speech.tone())
    (speech.root / "t.tsv").write_text("audio\ttext\na.wav\tone\nb.wav\ttwo\n")
    report = speech.report("--input", speech.root / "t.tsv", *ENGLISH)
    rejected, = report["rejected"]
    assert (rejected["id"], rejected["why"], rejected["row"]) == ("b", "audio-missing", 2)
    assert rejected["file"].endswith("b.wav")


# ---- disks and workers that fail

def ingest(speech: Any, source: Path, output: str) -> int:
    return speech.prepare("--input", source, *ENGLISH, "--rows-per-file", 4, "--shuffle-window", 4, output=output)[0]


@pytest.mark.parametrize("fault", ["disk-full", "io", "short-write", "interrupt"])
def test_a_disk_that_fails_at_any_operation_leaves_nothing_half_written(speech: Any, fault: str) -> None:
    source = speech.parquet("a.parquet", speech.rows(6))
    with testing.faults() as trace:
        assert ingest(speech, source, "whole") == 0
    expected = digests(speech.root / "whole")
    for at in range(0, len(trace), 7):
        output = f"set{at}"
        with testing.faults(fault, at):
            code = ingest(speech, source, output)
        target = speech.root / output / "version=0/corpus=tones"
        if code == 0:
            assert digests(speech.root / output) == expected
        else:
            assert code == 3 and fault in ("disk-full", "io")
            assert not target.exists() or digests(target) == digests(speech.root / "whole/version=0/corpus=tones")
        assert ingest(speech, source, output) in (0, 2)  # 2: it was in its place already
        assert {k: v for k, v in digests(speech.root / output).items() if "/." not in k and not k.startswith(".")} == expected


def test_a_full_disk_is_said(speech: Any) -> None:
    source = speech.parquet("a.parquet", speech.rows(6))
    with testing.faults("disk-full", 30, lasting=True):
        code, _, err = speech.prepare("--input", source, *ENGLISH)
    assert code == 3 and "disk-full" in err and "Free some space" in err


def test_a_run_that_was_stopped_goes_on(speech: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from adapters.speech import ingest as module

    source = speech.parquet("a.parquet", speech.rows(20))
    arguments = ("--input", source, *ENGLISH, "--rows-per-file", 5)
    speech.report(*arguments, output="whole")
    real, done = module.write_part, []

    def stop_at_third(task: Any, heard: Any) -> Any:
        if len(done) == 2:
            raise StoreError("io", file="x", expected="a disk", found="none")
        done.append(task.number)
        return real(task, heard)

    monkeypatch.setattr(module, "write_part", stop_at_third)
    assert speech.prepare(*arguments)[0] == 3
    assert not list((speech.root / "set/version=0").glob("corpus=*"))
    monkeypatch.setattr(module, "write_part", lambda task, heard: done.append(task.number) or real(task, heard))
    speech.report(*arguments)
    assert done == [0, 1, 2, 3]  # what was finished was not done again
    assert digests(speech.root / "set") == digests(speech.root / "whole")


def test_a_mended_source_is_read_again(speech: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from adapters.speech import ingest as module

    speech.root.mkdir()
    for n in range(4):
        (speech.root / f"{n}.wav").write_bytes(speech.tone(n) if n else b"broken")
    (speech.root / "t.tsv").write_text("audio\ttext\n" + "".join(f"{n}.wav\tword {'abcd'[n]}\n" for n in range(4)))
    arguments = ("--input", speech.root / "t.tsv", *ENGLISH, "--rows-per-file", 2)

    def stop(*_: Any) -> None:
        raise StoreError("io", file="x", expected="a disk", found="none")

    monkeypatch.setattr(module, "_finish", stop)
    assert speech.prepare(*arguments)[0] == 3
    monkeypatch.undo()
    (speech.root / "0.wav").write_bytes(speech.tone())
    assert speech.report(*arguments)["utterances"] == 4


def test_a_killed_worker_costs_its_part_only(speech: Any, tmp_path: Path) -> None:
    source = speech.parquet("a.parquet", speech.rows(20))
    speech.report("--input", source, *ENGLISH, "--rows-per-file", 5, output="whole")
    arguments = ["speech", "--output", str(speech.root / "set"), "--corpus", "tones", "--input", str(source), *ENGLISH,
                 "--rows-per-file", "5", "--workers", "2"]
    code = f"""
import os, signal, sys
from adapters.speech import parts
real = parts._converted
def once(row, *more):
    if row.id == "clip7" and not os.path.exists({str(tmp_path / 'killed')!r}):
        open({str(tmp_path / 'killed')!r}, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return real(row, *more)
parts._converted = once
if __name__ == "__main__":
    from adapters import prepare
    sys.exit(prepare.main({arguments!r}))
"""
    (tmp_path / "run.py").write_text(code)
    done = subprocess.run([sys.executable, str(tmp_path / "run.py")], capture_output=True, text=True, timeout=120,
                          env=os.environ | {"PYTHONPATH": str(REPOSITORY)})
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "killed").exists() and "was killed by SIGKILL" in done.stderr
    assert digests(speech.root / "set") == digests(speech.root / "whole")


def test_memory_does_not_grow_with_the_corpus(speech: Any) -> None:
    def peak(name: str, rows: int) -> int:
        """Kilobytes of a process that prepares so many clips of 0.7 MB."""
        wave = np.random.default_rng(0).normal(0, 0.1, 350_000)
        file = io.BytesIO()
        soundfile.write(file, wave, 16000, format="WAV")
        clips = [file.getvalue()[:-n - 1] + bytes(n + 1) for n in range(rows)]
        listed = [{"audio": {"bytes": clip, "path": None}, "text": "a"} for clip in clips]
        source = speech.parquet(f"{name}.parquet", listed, group=10)
        code = f"""
from adapters import prepare
assert prepare.main({['speech', '--input', str(source), *ENGLISH, '--corpus', 'x', '--output', str(speech.root / name),
                     '--shuffle-window', '50']!r}) == 0
print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])
"""
        return int(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=120,
                                  env=os.environ | {"PYTHONPATH": str(REPOSITORY)}).stdout.split()[-1])

    assert peak("large", 200) < peak("small", 20) + 40_000  # 140 MB beside 14


def test_without_arrow_the_package_is_named(speech: Any) -> None:
    code = f"""
import sys
sys.modules["pyarrow"] = None
from adapters import prepare
sys.exit(prepare.main({['speech', '--input', 'x', '--corpus', 'x', '--output', str(speech.root / 'set')]!r}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120,
                          env=os.environ | {"PYTHONPATH": str(REPOSITORY)})
    assert done.returncode == 1 and "pip install 'asdstore[speech]'" in done.stderr


def test_two_writers_of_one_corpus(speech: Any) -> None:
    from asdstore import files

    source = speech.parquet("a.parquet", speech.rows(2))
    (speech.root / "set/version=0").mkdir(parents=True)
    with files.lock(speech.root / "set/version=0/.corpus=tones.lock"):
        code, _, err = speech.prepare("--input", source, *ENGLISH)
    assert code == 3 and "another process" in err


# ---- real clips

@pytest.mark.parametrize("kind", ["WAV", "FLAC", "OGG", "MP3", "OPUS"])
def test_real_clips_in_every_format_rate_and_channel_count(speech: Any, shared: Path, kind: str) -> None:
    soxr, signal = pytest.importorskip("soxr"), pytest.importorskip("scipy.signal")
    listed = [row for row in json.loads((shared / "data/speech/manifest.json").read_text()) if row["transcript"]]
    assert len({row["language"] for row in listed}) == 7
    rows: list[dict] = [{"audio": {"bytes": os.urandom(5000), "path": "garbage.bin"}, "text": "x", "language": "eng_Latn"}]
    expected = {}
    for n, row in enumerate(listed):
        rate, channels = (8000, 16000, 48000 if kind == "OPUS" else 44100, 48000)[n % 4], 1 + n // 4 % 2
        wave, was = soundfile.read(shared / "data/speech" / row["file"], dtype="float32", always_2d=True)
        mono, file = soxr.resample(wave.mean(axis=1), was, rate)[:rate * 4], io.BytesIO()
        soundfile.write(file, np.stack([mono] * channels, axis=1), rate, format="OGG" if kind == "OPUS" else kind,
                        subtype="OPUS" if kind == "OPUS" else None)
        file.seek(0)
        decoded, real_rate = soundfile.read(file, always_2d=True)
        expected[Path(row["file"]).stem] = signal.resample_poly(decoded.mean(axis=1), 16000, real_rate)
        rows.append({"audio": {"bytes": file.getvalue(), "path": row["file"]}, "text": row["transcript"],
                     "language": row["language"]})
    report = speech.report("--input", speech.parquet("a.parquet", rows), "--split", "test", "--rules", "none")
    assert [one["id"] for one in report["rejected"]] == ["garbage"]
    found = {one.id: one for one in speech.open()}
    assert set(found) == set(expected)
    for row in listed:
        one, law = found[Path(row["file"]).stem], expected[Path(row["file"]).stem]
        assert (one.text, one.language) == (row["transcript"], row["language"])
        assert one.audio_size == len(one.audio) == len(law)
        assert np.corrcoef(one.audio, law)[0, 1] > 0.999, row["file"]
