"""A batch of utterances in memory: audio decoded or viewed, normalised, as a waveform or log-mel, beside tokens and texts."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from asdstore.copies import Copy, Scale, carry_out
from asdstore.errors import AsdError, DependencyError, Fault, InputError, StoreError
from pipelines.buffers import Pool
from pipelines.keys import Key
from pipelines.log_mel import BANDS, FRAME, frame_count, log_mel, standardize
from pipelines.spec_augment import SpecAugment
from pipelines.speech_corpus import Utterances
from pipelines.tokenizers import Tokenizer

FEATURES, NORMALIZE, DTYPES = ("waveform", "log_mel"), ("layer", "scale"), ("float32", "float16")
_EPSILON = 1e-5  # of torch.nn.functional.layer_norm
_FULL_SCALE = 1 << 15


class Reading(NamedTuple):
    """What becomes of an utterance.

    `features`: "waveform" or "log_mel"; `normalize`: "layer" (mean 0 and variance 1: of the waveform, or of each band of
    log-mel) or "scale" (full scale is 1, log-mel as Kaldi gives it); `dtype`: "float32" or "float16". `undecodable`: "report"
    leaves out utterances that cannot be decoded, "error" raises.
    """

    features: str = "waveform"
    normalize: str = "layer"
    dtype: Any = "float32"
    tokenizer: Tokenizer | None = None
    remove_unknown: bool = False
    spec_augment: SpecAugment | None = None
    undecodable: str = "report"

    def checked(self) -> Reading:
        """The same with its dtype as a text, whether it was given as one, as numpy's or as torch's.

        Raises: InputError, the option's name as its kind.
        """
        if not isinstance(self.dtype, str):
            named = str(self.dtype) if "torch" in type(self.dtype).__module__ else np.dtype(self.dtype).name
            return self._replace(dtype=named.removeprefix("torch.")).checked()
        for name, known in (("features", FEATURES), ("normalize", NORMALIZE), ("dtype", DTYPES),
                            ("undecodable", ("report", "error"))):
            if getattr(self, name) not in known:
                raise InputError(name, expected=" or ".join(map(repr, known)), found=repr(getattr(self, name)))
        if not isinstance(self.spec_augment, SpecAugment | None):
            raise InputError("spec_augment", expected="a SpecAugment or None", found=repr(self.spec_augment)[:100])
        if self.spec_augment is not None:
            self.spec_augment.check(BANDS if self.features == "log_mel" else 201)
        return self

    @property
    def pad_id(self) -> int:
        """What stands beyond the tokens of an utterance."""
        return getattr(self.tokenizer, "pad_id", 0)

    def tokens(self, text: str) -> np.ndarray:
        """int64 [tokens]. Raises: InputError "tokenizer" for tokens that are no whole numbers."""
        assert self.tokenizer is not None
        given = np.asarray(self.tokenizer(text))
        if given.ndim != 1 or (len(given) and given.dtype.kind not in "iu"):
            raise InputError("tokenizer", expected="a list of whole numbers for each text",
                             found=f"{given.tolist()!r}"[:100] + f" for {text!r}"[:100])
        found = given.astype(np.int64)
        unknown = getattr(self.tokenizer, "unknown_id", None)
        return found[found != unknown] if self.remove_unknown and unknown is not None else found


class Place(NamedTuple):
    """The utterances of a batch: int64 `rows` and draw `numbers` [members], and how large the batch is at least."""

    rows: np.ndarray
    numbers: np.ndarray
    least_rows: int = 0
    least_samples: int = 0
    fixed: bool = False  # few distinct shapes: rows of what cannot be decoded stay, targets are padded to powers of two


def make(utterances: Utterances, place: Place, reading: Reading, key: Key, pool: Pool) -> dict[str, Any]:
    """The batch, with its undecodable utterances as `faults`, a list of (row, `Fault`).

    Raises: InputError and the like for the first utterance that cannot be decoded, with `undecodable="error"`; StoreError
    and DependencyError always.
    """
    sounds: list[np.ndarray | None] = []
    faults: list[tuple[int, Fault]] = []
    for row in place.rows.tolist():
        try:
            sounds.append(utterances.audio(row))
        except AsdError as error:
            if reading.undecodable == "error" or isinstance(error, (StoreError, DependencyError)):
                raise
            sounds.append(None)
            fault = error.fault
            faults.append((row, fault if fault.sample_id else fault._replace(sample_id=utterances.id(row))))
    kept = [n for n, sound in enumerate(sounds) if sound is not None]
    members = list(range(len(sounds))) if place.fixed else kept
    rows = max(len(members), place.least_rows, 1)
    batch = _described(utterances, [place.rows[n] if sounds[n] is not None else -1 for n in members], rows)
    batch["draws"] = _column([place.numbers[n] if sounds[n] is not None else -1 for n in members], rows, -1)
    keys = [None if reading.spec_augment is None else key.fold(int(place.numbers[n]), "spec_augment") for n in members]
    source, lengths = _source([(sounds[n], int(place.rows[n])) for n in members], keys, utterances, reading,
                              (rows, place.least_samples), pool)
    targets = _targets(batch["texts"], batch["valid"], reading, place.fixed)
    return {"source_seqs": source, "source_seq_lens": lengths, **targets, **batch, "faults": faults}


def _column(values: Sequence[Any], rows: int, fill: int = 0) -> np.ndarray:
    return np.array([*map(int, values), *[fill] * (rows - len(values))], np.int64)


def _described(utterances: Utterances, members: Sequence[int], rows: int) -> dict[str, Any]:
    """Texts of the rows, "" where there is no utterance (-1), and `valid`."""
    has = [int(member) for member in members] + [-1] * (rows - len(members))

    def texts(of: Any) -> np.ndarray:
        return np.array([of(row) if row >= 0 else "" for row in has], str)

    return {"texts": texts(utterances.text), "languages": texts(utterances.language.__getitem__),
            "corpora": texts(utterances.corpus.__getitem__), "ids": texts(utterances.id), "valid": np.array(has) >= 0}


def _targets(texts: np.ndarray, valid: np.ndarray, reading: Reading, fixed: bool) -> dict[str, np.ndarray]:
    if reading.tokenizer is None:
        return {}
    tokens = [reading.tokens(str(text)) if good else np.empty(0, np.int64) for text, good in zip(texts, valid, strict=True)]
    longest = max(map(len, tokens), default=0)
    found = np.full((len(tokens), token_width(longest, fixed)), reading.pad_id, np.int64)
    for row, one in zip(found, tokens, strict=True):
        row[:len(one)] = one
    return {"target_seqs": found, "target_seq_lens": np.array([len(one) for one in tokens], np.int64)}


def token_width(longest: int, fixed: bool) -> int:
    """Columns of target_seqs for so many tokens."""
    return 1 << max(longest - 1, 0).bit_length() if fixed else longest


def source_width(samples: int, reading: Reading) -> int:
    """Columns of source_seqs for so many samples."""
    return max(frame_count(samples), 1) if reading.features == "log_mel" else max(samples, 1)


def _source(members: Sequence[tuple[np.ndarray | None, int]], keys: Sequence[Key | None], utterances: Utterances,
            reading: Reading, least: tuple[int, int], pool: Pool) -> tuple[np.ndarray, np.ndarray]:
    """source_seqs and source_seq_lens, of sounds and their rows; `keys` where there are masks to draw."""
    rows, samples = least
    width = source_width(max([samples, *(len(sound) for sound, _ in members if sound is not None)]), reading)
    mel = reading.features == "log_mel"
    shape = (rows, width, BANDS) if mel else (rows, width)
    out = pool.arrays([("source_seqs", shape, np.dtype(reading.dtype))])["source_seqs"]
    lengths = np.zeros(rows, np.int64)
    jobs: list[Copy | Scale] = []
    waves = []
    for number in range(rows):
        sound, row = members[number] if number < len(members) else (None, -1)
        if sound is None:
            out[number] = 0
            continue
        if mel:
            lengths[number] = _write_mel(sound, out[number], reading, keys[number])
        else:
            lengths[number] = len(sound)
            wave = out[number, :len(sound)] if out.dtype == np.float32 else np.empty(len(sound), np.float32)
            _list_waveform(sound, utterances.level(row), wave, reading, jobs)
            waves.append((number, wave))
        out[number, lengths[number]:] = 0
    carry_out(jobs)
    for number, wave in waves:
        if reading.spec_augment is not None and (key := keys[number]) is not None:
            reading.spec_augment.waveform(wave, key)
        if out.dtype != np.float32:
            out[number, :len(wave)] = wave
    return out, lengths


def _write_mel(sound: np.ndarray, out: np.ndarray, reading: Reading, key: Key | None) -> int:
    if sound.dtype == np.int16:
        sound = sound * np.float32(1 / _FULL_SCALE)
    found = log_mel(sound if len(sound) >= FRAME else np.pad(sound, (0, FRAME - len(sound))))
    if reading.normalize == "layer":
        standardize(found)
    if reading.spec_augment is not None and key is not None:
        reading.spec_augment.features(found, key)
    out[:len(found)] = found
    return len(found)


def _list_waveform(sound: np.ndarray, level: tuple[float, float] | None, wave: np.ndarray, reading: Reading,
                   jobs: list[Copy | Scale]) -> None:
    if reading.normalize == "layer" and (level is None or sound.dtype != np.int16):
        layer_norm(sound, wave)
    elif sound.dtype != np.int16:
        jobs.append(Copy(wave, sound))
    elif level is None or reading.normalize == "scale":
        jobs.append(Scale(wave, sound, 0, 1 / _FULL_SCALE))
    else:
        mean, deviation = level
        gain = 1 / math.sqrt(deviation * deviation + _EPSILON) if deviation > 0 else 0
        jobs.append(Scale(wave, sound, mean * _FULL_SCALE, gain / _FULL_SCALE))


def layer_norm(sound: np.ndarray, out: np.ndarray) -> None:
    """Writes (x - mean) / sqrt(variance + 1e-5) of int16 or float32 [samples] on full scale 1; constant audio becomes 0."""
    if sound.dtype == np.int16:
        sound = sound * np.float32(1 / _FULL_SCALE)
    np.subtract(sound, sound.mean() if len(sound) else 0, out=out)
    out *= np.float32(1 / np.sqrt(float(np.dot(out, out)) / len(out) + _EPSILON)) if len(out) else 1
