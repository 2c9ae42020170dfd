"""Augmentation: a second voice, another voice, and changed faces. Each chunk has its own draws, whatever batch it is in.

Donor voices come from another recording, always: tracks of one recording can share one waveform. A track whose recording is
not known therefore neither gives nor gets a voice; the plan's notes count such chunks.
"""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from asdstore.errors import InputError
from pipelines.keys import Key
from pipelines.plan import Batch, Plan, Read
from pipelines.transforms import Transform, stage

_SILENT = 1e-10  # mean square of audio that is left alone: -100 dB


def _probability(name: str, *values: float) -> None:
    if not all(0 <= value <= 1 for value in values) or sum(values) > 1:
        raise InputError("prob", file=name, expected="probabilities from 0 to 1, together at most 1",
                         found=", ".join(map(str, values)))


def mix_voice(prob: float = 0.5, snr_db: tuple[float, float] = (-5.0, 5.0)) -> Transform:
    """Add another voice to a chunk's audio, at a ratio drawn evenly from `snr_db`; labels stay as they are.

    The donor is any other recording's track, scaled like all audio, from a random frame on where it is longer and repeated
    where it is shorter. Powers are mean squares over the fed span, so that the ratio holds at any level; silence is left alone.
    The sum is clipped to [-1, 1].
    Raises: InputError, "prob" or "snr"; while planning, "recording" where no track has a donor.
    """
    _probability("mix_voice", prob)
    low, high = snr_db if isinstance(snr_db, Sequence) and len(snr_db) == 2 else (1, -1)
    if not -100 <= low <= high <= 100:
        raise InputError("snr", file="mix_voice", expected="two rising numbers of dB", found=str(snr_db))
    return stage("mix_voice", _mix_plan, _mix, prob=float(prob), snr_db=(float(low), float(high)))


def substitute_voice(prob: float = 0.1) -> Transform:
    """Put another voice in place of a chunk's own: all its labels, and the targets made from them, are 0 then.

    Such a chunk gets no second voice by `mix_voice`. Raises: InputError, "prob"; while planning, "recording" where no track has
    a donor.
    """
    _probability("substitute_voice", prob)
    return stage("substitute_voice", _substitute_plan, prob=float(prob))


def donors(plan: Plan, key: Key) -> np.ndarray:
    """A track of another recording for each chunk, every one equally likely: int64 [chunks], -1 where there is none.

    Raises: InputError, "recording", where no chunk has one.
    """
    recordings = plan.tracks.recordings
    given = np.unique(plan.track)
    given = given[recordings[given] >= 0]
    given = given[np.argsort(recordings[given], kind="stable")]
    own = recordings[plan.track]
    first = np.searchsorted(recordings[given], own, "left")
    after = np.searchsorted(recordings[given], own, "right")
    others = np.where(own >= 0, len(given) - (after - first), 0)
    if not others.any():
        raise InputError("recording", expected="tracks of at least two known recordings, to take donor voices from",
                         found=f"{len(np.unique(own[own >= 0]))} known recordings",
                         cure="Pack with recordings, add another pack, or leave voices out of the augmentation.")
    drawn = key.fold("donor").integers(others)
    drawn += np.where(drawn >= first, after - first, 0)
    return np.where(others > 0, given[np.minimum(drawn, len(given) - 1)], -1)


def _chosen(plan: Plan, key: Key, prob: float, name: str) -> tuple[Plan, np.ndarray, np.ndarray]:
    """The plan with its notes, each chunk's donor (-1 for no change), and from which of its frames on."""
    rows = key.fold(plan.identity())
    audio = plan.read("audio").track
    assert audio is not None
    donor = donors(plan, rows)
    lonely = int((donor < 0).sum())
    donor = np.where((rows.fold("chosen").uniform() < prob) & (audio == plan.track), donor, -1)
    spare = np.maximum(plan.timeline.frames[donor] - plan.length, 0)
    notes = {**plan.notes, f"{name}_chunks": int((donor >= 0).sum()), f"{name}_chunks_without_donor": lonely}
    return plan._replace(notes=notes), donor, rows.fold("start").integers(spare + 1)


def _mix_plan(plan: Plan, key: Key, *, prob: float, snr_db: tuple[float, float]) -> Plan:
    if not prob:
        return plan
    plan, donor, start = _chosen(plan, key, prob, "mix_voice")
    return plan.with_read(Read("voice", "audio", donor, start, None, tile=True))


def _mix(batch: Batch, key: Key, *, prob: float, snr_db: tuple[float, float]) -> Batch:
    if "voice" not in batch:
        return batch
    ratio = key.fold("snr").uniform(*snr_db)
    audio, voice = batch["audio"], batch["voice"]
    for row, samples in enumerate(_samples(batch)):
        clean, other = audio[row, :samples], voice[row, :samples]
        powers = _power(clean), _power(other)
        if min(powers) < _SILENT:
            continue
        other *= np.float32(np.sqrt(powers[0] / powers[1]) * 10 ** (-ratio[row] / 20))
        clean += other
        np.clip(clean, -1, 1, out=clean)
    return {name: value for name, value in batch.items() if name not in ("voice", "voice_length")}


def _samples(batch: Batch) -> list[int]:
    """Samples of each row that belong to its frames."""
    frames = max(batch["scored"].shape[1], 1)
    return (batch["lengths"] * batch["audio"].shape[1] // frames).tolist()


def _power(samples: np.ndarray) -> float:
    return float(np.square(samples, dtype=np.float64).mean()) if len(samples) else 0.0


def _substitute_plan(plan: Plan, key: Key, *, prob: float) -> Plan:
    if not prob:
        return plan
    plan, donor, start = _chosen(plan, key, prob, "substitute_voice")
    changed = donor >= 0
    for read in plan.reads:
        track = plan.track if read.track is None else read.track
        if read.name == "audio":
            first = plan.start if read.start is None else read.start
            plan = plan.with_read(read._replace(track=np.where(changed, donor, track), start=np.where(changed, start, first),
                                                tile=True))
        elif read.stream == "labels":
            plan = plan.with_read(read._replace(track=np.where(changed, -1, track)))
    return plan


# Faces ---------------------------------------------------------------------------------------------------------------------


def augment_faces(flip: float = 0.25, crop: float = 0.25, rotate: float = 0.25) -> Transform:
    """Change the faces of a chunk, all frames alike: one of mirrored, cropped or rotated, with these probabilities, or none.

    crop: a part of 0.7 to 1 of the sides at a random place, brought back to full size; rotate: -15 to 15 degrees about the
    centre, black beyond the border. Both bilinear. Raises: InputError, "prob".
    """
    _probability("augment_faces", flip, crop, rotate)
    return stage("augment_faces", None, _augment_faces, flip=float(flip), crop=float(crop), rotate=float(rotate))


def _augment_faces(batch: Batch, key: Key, *, flip: float, crop: float, rotate: float) -> Batch:
    chosen, side, left, top, angle = (key.fold(name).uniform() for name in ("chosen", "side", "left", "top", "angle"))
    faces = batch["faces"]
    for row, frames in enumerate(batch["lengths"].tolist()):
        part = faces[row, :frames]
        if chosen[row] < flip:
            part[:] = part[..., ::-1].copy()
        elif chosen[row] < flip + crop:
            warp(part, *_cropped(part.shape[1:], 0.7 + 0.3 * side[row], left[row], top[row]))
        elif chosen[row] < flip + crop + rotate:
            warp(part, *_rotated(part.shape[1:], np.deg2rad(30 * angle[row] - 15)))
    return batch


def _cropped(shape: tuple[int, ...], share: float, left: float, top: float) -> tuple[np.ndarray, np.ndarray]:
    """Where each pixel comes from when a part of the picture fills it: (y, x), float64 [height, width]."""
    places = []
    for size, at in zip(shape, (top, left), strict=True):
        side = max(min(8, size), int(size * share))
        centres = (np.arange(size) + 0.5) * side / size - 0.5
        places.append(np.clip(centres, 0, side - 1) + int(at * (size - side + 1)))
    y, x = np.meshgrid(*places, indexing="ij")
    return y, x


def _rotated(shape: tuple[int, ...], angle: float) -> tuple[np.ndarray, np.ndarray]:
    """Where each pixel comes from when the picture is turned about its centre: (y, x), float64 [height, width]."""
    cy, cx = shape[0] / 2, shape[1] / 2
    y, x = np.mgrid[:shape[0], :shape[1]]
    return cy + (x - cx) * np.sin(angle) + (y - cy) * np.cos(angle), cx + (x - cx) * np.cos(angle) - (y - cy) * np.sin(angle)


def warp(frames: np.ndarray, y: np.ndarray, x: np.ndarray) -> None:
    """Resample frames in place, uint8 [frames, height, width], at the places `y`, `x`: bilinear, 0 beyond the border.

    In whole numbers, so that the pixels are the same on every machine.
    """
    height, width = frames.shape[1:]
    top, left = np.floor(y).astype(np.int64), np.floor(x).astype(np.int64)
    down, right = np.rint((y - top) * 128).astype(np.uint16), np.rint((x - left) * 128).astype(np.uint16)
    corners = []
    for dy, dx in ((0, 0), (0, 1), (1, 0), (1, 1)):
        weight = (down if dy else 128 - down) * (right if dx else 128 - right)  # of 2**14
        inside = (top + dy >= 0) & (top + dy < height) & (left + dx >= 0) & (left + dx < width)
        place = np.clip(top + dy, 0, height - 1) * width + np.clip(left + dx, 0, width - 1)
        corners.append((place.ravel(), (weight * inside).ravel().astype(np.uint32)))
    for at in range(0, len(frames), 8):  # a few frames at a time stay in the cache
        part = frames[at:at + 8].reshape(-1, height * width)
        total = np.full(part.shape, 1 << 13, np.uint32)
        for place, weight in corners:
            total += part.take(place, axis=1) * weight
        frames[at:at + 8] = (total >> 14).astype(np.uint8).reshape(-1, height, width)
