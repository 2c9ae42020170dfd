"""Packs of any size that take no room: the documents are whole and true to their arrays, the arrays are holes in files.

For measuring what opening costs. The sha256 digests of the arrays are made up: `open` does not read them.
"""
from __future__ import annotations

import hashlib
from pathlib import Path

import google_crc32c
import numpy as np

from spec import columns, index, manifest, npy, seal, zarr3
from spec.index import Index
from spec.layout import ASD, SHARD_NAME, Stream
from spec.plan import plan_shards
from spec.seal import BLOCK_BYTES, SealedFile
from spec.strings import Strings
from spec.timeline import audio_sample_count, model_frame_count

MAX_SHARD_BYTES = 1_000_000_000


def make_sparse_pack(folder: Path, tracks: int, *, sealed: bool) -> Path:
    """A pack of `tracks` tracks with lengths and rates like AVA's, as this program writes it, or (unsealed) the original."""
    table = _table(tracks, recordings=sealed)
    counts = {s.name: table.numbers(s.count) for s in ASD.streams}
    sizes = np.sum([counts[s.name] * s.row_bytes for s in ASD.streams], axis=0)
    parts = plan_shards(sizes.tolist(), MAX_SHARD_BYTES)
    folder.mkdir(parents=True)
    files: dict[str, SealedFile] = {}

    def write(name: str, data: bytes) -> None:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)
        blocks = "".join(f"{google_crc32c.value(data[at:at + BLOCK_BYTES]):08x}" for at in range(0, len(data), BLOCK_BYTES))
        files[name] = SealedFile(name, len(data), hashlib.sha256(data).hexdigest(), blocks)

    for number, part in enumerate(parts):
        rows, name = slice(part.start, part.stop), SHARD_NAME.format(number)
        table.shard[rows] = number
        for s in ASD.streams:
            count = counts[s.name][rows]
            table.numbers(s.offset)[rows] = np.cumsum(count) - count
        write(f"{name}/{index.NAME}", index.dump(table.take(rows)))
        for s in ASD.streams:
            file = _write_array(folder, f"{name}/{s.file}", s, int(counts[s.name][rows].sum()), tail=sealed)
            files[file.name] = file
    write(manifest.NAME, manifest.dump(manifest.Manifest(ASD, len(parts), tracks)))
    if sealed:
        for name, data in columns.dump(table).items():
            write(name, data)
        (folder / seal.NAME).write_bytes(seal.dump(seal.Seal(BLOCK_BYTES, tuple(sorted(files.values())))))
    return folder


def _table(tracks: int, recordings: bool) -> Index:
    random = np.random.default_rng(0)
    fps = random.choice([24.0, 25.0, 29.97, 30.0], tracks)
    frames = np.clip(random.lognormal(4.2, 0.9, tracks), 1, 2000).astype(np.int64)
    names = [f"video{n // 120:06d}_{900 + n % 600:04d}_{960 + n % 600:04d}:{n % 120}" for n in range(tracks)]
    numbers = list(zip(frames.tolist(), fps.tolist(), strict=True))
    zeros = [np.zeros(tracks, np.int64) for _ in range(3)]
    filled = {
        "dataset": Strings.of(["ava"] * tracks), "sample_id": Strings.of(names), "source_fps": fps, "source_frames": frames,
        "start_sec": np.zeros(tracks), "model_frames": np.array([model_frame_count(n, r) for n, r in numbers], np.int64),
        "face_offset": zeros[0], "audio_offset": zeros[1],
        "audio_samples": np.array([audio_sample_count(n, r) for n, r in numbers], np.int64), "label_offset": zeros[2],
        "audio_mean": random.normal(0, 1e-3, tracks), "audio_rms": random.uniform(0.01, 0.2, tracks),
        "audio_peak": random.uniform(0.2, 1.0, tracks), "speaking_ratio": random.uniform(0, 1, tracks)}
    if recordings:
        filled["recording"] = Strings.of([name[:11] for name in names])
    return Index(filled, np.zeros(tracks, np.int32))


def _write_array(folder: Path, name: str, stream: Stream, rows: int, tail: bool) -> SealedFile:
    header, chunk = npy.header(stream.dtype, (rows, *stream.item_shape)), stream.chunk_rows(rows)
    data_end = len(header) + rows * stream.row_bytes
    end = zarr3.shard_tail(len(header), rows, stream.row_bytes, chunk) if tail else b""
    size = zarr3.file_bytes(len(header), rows, stream.row_bytes, chunk) if tail else data_end
    with open(folder / name, "wb") as file:
        file.write(header)
        file.truncate(size)
        file.seek(size - len(end))
        file.write(end)
    return SealedFile(name, size, "0" * 64, _block_checksums(folder / name, size, len(end)))


def _block_checksums(path: Path, size: int, tail: int) -> str:
    """Only the first block and those with the tail are read; the others are zeros."""
    zeros = f"{google_crc32c.value(bytes(BLOCK_BYTES)):08x}"
    blocks = []
    with open(path, "rb") as file:
        for at in range(0, size, BLOCK_BYTES):
            if 0 < at and at + BLOCK_BYTES <= size - tail:
                blocks.append(zeros)
            else:
                file.seek(at)
                blocks.append(f"{google_crc32c.value(file.read(BLOCK_BYTES)):08x}")
    return "".join(blocks)
