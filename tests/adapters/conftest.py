"""Small corpora that tests write themselves: a clip tree (AVA, WASD) and videos with boxes and RTTM (MSDWild)."""
from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from adapters import prepare


class ClipTree:
    """JPEG crops, WAV clips and the loader TSV of a split, track by track; `prepare` packs them by the command."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str], dataset: str = "ava", split: str = "train"):
        self.root, self.capsys, self.dataset, self.split = root, capsys, dataset, split
        self.visual, self.audio = root / "clips_videos", root / "clips_audios"
        self.loader = root / "csv" / f"{split}_loader.csv"
        self.rows: list[str] = []
        for folder in (self.visual / split, self.audio / split, self.loader.parent):
            folder.mkdir(parents=True)

    def add(self, sample_id: str, frames: int = 10, fps: float = 25.0, *, labels: Sequence[object] | None = None,
            seconds: float | None = None, stamps: Sequence[str] | None = None, row: str | None = None,
            folder: str | None = None) -> Path:
        """One track; `seconds` of audio (default: the span of the time stamps). Returns the folder of its JPEGs."""
        folder = sample_id.rsplit("_", 2)[0] if folder is None else folder
        stamps = [f"{900 + n / fps:.2f}" for n in range(frames)] if stamps is None else stamps
        labels = [n % 3 % 2 for n in range(frames)] if labels is None else labels
        faces = self.visual / self.split / folder / sample_id
        write_jpegs(faces, stamps)
        span = float(stamps[-1]) - float(stamps[0]) if stamps else 0.0
        write_wav(self.audio / self.split / folder / f"{sample_id}.wav", span if seconds is None else seconds)
        text = "[" + ", ".join(map(str, labels)) + "]"
        self.rows.append(f"{sample_id}\t{len(labels)}\t{fps}\t{text}\t{len(self.rows)}" if row is None else row)
        self.loader.write_text("".join(f"{line}\n" for line in self.rows))
        return faces

    def wav(self, sample_id: str) -> Path:
        return next(self.audio.rglob(f"{sample_id}.wav"))

    def prepare(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, stdout and stderr of `prepare`."""
        self.capsys.readouterr()
        code = prepare.main([self.dataset, "--loader", str(self.loader), "--visual-root", str(self.visual),
                             "--audio-root", str(self.audio), "--split", self.split, *arguments])
        out, err = self.capsys.readouterr()
        return code, out, err

    def faults(self, *arguments: str) -> list[dict]:
        """The faults that `prepare --json` reports; it must report some, and leave no pack."""
        code, out, _ = self.prepare("--json", *arguments)
        assert code == 1 and not self.pack.exists()
        return json.loads(out)["faults"]

    def report(self, *arguments: str) -> dict:
        """The report of `prepare --json`, which must succeed."""
        code, out, err = self.prepare("--json", *arguments)
        assert code == 0, out + err
        return json.loads(out)

    @property
    def pack(self) -> Path:
        return self.root / "packed" / self.split


def write_jpegs(folder: Path, stamps: Sequence[str], size: tuple[int, int] = (20, 16)) -> None:
    import cv2

    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(len(stamps))
    for stamp in stamps:
        done, data = cv2.imencode(".jpg", random.integers(0, 255, (*size, 3), np.uint8))
        assert done
        (folder / f"{stamp}.jpg").write_bytes(data.tobytes())


def write_wav(path: Path, seconds: float, rate: int = 16000, amplitude: float = 0.25, subtype: str = "PCM_16") -> None:
    import soundfile

    path.parent.mkdir(parents=True, exist_ok=True)
    time = np.arange(round(seconds * rate)) / rate
    soundfile.write(path, amplitude * np.sin(2 * np.pi * 220 * time), rate, subtype=subtype)


BARS = 6  # of 8 pixels each, black or white, in the middle of a video frame of 64 x 48: its number modulo 64
FACE_BOX = (8, 0, 56, 48)  # x1, y1, x2, y2 of all the bars


def write_video(path: Path, frames: int, fps: int = 25, *, sound: float | None = math.inf) -> None:
    """An MP4 with the frame number in bars, B-frames and one key frame; `sound` in seconds, None for none."""
    import av

    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w", options={"movflags": "faststart"}) as out:  # so that a file cut short still opens
        video = out.add_stream("mpeg4", rate=fps)
        video.width, video.height, video.pix_fmt = 64, 48, "yuv420p"
        video.codec_context.gop_size, video.codec_context.max_b_frames = 250, 2
        audio = None if sound is None else out.add_stream("aac", rate=16000, layout="mono")
        for number in range(frames):
            picture = np.full((48, 64, 3), 90, np.uint8)
            for bar in range(BARS):
                picture[:, 8 + 8 * bar:16 + 8 * bar] = 255 * (number >> bar & 1)
            out.mux(video.encode(av.VideoFrame.from_ndarray(picture, format="bgr24")))
        out.mux(video.encode())
        if audio is not None:
            seconds = min(frames / fps, sound or 0.0)
            time = np.arange(round(seconds * 16000), dtype=np.float32) / 16000
            wave = (0.3 * np.sin(2 * np.pi * 200 * time)).astype(np.float32)[None]
            for at in range(0, wave.shape[1], 1024):
                frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(wave[:, at:at + 1024]), format="fltp", layout="mono")
                frame.sample_rate, frame.pts = 16000, at
                out.mux(audio.encode(frame))
            out.mux(audio.encode())


def frame_numbers(faces: np.ndarray, left: int = 0, width: int = 64) -> np.ndarray:
    """The numbers (modulo 64) that the bars of faces say; the faces show `width` pixels of the video from `left` on."""
    middles = ((np.arange(BARS) * 8 + 12 - left) * faces.shape[2] / width).astype(int)
    return (faces[:, faces.shape[1] // 2, middles] > 127) @ (1 << np.arange(BARS))


@pytest.fixture
def clip_tree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> ClipTree:
    return ClipTree(tmp_path / "AVA", capsys)


@pytest.fixture
def wasd_tree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> ClipTree:
    return ClipTree(tmp_path / "WASD", capsys, "wasd")


@pytest.fixture
def media() -> dict[str, Callable]:
    """Writers of single files, `jpegs`, `wav`, `video`, and a reader: `numbers` of the frames of a video that faces show."""
    return {"jpegs": write_jpegs, "wav": write_wav, "video": write_video, "numbers": frame_numbers}
