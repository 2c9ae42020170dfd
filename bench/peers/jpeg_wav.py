"""JPEG crops and WAV files in a torch DataLoader, as code for active-speaker detection has it today: decoded every time."""
from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np

from bench.peers.common import SAMPLES, Corpus, Plan, Sample, Samples, torch_loader

VENV, PACKAGES = "own", ("opencv-python-headless", "soundfile", "torch")
ABOUT = "a JPEG of 160 x 160 per frame (quality 95) and a WAV per track, decoded and resized; torch DataLoader"
WORKERS = (0, 2, 4, 8)
STORED = 160  # pixels of a crop on the disk


def write(corpus: Corpus, folder: Path, plan: Plan) -> None:
    import cv2
    import soundfile

    lines = []
    for n in range(corpus.count):
        faces, audio, labels = corpus.track(n)
        (folder / str(n)).mkdir()
        for k, face in enumerate(faces):
            crop = cv2.cvtColor(cv2.resize(face, (STORED, STORED)), cv2.COLOR_GRAY2BGR)
            cv2.imwrite(str(folder / str(n) / f"{k:05d}.jpg"), crop)
        soundfile.write(folder / f"{n}.wav", audio, 16000)
        lines.append((str(n), len(faces), 25.0, labels.tolist()))
    with (folder / "loader.csv").open("w", newline="") as file:
        csv.writer(file, delimiter="\t").writerows(lines)


def open(folder: Path) -> tuple[Path, list[Any]]:
    with (folder / "loader.csv").open(newline="") as file:
        rows = [(name, int(count), float(fps), labels) for name, count, fps, labels in csv.reader(file, delimiter="\t")]
    return folder, rows


def read(handle: tuple[Path, list[Any]], track: int, start: int, stop: int) -> Sample:
    import cv2
    import soundfile

    folder, rows = handle
    name, _, _, labels = rows[track]
    faces = []
    for k in range(start, stop):
        picture: Any = cv2.imread(str(folder / name / f"{k:05d}.jpg"))
        faces.append(cv2.resize(cv2.cvtColor(picture, cv2.COLOR_BGR2GRAY), (112, 112)))
    audio, _ = soundfile.read(folder / f"{name}.wav", dtype="int16", start=start * SAMPLES, stop=stop * SAMPLES)
    marks = np.array(labels.strip("[]").split(", ")[start:stop], np.uint8)
    return np.stack(faces), audio, marks


def epoch(handle: tuple[Path, list[Any]], plan: Plan, workers: int) -> Any:
    return torch_loader(Samples(plan, read, handle), workers)
