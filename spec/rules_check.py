"""The rules that `check` judges beside those of `open`: labels, levels, columns, mirrors, and with "deep" every byte."""
from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from spec import columns, manifest, seal, zarr3
from spec.errors import Fault
from spec.facts import Contents, Facts, Mirrored
from spec.index import Index
from spec.layout import SHARD_NAME, SPEECH
from spec.rules import OPEN_RULES, Check, Rule, faults, readable_arrays, row_faults
from spec.strings import Strings

PCM_STEP = 1 / 32767
RESTORE = "The file was exchanged or damaged: restore it or pack again."


def _judged(kind: str) -> Check:
    """What reading further found of one kind."""
    return lambda facts: (f for f in _contents(facts).faults if f.kind == kind)


def _contents(facts: Facts) -> Contents:
    return facts.contents or Contents()


def _columns(facts: Facts, *names: str) -> list[np.ndarray]:
    """Some numeric columns of the index, or as many empty ones where it could not be read or has them not."""
    if facts.index is not None and all(name in facts.index.columns for name in names):
        return [facts.index.numbers(name) for name in names]
    return [np.empty(0)] * len(names)


# ---- shards and index

def _shard_names(facts: Facts) -> Iterator[Fault]:
    for name in facts.entries:
        digits = name.removeprefix("shard-")
        known = digits.isdecimal() and len(digits) < 10 and SHARD_NAME.format(int(digits)) == name
        if name.startswith("shard-") and not known:
            yield Fault("shard-name", name, expected="no other name that begins with shard-", found="one",
                        cure="Remove or rename it: other readers take every shard-* for a shard.")


def _ids(facts: Facts) -> Iterator[Fault]:
    if facts.index is None:
        return
    ids = facts.index.texts("sample_id").fixed()
    yield from row_faults(facts, np.diff(facts.index.texts("sample_id").offsets) == 0, "sample-id",
                          lambda i: ("a sample id", "an empty text"))
    order = np.argsort(ids, kind="stable")
    same = np.append(False, ids[order][1:] == ids[order][:-1])[:len(ids)]
    first = order[np.maximum.accumulate(np.where(same, 0, np.arange(len(ids))))]
    original = dict(zip(order[same].tolist(), first[same].tolist(), strict=True))
    yield from row_faults(facts, np.sort(order[same]), "duplicate-id", lambda i:
                          ("every sample id once", f"the one of {_place(facts, original[i])} again"))


def _place(facts: Facts, row: int) -> str:
    file, number = facts.index_file(row)
    return f"{file}, row {number}"


def _model_frames(facts: Facts) -> Iterator[Fault]:
    found, frames, fps = _columns(facts, "model_frames", "source_frames", "source_fps")
    with np.errstate(all="ignore"):
        law = np.floor(frames / fps * 25.0 + 1e-9)
    yield from row_faults(facts, (found != law) & (fps > 0), "model-frames", lambda i:
                          (f"model_frames {law[i]:.0f} = floor({frames[i]} / {fps[i]} * 25 + 1e-9)", str(found[i])))


def _label_offset(facts: Facts) -> Iterator[Fault]:
    labels, faces = _columns(facts, "label_offset", "face_offset")
    yield from row_faults(facts, labels != faces, "label-offset", lambda i:
                          (f"label_offset = face_offset {faces[i]}", str(labels[i])))


# ---- levels and labels

def _levels(facts: Facts) -> Iterator[Fault]:
    yield from _out_of_range(facts, "audio_mean", -np.inf, np.inf, "a finite number")
    yield from _out_of_range(facts, "audio_rms", 0, np.inf, "a finite number of 0 or more")
    yield from _out_of_range(facts, "audio_peak", 0, np.inf, "a finite number of 0 or more")
    yield from _out_of_range(facts, "speaking_ratio", 0, 1, "0 to 1")


def _out_of_range(facts: Facts, name: str, low: float, high: float, said: str) -> Iterator[Fault]:
    found, = _columns(facts, name)
    yield from row_faults(facts, ~(np.isfinite(found) & (found >= low) & (found <= high)), "level", lambda i:
                          (f"{name}: {said}", str(found[i])))


def _labels(facts: Facts) -> Iterator[Fault]:
    for row, frame, value in _contents(facts).odd_labels:
        yield _at(facts, "labels", "label", row, frame)._replace(expected="labels 0 or 1", found=f"{value} at frame {frame}",
                                                                 cure="Correct the labels and pack again.")


def _at(facts: Facts, stream: str, kind: str, row: int, item: int) -> Fault:
    """A fault at one item of a sample's array, with its byte where the array is one piece of a file."""
    assert facts.index is not None
    shard, layout = int(facts.index.shard[row]), facts.layout.stream(stream)
    array = facts.arrays[shard][facts.layout.streams.index(layout)]
    first = int(facts.index.numbers(layout.offset)[row]) + item
    whole = array.pieces is not None and len(array.pieces) == 1
    offset = array.pieces[0].offset + first * layout.row_bytes if whole and array.pieces else None
    return Fault(kind, array.file, facts.index.texts("sample_id")[row], facts.index_file(row)[1], offset)


def _speaking_ratio(facts: Facts) -> Iterator[Fault]:
    found, frames = _columns(facts, "speaking_ratio", "source_frames")
    positives = _contents(facts).positives
    if positives is None:
        return
    mean = positives / np.maximum(frames, 1)
    yield from row_faults(facts, (positives >= 0) & ~(np.abs(found - mean) <= 1e-6), "speaking-ratio", lambda i:
                          (f"speaking_ratio {positives[i]} / {frames[i]} = {mean[i]:.6f}, as the labels are", str(found[i])))


def _pcm_levels(facts: Facts) -> Iterator[Fault]:
    """Rounding moves a sample by half a step: mean and RMS by no more, the peak by twice that. Where the audio reaches full
    scale the waveform may have been clamped after it was measured: then its levels were no lower."""
    pcm, full_scale = _contents(facts).pcm, _contents(facts).full_scale
    if pcm is None or full_scale is None:
        return
    yield from _level_faults(facts, "audio_mean", pcm[:, 0], PCM_STEP, full_scale, full_scale)
    yield from _level_faults(facts, "audio_rms", pcm[:, 1], PCM_STEP, np.zeros_like(full_scale), full_scale)
    yield from _level_faults(facts, "audio_peak", pcm[:, 2], 2 * PCM_STEP, np.zeros_like(full_scale), full_scale)


def _level_faults(facts: Facts, name: str, law: np.ndarray, step: float, may_be_lower: np.ndarray,
                  may_be_higher: np.ndarray) -> Iterator[Fault]:
    found, = _columns(facts, name)
    allowed = step + 1e-4 * np.abs(law)
    bad = ((found < law - allowed) & ~may_be_lower) | ((found > law + allowed) & ~may_be_higher)
    yield from row_faults(facts, bad, "audio-level", lambda i: (f"{name} {law[i]:.6f}, as the audio is", str(found[i])))


def _lowest(facts: Facts) -> Iterator[Fault]:
    lowest = _contents(facts).lowest
    for row, sample in lowest if lowest and facts.layout != SPEECH else ():  # speech is stored as it was
        yield _at(facts, "audio", "pcm", row, sample)._replace(expected="no -32768", found=f"one at sample {sample}")


# ---- files and seal

def _tails(facts: Facts) -> Iterator[Fault]:
    for stream, array in readable_arrays(facts):
        found = _contents(facts).tails.get(array.file)
        if found is None:
            continue
        law = zarr3.shard_tail(len(array.header), array.rows, stream.row_bytes, stream.chunk_rows(array.rows))
        if found != law:
            at = next((k for k, (a, b) in enumerate(zip(found, law, strict=False)) if a != b), min(len(found), len(law)))
            yield Fault("zarr-index", array.file, offset=array.size - len(law) + at, expected=f"{law[at:at + 8].hex()} of the "
                        "shard index", found=found[at:at + 8].hex(), cure=RESTORE)


def _unsealed(facts: Facts) -> Iterator[Fault]:
    lost = facts.seal is None and not any(f.kind == "seal" or f.file == seal.NAME for f in facts.faults)
    if lost and facts.manifest is not None:
        yield Fault("unsealed", expected="a seal", found="none: exchanged files of equal size, and altered bytes, cannot be "
                    "detected", cure="Pack again with asdstore if that matters.")


def _unlisted(facts: Facts) -> Iterator[Fault]:
    if facts.seal and not facts.mirror:
        for name in sorted(set(_contents(facts).files) - {f.name for f in facts.seal.files} - {seal.NAME}):
            yield Fault("unlisted", name, expected="only files that seal.json names", found="another one",
                        cure="Remove it: nothing is added to a sealed pack.")


def _same_columns(facts: Facts) -> Iterator[Fault]:
    found = _contents(facts)
    yield from _judged("columns")(facts)
    if found.columns is not None and found.documents is not None:
        for name, row, here, there in differences(found.columns, found.documents):
            yield Fault("columns", f"{columns.FOLDER}/{name}", row=row, expected=f"{there}, as index.json says", found=here,
                        cure="Remove columns/ and seal.json, then check the pack.")


def differences(one: Index, other: Index) -> Iterator[tuple[str, int | None, str, str]]:
    """Where two indexes differ: column, the first row, and the values of both; the row is None where a whole column differs."""
    if len(one) != len(other):
        yield "", None, f"{len(one)} rows", f"{len(other)} rows"
        return
    for name in dict.fromkeys((*one.columns, *other.columns, *one.extra, *other.extra)):
        here, there = ((i.columns | i.extra).get(name) for i in (one, other))
        if here is None or there is None:
            yield name, None, "nothing" if here is None else "a column", "nothing" if there is None else "a column"
        elif (row := _first_difference(here, there)) is not None:
            yield name, row, str(here[row]), str(there[row])


def _first_difference(one: np.ndarray | Strings, other: np.ndarray | Strings) -> int | None:
    if isinstance(one, Strings) and isinstance(other, Strings):
        if np.array_equal(one.offsets, other.offsets) and np.array_equal(one.blob, other.blob):
            return None
        return next(k for k, (a, b) in enumerate(zip(one, other, strict=True)) if a != b)
    if isinstance(one, Strings) or isinstance(other, Strings):
        return 0
    bad = np.flatnonzero(~((one == other) | ((one != one) & (other != other))))
    return int(bad[0]) if len(bad) else None


# ---- mirrors

def _mirrors(facts: Facts) -> Iterator[tuple[Mirrored, Iterator[Fault]]]:
    for mirror in _contents(facts).mirrors:
        yield mirror, faults(OPEN_RULES, mirror.facts)


def _mirror_opens(facts: Facts) -> Iterator[Fault]:
    for mirror, found in _mirrors(facts):
        yield from (f._replace(file=f"{mirror.name}/{f.file}") for f in found)


def _mirror_says(facts: Facts) -> Iterator[Fault]:
    yield from _judged("mirror-document")(facts)
    for mirror in _contents(facts).mirrors:
        other, file = mirror.facts, f"{mirror.name}/zarr.json"
        if facts.manifest and other.manifest and manifest.document(facts.manifest) != manifest.document(other.manifest):
            yield Fault("mirror-document", file, expected="the manifest of the pack", found="another one", cure=_AGAIN)
        if other.manifest and facts.seal != other.seal:
            yield Fault("mirror-document", file, expected="the seal of the pack", found="another one", cure=_AGAIN)
        if facts.index is not None and other.index is not None:
            for name, row, here, there in differences(other.index, facts.index):
                where, number = (file, None) if row is None else other.index_file(row)
                yield Fault("mirror-document", f"{mirror.name}/{where}" if row is not None else file, row=number,
                            expected=f"{name} {there}, as the pack says", found=here, cure=_AGAIN)
        for own, mirrored in zip(facts.arrays, other.arrays, strict=False):
            for a, b in zip(own, mirrored, strict=False):
                if a.fault is None and b.fault is None and a.shape != b.shape:
                    yield Fault("mirror-document", f"{mirror.name}/{b.file}", expected=f"shape {list(a.shape)}, as {a.file}",
                                found=str(list(b.shape)), cure=_AGAIN)
        yield from (f for f in mirror.faults if f.kind == "mirror-document")


_AGAIN = "Make the mirror again: python -m asdstore.mirror PACK --overwrite."


def _mirror_data(facts: Facts) -> Iterator[Fault]:
    for mirror in _contents(facts).mirrors:
        yield from (f._replace(cure=f.cure or _AGAIN) for f in mirror.faults if f.kind != "mirror-document")


CHECK_RULES = (
    Rule("R014", "SHOULD", "check", "Nothing but the shards is named shard-*.", _shard_names),
    Rule("R015", "MUST", "check", "Sample ids are not empty, and no two tracks of a pack have the same.", _ids),
    Rule("R027", "SHOULD", "check", "model_frames = floor(source_frames / source_fps * 25 + 1e-9).", _model_frames),
    Rule("R028", "SHOULD", "check", "label_offset = face_offset.", _label_offset),
    Rule("R029", "MUST", "check", "A Zarr shard index behind the data of a npy file is the one that its length asks for.",
         _tails),
    Rule("R034", "MUST", "deep", "Every block of every sealed file has its CRC-32C.", _judged("digest")),
    Rule("R035", "MUST", "deep", "Every sealed file has its sha256.", _judged("sha256")),
    Rule("R036", "SHOULD", "check", "A pack has a seal.json.", _unsealed),
    Rule("R037", "MUST", "check", "A sealed pack holds no file that the seal does not name, except in Zarr mirrors.",
         _unlisted),
    Rule("R038", "MUST", "check", "A columns/ equals the index.json files.", _same_columns),
    Rule("R040", "MUST", "check", "Levels are finite, audio_rms and audio_peak 0 or more, speaking_ratio from 0 to 1.",
         _levels),
    Rule("R041", "MUST", "check", "Labels are 0 or 1.", _labels),
    Rule("R042", "MUST", "check", "speaking_ratio is the mean of the labels.", _speaking_ratio),
    Rule("R043", "MUST", "deep", "audio_mean, audio_rms and audio_peak are those of the audio, up to its rounding.",
         _pcm_levels),
    Rule("R044", "SHOULD", "deep", "No audio sample is -32768.", _lowest),
    Rule("R045", "MUST", "deep", "The padding between the data of a npy file and its Zarr shard index is zero.",
         _judged("padding")),
    Rule("R050", "MUST", "check", "A Zarr mirror in a pack opens: its documents are valid and every chunk is there.",
         _mirror_opens),
    Rule("R051", "MUST", "check", "The documents of a mirror, and its consolidated metadata, say what the pack says.",
         _mirror_says),
    Rule("R052", "MUST", "check", "Every chunk of a mirror is the pack's own file or holds the same rows.", _mirror_data),
    Rule("R060", "MUST", "check", "Everything in a pack can be read.", _judged("unreadable")),
)
RULES = (*OPEN_RULES, *CHECK_RULES)
