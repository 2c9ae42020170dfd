"""The ratios that preparing corpora must keep, in one run: `python -m bench.corpora [--json] [--only NAME ...]`.

Videos are the real one of ASDSTORE_SHARED where it is set, else one made here. Everything is made in a temporary folder that
is removed; about 7 GB of disk are needed.
"""
from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np

from bench.ratios import Ratio, in_turn, run_parts

COPIES = 30  # of the made clip tree, as links: enough work that starting two processes does not matter
WORKER_MB = 400.0


class Tree:
    """A clip tree of `copies` times the tracks of the made corpus; copies are links to the same media."""

    def __init__(self, folder: Path, copies: int):
        from examples.corpus import make_corpus

        corpus = make_corpus(folder / "corpus", videos=16, seconds=10.0)
        self.tracks: list[tuple[Path, Path]] = []
        rows = []
        for clip in corpus.clips:
            faces = corpus.visual_root / "train" / clip.video / clip.sample_id
            audio = corpus.audio_root / "train" / clip.video / f"{clip.sample_id}.wav"
            for copy in range(copies):
                sample_id = f"{clip.sample_id}{copy:03d}"
                faces.with_name(sample_id).symlink_to(faces.name)
                audio.with_name(f"{sample_id}.wav").symlink_to(audio.name)
                rows.append(f"{sample_id}\t{clip.frames}\t{clip.fps}\t{clip.labels.tolist()}\t{len(rows)}\n")
                self.tracks.append((faces, audio))
        self.frames = copies * sum(clip.frames for clip in corpus.clips)
        loader = folder / "train_loader.csv"
        loader.write_text("".join(rows))
        self.command = ["ava", "--loader", str(loader), "--visual-root", str(corpus.visual_root), "--audio-root",
                        str(corpus.audio_root), "--split", "train", "--overwrite"]


def prepare(command: list[str]) -> None:
    from adapters.prepare import main

    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        assert main(command) == 0


def recipe(folder: Path) -> Iterator[Ratio]:
    """One worker, and the recipe of the original: lists per shard, np.concatenate, np.save, no digest and no sync."""
    import cv2
    import soundfile

    tree = Tree(folder, 2)
    target, pack = folder / "recipe", folder / "pack"

    def clear() -> None:  # both write new files, and none has an old result to remove
        for place in (target, pack):
            shutil.rmtree(place, ignore_errors=True)
        target.mkdir()

    def original(_: int) -> None:
        faces, audio = [], []
        for crops, wav in tree.tracks:
            pictures = [cv2.imread(str(path), cv2.IMREAD_GRAYSCALE) for path in sorted(crops.glob("*.jpg"), key=_number)]
            faces.append(np.stack([cv2.resize(picture, (112, 112)) for picture in pictures]))  # type: ignore[arg-type]
            audio.append(soundfile.read(wav, dtype="int16")[0])
        np.save(target / "faces.npy", np.concatenate(faces))
        np.save(target / "audio.npy", np.concatenate(audio))

    clear()
    original(0)  # the files in the page cache
    for name, options in {"no option": [], "1 worker, 5 shards": ["--workers", "1", "--max-shard-gb", "0.05"]}.items():
        def ours(_: int, options: list[str] = options) -> None:
            prepare([*tree.command, *options, "--output", str(pack)])

        ours(0)
        times = in_turn(ours, original, 7, before=clear)
        yield Ratio(f"{name}, {tree.frames:,} JPEGs / the original's recipe", *times, "s", 1.0)


def _number(path: Path) -> float:
    return float(path.stem)


def workers(folder: Path) -> Iterator[Ratio]:
    """Two workers and one on the same clip tree."""
    tree = Tree(folder, COPIES)
    command = [*tree.command, "--max-shard-gb", "0.05", "--output", str(folder / "pack")]
    two, one = in_turn(lambda _: prepare([*command, "--workers", "2"]), lambda _: prepare([*command, "--workers", "1"]), 2,
                       before=lambda: shutil.rmtree(folder / "pack", ignore_errors=True))
    yield Ratio(f"2 workers, {tree.frames:,} JPEGs / 1 worker", two, one, "s", 1 / 1.7)


def memory(folder: Path) -> Iterator[Ratio]:
    """Peak memory of a worker at the default shard size, for clips and for video."""
    commands = {"JPEG": [*Tree(folder, 4).command, "--output", str(folder / "pack")],
                "video": [*_video(folder)[0], "--output", str(folder / "video_pack")]}
    code = ("import resource, sys; from adapters.prepare import main\n"
            "assert main([*sys.argv[1:], '--workers', '2', '--json']) == 0\n"
            "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")
    for name, command in commands.items():
        done = subprocess.run([sys.executable, "-c", code, *command], check=True, capture_output=True, text=True)
        peak = int(done.stdout.split()[-1]) / 1e3
        yield Ratio(f"peak memory of a worker, {name} / {WORKER_MB:g} MB", peak, WORKER_MB, "MB", 1.0)


def video(folder: Path) -> Iterator[Ratio]:
    """MSDWild packed (sound, digests and sync included), and the bare loop: every frame decoded, every box cut."""
    import cv2

    from adapters.boxes import read_boxes
    from adapters.media.crop import crop_face

    command, clip = _video(folder)

    def bare(_: int) -> None:
        boxes = read_boxes(clip.with_suffix(".csv")).faces
        capture, frame = cv2.VideoCapture(str(clip)), 0
        while (read := capture.read())[0]:
            for track in boxes.values():
                if frame in track:
                    crop_face(read[1], track[frame], (112, 112))  # type: ignore[arg-type]
            frame += 1

    def ours(_: int) -> None:
        os.utime(clip)  # as another video: its sound is decoded again
        prepare([*command, "--output", str(folder / "pack")])

    for once in (ours, bare):
        once(0)
    yield Ratio("MSDWild, a whole video / bare decoding and cutting", *in_turn(ours, bare, 8), "s", 1.2)


def _video(folder: Path) -> tuple[list[str], Path]:
    """The command that packs a video, and the video."""
    shared = os.environ.get("ASDSTORE_SHARED")
    source = folder / "videos"
    source.mkdir()
    if shared:
        home = Path(shared, "data", "msdwild")
        for name in ("00001.mp4", "00001.csv"):
            shutil.copy(home / name, source)
        clip, rttm = source / "00001.mp4", home / "00001.rttm"
    else:
        clip, rttm = source / "made.mp4", folder / "made.rttm"
        _make_video(clip, rttm)
    return ["msdwild", "--input", str(source), "--rttm", str(rttm), "--tail", "keep", "--overlap-seconds", "0",
            "--overwrite"], clip


def _make_video(path: Path, rttm: Path, frames: int = 750) -> None:
    import av

    random = np.random.default_rng(0)
    texture = random.integers(0, 256, (720 + frames, 1280, 3), np.uint8)
    with av.open(str(path), "w") as out:
        stream = out.add_stream("libx264", rate=25)  # as the corpus has it
        stream.width, stream.height, stream.pix_fmt, stream.bit_rate = 1280, 720, "yuv420p", 2_000_000
        sound = out.add_stream("aac", rate=44100, layout="mono")
        for n in range(frames):
            picture = np.ascontiguousarray(texture[n:n + 720] // 2 + 60)
            out.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="bgr24")))
        out.mux(stream.encode())
        for at in range(0, frames * 1764, 1024):
            wave = av.AudioFrame.from_ndarray(random.uniform(-0.1, 0.1, (1, 1024)).astype(np.float32), "fltp", "mono")
            wave.sample_rate, wave.pts = 44100, at
            out.mux(sound.encode(wave))
        out.mux(sound.encode())
    boxes = (f"{n},face,{face},{200 + 300 * face},200,{330 + 300 * face},350,0\n" for n in range(frames) for face in range(3))
    path.with_suffix(".csv").write_text("".join(boxes))
    rttm.write_text("".join(f"SPEAKER made 0 {face} 2.0 <NA> <NA> {face} <NA> <NA>\n" for face in range(3)))


PARTS = {"recipe": recipe, "workers": workers, "video": video, "memory": memory}

if __name__ == "__main__":
    sys.exit(run_parts("python -m bench.corpora", "The ratios that preparing must keep.", PARTS))
