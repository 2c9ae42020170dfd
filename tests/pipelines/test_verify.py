"""`python -m pipelines.verify`, and what the document verifies with a program of its own."""
from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pipelines
from asdstore.errors import InputError
from asdstore.stats import compute_stats
from pipelines.verify import _seen, describe, main, verify
from tests.pipelines.made_speech import CORPORA, Spoken, clips, write_foreign


@pytest.mark.parametrize("source", ["foreign", "own"])
def test_the_documents_command(spoken: Spoken, source: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = spoken.sources()[source]
    assert main(["--dataset_path", str(path), "--split", "train", "--num_iterations", "3", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["fine"] and len(told["batches"]) == 3 and told["undecodable"] == [] and told["left_out"] == {}
    assert {(s["corpus"], s["split"], s["language"]): s["rows"] for s in told["shares"]} == CORPORA
    samples = sum(len(clip.audio) for clip in spoken.clips)
    assert sum(share["hours"] for share in told["shares"]) == pytest.approx(samples / 16000 / 3600)
    assert 0 <= told["padding"] < 1 and told["speed"] > 0
    assert sum(told["drawn"].values()) == sum(batch["utterances"] for batch in told["batches"])
    assert main(["--dataset_path", str(path), "--split", "dev"]) == 0
    text = capsys.readouterr().out
    assert "6 partitions" in text and "batch 1: 13 utterances" in text and "lug_Latn" in text


def test_more_iterations_than_a_block_and_a_summary(spoken: Spoken, tmp_path: Path) -> None:
    compute_stats(spoken.own, tmp_path / "summary.tsv")
    found = verify(spoken.own, "train", 9, stats_path=tmp_path / "summary.tsv", block=20, sample_budget=20_000, group=1)
    assert len(found.batches) == 9 and sum(batch.utterances for batch in found.batches) > 20
    assert len(verify(spoken.packs[0], "dev", 9).batches) == 1, "an evaluation ends"
    assert pipelines.verify(spoken.packs, "train", 1).files == 2
    with pytest.raises(InputError):
        verify(spoken.packs, "train", -1)


def test_the_module_is_called_without_an_import_of_its_own(spoken: Spoken) -> None:
    code = f"import pipelines; print(pipelines.verify({str(spoken.own)!r}, 'dev', 1).fine)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "True\n"


def test_what_cannot_be_decoded_is_named_and_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_foreign(tmp_path, clips({("a", "dev", "deu_Latn"): 5}), broken={2: b"no sound"})
    with pytest.warns(UserWarning, match="could not be decoded"):
        assert main(["--dataset_path", str(path), "--split", "dev"]) == 1
    assert "audio-corrupt" in capsys.readouterr().out


def test_what_is_no_set(tmp_path: Path, spoken: Spoken, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--dataset_path", str(tmp_path / "none")]) == 3
    assert "none" in capsys.readouterr().err
    assert main(["--dataset_path", str(spoken.own), "--split", "nope", "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["faults"][0]["kind"] == "split"
    for wrong in ([], ["--dataset_path", str(spoken.own), "--num_iterations", "-1"]):
        with pytest.raises(SystemExit) as left:
            main(wrong)
        assert left.value.code == 2


def test_wrong_batches_are_seen(spoken: Spoken) -> None:
    def batch() -> dict:
        return next(iter(pipelines.evaluate(spoken.packs, tokenizer=pipelines.Characters("abcdefghij"))))

    assert not _seen(batch()).faults
    for change, said in (({"source_seq_lens": np.full(13, 10**9)}, "lengths"), ({"ids": np.array(["x"])}, "rows")):
        assert said in _seen({**batch(), **change}).faults[0]
    spoiled = batch()
    spoiled["source_seqs"][-1, -1] = 1
    assert "padding" in _seen(spoiled).faults[0]
    spoiled = batch()
    spoiled["source_seqs"][0, 0] = np.nan
    assert "finite" in _seen(spoiled).faults[0]
    assert "lengths beyond" in describe(verify(spoken.packs, "dev", 1)._replace(
        batches=[_seen({**batch(), "source_seq_lens": np.full(13, 10**9)})]))


def test_the_documents_own_program(spoken: Spoken, tmp_path: Path) -> None:
    """"Programmatic Verification", with `partitioning`, as `ParquetDataset.partitions` is gone."""
    pq = pytest.importorskip("pyarrow.parquet")
    pd = pytest.importorskip("pandas")
    dataset = pq.ParquetDataset(spoken.own / "version=0")
    assert len(dataset.files) == len(CORPORA)
    table = dataset.read()
    assert len(table) == len(spoken.clips)
    assert {"text", "audio_bytes", "audio_size", "corpus", "split", "language"} <= set(table.schema.names)
    assert table.to_pandas().head().audio_size.gt(0).all()
    stats = tmp_path / "language_distribution_0.tsv"
    compute_stats(spoken.own, stats)
    assert list(pd.read_csv(stats, sep="\t").columns) == ["corpus", "language", "hours"]


def test_help_is_quick_and_heavy_modules_stay_out() -> None:
    code = "import sys; sys.argv = ['verify', '--help']\nimport pipelines.verify as v\ntry: v.main()\n" \
           "except SystemExit: print(sorted({'torch', 'pyarrow', 'numpy', 'soundfile'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
