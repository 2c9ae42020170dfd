"""Shared test data: `shared` is the folder that ASDSTORE_SHARED names, or the test is skipped with that reason.

`make_pack` makes small sealed packs of random tracks."""
from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from asdstore.records import Media, Record
from asdstore.writer import write_pack
from spec.layout import ASD, FACE_SHAPE


def pytest_configure() -> None:
    """Ctrl-C works in what the tests start, also where the tests themselves run in the background of a shell."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Modules that speak of JAX or Ray come last: both start threads in this process, after which it must not fork."""
    texts: dict[Path, bool] = {}
    for item in items:
        if item.path not in texts:
            texts[item.path] = bool(re.search(r"\b(jax|ray)\b", item.path.read_text(encoding="utf-8")))
    items.sort(key=lambda item: texts[item.path])


@pytest.fixture(scope="session")
def shared() -> Path:
    folder = os.environ.get("ASDSTORE_SHARED")
    if not folder or not Path(folder).is_dir():
        pytest.skip("ASDSTORE_SHARED names no folder with the shared media")
    return Path(folder).resolve()


@pytest.fixture(scope="session")
def golden(shared: Path) -> Path:
    """Outputs of the original programs on known inputs, for the active-speaker packs."""
    return shared / "golden" / "asd"


class Made(NamedTuple):
    """A pack made for a test, with the media that went into it."""

    path: Path
    records: list[Record]
    media: dict[str, Media]


def _load(media: dict[str, Media], record: Record) -> Media:
    return media[record.sample_id]


@pytest.fixture
def make_pack(tmp_path: Path) -> Callable[..., Made]:
    """Makes sealed packs of random tracks: `make_pack("name", frames=(30, 12), fps=(25.0, 30.0), ...)`."""
    def make(name: str = "pack", frames: Sequence[int] = (30, 12, 70, 1, 45), fps: Sequence[float] = (25.0, 30.0, 23.976),
             max_shard_bytes: int = 1_000_000, seed: int = 0, dataset: str = "ava",
             face_shape: tuple[int, int] = FACE_SHAPE) -> Made:
        random = np.random.default_rng(seed)
        records, media = [], {}
        for k, count in enumerate(frames):
            rate = fps[k % len(fps)]
            video = f"video{k // 2:06d}"
            record = Record(dataset, f"{video}_0000_0060:{k}", rate, count, 0.0, video, None)
            audio = (random.normal(0, 0.05 + 0.02 * k % 0.1, round(count / rate * 16000)) + 0.01).astype(np.float32)
            labels = ((np.arange(count) + k) // 5 % 2).astype(np.uint8)
            media[record.sample_id] = Media(random.integers(0, 256, (count, *face_shape), np.uint8), audio, labels)
            records.append(record)
        path = write_pack(tmp_path / name, records, partial(_load, media), layout=ASD.with_face_shape(face_shape),
                          max_shard_bytes=max_shard_bytes)
        return Made(path, records, media)
    return make


class Speech:
    """Small corpora of tones with transcripts in a folder, and the command that prepares them."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]):
        self.root, self.capsys = root, capsys

    @staticmethod
    def tone(number: int = 0, samples: int = 4000, rate: int = 16000, channels: int = 1, kind: str = "WAV",
             subtype: str | None = None) -> bytes:
        """The bytes of a sound file; `number` tells one tone from another."""
        import io

        import soundfile

        wave = 0.3 * np.sin(2 * np.pi * (200 + 10 * number) * np.arange(samples) / rate)
        file = io.BytesIO()
        soundfile.write(file, np.stack([wave] * channels, axis=1), rate, format=kind, subtype=subtype)
        return file.getvalue()

    def rows(self, count: int = 5, first: int = 0, **more: object) -> list[dict]:
        """Rows with audio as Hugging Face has it, text, id and whatever is given; of ever longer tones."""
        return [{"audio": {"bytes": self.tone(n, 1000 + 100 * n), "path": f"clip{n}.wav"}, "text": f"Clip {chr(97 + n % 26)}!",
                 "speaker": f"s{n % 3}", **more} for n in range(first, first + count)]

    def parquet(self, name: str, rows: list[dict], group: int = 3) -> Path:
        """A Parquet file of rows."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=group)
        return path

    def prepare(self, *arguments: object, output: str = "set", corpus: str = "tones") -> tuple[int, str, str]:
        """Exit code, stdout and stderr of `prepare speech`."""
        from adapters import prepare

        self.capsys.readouterr()
        code = prepare.main(["speech", "--output", str(self.root / output), "--corpus", corpus, *map(str, arguments)])
        out, err = self.capsys.readouterr()
        return code, out, err

    def report(self, *arguments: object, **where: str) -> dict:
        """The report of `prepare speech --json`, which must succeed."""
        import json

        code, out, err = self.prepare("--json", *arguments, **where)
        assert code == 0, out + err
        return json.loads(out)

    def faults(self, *arguments: object, **where: str) -> list[dict]:
        """The faults that `prepare speech --json` reports; it must report some and write nothing."""
        import json

        code, out, _ = self.prepare("--json", *arguments, **where)
        assert code == 1 and not list(self.root.rglob("part-*.parquet"))
        return json.loads(out)["faults"]

    def open(self, output: str = "set"):
        """The set that was prepared."""
        import asdstore

        return asdstore.open(self.root / output)


@pytest.fixture
def speech(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Speech:
    pytest.importorskip("pyarrow")
    return Speech(tmp_path / "speech", capsys)
