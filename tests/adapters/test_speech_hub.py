"""Streaming from a hub, by a local copy of a repository: the set that its files give, in pieces, without network."""
from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("datasets")

from asdstore.testing import digests  # noqa: E402

CONFIGS = ("de_de", "fr_fr")


@pytest.fixture
def repository(speech: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two configurations with two splits each, as a repository of a hub has them; and a network that may not be used."""
    monkeypatch.setenv("HF_HOME", str(speech.root / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")

    def forbidden(*_: object) -> None:
        raise AssertionError("a hub was asked")

    monkeypatch.setattr(socket.socket, "connect", forbidden)
    folder = speech.root / "repository"
    described = ["---", "configs:"]
    for k, config in enumerate(CONFIGS):
        described += [f"- config_name: {config}", "  data_files:"]
        for split, rows in (("train", 23), ("validation", 4)):
            listed = [{"audio": row["audio"], "raw_transcription": row["text"], "id": n}
                      for n, row in enumerate(speech.rows(rows, 30 * k))]
            speech.parquet(f"repository/{config}/{split}-0.parquet", listed[:10])
            speech.parquet(f"repository/{config}/{split}-1.parquet", listed[10:] or listed[:0] or listed[:1])
            described += [f"  - split: {split}", f"    path: {config}/{split}-*.parquet"]
    (folder / "README.md").write_text("\n".join([*described, "---", ""]))
    return folder


def test_the_same_set_as_from_files(speech: Any, repository: Path) -> None:
    options = ("--preset", "fleurs", "--rows-per-file", 8, "--shuffle-window", 4)
    told = speech.report("--hub", repository, "--config", "de_de", "--config", "fr_fr", "--split", "train", *options,
                         output="hub")
    speech.report("--input", repository, *options, output="files")
    assert told["utterances"] == 46 and told["files"] == 6

    def parts(name: str) -> dict[str, str]:
        return {path: digest for path, digest in digests(speech.root / name).items() if "=train" in path}

    assert parts("hub") == parts("files") and len(parts("hub")) == 12


def test_all_splits_of_the_preset(speech: Any, repository: Path) -> None:
    code, _, err = speech.prepare("--preset", "fleurs", "--short", "--hub", repository, "--config", "de_de")
    assert code == 1 and "the split test" in err  # FLEURS has one, this copy has not
    told = speech.report("--hub", repository, "--config", "de_de", "--language", "deu_Latn",
                         "--text-column", "raw_transcription")
    assert [(one["split"], one["language"], one["utterances"]) for one in told["partitions"]] == [
        ("dev", "deu_Latn", 5), ("train", "deu_Latn", 23)]


@pytest.mark.parametrize("workers", [1, 2])
def test_rows_that_wait_are_bounded_by_the_workers(speech: Any, repository: Path, workers: int,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    from adapters.speech import ingest

    waiting = []
    real = ingest._write

    def watch(tasks: Any, *more: Any) -> Any:
        waiting.append(len(list((tasks[0].work / "building-rows").iterdir())))
        yield from real(tasks, *more)

    monkeypatch.setattr(ingest, "_write", watch)
    speech.report("--preset", "fleurs", "--hub", repository, "--config", "de_de", "--split", "train", "--rows-per-file", 5,
                  "--workers", workers)
    assert waiting == ([1] * 5 if workers == 1 else [2, 2, 1])
    assert not list(speech.root.rglob("*.arrow"))


def test_a_stream_that_was_stopped_leaves_finished_parts_out(speech: Any, repository: Path,
                                                             monkeypatch: pytest.MonkeyPatch) -> None:
    from adapters.speech import ingest
    from asdstore.errors import StoreError

    options = ("--preset", "fleurs", "--hub", repository, "--config", "de_de", "--split", "train", "--rows-per-file", 5)
    speech.report(*options, output="whole")
    real, done = ingest.write_part, []

    def stop(task: Any, heard: Any) -> Any:
        if len(done) == 3:
            raise StoreError("io", file="x", expected="a disk", found="none")
        done.append(task.number)
        return real(task, heard)

    monkeypatch.setattr(ingest, "write_part", stop)
    assert speech.prepare(*options)[0] == 3
    monkeypatch.setattr(ingest, "write_part", lambda task, heard: done.append(task.number) or real(task, heard))
    speech.report(*options)
    assert done == [0, 1, 2, 3, 4] and digests(speech.root / "set") == digests(speech.root / "whole")


def test_languages_by_a_column(speech: Any, repository: Path) -> None:
    rows = [row | {"locale": ("deu_Latn", "fra_Latn")[n % 2]} for n, row in enumerate(speech.rows(9))]
    speech.parquet("mixed/train-0.parquet", rows)
    told = speech.report("--hub", speech.root / "mixed", "--rows-per-file", 2)
    assert [(one["language"], one["utterances"]) for one in told["partitions"]] == [("deu_Latn", 5), ("fra_Latn", 4)]
    assert told["files"] == 5


@pytest.mark.parametrize(("options", "kind"), [
    (("--config", "xx_xx"), "hub"), (("--config", "de_de", "--split", "other"), "hub"), (("--config", "de_de"), "language"),
    (("--config", "de_de", "--language", "de"), "language")])
def test_what_is_not_there_is_said(speech: Any, repository: Path, options: tuple[str, ...], kind: str) -> None:
    code, out, _ = speech.prepare("--hub", repository, "--text-column", "raw_transcription", *options, "--json")
    assert code == 1 and json.loads(out)["faults"][0]["kind"] == kind
    assert not list(speech.root.rglob("corpus=*/_manifest.json"))


def test_a_hub_that_cannot_be_reached_is_said(speech: Any, repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object, **__: object) -> None:
        raise ConnectionError("no route to it")

    monkeypatch.setattr("datasets.load_dataset", away)
    code, out, _ = speech.prepare("--hub", "nobody/nothing", "--json")
    fault, = json.loads(out)["faults"]
    assert (code, fault["kind"], fault["file"]) == (1, "hub", "nobody/nothing") and "no route" in fault["found"]
