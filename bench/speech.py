"""The ratios that speech data must keep, in one run: `python -m bench.speech [--json] [--only PART ...]`.

    ingest   a corpus prepared by one process, beside decoding, resampling and FLAC encoding of the same clips alone
    workers  two processes beside one, and Ray on two processors (already running) beside one process
    open     a set of 1,000,000 utterances opened, beside Arrow reading the same column; and its memory

Clips are the real ones of ASDSTORE_SHARED where it is set (mostly 16 kHz WAV), else made here, and repeated. About 2 GB of disk
are needed.
"""
from __future__ import annotations

import io
import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from bench.ratios import Ratio, in_turn, run_parts

ROUNDS = 3
CLIPS = 800  # in "ingest", five times as many in "workers", so that starting processes is little beside it
UTTERANCES, FILES = 1_000_000, 100  # in "open"


def clips() -> list[bytes]:
    """Sound files: 16 kHz and others, mono and stereo."""
    shared = os.environ.get("ASDSTORE_SHARED")
    if shared:
        listed = json.loads(Path(shared, "data/speech/manifest.json").read_text())
        return [Path(shared, "data/speech", row["file"]).read_bytes() for row in listed]
    import soundfile

    made = []
    for n, (rate, channels, kind) in enumerate([(16000, 1, "WAV"), (44100, 2, "FLAC"), (16000, 1, "FLAC"), (22050, 1, "WAV")]):
        noise, file = np.random.default_rng(n).normal(0, 0.1, (rate * 8, channels)), io.BytesIO()
        soundfile.write(file, np.cumsum(noise, axis=0) % 1 - 0.5, rate, format=kind)
        made.append(file.getvalue())
    return made


def source(folder: Path, count: int) -> Path:
    """A Parquet file as Hugging Face writes it: row groups of 100."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    files = clips()
    rows = [{"audio": {"bytes": files[n % len(files)], "path": f"{n}.wav"}, "text": f"Utterance {n}, as it was said."}
            for n in range(count)]
    pq.write_table(pa.Table.from_pylist(rows), folder / "clips.parquet", row_group_size=100)
    return folder / "clips.parquet"


def prepare(path: Path, target: Path, *options: object) -> None:
    """The command, in this process."""
    from contextlib import redirect_stderr, redirect_stdout

    from adapters.prepare import main

    shutil.rmtree(target, ignore_errors=True)
    words = ["speech", "--input", path, "--output", target, "--corpus", "clips", "--language", "eng_Latn", "--split", "train",
             *options]
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as said:
        code = main(list(map(str, words)))
    if code:
        raise RuntimeError(said.getvalue())


def alone(path: Path, convert: Callable[[bytes], object]) -> None:
    """Every clip of the file converted and forgotten."""
    import pyarrow.parquet as pq

    for batch in pq.ParquetFile(path).iter_batches(16, columns=["audio"]):
        for clip in batch.column("audio").to_pylist():
            convert(clip["bytes"])


def by_hand(clip: bytes) -> None:
    """Decoded, mixed, resampled and encoded as one writes it down."""
    import soundfile
    import soxr

    wave, rate = soundfile.read(io.BytesIO(clip), dtype="float32", always_2d=True)
    mono = wave.mean(axis=1, dtype=np.float32)
    if rate != 16000:
        mono = soxr.resample(mono, rate, 16000)
    soundfile.write(io.BytesIO(), mono, 16000, format="FLAC", subtype="PCM_16")


def _ingest(folder: Path) -> Iterator[Ratio]:
    from adapters.speech.audio import recode

    path = source(folder, CLIPS)
    for name, convert in (("by hand", by_hand), ("by the same functions", recode)):
        ours, other = in_turn(lambda n: prepare(path, folder / "set"), lambda n, convert=convert: alone(path, convert), ROUNDS)
        yield Ratio(f"ingestion / decode, resample, FLAC {name}", ours, other, "s", 1 / 0.8)
    ours, plain = in_turn(lambda n: prepare(path, folder / "set", "--shuffle-window", 200),
                          lambda n: prepare(path, folder / "set"), ROUNDS)
    yield Ratio("shuffled / in order", ours, plain, "s", None)


def _workers(folder: Path) -> Iterator[Ratio]:
    path = source(folder, 5 * CLIPS)
    small = ("--rows-per-file", 60)
    two, one = in_turn(lambda n: prepare(path, folder / "set", *small, "--workers", 2),
                       lambda n: prepare(path, folder / "set", *small), 3)
    yield Ratio("two workers / one", two, one, "s", 1 / 1.7)
    try:
        import ray
    except ImportError:
        return
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    try:
        cluster = ("--engine", "ray")
        prepare(path, folder / "set", *small, *cluster)  # its processes begin
        two, one = in_turn(lambda n: prepare(path, folder / "set", *small, *cluster),
                           lambda n: prepare(path, folder / "set", *small), 3)
        yield Ratio("Ray on two processors / one process", two, one, "s", 1 / 1.5)
    finally:
        ray.shutdown()


def _open(folder: Path) -> Iterator[Ratio]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    draw = np.random.default_rng(0)
    rows = UTTERANCES // FILES
    tiny = pa.ListArray.from_arrays(pa.array(np.arange(rows + 1), pa.int32()), pa.array(np.zeros(rows), pa.int8()))
    paths = []
    for n in range(FILES):
        path = folder / f"set/version=0/corpus=c{n % 4}/split=train/language=aaa_Latn/part-{n:05d}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"text": [f"what was said in utterance {k} of {n}" for k in range(rows)], "audio_bytes": tiny,
                                 "audio_size": pa.array(draw.integers(8000, 480_000, rows))}), path, row_group_size=100)
        paths.append(str(path))
    code = "import time\n{0}\nbegan = time.perf_counter()\n{1}\nprint(time.perf_counter() - began, " \
           "int(open('/proc/self/status').read().split('VmHWM:')[1].split()[0]) / 1024)"
    ours = code.format("import asdstore, pyarrow.parquet, numpy, asdstore.formats.parquet",
                       f"found = asdstore.open({str(folder / 'set')!r}); assert len(found) == {UTTERANCES}")
    theirs = code.format("import pyarrow.parquet", f"pyarrow.parquet.read_table({paths!r}, columns=['audio_size'])")
    figures: dict[str, list[list[float]]] = {"ours": [], "theirs": []}
    for _ in range(3):
        for name, program in (("ours", ours), ("theirs", theirs)):
            said = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()
            figures[name].append([float(word) for word in said])
    opened, read = (float(np.median([seconds for seconds, _ in figures[name]])) for name in ("ours", "theirs"))
    yield Ratio("1,000,000 utterances opened / Arrow reads audio_size", opened, read, "s", 3.0)
    yield Ratio("its memory / 500 MB", max(f[1] for f in figures["ours"]), 500.0, "MB", 1.0)


PARTS = {"ingest": _ingest, "workers": _workers, "open": _open}


if __name__ == "__main__":
    sys.exit(run_parts("python -m bench.speech", "Ratios of speech data.", PARTS))
