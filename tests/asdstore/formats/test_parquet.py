"""Parquet sets: ours and those of other programs, read at random; what the path says is text; what is broken says where."""
from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")
import pyarrow.parquet as pq  # noqa: E402

import asdstore  # noqa: E402
from asdstore.errors import FormatError, InputError, MissingError, StoreError  # noqa: E402
from asdstore.formats.parquet import ParquetSet, open_parquet  # noqa: E402
from asdstore.formats.parquet_set import find, is_set, partitions  # noqa: E402


def foreign(speech: Any, name: str = "split=train/language=deu_Latn/a.parquet", rows: int = 25, corpus: str = "c",
            kind: Any = None, **more: Any) -> Path:
    """A file as the original program writes it, row groups of 10."""
    path = speech.root / f"set/version=0/corpus={corpus}" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    data = [np.frombuffer(speech.tone(n, 1000 + n), np.int8) for n in range(rows)]
    if kind in (pa.binary(), pa.large_binary()):
        data = [one.tobytes() for one in data]
    columns = {"text": [f"t{n}" for n in range(rows)], "audio_bytes": pa.array(data, kind or pa.list_(pa.int8())),
               "audio_size": pa.array(range(1000, 1000 + rows), pa.int64())} | more
    pq.write_table(pa.table({name: column for name, column in columns.items() if column is not None}), path, row_group_size=10)
    return path


@pytest.fixture
def ours(speech: Any) -> Any:
    rows = [row | {"language": ("deu_Latn", "fra_Latn")[n % 2]} for n, row in enumerate(speech.rows(30))]
    speech.report("--input", speech.parquet("a.parquet", rows), "--split", "train", "--rows-per-file", 10)
    return speech


@pytest.mark.parametrize("kind", [None, pa.large_list(pa.int8()), pa.binary(), pa.large_binary()])
def test_sets_of_other_programs(speech: Any, kind: Any) -> None:
    foreign(speech, kind=kind)
    foreign(speech, "split=dev/language=fra_Latn/b.parquet", 3)
    found = speech.open()
    assert isinstance(found, ParquetSet) and len(found) == 28
    one = found[3 + 17]
    assert (one.text, one.split, one.language, one.corpus) == ("t17", "train", "deu_Latn", "c")
    assert (one.audio_size, one.speaker) == (1017, "")
    assert one.id == "corpus=c/split=train/language=deu_Latn/a.parquet:17"
    assert one.audio_bytes == speech.tone(17, 1017) and one.audio.shape == (1017,) and one.audio.dtype == np.int16
    assert [two.audio_bytes for two in found] == [speech.tone(n, 1000 + n) for n in (*range(3), *range(25))]


def test_access_at_random_in_any_order(ours: Any) -> None:
    found = ours.open()
    expected = [one.audio.tolist() for one in found]
    for row in np.random.default_rng(0).permutation(len(found)).tolist() * 2:
        assert found[row].audio.tolist() == expected[row]
    assert found[-1].id == found[len(found) - 1].id
    with pytest.raises(IndexError):
        found[len(found)]


def test_slices_selections_and_columns(ours: Any) -> None:
    found = ours.open()
    assert len(found) == 30 and [one.id for one in found[10:13]] == [found[n].id for n in (10, 11, 12)]
    french = found.select(language="fra_Latn")
    assert len(french) == 15 and set(french.index["language"].tolist()) == {"fra_Latn"}
    assert {one.language for one in french} == {"fra_Latn"}
    assert len(found.select(language=["fra_Latn", "deu_Latn"], split="train")) == 30 and len(found.select(split="dev")) == 0
    long = found.select(lambda index: index["audio_size"] > 3000)
    assert [one.audio_size for one in long] == long.index["audio_size"].tolist() and min(long.index["audio_size"]) > 3000
    assert [one.text for one in french[::-1]] == french.index["text"].tolist()[::-1]
    assert set(found.index) == {"audio_size", "corpus", "split", "language", "text", "id", "speaker"}
    assert "speaker" in found.index and "nothing" not in found.index
    assert len(found.select(speaker="s1")) == 10
    assert "deu_Latn\ttrain\t15" in found.describe() and "30 utterances" in repr(found)
    with pytest.raises(KeyError, match="audio_size"):
        found.index["nothing"]


def test_pickled_and_opened_again(ours: Any) -> None:
    found = ours.open()[5:20]
    again = pickle.loads(pickle.dumps(found))
    assert len(pickle.dumps(ours.open())) < 1000 and again.digest == found.digest != ours.open().digest
    assert [one.audio_bytes for one in again] == [one.audio_bytes for one in found]
    pickled = pickle.dumps(ours.open())
    ours.report("--input", ours.root / "a.parquet", "--split", "train", "--keep-case", "--overwrite")
    with pytest.raises(StoreError) as error:
        pickle.loads(pickled)
    assert error.value.kind == "stale"


def test_any_folder_of_a_set_can_be_opened(ours: Any) -> None:
    root = ours.root / "set"
    for below, rows in (("", 30), ("version=0", 30), ("version=0/corpus=tones", 30), ("version=0/corpus=tones/split=train", 30),
                        ("version=0/corpus=tones/split=train/language=fra_Latn", 15)):
        found = asdstore.open(root / below)
        assert len(found) == rows and {one.corpus for one in found} == {"tones"}


def test_several_sets_as_one(ours: Any) -> None:
    ours.report("--input", ours.root / "a.parquet", "--split", "test", output="other/place", corpus="more")
    found: Any = asdstore.open([ours.root / "other/place", ours.root / "set"])
    assert len(found) == 60 and [found[n].corpus for n in (0, 29, 30, 59)] == ["more", "more", "tones", "tones"]
    assert found[40].audio_bytes == ours.open()[10].audio_bytes and found[3].id == ours.open("other/place")[3].id
    assert [one.corpus for one in pickle.loads(pickle.dumps(found[::30]))] == ["more", "tones"]


def test_what_a_manifest_does_not_name_is_not_read(ours: Any) -> None:
    foreign(ours, "split=train/language=deu_Latn/part-99999.parquet", corpus="tones")
    (ours.root / "set/version=0/.corpus=other.partial/split=x").mkdir(parents=True)
    assert len(ours.open()) == 30


def test_values_of_partitions_are_texts(speech: Any) -> None:
    for language in ("nan", "null", "NA", "007", "a%20b"):
        foreign(speech, f"split=train/language={language}/x.parquet", 2)
    found = speech.open()
    assert sorted(set(found.index["language"].tolist())) == ["007", "NA", "a b", "nan", "null"]
    assert len(found.select(language="nan")) == 2
    assert partitions("/x/y=1/corpus=c/z/split=dev/a.parquet") == {"split": "dev"}


def test_nulls_of_other_programs(speech: Any) -> None:
    foreign(speech, rows=3, text=["a", None, "c"], audio_size=pa.array([1000, None, 1002], pa.int64()),
            audio_bytes=pa.array([np.frombuffer(speech.tone(), np.int8), None, []], pa.list_(pa.int8())))
    found = speech.open()
    assert found.index["audio_size"].tolist() == [1000, -1, 1002] and [one.text for one in found] == ["a", "", "c"]
    for row in (1, 2):
        with pytest.raises(InputError) as error:
            _ = found[row].audio
        assert error.value.kind == "audio-empty" and error.value.fault.row == row


@pytest.mark.parametrize(("more", "kind"), [
    ({"audio_size": None}, "schema"), ({"text": pa.array([1] * 25)}, "schema"),
    ({"audio_size": pa.array([1.0] * 25)}, "schema"),
    ({"audio_bytes": pa.array([[1]] * 25, pa.list_(pa.uint8()))}, "schema"), ({"language": ["fra_Latn"] * 25}, "partition"),
    ({"split": ["train"] * 24 + ["dev"]}, "partition")])
def test_files_that_are_no_part_of_a_set(speech: Any, more: dict, kind: str) -> None:
    foreign(speech, **more)
    with pytest.raises(FormatError) as error:
        speech.open()
    assert error.value.kind == kind and "a.parquet" in error.value.fault.file


def test_columns_that_repeat_the_path_are_no_fault(speech: Any) -> None:
    foreign(speech, language=["deu_Latn"] * 25, corpus_=["x"] * 25)
    assert len(speech.open()) == 25


@pytest.mark.parametrize("keep", [0, 4, 100, 0.5, 0.999])
def test_a_file_cut_short(speech: Any, keep: float) -> None:
    path = foreign(speech)
    data = path.read_bytes()
    path.write_bytes(data[:int(keep if keep >= 4 else len(data) * keep)])
    with pytest.raises(FormatError) as error:
        speech.open()
    assert error.value.kind == "parquet" and str(path) in str(error.value)


def test_sealed_files_that_changed_are_refused(ours: Any) -> None:
    part = next(ours.root.rglob("part-00000.parquet"))
    whole = part.read_bytes()
    part.write_bytes(whole[:-1])
    with pytest.raises(FormatError) as error:
        ours.open()
    assert error.value.kind == "size" and error.value.fault.file.endswith("part-00000.parquet")
    part.unlink()
    with pytest.raises(MissingError):
        ours.open()
    part.write_bytes(whole)
    assert len(ours.open()) == 30


@pytest.mark.parametrize(("change", "kind"), [
    (lambda d: d.update(version=2), "manifest"), (lambda d: d.pop("files"), "manifest"),
    (lambda d: d.update(corpus="x"), "partition"),
    (lambda d: d["files"][0].update(name="../../x.parquet"), "manifest"), (lambda d: d["files"][0].update(rows=-1), "manifest"),
    (lambda d: d["files"][0].update(sha256="x"), "manifest"), (lambda d: d["files"][0].update(rows=9), "count"),
    (lambda d: d["files"][0].pop("bytes"), "manifest"), (lambda d: d["files"].append(7), "manifest")])
def test_hostile_manifests(ours: Any, change: Any, kind: str) -> None:
    path = ours.root / "set/version=0/corpus=tones/_manifest.json"
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    with pytest.raises(FormatError) as error:
        ours.open()
    assert error.value.kind == kind
    path.write_text("{" * 100_000)
    with pytest.raises(FormatError) as error:
        ours.open()
    assert error.value.kind == "json"


def test_a_hostile_companion_reads_nothing_outside(ours: Any) -> None:
    companion = ours.root / "set/version=0/corpus=tones/split=train/language=deu_Latn/_part-00000.rows.parquet"
    table = pq.read_table(companion)
    for at in (-1, 1 << 40):
        pq.write_table(table.set_column(2, "at", pa.array([at] * len(table), pa.int64())), companion)
        manifest = ours.root / "set/version=0/corpus=tones/_manifest.json"
        document = json.loads(manifest.read_text())
        document["files"][0]["rows_bytes"] = companion.stat().st_size
        manifest.write_text(json.dumps(document))
        found = ours.open()
        with pytest.raises(FormatError) as error:
            _ = found[0].audio_bytes
        assert error.value.kind == "offset"


def test_folders_that_are_no_set(tmp_path: Path, speech: Any) -> None:
    assert not is_set(tmp_path) and not is_set(tmp_path / "nowhere")
    with pytest.raises(MissingError):
        open_parquet(tmp_path / "nowhere")
    with pytest.raises(MissingError):
        open_parquet(tmp_path)
    foreign(speech)
    (speech.root / "set/version=1").mkdir()
    with pytest.raises(FormatError, match="version=0, version=1"):
        speech.open()
    assert len(find(speech.root / "set/version=0").parts) == 1
    loose = tmp_path / "loose"
    loose.mkdir()
    pq.write_table(pa.table({"text": ["a"]}), loose / "a.parquet")
    with pytest.raises(FormatError) as error:
        asdstore.open(loose)
    assert error.value.kind == "partition"


def test_memory_holds_a_few_row_groups(speech: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from asdstore.formats import parquet

    foreign(speech, rows=60)
    monkeypatch.setattr(parquet, "HELD_BYTES", 60_000)
    found = speech.open()
    for one in found:
        _ = one.audio_bytes
    assert 1 <= len(found._held) <= 3
