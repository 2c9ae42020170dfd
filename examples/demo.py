"""`make demo`: the whole way of a corpus, from media to a network that has learned, with one line for each step.

Real media are taken from the folder that ASDSTORE_SHARED names, where it is set; else they are made here. What the network
learns is made here in any case.
"""
from __future__ import annotations

import argparse
import io
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import asdstore
from asdstore import cli
from examples.corpus import make_corpus
from examples.learning import packs

FOLDER = Path("demo")


class Source(NamedTuple):
    """A corpus to pack: the arguments of `asdstore prepare`, and where the pack goes."""

    corpus: str
    arguments: list[str]
    pack: Path


# --- media ---------------------------------------------------------------------------------------------------------------

def made() -> tuple[str, list[Source]]:
    """A clip tree and a manifest, both drawn and synthesised here."""
    corpus = make_corpus(FOLDER / "corpus")
    crops = sum(clip.frames for clip in corpus.clips)
    text = f"made here: {len(corpus.clips)} tracks as {crops:,} JPEGs and WAVs, {len(corpus.manifest_clips)} more as a manifest"
    tree = ["--loader", corpus.loader, "--orig", corpus.original, "--visual-root", corpus.visual_root, "--audio-root",
            corpus.audio_root, "--split", corpus.split]
    return text, [Source("ava", [str(a) for a in tree], FOLDER / "packed" / "ava"),
                  Source("avcc", ["--loader", str(corpus.manifest)], FOLDER / "packed" / "avcc")]


def real(shared: Path) -> tuple[str, list[Source]]:
    """A clip tree of the shared set, and its face-crop videos, whose file names are their labels, as a manifest."""
    tree, videos = shared / "golden" / "asd" / "corpora" / "ava", shared / "data" / "msdwild" / "demo1"
    rows = ["sample_id\tvisual_path\taudio_path\tsource_fps\tlabels\tvisual_kind"]
    for path in sorted(videos.glob("*.mp4")):
        frames = _frames(path)
        rows.append("\t".join([path.stem, str(path), str(path), "25.0", str([int("speaking" in path.stem)] * frames), "video"]))
    manifest = FOLDER / "corpus" / "face_crops.tsv"
    manifest.parent.mkdir(parents=True, exist_ok=True)
    manifest.write_text("\n".join(rows) + "\n")
    loader = tree / "csv" / "train_loader.csv"
    text = f"from {shared}: {len(loader.read_text().splitlines())} tracks as JPEGs and WAVs, {len(rows) - 1} videos"
    return text, [Source("ava", ["--loader", str(loader), "--split", "train"], FOLDER / "packed" / "ava"),
                  Source("avcc", ["--loader", str(manifest)], FOLDER / "packed" / "avcc")]


def _frames(video: Path) -> int:
    import cv2

    capture, frames = cv2.VideoCapture(str(video)), 0
    while capture.grab():
        frames += 1
    return frames


# --- steps ---------------------------------------------------------------------------------------------------------------

@contextmanager
def step(name: str) -> Iterator[list[str]]:
    """Prints a line when the step is done: its name, what was put into the list, its seconds."""
    said: list[str] = []
    started = time.perf_counter()
    yield said
    print(f"{name:<14}{'; '.join(said):<110}{time.perf_counter() - started:6.1f} s", flush=True)


def command(verb: str, *arguments: object) -> Any:
    """Runs `asdstore VERB ... --json` and returns what it printed."""
    out = io.StringIO()
    with redirect_stdout(out):
        code = cli.main([verb, *map(str, arguments), "--json"])
    if code:
        sys.exit(f"asdstore {verb} ended with {code}:\n{out.getvalue()}")
    return json.loads(out.getvalue())


def prepare(source: Source) -> str:
    report = command("prepare", source.corpus, *source.arguments, "--output", source.pack, "--overwrite")
    padded = report["audio"]["padded_up_to_one_frame"]["tracks"]
    return (f"{report['tracks']} tracks, {report['frames']:,} frames, {report['hours'] * 60:.1f} min -> {source.pack}, "
            f"{_megabytes(source.pack)} MB; audio padded up to a frame: {padded}")


def compare(pack_folder: Path, mirror_folder: Path) -> str:
    """Every track and every array through each reader. Raises AssertionError at the first difference."""
    import tensorstore
    import zarr

    pack, mirror = asdstore.open(pack_folder), asdstore.open(mirror_folder)
    for one, other in zip(pack, mirror, strict=True):
        for stream in ("faces", "audio", "labels"):
            assert np.array_equal(getattr(one, stream), getattr(other, stream)), (one.id, stream)
    group, arrays, size = zarr.open_group(mirror_folder, mode="r"), 0, 0
    for path in sorted(pack_folder.glob("shard-*/*.npy")):
        name, truth = f"{path.parent.name}/{path.stem}", np.load(path)
        store = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str((mirror_folder / name).absolute())}}
        assert np.array_equal(np.asarray(group[name]), truth), name
        assert np.array_equal(tensorstore.open(store, read=True).result().read().result(), truth), name
        arrays, size = arrays + 1, size + truth.nbytes
    return f"{len(pack)} tracks and {arrays} arrays ({size / 1e6:.1f} MB) equal in asdstore, numpy, zarr-python and TensorStore"


def _megabytes(folder: Path) -> str:
    return f"{sum(path.stat().st_size for path in folder.rglob('*') if path.is_file()) / 1e6:.1f}"


def learn(epochs: int) -> None:
    """Train the network of examples/train_jax.py, from packs to a learning curve."""
    from examples import train_jax

    with step("learn from") as said:
        learned, held_out = packs(FOLDER / "learning")
        said.append(f"{len(asdstore.open(learned))} tracks in {learned}, to be tested on {len(asdstore.open(held_out))} others")
    with step("learned") as said:
        curve = train_jax.train([learned], [held_out], epochs=epochs)
        said.append(f"{curve.scores[-1].accuracy:.1%} of the frames of those others are told right")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description="From media to a network that has learned.")
    parser.add_argument("--epochs", type=int, default=10, help="of the training at the end (10)")
    epochs = parser.parse_args(argv).epochs
    shared = os.environ.get("ASDSTORE_SHARED")
    started = time.perf_counter()
    with step("media") as said:
        text, sources = real(Path(shared).resolve()) if shared else made()
        said.append(text)
    for source in sources:
        with step(f"prepare {source.corpus}") as said:
            said.append(prepare(source))
    with step("check") as said:
        command("check", "--deep", *(source.pack for source in sources))
        said.append(f"{len(sources)} packs, every byte: no rule of the standard is broken")
    for source in sources:
        with step(f"mirror {source.corpus}") as said:
            found = command("mirror", source.pack)
            said.append(f"{source.pack / 'mirror.zarr'}: {found['bytes']:,} bytes of its own, the data are links")
        with step("read back") as said:
            said.append(compare(source.pack, source.pack / "mirror.zarr"))
    with step("check") as said:
        command("check", *(source.pack / "mirror.zarr" for source in sources))
        said.append("both mirrors: every chunk is there")
    print(f"\n{asdstore.open([source.pack for source in sources]).describe()}\n")
    learn(epochs)
    print(f"\n{time.perf_counter() - started:.1f} s in all. "
          f"Look around: {FOLDER}/packed, or in Python asdstore.open({str(sources[0].pack)!r})[0].faces")
    return 0


if __name__ == "__main__":
    sys.exit(main())
