"""Self-made media: conversations in which mouths move with the voice one hears, as an AVA-style clip tree and a manifest.

Every video is a conversation of two people who take turns. Each is seen by a face track (a drawn, textured head whose mouth
opens with the syllables of that person), and both are heard in one recording (harmonic voices of different pitch, amplitude
modulated by the same syllables). So a small network can learn to tell who speaks. Sight alone does not suffice: people also
mouth without a sound now and then, just as when they talk, but not with what is heard.
"""
from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np

RATES = (25.0, 30.0, 29.97, 24.0)  # frames per second, taken in turn
PEOPLE = 2
SYLLABLE_RATE = 100.0  # steps per second at which opening and talking are drawn
CANVAS = 112  # pixels of the drawn head; the NPY faces of the manifest have this size


class Person(NamedTuple):
    """One face track: when this person talks and how far the mouth is open, at SYLLABLE_RATE."""

    talking: np.ndarray  # bool [steps]
    mouthing: np.ndarray  # bool [steps], the mouth moves as if talking, without a sound
    voice: np.ndarray  # float32 [steps] in [0, 1], loudness of this person's syllables
    mouth: np.ndarray  # float32 [steps] in [0, 1], how far it is open; equal to the voice while talking
    pitch: float  # Hz
    head: np.ndarray  # uint8 [CANVAS, CANVAS, 3], the face without its mouth


class Clip(NamedTuple):
    """What was made for one face track, to compare with what a pack gives back."""

    sample_id: str
    video: str
    fps: float
    frames: int
    start_sec: float  # of the first frame in its audio file: 0 in the clip tree, where every track has its own file
    labels: np.ndarray  # uint8 [frames], 1 while this person talks
    mouth: np.ndarray  # float32 [frames] in [0, 1]
    mouthing: np.ndarray  # bool [frames]
    stamps: tuple[str, ...] = ()  # of the clip tree: the time stamps that name the crops


class Corpus(NamedTuple):
    """Where everything lies: the four paths of the clip tree, and the manifest of the other layout.

    Crops are <visual_root>/<split>/<video>/<sample id>/<time stamp>.jpg, audio is <audio_root>/<split>/<video>/<sample id>.wav.
    """

    split: str
    loader: Path
    original: Path
    visual_root: Path
    audio_root: Path
    clips: tuple[Clip, ...]
    manifest: Path
    manifest_clips: tuple[Clip, ...]


def make_corpus(folder: str | Path, *, videos: int = 4, seconds: float = 6.0, seed: int = 0, split: str = "train") -> Corpus:
    """Write `videos` conversations of about `seconds` each as a clip tree, and one more as a manifest with NPY faces.

    The same arguments give the same content, and where OpenCV's JPEG encoder is the same, the same bytes. Two splits
    (with two seeds) may share a folder. The third video's audio has 44.1 kHz, all others 16 kHz.

    Example:
        corpus = make_corpus("demo/corpus", videos=2)
        corpus.loader                                   # demo/corpus/ava/csv/train_loader.csv
        corpus.clips[0].labels.mean()                   # the share of frames in which this person talks
    """
    root = Path(folder)
    ava, avcc = root / "ava", root / "avcc"
    visual, audio = ava / "clips_videos", ava / "clips_audios"
    clips = []
    for number in range(videos):
        random = np.random.default_rng([seed, number])
        # as in AVA, 11 characters, of which the first may be a "-"
        video = f"{'-' if number % 3 == 1 else 'd'}emo{seed % 1000:03d}{number:04d}"
        people = _conversation(random, seconds)
        sound = _recording(random, people, 44100 if number == 2 else 16000)
        for index, person in enumerate(people, 1):
            track, sample_id = _track(random, person, RATES[number % len(RATES)]), f"{video}_0900_0960:{index}"
            clips.append(_write_clip(random, visual / split / video, audio / split / video, sample_id, track, sound))
    loader, original = ava / "csv" / f"{split}_loader.csv", ava / "csv" / f"{split}_orig.csv"
    _write(loader, "".join(f"{c.sample_id}\t{c.frames}\t{c.fps}\t{c.labels.tolist()}\t{n}\n" for n, c in enumerate(clips)))
    _write(original, _original_table(clips))
    manifest = avcc / f"{split}.tsv"
    others = _write_manifest(np.random.default_rng([seed, videos]), manifest, split, seconds)
    return Corpus(split, loader, original, visual, audio, tuple(clips), manifest, tuple(others))


# --- people and their voices ---------------------------------------------------------------------------------------------

def _conversation(random: np.random.Generator, seconds: float) -> list[Person]:
    steps = int(seconds * SYLLABLE_RATE)
    talking = np.zeros((PEOPLE, steps), bool)
    at, who = 0, int(random.integers(PEOPLE))
    while at < steps:
        at += int(random.uniform(0.2, 0.8) * SYLLABLE_RATE)  # a pause
        turn = int(random.uniform(0.8, 2.2) * SYLLABLE_RATE)
        talking[who, at:at + turn] = True
        at, who = at + turn, (who + 1) % PEOPLE
    people = []
    for index in range(PEOPLE):
        moving = _syllables(random, steps)
        voice = np.where(talking[index], moving, 0.0).astype(np.float32)
        mouthing = _mouthing(random, talking[index])
        mouth = np.where(talking[index] | mouthing, moving, 0.0).astype(np.float32)
        pitch = (110.0, 190.0)[index] * random.uniform(0.9, 1.1)
        people.append(Person(talking[index], mouthing, voice, mouth, pitch, _head(random)))
    return people


def _mouthing(random: np.random.Generator, talking: np.ndarray) -> np.ndarray:
    """Stretches of about a second, a third of the time in which this person does not talk: bool [steps]."""
    out, at = np.zeros(len(talking), bool), 0
    while at < len(talking):
        at += int(random.uniform(0.8, 3.0) * SYLLABLE_RATE)
        length = int(random.uniform(0.6, 1.4) * SYLLABLE_RATE)
        out[at:at + length] = True
        at += length
    return out & ~talking


def _syllables(random: np.random.Generator, steps: int) -> np.ndarray:
    """Bumps of half a sine, one after the other: float64 [steps] in [0, 1]."""
    out = np.zeros(steps)
    at = 0
    while at < steps:
        length = int(random.uniform(0.12, 0.26) * SYLLABLE_RATE)
        bump = random.uniform(0.5, 1.0) * np.sin(np.pi * np.arange(length) / length)
        out[at:at + length] = bump[:steps - at]
        at += length + int(random.uniform(0.0, 0.06) * SYLLABLE_RATE)
    return out


class Sound(NamedTuple):
    samples: np.ndarray  # float32 [n] in [-1, 1], mono
    rate: int  # Hz


def _recording(random: np.random.Generator, people: list[Person], rate: int) -> Sound:
    count = int(len(people[0].voice) / SYLLABLE_RATE * rate)
    time = np.arange(count) / rate
    steps = np.arange(len(people[0].voice)) / SYLLABLE_RATE
    mixed = np.zeros(count)
    for person in people:
        pitch = person.pitch * (1 + 0.03 * np.sin(2 * np.pi * random.uniform(2, 4) * time))
        phase = 2 * np.pi * np.cumsum(pitch) / rate
        harmonics = sum(np.sin(k * phase) / (1 + ((k * person.pitch - 500) / 600) ** 2) for k in range(1, 20))
        breath = 0.15 * random.standard_normal(count)
        mixed += np.interp(time, steps, person.voice) * (harmonics + breath)
    level = 10 ** (random.uniform(-32, -18) / 20)  # recordings differ in level, as real ones do
    mixed *= level / np.sqrt(np.mean(mixed**2) + 1e-12)
    mixed += 10 ** (-60 / 20) * random.standard_normal(count)
    return Sound(np.clip(mixed, -1, 1).astype(np.float32), rate)


# --- faces ---------------------------------------------------------------------------------------------------------------

def _head(random: np.random.Generator) -> np.ndarray:
    import cv2

    grain = cv2.resize(random.normal(0, 14, (14, 14, 3)).astype(np.float32), (CANVAS, CANVAS), interpolation=cv2.INTER_CUBIC)
    image = np.empty((CANVAS, CANVAS, 3), np.float32)
    image[:] = random.uniform(30, 130, 3)
    skin = tuple(float(v) for v in random.uniform((90, 110, 140), (170, 190, 230)))
    cv2.ellipse(image, (56, 58), (38, 50), 0, 0, 360, skin, -1)
    dark = tuple(v * 0.3 for v in skin)
    cv2.ellipse(image, (56, 18), (36, 16), 0, 0, 360, dark, -1)
    for x in (41, 71):
        cv2.ellipse(image, (x, 46), (7, 4), 0, 0, 360, (235.0, 235.0, 235.0), -1)
        cv2.circle(image, (x, 46), 3, dark, -1)
    cv2.line(image, (56, 50), (54, 66), tuple(v * 0.7 for v in skin), 2)
    return np.clip(image + grain + random.normal(0, 4, image.shape), 0, 255).astype(np.uint8)


def _draw(person: Person, opening: float, shift: tuple[float, float]) -> np.ndarray:
    """One frame, uint8 [CANVAS, CANVAS, 3] BGR: the head with its mouth open by `opening`, moved by `shift` pixels."""
    import cv2

    image = person.head.copy()
    height = 1 + round(13 * opening)
    cv2.ellipse(image, (56, 84), (15, height + 3), 0, 0, 360, (70, 70, 150), -1)
    cv2.ellipse(image, (56, 84), (12, height), 0, 0, 360, (25, 15, 35), -1)
    move = np.array([[1, 0, shift[0]], [0, 1, shift[1]]], np.float32)
    return cv2.warpAffine(image, move, (CANVAS, CANVAS), borderMode=cv2.BORDER_REPLICATE)


class Track(NamedTuple):
    fps: float
    times: np.ndarray  # float64 [frames], seconds from the start of the recording
    labels: np.ndarray  # uint8 [frames]
    mouth: np.ndarray  # float32 [frames]
    mouthing: np.ndarray  # bool [frames]
    images: list[np.ndarray]  # uint8 [CANVAS, CANVAS, 3] BGR


def _track(random: np.random.Generator, person: Person, fps: float) -> Track:
    """What a face tracker would see: from a little after the start to a little before the end of the recording."""
    seconds = len(person.voice) / SYLLABLE_RATE
    first = random.uniform(0.0, 0.4)
    count = max(2, int((seconds - first - random.uniform(0.1, 0.4)) * fps))
    times = first + np.arange(count) / fps
    step = np.minimum(((times + 0.5 / fps) * SYLLABLE_RATE).astype(int), len(person.voice) - 1)  # the middle of each frame
    sway = random.uniform(0.5, 2.0, 2)[:, None] * np.sin(2 * np.pi * random.uniform(0.1, 0.4, 2)[:, None] * times)
    images = [_draw(person, float(o), (float(x), float(y))) for o, x, y in zip(person.mouth[step], *sway, strict=True)]
    return Track(fps, times, person.talking[step].astype(np.uint8), person.mouth[step], person.mouthing[step], images)


# --- files ---------------------------------------------------------------------------------------------------------------

def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="")


def _write_clip(random: np.random.Generator, visual: Path, audio: Path, sample_id: str, track: Track, sound: Sound) -> Clip:
    """One track of the clip tree: crops of changing, non-square size, and the WAV from its first to its last time stamp."""
    import cv2
    import soundfile

    folder = visual / sample_id
    folder.mkdir(parents=True, exist_ok=True)
    audio.mkdir(parents=True, exist_ok=True)
    width, height, growth = random.integers(72, 150), random.integers(80, 176), random.uniform(-0.1, 0.1)
    stamps = tuple(f"{900 + time:.2f}" for time in track.times)
    for n, (stamp, image) in enumerate(zip(stamps, track.images, strict=True)):
        scale = 1 + growth * n / len(track.images)
        crop = cv2.resize(image, (int(width * scale), int(height * scale)), interpolation=cv2.INTER_LINEAR)
        _save_jpeg(folder / f"{stamp}.jpg", crop)
    first, last = int(track.times[0] * sound.rate), int(track.times[-1] * sound.rate)
    soundfile.write(audio / f"{sample_id}.wav", sound.samples[first:last], sound.rate, subtype="PCM_16")
    return Clip(sample_id, visual.name, track.fps, len(track.images), 0.0, track.labels, track.mouth, track.mouthing, stamps)


def _save_jpeg(path: Path, image: np.ndarray) -> None:
    import cv2

    done, encoded = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, 92])
    if not done:
        raise OSError(f"OpenCV cannot encode {path}")
    path.write_bytes(encoded.tobytes())


def _original_table(clips: list[Clip]) -> str:
    """The `_orig.csv` of a clip tree: one row per frame, as the evaluation joins it."""
    rows = ["video_id,frame_timestamp,entity_box_x1,entity_box_y1,entity_box_x2,entity_box_y2,label,entity_id,label_id,"
            "instance_id"]
    names = ("NOT_SPEAKING", "SPEAKING_AUDIBLE", "SPEAKING_NOT_AUDIBLE")
    for clip in clips:
        left = 0.1 if clip.sample_id.endswith(":1") else 0.6
        box = f"{left},0.2,{left + 0.3:.1f},0.8"
        rows += [f"{clip.video},{stamp},{box},{names[label]},{clip.sample_id},{label},{clip.sample_id}:0"
                 for stamp, label in zip(clip.stamps, np.where(clip.mouthing, 2, clip.labels).tolist(), strict=True)]
    return "\n".join(rows) + "\n"


def _write_manifest(random: np.random.Generator, manifest: Path, split: str, seconds: float) -> list[Clip]:
    """One more conversation as NPY faces and a single WAV that both tracks share, each with its own start."""
    import cv2
    import soundfile

    people = _conversation(random, seconds)
    sound = _recording(random, people, 16000)
    for kind in ("faces", "audio"):
        (manifest.parent / kind).mkdir(parents=True, exist_ok=True)
    audio = Path("audio", f"{split}_talk.wav")
    soundfile.write(manifest.parent / audio, sound.samples, sound.rate, subtype="PCM_16")
    rows, clips = ["sample_id\tvisual_path\taudio_path\tsource_fps\tlabels\tstart_sec\tvisual_kind\taudio_sample_rate"], []
    for index, person in enumerate(people):
        track, sample_id = _track(random, person, 25.0), f"{split}_talk_{index}"
        faces = Path("faces", f"{sample_id}.npy")
        np.save(manifest.parent / faces, np.stack([cv2.cvtColor(image, cv2.COLOR_BGR2GRAY) for image in track.images]))
        start = round(float(track.times[0]), 3)
        labels = json.dumps(track.labels.tolist())
        cells = (sample_id, faces.as_posix(), audio.as_posix(), track.fps, labels, start, "npy", 16000)
        rows.append("\t".join(map(str, cells)))
        clips.append(Clip(sample_id, "talk", track.fps, len(track.images), start, track.labels, track.mouth, track.mouthing))
    _write(manifest, "\n".join(rows) + "\n")
    return clips
