"""Speech packs: a set to the last bit, mapped, sealed, checked and mirrored; the same bytes from any workers."""
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
from adapters import prepare  # noqa: E402
from asdstore.check import check  # noqa: E402
from asdstore.mirror import mirror  # noqa: E402
from asdstore.stats import compute_stats  # noqa: E402
from asdstore.testing import digests  # noqa: E402
from spec.layout import SPEECH  # noqa: E402


@pytest.fixture
def packed(speech: Any) -> Any:
    """The fixture with a set and its pack of several shards; two rows have the same id."""
    rows = [row | {"language": ("deu_Latn", "fra_Latn")[n % 2], "split": ("train", "dev")[n % 3 == 0]}
            for n, row in enumerate(speech.rows(12) + speech.rows(1, 1))]
    speech.report("--input", speech.parquet("a.parquet", rows), "--pack", "--max-shard-gb", 0.00002)
    speech.pack = speech.root / "set/packed/tones"
    return speech


def test_a_pack_holds_what_the_set_holds(packed: Any) -> None:
    pack, found = asdstore.open(packed.pack), packed.open()
    assert pack.layout == SPEECH and len(pack) == len(found) == 13 and len(list(packed.pack.glob("shard-*"))) > 1
    for track, one in zip(pack, found, strict=True):
        assert np.array_equal(track.audio, one.audio) and not track.audio.flags.writeable
        assert (track.text, track.language, track.split, track.corpus, track.speaker, track.audio_samples, track.duration) == (
            one.text, one.language, one.split, one.corpus, one.speaker, one.audio_size, one.duration)
    assert pack["tones/train/fra_Latn/clip1"].text == "clip b"
    assert sorted(name for name in pack.index["sample_id"].tolist() if "clip1~" in name or name.endswith("clip1")) == [
        "tones/dev/deu_Latn/clip1", "tones/train/fra_Latn/clip1"]
    assert len(pack.select(language="deu_Latn", split="dev")) == len(found.select(language="deu_Latn", split="dev")) > 0
    assert "deu_Latn" in pack.describe() and "0.12 s" in repr(pack[4])


def test_ids_that_come_again_stay_apart(speech: Any) -> None:
    rows = [row | {"id": name} for row, name in zip(speech.rows(4), ("a", "a", "a~2", "a"), strict=True)]
    speech.report("--input", speech.parquet("a.parquet", rows), "--language", "eng_Latn", "--split", "train", "--pack")
    pack = asdstore.open(speech.root / "set/packed/tones")
    assert [name.rpartition("/")[2] for name in pack.index["sample_id"].tolist()] == ["a", "a~2", "a~2~2", "a~3"]


def test_sealed_checked_and_mirrored(packed: Any) -> None:
    report = check(packed.pack, deep=True)
    assert report.exit_code == 0 and report.packs[0].sealed and report.packs[0].faults == ()
    mirror(packed.pack)
    opened, other = asdstore.open(packed.pack / "mirror.zarr"), asdstore.open(packed.pack, verify="deep")
    assert all(np.array_equal(a.audio, b.audio) and a.text == b.text for a, b in zip(opened, other, strict=True))
    assert check(packed.pack).exit_code == 0


def test_every_altered_byte_is_found(packed: Any) -> None:
    for path in sorted(packed.pack.rglob("*")):
        if path.is_file() and path.name != "seal.json":
            data = path.read_bytes()
            path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
            assert check(packed.pack, deep=True).exit_code == 1, path
            path.write_bytes(data)
    assert check(packed.pack, deep=True).exit_code == 0


def test_statistics_of_a_pack_and_its_set_agree(packed: Any) -> None:
    assert compute_stats(packed.pack) == compute_stats(packed.root / "set")
    assert compute_stats(packed.pack, per_split=True) == compute_stats(packed.root / "set", per_split=True)


def test_any_number_of_workers_and_a_set_that_was_there(packed: Any) -> None:
    for workers in (1, 2):
        target = packed.root / f"pack{workers}"
        assert prepare.main(["speech", "--input", str(packed.root / "set"), "--pack", str(target), "--max-shard-gb", "0.00002",
                             "--workers", str(workers)]) == 0
        assert digests(target) == digests(packed.pack)


def test_packs_open_together_and_pickle(packed: Any) -> None:
    both = asdstore.open([packed.pack, packed.pack])
    assert len(both) == 26 and np.array_equal(both[13].audio, both[0].audio)
    assert np.array_equal(pickle.loads(pickle.dumps(both))[20].audio, both[20].audio)


def test_audio_that_does_not_fit_its_size_is_refused(speech: Any, tmp_path: Path) -> None:
    folder = tmp_path / "set/corpus=c/split=train/language=eng_Latn"
    folder.mkdir(parents=True)
    data = [np.frombuffer(speech.tone(n), np.int8) for n in range(3)]
    for name, sizes, code in (("good", [4000, None, 4000], 0), ("bad", [4000, 4000, 3999], 1)):
        pq.write_table(pa.table({"text": ["a", "b", "c"], "audio_bytes": pa.array(data, pa.list_(pa.int8())),
                                 "audio_size": pa.array(sizes, pa.int64())}), folder / "x.parquet")
        speech.capsys.readouterr()
        assert prepare.main(["speech", "--input", str(tmp_path / "set"), "--pack", str(tmp_path / name), "--json"]) == code
        told = json.loads(speech.capsys.readouterr().out)
        if code:
            assert told["faults"][0]["kind"] == "audio" and not (tmp_path / name).exists()
        else:
            assert told["pack"]["tracks"] == 2 and told["pack"]["without_audio_size"] == 1
