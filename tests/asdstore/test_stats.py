"""Hours of each language: TSV as the original's, sorted; per split with rows; languages are texts; totals that reconcile."""
from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
import pyarrow.parquet as pq  # noqa: E402

from asdstore import stats  # noqa: E402
from asdstore.stats import compute_stats, table  # noqa: E402


def write(root: Path, corpus: str, split: str, language: str, sizes: Sequence[int | None], file: str = "a") -> None:
    path = root / f"version=0/corpus={corpus}/split={split}/language={language}/{file}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"text": ["x"] * len(sizes), "audio_bytes": pa.array([[1]] * len(sizes), pa.list_(pa.int8())),
                             "audio_size": pa.array(sizes, pa.int64())}), path)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """hin has 60 rows of train and 3 of dev, as in the reference: .0018872 and .0019710 hours."""
    write(tmp_path, "fleurs", "train", "hin_Deva", [1811] * 17 + [1812] * 43)
    write(tmp_path, "fleurs", "dev", "hin_Deva", [1609] * 3)
    write(tmp_path, "mls", "train", "deu_Latn", [16000 * 3600], "a")
    write(tmp_path, "mls", "train", "deu_Latn", [16000 * 1800, None, 16000 * 1800], "b")
    write(tmp_path, "mls", "test", "nan", [16000])
    return tmp_path


def test_over_all_splits(root: Path) -> None:
    shares = compute_stats(root)
    assert [(share.corpus, share.language, share.rows, share.nulls) for share in shares] == [
        ("fleurs", "hin_Deva", 63, 0), ("mls", "deu_Latn", 3, 1), ("mls", "nan", 1, 0)]
    assert shares[0].hours == pytest.approx(0.0019710, abs=5e-8) and shares[1].hours == 2.0


def test_per_split(root: Path) -> None:
    shares = compute_stats(root, per_split=True)
    assert [(share.corpus, share.language, share.split, share.rows) for share in shares] == [
        ("fleurs", "hin_Deva", "dev", 3), ("fleurs", "hin_Deva", "train", 60), ("mls", "deu_Latn", "train", 3),
        ("mls", "nan", "test", 1)]
    assert shares[1].hours == pytest.approx(0.0018872, abs=5e-8)
    assert sum(share.samples for share in shares) == sum(share.samples for share in compute_stats(root))


def test_the_table_is_what_readers_of_tsv_expect(root: Path, tmp_path: Path) -> None:
    compute_stats(root, tmp_path / "out.tsv")
    with open(tmp_path / "out.tsv", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert rows[1] == {"corpus": "mls", "language": "deu_Latn", "hours": "2.0"} and rows[2]["language"] == "nan"
    assert sum(float(row["hours"]) for row in rows) == sum(share.hours for share in compute_stats(root))
    compute_stats(root, tmp_path / "out.tsv", per_split=True)
    assert (tmp_path / "out.tsv").read_text().splitlines()[0] == "corpus\tlanguage\tsplit\trows\thours"


def test_an_open_selection(root: Path) -> None:
    import asdstore

    found: Any = asdstore.open(root)
    assert [share.corpus for share in compute_stats(found.select(corpus="mls"))] == ["mls", "mls"]
    assert compute_stats(found.select(split="none")) == [] and table([]) == "corpus\tlanguage\thours\n"


def test_the_command(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert stats.main([str(root)]) == 0
    out, err = capsys.readouterr()
    assert out == table(compute_stats(root)) and err == "1 rows say no length and are not counted\n"
    assert stats.main([str(root), str(tmp_path / "x.tsv"), "--per-split"]) == 0
    assert capsys.readouterr().out == ""
    assert (tmp_path / "x.tsv").read_text() == table(compute_stats(root, per_split=True), True)
    assert stats.main([str(root), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[1]["hours"] == 2.0
    assert stats.main([str(tmp_path / "nowhere")]) == 3 and "nowhere" in capsys.readouterr().err
    assert stats.main([str(root), str(tmp_path / "no" / "folder.tsv")]) == 3
