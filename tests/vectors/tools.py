"""What the vectors are made with: tiny packs from the writer, and edits of their documents and bytes.

The levels of the audio are exact in binary, so that every machine writes the same bytes.
"""
from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np

from asdstore.records import Media, Record
from asdstore.writer import write_pack
from spec import index, npy, seal
from spec.document import dump_json
from spec.layout import ASD
from spec.timeline import audio_sample_count

SHAPE = (4, 6)  # of the faces of most vectors
FPS = 100.0


def media(record: Record, shape: tuple[int, int] = SHAPE) -> Media:
    """Faces that differ in every pixel, a square wave, every third frame speaking."""
    seed = sum(record.sample_id.encode())
    faces = (np.arange(record.frames * shape[0] * shape[1]) * 7 + seed) % 256
    audio = np.zeros(audio_sample_count(record.frames, record.fps), np.float32)
    even = len(audio) // 2 * 2
    level = 0 if record.dataset == "silent" else (1 + seed % 7) / 64
    audio[:even] = np.tile(np.array([1, -1], np.float32), even // 2) * level
    labels = (np.arange(record.frames) % 3 == 0).astype(np.uint8)
    return Media(faces.reshape(record.frames, *shape).astype(np.uint8), audio, labels)


def media_112(record: Record) -> Media:
    return media(record, (112, 112))


def records(frames: Sequence[int] = (3, 2), fps: float = FPS) -> list[Record]:
    return [Record("ava", f"video{k}_0000_0060:{k}", fps, count, 0.0, f"video{k}", None) for k, count in enumerate(frames)]


def sealed(at: Path, tracks: list[Record] | None = None, shards: int = 1, columns: bool = False) -> None:
    """A pack of ours at `at`, one track in each shard or all in one, without the columnar sidecar unless it is wanted."""
    write_pack(at, tracks or records(), media, layout=ASD.with_face_shape(SHAPE), max_shard_bytes=1 if shards > 1 else 10**9)
    if not columns:
        shutil.rmtree(at / "columns")
        reseal(at)


def plain(at: Path, tracks: list[Record] | None = None, shards: int = 2, load: Callable[[Record], Media] = media,
          shape: tuple[int, int] = SHAPE) -> None:
    """A pack as the original program writes it: no seal, no other files, arrays that end with their data, 14 fields."""
    write_pack(at, tracks or records(), load, layout=ASD.with_face_shape(shape), max_shard_bytes=1 if shards > 1 else 10**9)
    for name in ("columns", "seal.json", "report.json"):
        shutil.rmtree(at / name) if (at / name).is_dir() else (at / name).unlink()
    for path in at.glob("shard-*/*.npy"):
        header = npy.parse_header(path.read_bytes()[:npy.MAX_HEAD])
        resize(path, header.nbytes_header + header.nbytes_data)
    for path in at.glob("shard-*/index.json"):
        edit_rows(path, lambda row: row.pop("recording"))


def reseal(at: Path, block_bytes: int = 4096) -> None:
    """A new seal over what is there, mirrors left out; small blocks, so that small files have several."""
    names = sorted(str(path.relative_to(at)) for path in at.rglob("*") if path.is_file())
    entries = []
    for name in names:
        data = (at / name).read_bytes()
        blocks = [google_crc32c.value(data[k:k + block_bytes]) for k in range(0, len(data), block_bytes)]
        entries.append(seal.SealedFile(name, len(data), hashlib.sha256(data).hexdigest(), "".join(f"{b:08x}" for b in blocks)))
    entries = [entry for entry in entries if entry.name != seal.NAME and not entry.name.startswith("mirror")]
    (at / seal.NAME).write_bytes(seal.dump(seal.Seal(block_bytes, tuple(entries))))


# ---- edits

def edit_json(path: Path, change: Callable[[Any], object]) -> None:
    """Changes a document in place and writes it as programs do: the index compact, others indented."""
    found = json.loads(path.read_bytes())
    change(found)
    compact = path.name in (index.NAME, "zarr.json")
    path.write_bytes(dump_json(found) if compact else json.dumps(found, indent=2).encode())


def edit_rows(path: Path, change: Callable[[dict[str, Any]], object], row: int | None = None) -> None:
    """Changes one row of an index.json, or all."""
    edit_json(path, lambda rows: [change(r) for k, r in enumerate(rows) if row in (None, k)])


def edit_text(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) >= 1, f"{old} is not in {path}"
    path.write_text(text.replace(old, new, 1))


def edit_bytes(path: Path, at: int, new: bytes) -> None:
    data = bytearray(path.read_bytes())
    at = at if at >= 0 else len(data) + at
    assert bytes(data[at:at + len(new)]) != new, f"{path} has that already"
    data[at:at + len(new)] = new
    path.write_bytes(bytes(data))


def resize(path: Path, size: int) -> None:
    """Cuts a file, or appends zeros."""
    path.write_bytes(path.read_bytes()[:size].ljust(size, b"\0"))


def new_header(path: Path, dictionary: str, version: bytes = b"\x01\x00") -> None:
    """Gives a npy file another header of the same length."""
    data, text = path.read_bytes(), dictionary.encode().ljust(117) + b"\n"
    path.write_bytes(npy.MAGIC + version + len(text).to_bytes(2, "little") + text + data[128:])


def write_npy(path: Path, array: np.ndarray) -> None:
    path.write_bytes(npy.header(array.dtype.str, array.shape) + array.tobytes())
