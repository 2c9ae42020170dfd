"""The ratios that packs must keep, in one run: `make bench`, or `python -m bench.packs [--json] [--only PART ...]`.

Everything is made in a temporary folder that is removed; about 3 GB of disk are needed.
"""
from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np

import asdstore
from asdstore.records import Media, Record
from bench.ratios import Ratio, in_turn, run_parts
from bench.sparse import make_sparse_pack
from spec.npy import parse_header

WINDOW = 250  # frames
ENTRIES = 67_000


# --- reading -------------------------------------------------------------------------------------------------------------

def _noise(record: Record) -> Media:
    random = np.random.default_rng(record.source)  # type: ignore[arg-type]
    faces = random.integers(0, 256, (record.frames, 112, 112), np.uint8)
    audio = random.uniform(-0.5, 0.5, int(record.frames * 640)).astype(np.float32)
    return Media(faces, audio, random.integers(0, 2, record.frames, np.uint8))


def _noise_pack(folder: Path) -> asdstore.Pack:
    records = [Record("ava", f"noise_{n}", 25.0, 400 + 10 * n, 0.0, f"noise_{n}", n) for n in range(40)]
    return asdstore.open(asdstore.write_pack(folder / "noise", records, _noise, max_shard_bytes=100_000_000))


def windows(folder: Path) -> Iterator[Ratio]:
    """A window copied out of a track, and the cost of the view itself."""
    pack = _noise_pack(folder)
    raw = {path.parent.name: _memmap(path) for path in sorted(Path(pack.paths[0]).glob("shard-*/faces.npy"))}
    index, random = pack.index, np.random.default_rng(0)
    shards = np.array(list(raw))[pack.all.shard].tolist()
    tracks = random.integers(0, len(pack), 4000).tolist()
    starts = [int(random.integers(0, index["source_frames"][i] - WINDOW + 1)) for i in tracks]
    offsets = [int(index["face_offset"][i]) + a for i, a in zip(tracks, starts, strict=True)]

    def ours(n: int) -> np.ndarray:
        return np.array(pack[tracks[n]].faces[starts[n]:starts[n] + WINDOW])

    def plain(n: int) -> np.ndarray:
        return np.array(raw[shards[tracks[n]]][offsets[n]:offsets[n] + WINDOW])

    for n in range(len(tracks)):  # both maps touched everywhere, both results equal
        assert np.array_equal(ours(n), plain(n))
    yield Ratio(f"copy {WINDOW} frames of pack[i] / of np.memmap", *in_turn(ours, plain, len(tracks)), "s", 1.15)

    array, spans = np.zeros((20_000, 112, 112), np.uint8), list(zip(offsets, (a + WINDOW for a in offsets), strict=True))

    def loop(view: Callable[[int], object]) -> Callable[[int], None]:
        def many(_: int) -> None:
            for n in range(len(tracks)):
                view(n)
        return many

    slices = loop(lambda n: array[spans[n][0]:spans[n][1]])
    for name, most, view in (("pack[i].faces", 5.0, lambda n: pack[tracks[n]].faces),
                             ("pack[i].faces[a:b]", None, lambda n: pack[tracks[n]].faces[starts[n]:starts[n] + WINDOW]),
                             ("track.faces", None, lambda n, track=pack[0]: track.faces)):
        mine, others = in_turn(loop(view), slices, 30)
        yield Ratio(f"view {name} / slice of an ndarray", mine / len(tracks), others / len(tracks), "s", most)


def _memmap(path: Path) -> np.memmap:
    with open(path, "rb") as file:
        header = parse_header(file.read(256), path)
    return np.memmap(path, header.dtype, "r", header.nbytes_header, header.shape)


# --- preparing -----------------------------------------------------------------------------------------------------------

def preparing(folder: Path) -> Iterator[Ratio]:
    """One process that packs a clip tree, and the shortest loop that leaves the same arrays on the disk."""
    from adapters import prepare
    from examples.corpus import make_corpus

    corpus = make_corpus(folder / "corpus", videos=16, seconds=8.0)
    command = ["ava", "--loader", str(corpus.loader), "--visual-root", str(corpus.visual_root), "--audio-root",
               str(corpus.audio_root), "--split", "train", "--json"]

    def ours(n: int) -> None:
        with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
            assert prepare.main([*command, "--output", str(folder / f"pack_{n}")]) == 0

    def loop(n: int) -> None:
        for clip in corpus.clips:
            crops, wav = Path("train", clip.video, clip.sample_id), Path("train", clip.video, f"{clip.sample_id}.wav")
            _plain_loop(corpus.visual_root / crops, corpus.audio_root / wav, folder / f"loop_{n}_{clip.sample_id}")

    for once in (ours, loop):  # imports, and the files in the page cache
        once(-1)
    yield Ratio(f"prepare {sum(c.frames for c in corpus.clips)} JPEG frames / plain loop", *in_turn(ours, loop, 16), "s", 1.1)


def _plain_loop(crops: Path, wav: Path, stem: Path) -> None:
    import cv2
    import soundfile

    faces = [cv2.resize(cv2.imread(str(path), cv2.IMREAD_GRAYSCALE), (112, 112))  # type: ignore[arg-type]
             for path in sorted(crops.glob("*.jpg"), key=lambda path: float(path.stem))]
    for name, array in (("faces", np.stack(faces)), ("audio", soundfile.read(wav, dtype="int16")[0])):
        with open(f"{stem}.{name}.npy", "wb") as file:
            np.save(file, array)
            file.flush()
            os.fsync(file.fileno())


# --- opening -------------------------------------------------------------------------------------------------------------

def opening(folder: Path) -> Iterator[Ratio]:
    """A pack of ENTRIES tracks opened, and its index.json files parsed into dictionaries, in fresh processes."""
    for name, sealed in (("sealed pack", True), ("v4 pack of others", False)):
        pack = make_sparse_pack(folder / name.split()[0], ENTRIES, sealed=sealed)
        found: dict[str, list[dict[str, float]]] = {"open": [], "json": []}
        for number in range(14):
            for work in (("open", "json"), ("json", "open"))[number % 2]:
                found[work].append(_measured(work, pack))
        for unit, quantity, most in (("s", "seconds", 0.5), ("MB", "bytes", 0.25)):
            ours, other = (float(np.median([m[quantity] for m in found[work]])) for work in ("open", "json"))
            scale = 1e-6 if unit == "MB" else 1
            bound = most if sealed else None  # packs of others have no columns to map: their JSON is parsed, row by row judged
            yield Ratio(f"open {ENTRIES:,} entries, {name} / json.load", ours * scale, other * scale, unit, bound)


def _measured(work: str, pack: Path) -> dict[str, float]:
    done = subprocess.run([sys.executable, "-m", "bench.opening", work, str(pack)], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


PARTS = {"windows": windows, "preparing": preparing, "opening": opening}


if __name__ == "__main__":
    sys.exit(run_parts("python -m bench.packs", "The ratios that packs must keep.", PARTS))
