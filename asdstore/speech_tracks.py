"""Speech in a pack: a track is an utterance, with audio int16 [samples] and its text, language, split, corpus and speaker."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from asdstore.records import Encoded, Record
from spec.errors import InputError
from spec.layout import SAMPLE_RATE, Layout
from spec.timeline import level, pcm_to_float

if TYPE_CHECKING:
    from asdstore.pack import Pack


class SpeechMedia(NamedTuple):
    """What loading the record of an utterance gives."""

    audio: np.ndarray  # int16 [samples], mono 16 kHz
    text: str
    language: str
    split: str
    speaker: str = ""


def speech_record(corpus: str, sample_id: str, samples: int, source: object) -> Record:
    """The record of an utterance of so many samples: each is a frame of its time line."""
    return Record(corpus, sample_id, float(SAMPLE_RATE), samples, 0.0, sample_id, source)


def encode_speech(record: Record, media: SpeechMedia, layout: Layout) -> Encoded:
    """An utterance in the form in which it is stored. Raises InputError "audio" (of another type or length), "audio-empty"."""
    audio = media.audio
    if audio.dtype != np.int16 or audio.shape != (record.frames,):
        raise InputError("audio", sample_id=record.sample_id, expected=f"int16 [{record.frames}], as audio_size says",
                         found=f"{audio.dtype} {list(audio.shape)}", cure="Check the set, and prepare the corpus again.")
    found = level(pcm_to_float(audio))
    row = {"corpus": record.dataset, "sample_id": record.sample_id, "text": media.text, "language": media.language,
           "split": media.split, "speaker": media.speaker, "audio_samples": len(audio), "audio_mean": found.mean,
           "audio_rms": found.rms, "audio_peak": found.peak}
    size = {"tracks": 1, "samples": len(audio)}
    tally: dict[str, Any] = {**size, "datasets": {record.dataset: size}, "notes": {}}
    return Encoded({"audio": np.ascontiguousarray(audio, "<i2")}, row, tally)


def describe_speech(pack: Pack) -> str:
    """A short text table of a speech pack: utterances and hours of each language and split."""
    from asdstore.stats import compute_stats, table

    shares = compute_stats(pack, per_split=True)
    hours = sum(share.hours for share in shares)
    head = f"{', '.join(pack.paths)}\n{pack.layout.format} {pack.layout.version}, {len(pack):,} utterances, {hours:,.3f} h"
    return f"{head}\n{table(shares, per_split=True)}"
