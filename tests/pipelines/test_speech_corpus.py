"""Utterances of sets and packs as columns, and their audio."""
from __future__ import annotations

import pickle
import threading
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import asdstore
from asdstore.errors import InputError
from asdstore.formats.parquet import open_parquet
from pipelines.row_groups import RowGroups
from pipelines.speech_corpus import Coded, _characters, open_speech
from spec.strings import Strings
from tests.pipelines.made_speech import CORPORA, Spoken, clips, numbers, write_foreign


@pytest.mark.parametrize("source", ["foreign", "own", "packs"])
def test_columns_and_audio_of_every_clip(spoken: Spoken, source: str) -> None:
    found = open_speech(spoken.sources()[source])
    by = {clip.number: clip for clip in spoken.clips}
    assert len(found) == len(by) == sum(CORPORA.values())
    for i in range(len(found)):
        clip = by[numbers([found.text(i)])[0]]
        assert (found.corpus[i], found.split[i], found.language[i]) == clip.where
        assert found.samples[i] == len(clip.audio) and found.characters[i] == len(clip.text)
        audio = found.audio(i)
        if audio.dtype == np.int16:
            assert (audio == clip.audio).all()
            mean, deviation = found.level(i) or (0, 0)
            scaled = clip.audio / 32768
            assert mean == pytest.approx(scaled.mean(), abs=1e-9) and deviation == pytest.approx(scaled.std(), abs=1e-9)
        else:
            assert (audio == clip.audio / np.float32(32768)).all() and found.level(i) is None
    assert len({found.id(i) for i in range(len(found))}) == len(found)
    again = pickle.loads(pickle.dumps(found))
    assert again.digest == found.digest and again.text(3) == found.text(3)


def test_several_sources_are_one_corpus_and_parts_of_one_too(spoken: Spoken) -> None:
    both = open_speech([spoken.own, *spoken.packs])
    assert len(both) == 2 * len(spoken.clips) and both.digest != open_speech(spoken.own).digest
    some = open_speech(asdstore.open(spoken.packs[0]).select(split="dev"))
    assert set(some.split.names[code] for code in some.split.codes) == {"dev"}
    assert {open_speech(spoken.sources()[kind]).local for kind in ("own", "packs")} == {1}
    assert open_speech(spoken.foreign).local == 100


@given(st.lists(st.text(max_size=9), max_size=20))
def test_characters_are_counted_as_python_does(texts: list[str]) -> None:
    texts = [text.encode("utf-8", "ignore").decode() for text in texts]
    assert _characters(Strings.of(texts)).tolist() == [len(text) for text in texts]


def test_coded_columns() -> None:
    joined = Coded.join([Coded(("b", "a"), np.array([0, 1, 1], np.int32)), Coded(("c",), np.array([0], np.int32))])
    assert [joined[i] for i in range(4)] == ["b", "a", "a", "c"]
    assert joined.among(["a", "c"]).tolist() == [False, True, True, True] and joined.among(None).all()


# Row groups of other programs' sets -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("binary", [False, True])
def test_a_row_group_is_decoded_once_for_a_block(tmp_path: Path, binary: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    found = clips({("a", "train", "deu_Latn"): 30, ("a", "train", "fra_Latn"): 7})
    opened = open_parquet(write_foreign(tmp_path, found, group=4, files=2, binary=binary))
    groups, read = RowGroups(opened), Counter()
    original = type(opened)._table

    def counted(self, part, column, group=None):
        read[part.name, group] += group is not None
        return original(self, part, column, group)

    monkeypatch.setattr(type(opened), "_table", counted)
    monkeypatch.setattr("asdstore.formats.parquet.HELD_BYTES", 0)  # nothing stays in memory
    rows = np.random.default_rng(0).permutation(len(opened))[:25]
    groups.stage(rows)
    by = {clip.text: clip for clip in found}
    texts = opened.texts

    def check(mine: np.ndarray) -> None:
        for row in mine.tolist():
            assert groups.audio_bytes(row) == by[texts[row]].flac

    threads = [threading.Thread(target=check, args=(rows[i::4],)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not groups.mapped and set(read.values()) <= {0, 1} and sum(read.values()) > 5
    for row in rows.tolist():  # and again from the file
        assert groups.audio_bytes(row) == by[texts[row]].flac
    assert sum(read.values()) == len({opened.group(row) for row in rows.tolist()})


def test_rows_that_were_not_said_and_rows_that_are_null(tmp_path: Path) -> None:
    found = clips({("a", "train", "deu_Latn"): 8})
    opened = open_parquet(write_foreign(tmp_path, found, group=4, broken={2: None}))
    groups = RowGroups(opened)
    groups.stage(np.array([0, 1]))
    assert groups.audio_bytes(0) == found[0].flac and groups.audio_bytes(7) == found[7].flac
    with pytest.raises(InputError) as error:
        groups.audio_bytes(1)
    assert error.value.kind == "audio-empty"
    groups.stage(np.array([4]))
    groups.stage(np.array([5]))
    assert groups.audio_bytes(0) == found[0].flac  # its block is gone; it is read anew


def test_memory_is_bounded_by_a_few_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """40 row groups of 0.7 MB, read in random order: memory has a few of them at any time."""
    import tracemalloc

    import pyarrow as pa

    draw = np.random.default_rng(0)
    many = clips({("a", "train", "deu_Latn"): 40})
    many = [clip._replace(audio=draw.integers(-9000, 9000, 400_000).astype(np.int16)) for clip in many]
    groups = RowGroups(open_parquet(write_foreign(tmp_path, many, group=1)))
    monkeypatch.setattr("asdstore.formats.parquet.HELD_BYTES", 0)
    groups.stage(np.arange(40))
    before, most, whole = pa.total_allocated_bytes(), 0, 0
    tracemalloc.start()
    for row in draw.permutation(40).tolist():
        whole += len(groups.audio_bytes(row))
        most = max(most, pa.total_allocated_bytes() - before)
    most += tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert whole > 25_000_000 and most < 15_000_000
