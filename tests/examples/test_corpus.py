"""The self-made media are what they say: the layout of a clip tree, mouths that move with the voice, seeded bytes."""
from __future__ import annotations

import csv
import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from examples.corpus import Corpus, make_corpus

cv2 = pytest.importorskip("cv2")
soundfile = pytest.importorskip("soundfile")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return make_corpus(tmp_path_factory.mktemp("corpus"), videos=4, seconds=5.0, seed=3)


def digests(folder: Path) -> dict[str, str]:
    return {p.relative_to(folder).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest()
            for p in sorted(folder.rglob("*")) if p.is_file()}


def loudness(samples: np.ndarray, rate: int, fps: float, frames: int) -> np.ndarray:
    edges = np.minimum((np.arange(frames + 1) * rate / fps).astype(int), len(samples))
    return np.array([np.sqrt(np.mean(samples[a:b] ** 2)) if b > a else 0.0 for a, b in zip(edges[:-1], edges[1:], strict=True)])


def test_loader_rows_match_the_files(corpus: Corpus):
    rows = list(csv.reader(corpus.loader.open(newline=""), delimiter="\t"))
    assert len(rows) == len(corpus.clips) == 8
    for number, (row, clip) in enumerate(zip(rows, corpus.clips, strict=True)):
        assert row[0] == clip.sample_id and row[4] == str(number)
        assert int(row[1]) == clip.frames == len(json.loads(row[3])) == len(clip.stamps)
        crops = sorted((corpus.visual_root / "train" / clip.video / clip.sample_id).glob("*.jpg"), key=lambda p: float(p.stem))
        assert tuple(p.stem for p in crops) == clip.stamps
        assert len(clip.sample_id[:11]) == 11 and clip.sample_id.startswith(clip.video)


def test_every_rate_occurs_and_both_labels_in_every_track(corpus: Corpus):
    assert {clip.fps for clip in corpus.clips} == {24.0, 25.0, 29.97, 30.0}
    assert all(0 < clip.labels.mean() < 1 for clip in corpus.clips + corpus.manifest_clips)


def test_audio_spans_first_to_last_stamp(corpus: Corpus):
    rates = set()
    for clip in corpus.clips:
        info = soundfile.info(corpus.audio_root / "train" / clip.video / f"{clip.sample_id}.wav")
        assert abs(info.frames / info.samplerate - (clip.frames - 1) / clip.fps) < 2 / info.samplerate
        rates.add(info.samplerate)
    assert rates == {16000, 44100}


def test_crops_are_textured_not_square_and_change_size(corpus: Corpus):
    sizes = set()
    clip = corpus.clips[0]
    for stamp in clip.stamps[::20]:
        image = cv2.imread(str(corpus.visual_root / "train" / clip.video / clip.sample_id / f"{stamp}.jpg"))
        assert image.std() > 20 and image.shape[0] != image.shape[1]
        sizes.add(image.shape)
    assert len(sizes) > 1


def test_the_voice_follows_the_mouth_of_the_one_who_talks(corpus: Corpus):
    for clip in corpus.clips:
        samples, rate = soundfile.read(corpus.audio_root / "train" / clip.video / f"{clip.sample_id}.wav")
        heard = loudness(samples, rate, clip.fps, clip.frames)
        talks = clip.labels.astype(bool)
        talks[-1] = False  # the WAV ends a frame early
        assert np.corrcoef(heard[talks], clip.mouth[talks])[0, 1] > 0.6, clip.sample_id


def test_manifest_faces_and_labels(corpus: Corpus):
    rows = list(csv.DictReader(corpus.manifest.open(newline=""), delimiter="\t"))
    assert [row["sample_id"] for row in rows] == [clip.sample_id for clip in corpus.manifest_clips]
    assert len({row["audio_path"] for row in rows}) == 1
    for row, clip in zip(rows, corpus.manifest_clips, strict=True):
        faces = np.load(corpus.manifest.parent / row["visual_path"])
        assert faces.shape == (clip.frames, 112, 112) and faces.dtype == np.uint8
        assert json.loads(row["labels"]) == clip.labels.tolist() and float(row["start_sec"]) == clip.start_sec


def test_original_table_has_a_row_per_frame(corpus: Corpus):
    rows = list(csv.DictReader(corpus.original.open(newline="")))
    assert len(rows) == sum(clip.frames for clip in corpus.clips)
    assert [int(r["label_id"]) == 1 for r in rows] == [bool(v) for clip in corpus.clips for v in clip.labels]
    assert [int(r["label_id"]) == 2 for r in rows] == [bool(v) for clip in corpus.clips for v in clip.mouthing]
    assert {r["label"] for r in rows} == {"NOT_SPEAKING", "SPEAKING_AUDIBLE", "SPEAKING_NOT_AUDIBLE"}


def test_mouths_move_without_sound_too_so_that_sight_alone_does_not_tell(corpus: Corpus):
    silent = np.concatenate([clip.mouth[clip.mouthing] for clip in corpus.clips])
    spoken = np.concatenate([clip.mouth[clip.labels == 1] for clip in corpus.clips])
    assert len(silent) > 0.2 * len(spoken) and abs(silent.mean() - spoken.mean()) < 0.1
    assert not any(clip.mouthing[clip.labels == 1].any() for clip in corpus.clips)


def test_the_seed_decides_every_byte(tmp_path: Path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        make_corpus(tmp_path / name, videos=1, seconds=3.0, seed=seed)
    assert digests(tmp_path / "a") == digests(tmp_path / "b")
    assert set(digests(tmp_path / "a").values()).isdisjoint(set(digests(tmp_path / "c").values()))


def test_two_splits_share_a_folder(tmp_path: Path):
    train = make_corpus(tmp_path, videos=1, seconds=3.0, seed=1)
    held_out = make_corpus(tmp_path, videos=1, seconds=3.0, seed=2, split="val")
    assert train.loader.parent == held_out.loader.parent and train.loader != held_out.loader
    assert not {c.sample_id for c in train.clips} & {c.sample_id for c in held_out.clips}
