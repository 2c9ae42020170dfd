"""The numbered rules of the standard, as data: id, level, text, and a pure check that yields what breaks it.

`at` says when a rule is checked: "open" (sizes and documents only, each time a pack is opened), "check" (labels and levels
are read too) or "deep" (every byte). Those of "open" stand here, the others in `spec.rules_check`. The ids are append-only;
`spec/README.md` is the same list in prose.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from spec import zarr3
from spec.errors import Fault
from spec.facts import ArrayFacts, Facts
from spec.layout import SHARD_NAME, SPEECH, Stream

Check = Callable[[Facts], Iterator[Fault]]


class Rule(NamedTuple):
    """One rule of the standard."""

    id: str
    level: str  # MUST or SHOULD
    at: str  # "open", "check" or "deep"
    text: str
    check: Check


def faults(rules: tuple[Rule, ...], facts: Facts) -> Iterator[Fault]:
    """Everything in `facts` that breaks one of `rules`, with the rule's id and level."""
    for rule in rules:
        for fault in rule.check(facts):
            yield fault._replace(rule=rule.id, level=rule.level)


def reading(*kinds: str, of: Callable[[str], bool] = lambda file: True) -> Check:
    """The faults of these kinds, or of all without any, that reading met in the files `of` which the rule speaks."""
    return lambda facts: (f for f in facts.faults if (f.kind in kinds or not kinds) and of(f.file))


def _of_pack(file: str) -> bool:
    return file in ("dataset.json", "zarr.json")


def _of_shard(file: str) -> bool:
    return file.startswith("shard-")


def _of_columns(file: str) -> bool:
    return file.startswith("columns/")


def _lost(facts: Facts) -> Iterator[Fault]:
    yield from reading("missing", of=_of_shard)(facts)
    yield from dict.fromkeys(_array_reading("missing")(facts))  # a shard's folder is the fault of all its arrays


def _array_reading(*kinds: str) -> Check:
    return lambda facts: (a.fault for shard in facts.arrays for a in shard if a.fault and a.fault.kind in kinds)


def _extra_shard(facts: Facts) -> Iterator[Fault]:
    for name in facts.entries:
        digits = name.removeprefix("shard-")
        if facts.manifest and len(digits) >= 6 and digits.isdecimal() and SHARD_NAME.format(int(digits)) == name \
                and int(digits) >= facts.manifest.shards:
            yield Fault("extra-shard", name, expected=f"{facts.manifest.shards} shards, as dataset.json says",
                        found="one more", cure="Remove it, or restore the dataset.json that counts it.")


def _samples(facts: Facts) -> Iterator[Fault]:
    if facts.manifest and facts.index is not None and len(facts.index) != facts.manifest.samples:
        yield Fault("count", "dataset.json", expected=f"samples = {len(facts.index)}, the rows of all index.json",
                    found=str(facts.manifest.samples), cure="A shard was exchanged or an index edited: restore it.")


def _fit_stream(facts: Facts) -> Iterator[Fault]:
    for stream, array in readable_arrays(facts):
        if array.dtype != stream.dtype:
            yield Fault("dtype", array.file, expected=stream.dtype, found=array.dtype)
        if array.shape[1:] != stream.item_shape or not array.shape:
            yield Fault("shape", array.file, expected=f"rows of {list(stream.item_shape)}, as dataset.json says",
                        found=f"shape {list(array.shape)}")


def _size(facts: Facts) -> Iterator[Fault]:
    for stream, array in readable_arrays(facts):
        if facts.mirror or array.pieces is None or array.dtype != stream.dtype or array.shape[1:] != stream.item_shape:
            continue
        sharded = zarr3.file_bytes(len(array.header), array.rows, stream.row_bytes, stream.chunk_rows(array.rows))
        if array.size not in (array.data_end, sharded):
            yield Fault("size", array.file, offset=min(array.size, array.data_end),
                        expected=f"{array.data_end} bytes, or {sharded} with the shard index", found=str(array.size),
                        cure="The file was cut or written over: restore it or pack again.")


def _offsets(facts: Facts) -> Iterator[Fault]:
    for stream, rows in _located(facts):
        index = facts.index
        assert index is not None
        first, count = index.numbers(stream.offset), index.numbers(stream.count)
        with np.errstate(over="ignore"):
            bad = (first < 0) | (count < 0) | (first > rows) | (count > rows - first)
        yield from row_faults(facts, bad, "offset", lambda i, s=stream, f=first, c=count, r=rows:
                               (f"{s.offset} + {s.count} within the {r[i]} rows of {s.file}", f"{f[i]} + {c[i]}"))


def _coverage(facts: Facts) -> Iterator[Fault]:
    for stream, rows in _located(facts):
        index = facts.index
        assert index is not None
        first, count = index.numbers(stream.offset), index.numbers(stream.count)
        order = np.arange(len(index))
        if np.any(_uncovered(index.shard, first, first + count)):  # not in order of the offsets: put them in order
            order = np.lexsort((count, first, index.shard))
        shard, start, stop = index.shard[order], first[order], (first + count)[order]
        bad = _uncovered(shard, start, stop)
        yield from row_faults(facts, np.sort(order[bad]), "coverage", lambda i, s=stream, f=first:
                               (f"{s.file} covered without gap or overlap", f"{s.offset} {f[i]}"))
        last = np.append(shard[1:] != shard[:-1], True)
        for at in np.flatnonzero(last & (stop != rows[order]) & ~bad):
            file = f"{facts.shards[int(shard[at])]}/{stream.file}"
            yield Fault("coverage", file, expected=f"{stop[at]} rows, the end of the last sample", found=str(rows[order][at]))
    if facts.index is not None:
        for number in sorted(set(range(len(facts.shards))) - set(np.unique(facts.index.shard).tolist())):
            yield Fault("coverage", f"{facts.shards[number]}/index.json", expected="at least one sample", found="none")


def _uncovered(shard: np.ndarray, start: np.ndarray, stop: np.ndarray) -> np.ndarray:
    """Where a row does not begin at the end of the one before it, or at 0 in a new shard: bool [rows]."""
    before = np.append(0, stop[:-1])[:len(stop)]
    before[1:][shard[1:] != shard[:-1]] = 0
    return start != before


def _values(facts: Facts) -> Iterator[Fault]:
    if facts.index is None:
        return
    if facts.layout == SPEECH:
        samples = facts.index.numbers("audio_samples")
        yield from row_faults(facts, samples < 1, "value", lambda i: ("audio_samples of at least 1", str(samples[i])))
    if "source_fps" not in facts.index.columns:
        return
    fps, frames = facts.index.numbers("source_fps"), facts.index.numbers("source_frames")
    yield from row_faults(facts, frames < 1, "value", lambda i: ("source_frames of at least 1", str(frames[i])))
    yield from row_faults(facts, ~(np.isfinite(fps) & (fps > 0)), "value", lambda i: ("source_fps above 0", str(fps[i])))


def _audio_samples(facts: Facts) -> Iterator[Fault]:
    if facts.index is None or not {"audio_samples", "source_fps"} <= set(facts.index.columns):
        return
    fps, frames = facts.index.numbers("source_fps"), facts.index.numbers("source_frames")
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        law = np.rint(frames / fps * 16000)
    found = facts.index.numbers("audio_samples")
    yield from row_faults(facts, (found != law) & (fps > 0), "audio-samples", lambda i:
                           (f"audio_samples {law[i]:.0f} = round({frames[i]} / {fps[i]} * 16000)", str(found[i])))


def _sealed_files(facts: Facts) -> Iterator[Fault]:
    for file in facts.seal.files if facts.seal and not facts.mirror else ():
        if file.name not in facts.sizes:
            yield Fault("missing", file.name, expected=f"a file of {file.bytes} bytes, as seal.json says", found="none",
                        cure="Restore it or pack again.")
        elif facts.sizes[file.name] != file.bytes:
            yield Fault("size", file.name, expected=f"{file.bytes} bytes, as seal.json says", found=str(facts.sizes[file.name]),
                        cure="Restore it or pack again.")


def _sealed_blocks(facts: Facts) -> Iterator[Fault]:
    for file in facts.seal.files if facts.seal else ():
        found = facts.first_blocks.get(file.name)
        if found is not None and facts.sizes.get(file.name) == file.bytes and file.bytes and found != file.block(0):
            name = file.name.removesuffix(".npy") if facts.mirror else file.name
            yield Fault("digest", name, offset=0, expected=f"crc32c {file.block(0):08x} of the first block",
                        found=f"{found:08x}", cure="The file was exchanged or changed: restore it or pack again.")
    yield from reading("digest")(facts)


def readable_arrays(facts: Facts) -> Iterator[tuple[Stream, ArrayFacts]]:
    """Every array that could be read, with its stream."""
    for shard in facts.arrays:
        yield from ((s, a) for s, a in zip(facts.layout.streams, shard, strict=True) if a.fault is None)


def _located(facts: Facts) -> Iterator[tuple[Stream, np.ndarray]]:
    """Each stream with the rows of its array for every index row, where all arrays could be read."""
    if facts.index is None or not facts.arrays:
        return
    for stream in facts.layout.streams:
        arrays = facts.stream_arrays(stream)
        if all(a.fault is None for a in arrays):
            yield stream, np.array([a.rows for a in arrays], np.int64)[facts.index.shard]


def row_faults(facts: Facts, bad: np.ndarray, kind: str, says: Callable[[int], tuple[str, str]]) -> Iterator[Fault]:
    """A fault for each index row in `bad`, row numbers or a bool [rows]; `says(row)` gives expected and found."""
    for i in (np.flatnonzero(bad) if bad.dtype == bool else bad).tolist():
        assert facts.index is not None
        file, row = facts.index_file(i)
        expected, found = says(i)
        yield Fault(kind, file, facts.index.texts("sample_id")[i], row, expected=expected, found=found)


OPEN_RULES = (
    Rule("R001", "MUST", "open", "A pack has a dataset.json that is a strict JSON object (a mirror: a zarr.json with it).",
         reading("missing", "json", "zarr-document", of=_of_pack)),
    Rule("R002", "MUST", "open", "dataset.json names a known format and version.", reading("format", "version")),
    Rule("R003", "MUST", "open", "dataset.json states the format's constants: timeline, sample rate, normalisation, colour.",
         reading("manifest")),
    Rule("R004", "MUST", "open", "dataset.json states the face geometry as [height, width].", reading("geometry")),
    Rule("R005", "MUST", "open", "dataset.json states the dtypes of the format.", reading("dtype", of=_of_pack)),
    Rule("R006", "MUST", "open", "dataset.json counts shards and samples, at least one each.", reading("count")),
    Rule("R010", "MUST", "open", "Every shard from shard-000000 on has its index.json and its arrays.", _lost),
    Rule("R011", "MUST", "open", "There is no shard beyond the manifest's count.", _extra_shard),
    Rule("R012", "MUST", "open", "index.json is a strict JSON list of objects with all fields of the format.",
         reading("json", "index", "zarr-document", of=_of_shard)),
    Rule("R013", "MUST", "open", "The rows of all index.json are the manifest's samples.", _samples),
    Rule("R020", "MUST", "open", "Each array begins with a npy header (a mirror: has a Zarr v3 document and all its chunks).",
         _array_reading("npy-magic", "npy-version", "npy-header", "zarr-document", "zarr-index", "json", "size")),
    Rule("R021", "MUST", "open", "Each array has the dtype of the format and the shape that the manifest says.", _fit_stream),
    Rule("R022", "MUST", "open", "Each npy file ends with its data, or with padding and a Zarr shard index behind it.", _size),
    Rule("R023", "MUST", "open", "source_frames is at least 1 and source_fps a finite number above 0.", _values),
    Rule("R024", "MUST", "open", "audio_samples = round(source_frames / source_fps * 16000).", _audio_samples),
    Rule("R025", "MUST", "open", "Offsets and counts of every sample lie inside the arrays.", _offsets),
    Rule("R026", "MUST", "open", "The samples of a shard cover each array without gap or overlap.", _coverage),
    Rule("R030", "MUST", "open", "A seal.json that is there is valid.",
         lambda facts: (f for f in facts.faults if f.kind == "seal" or f.file == "seal.json")),
    Rule("R031", "MUST", "open", "Every file that the seal names is there and has its size.", _sealed_files),
    Rule("R032", "MUST", "open", "Sealed documents, and the first block of every sealed array, have their checksums.",
         _sealed_blocks),
    Rule("R033", "MUST", "open", "A sealed columns/ holds the columns of the index in the layout's dtypes.",
         lambda facts: (f for f in reading(of=_of_columns)(facts) if f.kind != "digest")),
)
