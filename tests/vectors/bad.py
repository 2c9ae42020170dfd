"""The bad vectors: each a pack or mirror with one fault, and the verdict that a reader must come to.

`open` is the kind of the error that opening raises, None where it opens; `check` the (rule, kind) pairs that checking finds,
`deep` those that it finds beside them when every byte is read.
"""
from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from asdstore.mirror import mirror
from tests.vectors.good import mirror_alone, mirror_of_another_program
from tests.vectors.tools import (
    edit_bytes,
    edit_json,
    edit_rows,
    edit_text,
    new_header,
    plain,
    records,
    reseal,
    resize,
    sealed,
    write_npy,
)

Pairs = list[tuple[str, str]]
MANIFEST, FIRST, SECOND = "dataset.json", "shard-000000", "shard-000001"


class Bad(NamedTuple):
    """One bad vector: `make(folder)` and its verdict."""

    name: str
    about: str
    make: Callable[[Path], None]
    open: str | None
    check: Pairs
    deep: Pairs


def bad(name: str, about: str, base: Callable[[Path], object], edit: Callable[[Path], object], open: str | None,
        check: Pairs, deep: Pairs = []) -> Bad:  # noqa: B006, never changed
    """A vector that is `base` with an edit. An unsealed base is reported as such, unless its manifest cannot be read."""
    def make(at: Path) -> None:
        base(at)
        edit(at)

    warned = base in (plain, one_shard, mirror_of_another_program) and not any(rule < "R010" for rule, _ in check)
    return Bad(name, about, make, open, [*check, *([("R036", "unsealed")] if warned else [])], deep)


def one_shard(at: Path) -> None:
    plain(at, shards=1)


def two_sealed(at: Path) -> None:
    sealed(at, records((3, 3)), shards=2)


def with_columns(at: Path) -> None:
    sealed(at, columns=True)
    reseal(at)


def with_mirror(at: Path) -> None:
    sealed(at)
    mirror(at)


def with_copy(at: Path) -> None:
    sealed(at)
    mirror(at, at / "mirror.zarr", link="copy")


def manifest(old: str, new: str) -> Callable[[Path], None]:
    return lambda at: edit_text(at / MANIFEST, old, new)


def row(number: int = 0, **values: Any) -> Callable[[Path], None]:
    return lambda at: edit_rows(at / FIRST / "index.json", lambda found: found.update(values), number)


def of_npy(dictionary: str, version: bytes = b"\x01\x00") -> Callable[[Path], None]:
    return lambda at: new_header(at / FIRST / "faces.npy", dictionary, version)


def removed(name: str) -> Callable[[Path], None]:
    def edit(at: Path) -> None:
        path = at / name
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    return edit


def then_sealed(edit: Callable[[Path], object]) -> Callable[[Path], None]:
    """The edit, under a seal that fits it: what is left is not an accident but a writer's fault."""
    def both(at: Path) -> None:
        edit(at)
        reseal(at)
    return both


def _exchange(at: Path) -> None:
    one, other = at / FIRST / "faces.npy", at / SECOND / "faces.npy"
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)


def _swapped_labels(at: Path) -> None:
    """The labels of two tracks in the other order, offsets with them."""
    path = at / FIRST / "labels.npy"
    labels = np.frombuffer(path.read_bytes(), np.uint8, 5, 128)
    write_npy(path, np.concatenate([labels[3:], labels[:3]]))
    row(0, label_offset=2)(at)
    row(1, label_offset=0)(at)


def _other_row(at: Path) -> None:
    edit_bytes(at / "mirror.zarr" / FIRST / "faces/c/0/0/0", 128 + 30, b"\x01\x02")


def _dangling(at: Path) -> None:
    path = at / "mirror.zarr" / FIRST / "audio/c/0"
    path.unlink()
    path.symlink_to("../../../nowhere.npy")


FACES = "{'descr': '|u1', 'fortran_order': False, 'shape': (5, 4, 6), }"
HUGE = "{'descr': '|u1', 'fortran_order': False, 'shape': (18446744073709551615, 4, 6), }"
DOCUMENTS = [
    bad("no-manifest", "dataset.json is not there", one_shard, removed(MANIFEST), "missing", [("R001", "missing")]),
    bad("json-cut", "dataset.json ends in the middle", one_shard, lambda at: resize(at / MANIFEST, 100), "json",
        [("R001", "json")]),
    bad("json-key-twice", "a key twice", one_shard, manifest('"shards": 1', '"shards": 1, "shards": 1'), "json",
        [("R001", "json")]),
    bad("json-nan", "NaN is not JSON", one_shard, manifest('"samples": 2', '"samples": 2, "x": NaN'), "json",
        [("R001", "json")]),
    bad("json-deep", "a hundred thousand open brackets", one_shard, manifest('"samples": 2', '"x": ' + "[" * 100_000), "json",
        [("R001", "json")]),
    bad("json-utf8", "bytes that are not UTF-8", one_shard, lambda at: edit_bytes(at / MANIFEST, 5, b"\xff"), "json",
        [("R001", "json")]),
    bad("json-list", "a list instead of an object", one_shard, lambda at: (at / MANIFEST).write_text("[]"), "manifest",
        [("R003", "manifest")]),
    bad("format", "another format", one_shard, manifest("muvap-asd-mmap", "ava-asd-mmap"), "format",
        [("R002", "format")]),
    bad("version", "a version that does not exist yet", one_shard, manifest('"version": 4', '"version": 5'), "version",
        [("R002", "version")]),
    bad("constant", "faces on a timeline of 25 fps", one_shard, manifest('"native"', '"model"'), "manifest",
        [("R003", "manifest")]),
    bad("geometry", "one number for height and width", one_shard, manifest("4,\n    6", "24"), "geometry",
        [("R004", "geometry")]),
    bad("manifest-dtype", "audio that would be int32", one_shard, manifest('"int16"', '"int32"'), "dtype",
        [("R005", "dtype")]),
    bad("no-shards", "a pack of no shards", one_shard, manifest('"shards": 1', '"shards": 0'), "count",
        [("R006", "count")]),
    bad("samples", "more samples counted than there are rows", one_shard, manifest('"samples": 2', '"samples": 9'), "count",
        [("R013", "count")]),
    bad("index-infinite", "a number beyond every float", one_shard,
        lambda at: edit_text(at / FIRST / "index.json", '"start_sec":0.0', '"start_sec":1e999'), "json", [("R012", "json")]),
    bad("index-field", "a row without audio_rms", one_shard,
        lambda at: edit_rows(at / FIRST / "index.json", lambda r: r.pop("audio_rms"), 1), "index", [("R012", "index")]),
    bad("index-type", "a count that is no whole number", one_shard, row(source_frames=3.5), "index", [("R012", "index")]),
    bad("index-object", "rows under a key", one_shard,
        lambda at: edit_json(at / FIRST / "index.json", lambda rows: rows.__setitem__(0, [])), "index", [("R012", "index")]),
]
SHARDS = [
    bad("shard-lost", "the second shard is gone", plain, removed(SECOND), "missing", [("R010", "missing")]),
    bad("audio-lost", "an array is gone", plain, removed(f"{SECOND}/audio.npy"), "missing", [("R010", "missing")]),
    bad("shard-beyond", "a shard beyond the manifest's count", plain,
        lambda at: shutil.copytree(at / SECOND, at / "shard-000002"), "extra-shard", [("R011", "extra-shard")]),
    bad("shard-temporary", "a leftover that others take for a shard", plain,
        lambda at: shutil.copytree(at / SECOND, at / "shard-000007.tmp"), None, [("R014", "shard-name")]),
    bad("faces-empty", "a file of no bytes", one_shard, lambda at: resize(at / FIRST / "faces.npy", 0), "npy-magic",
        [("R020", "npy-magic")]),
    bad("npy-magic", "not a npy file", one_shard, lambda at: edit_bytes(at / FIRST / "faces.npy", 0, b"PK\x03\x04"),
        "npy-magic",
        [("R020", "npy-magic")]),
    bad("npy-version", "npy version 9", one_shard, of_npy(FACES, b"\x09\x00"), "npy-version", [("R020", "npy-version")]),
    bad("npy-fortran", "columns first", one_shard, of_npy(FACES.replace("False", "True")),
        "npy-header", [("R020", "npy-header")]),
    bad("npy-object", "Python objects", one_shard, of_npy(FACES.replace("|u1", "|O")), "npy-header", [("R020", "npy-header")]),
    bad("npy-code", "an expression for a shape", one_shard, of_npy(FACES.replace("(5, 4, 6)", "__import__('os').abort()")),
        "npy-header", [("R020", "npy-header")]),
    bad("npy-huge", "more rows than 64 bits count bytes", one_shard, of_npy(HUGE), "npy-header", [("R020", "npy-header")]),
    bad("npy-dtype", "signed faces", one_shard, of_npy(FACES.replace("|u1", "|i1")), "dtype", [("R021", "dtype")]),
    bad("npy-shape", "faces lying on their side", one_shard, of_npy(FACES.replace("4, 6", "6, 4")),
        "shape", [("R021", "shape")]),
    bad("faces-short", "a byte is missing", one_shard, lambda at: resize(at / FIRST / "faces.npy", 128 + 119), "size",
        [("R022", "size")]),
    bad("faces-long", "a byte too many", one_shard, lambda at: resize(at / FIRST / "faces.npy", 128 + 121), "size",
        [("R022", "size")]),
    bad("offset-beyond", "a track beyond the end", one_shard, row(1, audio_offset=10**15), "offset",
        [("R025", "offset"), ("R026", "coverage")]),
    bad("offset-negative", "a track before the beginning", one_shard, row(0, face_offset=-1), "offset",
        [("R025", "offset"), ("R026", "coverage"), ("R028", "label-offset")]),
    bad("overlap", "two tracks share a frame", one_shard, row(1, face_offset=2, label_offset=2), "coverage",
        [("R026", "coverage")]),
    bad("gap", "a shard's first frame belongs to nobody", plain,
        lambda at: (write_npy(at / FIRST / "labels.npy", np.array([1, 0, 0, 1], np.uint8)), row(label_offset=1)(at)),
        "coverage",
        [("R026", "coverage"), ("R028", "label-offset")]),
    bad("no-frames", "a track of no frames", one_shard, row(0, source_frames=0), "value",
        [("R023", "value"), ("R024", "audio-samples"), ("R026", "coverage"), ("R042", "speaking-ratio")]),
    bad("audio-samples", "audio of another length than the frames", one_shard, row(1, source_fps=101.0), "audio-samples",
        [("R024", "audio-samples")]),
]
VALUES = [
    bad("labels-7", "a label 7", one_shard, lambda at: edit_bytes(at / FIRST / "labels.npy", 128 + 4, b"\x07"), None,
        [("R041", "label"), ("R042", "speaking-ratio")]),
    bad("ids-twice", "two tracks of one id", one_shard, row(1, sample_id="video0_0000_0060:0"),
        None, [("R015", "duplicate-id")]),
    bad("id-empty", "a track without an id", one_shard, row(1, sample_id=""), None, [("R015", "sample-id")]),
    bad("model-frames", "model_frames rounded up", one_shard, row(1, model_frames=1), None, [("R027", "model-frames")]),
    bad("label-offset", "labels in another order than faces", one_shard, _swapped_labels, None, [("R028", "label-offset")]),
    bad("level-negative", "a negative RMS", one_shard, row(0, audio_rms=-0.1),
        None, [("R040", "level")], [("R043", "audio-level")]),
    bad("ratio", "a speaking ratio that the labels do not have", one_shard, row(1, speaking_ratio=0.25), None,
        [("R042", "speaking-ratio")]),
    bad("level-other", "the peak of another recording", one_shard, row(1, audio_peak=0.9), None, [], [("R043", "audio-level")]),
    bad("pcm-lowest", "a sample of -32768", one_shard, lambda at: edit_bytes(at / FIRST / "audio.npy", 128, b"\x00\x80"),
        None, [],
        [("R043", "audio-level"), ("R044", "pcm")]),
]
SEALS = [
    bad("seal-cut", "seal.json ends in the middle", sealed, lambda at: resize(at / "seal.json", 300), "json",
        [("R030", "json")]),
    bad("seal-path", "the seal of a file outside the pack", sealed,
        lambda at: edit_text(at / "seal.json", '"name": "dataset.json"', '"name": "../dataset.json"'),
        "seal", [("R030", "seal")]),
    bad("seal-digits", "a checksum for each block, but one", sealed,
        lambda at: edit_json(at / "seal.json", lambda s: s["files"][0].update(crc32c="")), "seal", [("R030", "seal")]),
    bad("sealed-lost", "report.json is gone", sealed, removed("report.json"), "missing", [("R031", "missing")]),
    bad("sealed-longer", "report.json has grown", sealed, lambda at: resize(at / "report.json", 2000),
        "size", [("R031", "size")]),
    bad("sealed-exchanged", "the faces of two shards exchanged", two_sealed, _exchange, "digest", [("R032", "digest")],
        [("R034", "digest")]),
    bad("sealed-index", "one digit of the index is another", sealed,
        lambda at: edit_text(at / FIRST / "index.json", '"start_sec":0.0', '"start_sec":0.5'), "digest", [("R032", "digest")],
        [("R034", "digest")]),
    bad("bit-flip", "one bit of the audio, beyond the first block", lambda at: sealed(at, records((3, 70))),
        lambda at: edit_bytes(at / FIRST / "audio.npy", 9000, b"\x01"), None, [], [("R034", "digest")]),
    bad("seal-sha256", "checksums of blocks fit, the sha256 does not", sealed,
        lambda at: edit_json(at / "seal.json", lambda s: s["files"][0].update(sha256="0" * 64)),
        None, [], [("R035", "sha256")]),
    bad("unlisted", "a file that the seal does not name", sealed, lambda at: (at / FIRST / "notes.txt").write_text("x"), None,
        [("R037", "unlisted")]),
    bad("columns-stale", "columns of an older index", with_columns,
        then_sealed(lambda at: edit_bytes(at / "columns/start_sec.npy", -1, b"\x40")), None, [("R038", "columns")]),
    bad("columns-dtype", "counts as floats", with_columns,
        then_sealed(lambda at: write_npy(at / "columns/source_frames.npy", np.array([3.0, 2.0]))),
        "columns", [("R033", "columns")]),
    bad("tail", "a Zarr shard index that points elsewhere", sealed,
        then_sealed(lambda at: edit_bytes(at / FIRST / "labels.npy", -20, b"\x81")), None, [("R029", "zarr-index")]),
    bad("padding", "something in the padding", sealed,
        then_sealed(lambda at: edit_bytes(at / FIRST / "faces.npy", 128 + 5 * 24 + 100, b"\x09")),
        None, [], [("R045", "padding")]),
]
MIRRORS = [
    bad("mirror-chunk-lost", "a chunk is gone: Zarr readers see zeros", with_mirror,
        removed(f"mirror.zarr/{FIRST}/faces/c/0/0/0"), None, [("R050", "missing")]),
    bad("mirror-chunk-empty", "a chunk of no bytes: zarr-python sees zeros", with_copy,
        lambda at: resize(at / "mirror.zarr" / FIRST / "labels/c/0", 0), None, [("R050", "zarr-index")]),
    bad("mirror-dangling", "a link to nothing", with_mirror, _dangling, None, [("R050", "missing")]),
    bad("mirror-no-group", "a shard's group document is gone", with_mirror, removed(f"mirror.zarr/{FIRST}/zarr.json"), None,
        [("R050", "missing"), ("R051", "mirror-document")]),
    bad("mirror-stale", "the mirror of an earlier pack", with_mirror,
        lambda at: edit_json(at / "mirror.zarr/zarr.json", lambda d: d["attributes"]["asdstore"].update(seal=None)), None,
        [("R051", "mirror-document")]),
    bad("mirror-index", "another row in the mirror's index", with_mirror,
        lambda at: edit_json(at / "mirror.zarr" / FIRST / "zarr.json",
                             lambda d: d["attributes"]["index"][1].update(start_sec=7.0)), None, [("R051", "mirror-document")]),
    bad("mirror-rows", "a copy with other pixels", with_copy, _other_row, None,
        [("R050", "digest"), ("R052", "mirror-data")]),
    bad("alone-chunk-lost", "a mirror without one of its chunks", mirror_alone, removed(f"{SECOND}/audio/c/0"), "missing",
        [("R010", "missing")]),
    bad("alone-exchanged", "a mirror with the chunk of another pack", mirror_alone,
        lambda at: edit_bytes(at / FIRST / "audio/c/0", 200, b"\x55"), "digest", [("R032", "digest")],
        [("R035", "sha256"), ("R043", "audio-level")]),
    bad("alone-not-ours", "a Zarr group that says nothing of a pack", mirror_alone,
        lambda at: edit_json(at / "zarr.json", lambda d: d["attributes"].clear()),
        "zarr-document", [("R001", "zarr-document")]),
    bad("other-chunk-short", "an uncompressed chunk that is cut", mirror_of_another_program,
        lambda at: resize(at / FIRST / "audio/c/1", 998), "size", [("R020", "size")]),
    bad("other-chunk-lost", "an uncompressed chunk that is gone", mirror_of_another_program, removed(f"{FIRST}/labels/c/2"),
        "missing", [("R010", "missing")]),
]


BAD = [*DOCUMENTS, *SHARDS, *VALUES, *SEALS, *MIRRORS]
