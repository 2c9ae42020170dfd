"""The ratios that frame features must keep, in one run: `python -m bench.frames [--json] [--only PART ...]`.

    frames      an epoch of a pfile at context 5 beside a loop over frames, and beside memcpy of the bytes that come out
    archive     a 96 MB Kaldi archive read through its script, beside kaldi_native_io where that is installed
    alignments  600,000 labels, text and archive, beside a loop over tokens
    memory      the peak of a process that streams a pfile of 1 GB, beside 200 MB and one partition

Files are made in a temporary folder and read warm; "memory" needs 1.1 GB of disk.
"""
from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import pipelines
from asdstore.formats.alignments import read_alignments
from asdstore.formats.kaldi import open_kaldi
from asdstore.formats.kaldi_write import write_ark
from asdstore.formats.pfile import write_pfile
from asdstore.formats.pfile_header import header
from asdstore.formats.source import Memory
from bench.ratios import Ratio, in_turn, run_parts

ROUNDS = 7
DIM = 40
CONTEXT = 5
LOOPED = 5_000  # frames that the loop over frames makes; its time is scaled to all


def corpus(utterances: int, seed: int = 0) -> Memory:
    """Utterances of 2 to 8 seconds, 40 values a frame, labels of 2000 states."""
    draw = np.random.default_rng(seed)
    lengths = draw.integers(200, 800, utterances)
    return Memory([f"u{k:06d}" for k in range(utterances)], [draw.normal(size=(n, DIM)).astype(np.float32) for n in lengths],
                  [draw.integers(0, 2000, n).astype(np.int32) for n in lengths])


# --- frames --------------------------------------------------------------------------------------------------------------

def _loop(source: Memory, batch: int) -> None:
    """LOOPED frames as one writes it down: frame by frame, then a minibatch of them."""
    rows, done = [], 0
    for utterance in source:
        x, last = utterance.features, len(utterance.features) - 1
        for t in range(len(x)):
            rows.append(np.concatenate([x[min(max(t + k, 0), last)] for k in range(-CONTEXT, CONTEXT + 1)]))
            if len(rows) == batch:
                np.stack(rows)
                rows, done = [], done + batch
        if done >= LOOPED:
            return


def frames(folder: Path) -> Iterator[Ratio]:
    """An epoch beside the loop, and beside copies of as many bytes as it gives from memory that no cache holds."""
    source = corpus(1000)
    path = folder / "a.pfile"
    write_pfile(path, source)
    text = f"{path},context={CONTEXT}"
    ways = {"in order": (text, 1 / 0.4), "in order, partitions of 64 MiB": (f"{text},partition=64m", 1 / 0.4),
            "mixed over the file": (f"{text},random=true", None)}
    whole = np.zeros((source.frames, (2 * CONTEXT + 1) * DIM), np.float32)
    whole += 1  # every page is there
    into = np.empty((256, whole.shape[1]), np.float32)

    def memcpy(_: int) -> None:
        for at in range(0, len(whole) - 255, 256):
            np.copyto(into, whole[at:at + 256])

    for name, (spec, most) in ways.items():
        loader = pipelines.frames(spec)
        epoch = _drain(loader)
        ours, other = in_turn(epoch, memcpy, ROUNDS)
        yield Ratio(f"pfile at context {CONTEXT}, {name} / memcpy", ours, other, "s", most)
    loader = pipelines.frames(text)
    ours, other = in_turn(_drain(loader), lambda _: _loop(source, 256), 3)
    yield Ratio(f"pfile at context {CONTEXT} / loop over frames, scaled", ours, other * source.frames / LOOPED, "s", 0.1)


def _drain(loader: pipelines.Loader) -> Callable[[int], None]:
    def epoch(_: int) -> None:
        for _batch in loader.at(0):
            pass
    epoch(0)
    return epoch


# --- archives and alignments -----------------------------------------------------------------------------------------------

def archive(folder: Path) -> Iterator[Ratio]:
    """All matrices of a script: seen as views, and read into memory, 64 utterances at a time."""
    draw = np.random.default_rng(0)
    write_ark(folder / "a.ark", ((f"u{k:06d}", draw.normal(size=(400, DIM)).astype(np.float32)) for k in range(1500)),
              scp=folder / "a.scp")

    into = np.empty((64 * 400, DIM), np.float32)

    def views(_: int) -> None:
        for utterance in open_kaldi(folder / "a.scp"):
            assert utterance.features[0, 0]

    def copies(_: int) -> None:
        source = open_kaldi(folder / "a.scp")
        for at in range(0, source.frames, len(into)):
            source.read(at, min(at + len(into), source.frames), into[:source.frames - at])

    try:
        import kaldi_native_io  # type: ignore[import-not-found]
    except ImportError as why:
        print(f"kaldi_native_io is left out: {why}", file=sys.stderr)
        return

    def theirs(_: int) -> None:
        with kaldi_native_io.SequentialFloatMatrixReader(f"scp:{folder}/a.scp") as reader:
            for _key, matrix in reader:  # type: ignore[misc]
                np.array(matrix)

    views(0)
    yield Ratio("96 MB archive through its script, views / kaldi_native_io", *in_turn(views, theirs, ROUNDS), "s", 1.0)
    yield Ratio("96 MB archive through its script, read / kaldi_native_io", *in_turn(copies, theirs, ROUNDS), "s", None)


def alignments(folder: Path) -> Iterator[Ratio]:
    """600,000 labels as text and as integer vectors."""
    draw = np.random.default_rng(0)
    labels = [(f"u{k:06d}", draw.integers(0, 4000, 400)) for k in range(1500)]
    write_ark(folder / "a.ali", labels, text=True)
    write_ark(folder / "a.ark", labels)

    def text_loop(_: int) -> None:
        found = {}
        with open(folder / "a.ali") as file:
            for line in file:
                key, *tokens = line.split()
                numbers = []
                for token in tokens:
                    numbers.append(int(token))
                found[key] = np.array(numbers, np.int32)

    def binary_loop(_: int) -> None:
        with open(folder / "a.ark", "rb") as file:
            while key := b"".join(iter(lambda: file.read(1), b" ") if file.peek(1) else ()):  # type: ignore[attr-defined]
                assert key and file.read(3) == b"\0B\4"
                count, = struct.unpack("<i", file.read(4))
                np.array([struct.unpack("<bi", file.read(5))[1] for _ in range(count)], np.int32)

    kinds = (("archive", folder / "a.ark", binary_loop, 0.1), ("text", folder / "a.ali", text_loop, 0.1))
    for name, path, loop, most in kinds:
        def ours(_: int, path: Path = path) -> None:
            read_alignments(path)

        ours(0)
        yield Ratio(f"600,000 labels, {name} / loop over tokens", *in_turn(ours, loop, ROUNDS), "s", most)


# --- memory --------------------------------------------------------------------------------------------------------------

_STREAM = """
import sys
import pipelines
for batch in pipelines.frames(sys.argv[1]):
    pass
with open("/proc/self/status") as status:  # getrusage would count the parent's memory too
    print(next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM")))
"""


def memory(folder: Path) -> Iterator[Ratio]:
    """Peak resident memory of a whole process, the interpreter and numpy included."""
    _large(folder / "a.pfile", 1 << 30)
    for options, partition in ((f"context={CONTEXT},partition=100m", 100), ("partition=300m", 300), ("", 600),
                               ("random=true,partition=300m,ignore-label=0", 300)):
        spec = f"{folder}/a.pfile,stream=true" + (f",{options}" if options else "")
        done = subprocess.run([sys.executable, "-c", _STREAM, spec], check=True, capture_output=True, text=True)
        name = f"1 GB streamed, {options or 'defaults'} / 200 MB + partition"
        yield Ratio(name, float(done.stdout), 200 + partition, "MB", 1.0)


def _large(path: Path, size: int) -> None:
    """A pfile of about `size` bytes, all of whose sentences have 500 frames of the same values."""
    row_words, sentences = DIM + 3, size // (500 * 4 * (DIM + 3))
    rows = np.zeros((500, row_words), ">i4")
    rows[:, 1] = np.arange(500)
    rows[:, 2:2 + DIM] = np.random.default_rng(0).normal(size=(500, DIM)).astype(">f4").view(">i4")
    rows[:, -1] = np.arange(500) % 7
    with open(path, "wb") as file:
        file.write(header(sentences, 500 * sentences, DIM, 1))
        for sentence in range(sentences):
            rows[:, 0] = sentence
            file.write(rows.tobytes())
        file.write((np.arange(sentences + 1) * 500).astype(">i4").tobytes())


PARTS = {"frames": frames, "archive": archive, "alignments": alignments, "memory": memory}

if __name__ == "__main__":
    sys.exit(run_parts("python -m bench.frames", "Ratios of frame features.", PARTS))
