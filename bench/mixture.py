"""Mixture loading beside bare decoding of the same clips, packs beside Parquet, and the planning of a million utterances.

    python -m bench.mixture                      all parts, one line for each pair
    python -m bench.mixture --only loading       of loading, planning

Clips are speech-like: noise in harmonics that comes and goes, as FLAC as large as that of read speech. Speeds are measured in
turn in this process with the same number of threads; the memory of planning is that of a fresh one.
"""
from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import pipelines
from bench.ratios import Ratio, run_parts

CLIPS, BLOCK, ROUNDS = 240, 480, 7
UTTERANCES = 1_000_000
MOST_BYTES = 500e6


def speech(number: int) -> np.ndarray:
    """int16 [samples]: 4 to 16 s of a voice whose pitch and loudness wander."""
    draw = np.random.default_rng(number)
    count = int(draw.integers(64_000, 256_000))
    steps = count // 1600 + 2
    at = np.arange(count) / 1600
    loud = np.interp(at, np.arange(steps), np.maximum(draw.normal(0.5, 0.5, steps), 0))
    pitch = np.interp(at, np.arange(steps), draw.uniform(90, 220, steps))
    phase = np.cumsum(pitch) * (2 * np.pi / 16000)
    voice = np.add.reduce([np.sin(k * phase) / k for k in range(1, 12)])
    wave = loud * voice * 0.12 + draw.normal(0, 0.002, count)
    return (wave.clip(-1, 1) * 32767).astype(np.int16)


def corpus(folder: Path) -> tuple[Path, Path]:
    """A Parquet set of this project, and the pack of it."""
    import soundfile

    from adapters import prepare

    lines = []
    for number in range(CLIPS):
        soundfile.write(folder / f"{number}.flac", speech(number), 16000)
        language = ("deu_Latn", "fra_Latn", "eng_Latn")[number % 3]
        lines.append({"audio": f"{number}.flac", "text": "what was said in this clip", "split": "train", "language": language})
    (folder / "clips.jsonl").write_text("\n".join(map(json.dumps, lines)))
    with contextlib.redirect_stdout(io.StringIO()):
        code = prepare.main(["speech", "--input", str(folder / "clips.jsonl"), "--output", str(folder / "set"),
                             "--corpus", "made", "--pack", "--json"])
    assert code == 0
    return folder / "set", folder / "set" / "packed" / "made"


def drain(loader: Any) -> None:
    """The first block of a loader."""
    for _ in loader.at(0):
        pass


def bare(files: list[bytes], threads: int) -> None:
    """soundfile's decoding of the same clips, and nothing else."""
    import soundfile

    def decode(data: bytes) -> int:
        return len(soundfile.read(io.BytesIO(data), dtype="float32")[0])

    with ThreadPoolExecutor(threads) as pool:
        assert sum(pool.map(decode, files)) > 0


def loading(folder: Path) -> Iterator[Ratio]:
    """A block of draws in several ways, each beside another."""
    root, pack = corpus(folder)
    for threads in (1, 2):
        settings: dict[str, Any] = {"block": BLOCK, "threads": threads, "prefetch": threads, "beta_corpus": 1}
        loaders = {f"{kind} {normalize}": pipelines.mixture(source, normalize=normalize, **settings)
                   for kind, source in (("Parquet", root), ("pack", pack)) for normalize in ("layer", "scale")}
        some = loaders["Parquet layer"]
        files = [some.recipe.utterances.parts[0][int(row)].audio_bytes for row in some.chunks.row]
        ways = {name: partial(drain, loader) for name, loader in loaders.items()}
        times = _in_turn({"bare": partial(bare, files, threads), **ways})
        said = f"{threads} thread{'s' if threads > 1 else ''}"
        yield Ratio(f"Parquet, layer-normed / bare soundfile, {said}", times["Parquet layer"], times["bare"], "s", 1 / 0.8)
        yield Ratio(f"Parquet, scaled / bare soundfile, {said}", times["Parquet scale"], times["bare"], "s", 1 / 0.8)
        yield Ratio(f"pack / Parquet, scaled, {said}", times["pack scale"], times["Parquet scale"], "s", 1 / 20)
        yield Ratio(f"pack / Parquet, layer-normed, {said}", times["pack layer"], times["Parquet layer"], "s", 1 / 4)


def _in_turn(ways: dict[str, Callable[[], None]]) -> dict[str, float]:
    """The fewest seconds of each, called in turn and in both orders, once for nothing before: other work on the machine hits
    several threads that wait for one another harder than a pool, so that medians would compare the load."""
    for way in ways.values():
        way()
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(ROUNDS):
        for name, way in list(ways.items())[::1 if number % 2 else -1]:
            began = time.perf_counter()
            way()
            times[name].append(time.perf_counter() - began)
    return {name: min(found) for name, found in times.items()}


# --- planning --------------------------------------------------------------------------------------------------------------


def synthetic(root: Path) -> Path:
    """A set of a million utterances in a hundred languages, with texts and lengths and no audio, as other programs write it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    draw = np.random.default_rng(0)
    for number in range(100):
        count = UTTERANCES // 100
        folder = root / "version=0" / f"corpus=c{number % 4}" / "split=train" / f"language=l{number:02}_Latn"
        folder.mkdir(parents=True)
        samples = np.clip(draw.lognormal(11.6, 0.5, count), 16_000, 800_000).astype(np.int64)
        texts = [f"what was said in clip {i} of language {number}, more or less" for i in range(count)]
        pq.write_table(pa.table({"text": texts, "audio_bytes": pa.array([[]] * count, pa.list_(pa.int8())),
                                 "audio_size": samples}), folder / "part-0.parquet", row_group_size=1000)
    return root


def planning(folder: Path) -> Iterator[Ratio]:
    """Blocks of a mixture of a million utterances, beside one sort of as many lengths."""
    root = synthetic(folder)
    large, small = (pipelines.mixture(root, block=block).recipe for block in (UTTERANCES, 8192))
    samples = large.utterances.samples
    many = UTTERANCES // 8192
    work: dict[str, Callable[[int], object]] = {
        "sort": lambda n: np.lexsort((samples,)), "large": large._made,
        "small": lambda n: [small._made(many * n + k) for k in range(many)], "far": lambda n: small._made(10**9 + n)}
    times: dict[str, list[float]] = {name: [] for name in work}
    for number in range(1, ROUNDS + 1):
        for name, function in work.items():
            began = time.perf_counter()
            function(number)
            times[name].append(time.perf_counter() - began)
    sort, whole, blocks, far = (float(np.median(times[name])) for name in ("sort", "large", "small", "far"))
    yield Ratio("plan 1,000,000 draws in one block / np.lexsort", whole, sort, "s", 10)
    yield Ratio(f"plan as many in {many} blocks / np.lexsort", blocks, sort, "s", 10)
    yield Ratio("plan block 1,000,000,000 / a block at the start", far, blocks / many, "s", 3)
    code = "import sys; from bench.mixture import peak; print(*peak(sys.argv[1]))"
    done = subprocess.run([sys.executable, "-c", code, str(root)], capture_output=True, text=True, check=True)
    before, most = map(float, done.stdout.split())
    yield Ratio("memory of a process that opens and plans it / 500 MB", most / 1e6, MOST_BYTES / 1e6, "MB", 1)
    yield Ratio("... that has only imported what is needed", before / 1e6, MOST_BYTES / 1e6, "MB", None)


def peak(root: str) -> tuple[int, int]:
    """Most bytes in memory before a set is opened, and after a block of all its utterances is planned."""
    import pyarrow.parquet  # noqa: F401

    before = _most_bytes()
    pipelines.mixture(root, block=UTTERANCES).recipe.block(0)
    return before, _most_bytes()


def _most_bytes() -> int:
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024


PARTS = {"loading": loading, "planning": planning}


def main(argv: list[str] | None = None) -> int:
    """Exit code 0 if every ratio holds, 1 if not."""
    return run_parts("python -m bench.mixture", "The ratios that mixture loading must keep.", PARTS, argv)


if __name__ == "__main__":
    sys.exit(main())
