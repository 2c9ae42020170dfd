"""A second reader of packs and Zarr mirrors, written from `spec/README.md` with the standard library and numpy alone.

It shares no code with asdstore: where both read the vectors to the same arrays, the written standard says enough.
`read(folder)` gives a list of tracks, dictionaries of the index row and the arrays; it raises `Refused` for what breaks a MUST
of the level "open", and for wrong checksums.
"""
from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import re

import numpy as np

STREAMS = (("faces", "|u1", "face_offset", "source_frames", 64), ("audio", "<i2", "audio_offset", "audio_samples", 16384),
           ("labels", "|u1", "label_offset", "source_frames", 4096))
TEXTS, FLOATS = ("dataset", "sample_id"), ("source_fps", "start_sec", "audio_mean", "audio_rms", "audio_peak", "speaking_ratio")
COUNTS = ("source_frames", "model_frames", "face_offset", "audio_offset", "audio_samples", "label_offset")
CONSTANTS = {"format": "muvap-asd-mmap", "version": 4, "timeline": "native", "audio_sample_rate": 16000,
             "audio_normalization": None, "face_color": "grayscale", "face_dtype": "uint8", "audio_dtype": "int16",
             "label_dtype": "uint8"}


class Refused(Exception):
    pass


def need(condition, message):
    if not condition:
        raise Refused(message)


def read(folder):
    names = os.listdir(folder)
    mirror = "dataset.json" not in names and "zarr.json" in names
    if mirror:
        said = document(folder, "zarr.json").get("attributes", {}).get("asdstore")
        need(isinstance(said, dict), "the group says nothing of a pack")
        manifest, seal = said.get("manifest"), said.get("seal")
    else:
        manifest = document(folder, "dataset.json")
        seal = document(folder, "seal.json") if "seal.json" in names else None
    shape = manifest_geometry(manifest)
    shards = [f"shard-{k:06d}" for k in range(manifest["shards"])]
    for name in names:
        beyond = re.fullmatch(r"shard-(\d{6,})", name)
        need(not beyond or name in shards or name != f"shard-{int(beyond[1]):06d}", f"{name} is beyond the manifest's count")
    if seal is not None:
        check_seal(folder, seal, mirror)
    tracks = []
    for shard in shards:
        rows = document(folder, f"{shard}/{'zarr' if mirror else 'index'}.json")
        rows = rows["attributes"].get("index") if mirror else rows
        check_rows(rows)
        for name, dtype, offset, count, chunk in STREAMS:
            item = shape if name == "faces" else ()
            load = zarr_array if mirror else npy_array
            array = load(os.path.join(folder, shard, name), dtype, item, chunk)
            check_coverage(rows, offset, count, len(array))
            for row in rows:
                row[name] = array[row[offset]:row[offset] + row[count]]
        tracks += rows
    need(len(tracks) == manifest["samples"], "another number of samples than the manifest says")
    if not mirror and seal is not None and any(f["name"] == "columns/shard.npy" for f in seal["files"]):
        check_columns(folder, tracks, shards)
    return tracks


# ---- documents

def contents(folder, name):
    try:
        with open(os.path.join(folder, name), "rb") as file:
            return file.read()
    except OSError as e:
        raise Refused(f"{name}: {e}") from None


def document(folder, name):
    def pairs(found):
        need(len(dict(found)) == len(found), f"{name}: a key twice")
        return dict(found)

    def constant(word):
        raise Refused(f"{name}: {word}")

    try:
        return json.loads(contents(folder, name).decode("utf-8"), object_pairs_hook=pairs, parse_constant=constant)
    except (ValueError, RecursionError) as e:
        raise Refused(f"{name}: {e}") from None


def manifest_geometry(manifest):
    need(isinstance(manifest, dict), "the manifest is no object")
    for key, value in CONSTANTS.items():
        need(key in manifest and type(manifest[key]) is type(value) and manifest[key] == value, f"{key} is not {value}")
    shape = manifest.get("face_shape")
    need(isinstance(shape, list) and len(shape) == 2 and all(type(n) is int and 1 <= n <= 4096 for n in shape), "face_shape")
    need(all(type(manifest.get(key)) is int and manifest[key] >= 1 for key in ("shards", "samples")), "counts")
    return tuple(shape)


def check_rows(rows):
    need(isinstance(rows, list) and rows and all(isinstance(row, dict) for row in rows), "the index is no list of objects")
    for row in rows:
        need(all(isinstance(row.get(key), str) for key in TEXTS), "a text is missing")
        need(all(type(row.get(key)) in (int, float) and math.isfinite(row[key]) for key in FLOATS), "a number is missing")
        need(all(type(row.get(key)) is int and abs(row[key]) < 2**63 for key in COUNTS), "a count is missing")
        need(row["source_frames"] >= 1 and row["source_fps"] > 0, "no frames, or no rate")
        need(row["audio_samples"] == round(row["source_frames"] / row["source_fps"] * 16000), "the law of audio_samples")


def check_coverage(rows, offset, count, length):
    end = 0
    for start, size in sorted((row[offset], row[count]) for row in rows):
        need(start == end and size >= 0, f"{offset}: gap or overlap at {start}")
        end = start + size
    need(end == length, f"{offset}: {length} rows, the samples end at {end}")


def check_columns(folder, tracks, shards):
    for name, dtype in [(n, "<f8") for n in FLOATS] + [(n, "<i8") for n in COUNTS] + [("shard", "<i4")]:
        array = npy_array(os.path.join(folder, "columns", name), dtype, (), None)
        need(len(array) == len(tracks), f"columns/{name}.npy")
        need(name == "shard" or all(a == track[name] for a, track in zip(array, tracks, strict=True)), f"columns/{name}.npy")
    for name in TEXTS:
        blob = npy_array(os.path.join(folder, "columns", f"{name}.utf8"), "|u1", (), None).tobytes()
        ends = npy_array(os.path.join(folder, "columns", f"{name}.offsets"), "<i8", (), None).tolist()
        texts = [blob[a:b].decode() for a, b in itertools.pairwise(ends)]
        need(texts == [track[name] for track in tracks], f"columns/{name}")


# ---- arrays

def npy_array(stem, dtype, item, chunk):
    """The array of `stem`.npy; with `chunk` its file may end with a Zarr shard index."""
    data = contents("", stem + ".npy")
    need(data[:6] == b"\x93NUMPY" and data[6:8] in (b"\x01\x00", b"\x02\x00", b"\x03\x00"), f"{stem}: not npy 1, 2 or 3")
    at = 10 if data[6] == 1 else 12
    size = int.from_bytes(data[8:at], "little")
    text = data[at:at + size].decode("latin1")
    fields = dict(re.findall(r"'(descr|fortran_order|shape)': *('[^']*'|False|\([0-9, ]*\))", text))
    need(len(fields) == 3 and text.rstrip(" \n")[-1:] == "}" and size <= 10000, f"{stem}: header {text[:80]}")
    shape = tuple(int(n) for n in re.findall(r"\d+", fields["shape"]))
    need(fields["descr"] == f"'{dtype}'" and fields["fortran_order"] == "False", f"{stem}: not {dtype} in C order")
    need(len(shape) == 1 + len(item) and shape[1:] == item, f"{stem}: shape {shape}")
    start, row = at + size, int(dtype[2:]) * math.prod(item)
    end = start + shape[0] * row
    if len(data) != end:
        need(chunk is not None, f"{stem}: size")
        inner = chunk if item else min(chunk, 1 << max(0, shape[0] - 1).bit_length())
        chunks = -(-shape[0] // inner)
        need(len(data) == start + chunks * inner * row + 16 * chunks + 4, f"{stem}: size")
        index = shard_index(data, chunks, stem)
        need(index == [(start + k * inner * row, inner * row) for k in range(chunks)], f"{stem}: shard index")
        need(not any(data[end:start + chunks * inner * row]), f"{stem}: padding")
    return np.frombuffer(data, dtype, shape[0] * math.prod(item), start).reshape(shape)


def shard_index(data, chunks, where):
    tail = data[-16 * chunks - 4:]
    need(len(tail) == 16 * chunks + 4 and crc32c(tail[:-4]) == int.from_bytes(tail[-4:], "little"), f"{where}: shard index")
    values = np.frombuffer(tail[:-4], "<u8").tolist()
    return list(zip(values[::2], values[1::2], strict=True))


def zarr_array(folder, dtype, item, _chunk):
    """A Zarr v3 array whose chunks hold whole rows, uncompressed, in shards or alone."""
    found = document(folder, "zarr.json")
    kind = {"|u1": "uint8", "<i2": "int16"}[dtype]
    need(found["node_type"] == "array" and found["data_type"] == kind and tuple(found["shape"][1:]) == item, f"{folder}: array")
    rows, outer = found["shape"][0], found["chunk_grid"]["configuration"]["chunk_shape"]
    codecs, inner = found["codecs"], outer[0]
    sharded = codecs[0]["name"] == "sharding_indexed"
    if sharded:
        inner = codecs[0]["configuration"]["chunk_shape"][0]
        codecs = codecs[0]["configuration"]["codecs"]
    need([c["name"] for c in codecs] == ["bytes"] and tuple(outer[1:]) == item, f"{folder}: needs a codec library")
    size = inner * int(dtype[2:]) * math.prod(item)
    parts = []
    for k in range(-(-rows // outer[0])):
        data = contents(folder, "/".join(["c", str(k), *("0" for _ in item)]))
        places = shard_index(data, outer[0] // inner, folder) if sharded else [(0, size)]
        for at, length in places:
            need(length == size and at + length <= len(data) and (sharded or len(data) == size), f"{folder}: chunk {k}")
            parts.append(data[at:at + length])
    return np.frombuffer(b"".join(parts), dtype).reshape(-1, *item)[:rows]


# ---- seal

def check_seal(folder, seal, mirror):
    need(isinstance(seal, dict) and (seal.get("format"), seal.get("version")) == ("asdstore-seal", 1), "seal")
    names = [file["name"] for file in seal["files"]]
    need(names == sorted(set(names)), "seal: names in order, each once")
    for file in seal["files"]:
        need(not {"", ".", ".."} & set(file["name"].split("/")) and "\\" not in file["name"], f"seal: {file['name']}")
        blocks = range(0, file["bytes"], seal["block_bytes"])
        need(re.fullmatch(f"[0-9a-f]{{{8 * len(blocks)}}}", file["crc32c"]), f"seal: {file['name']}")
        parts = file["name"].split("/")
        name = "/".join([*parts[:-1], parts[-1][:-4], "c", *("000" if parts[-1] == "faces.npy" else "0")])
        if mirror and not (parts[-1] in ("faces.npy", "audio.npy", "labels.npy") and len(parts) == 2):
            continue  # a mirror holds arrays only
        data = contents(folder, name if mirror else file["name"])
        need(len(data) == file["bytes"] and hashlib.sha256(data).hexdigest() == file["sha256"], f"{file['name']}: sha256")
        found = "".join(f"{crc32c(data[at:at + seal['block_bytes']]):08x}" for at in blocks)
        need(found == file["crc32c"], f"{file['name']}: crc32c")


def _table():
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        yield value


TABLE = tuple(_table())


def crc32c(data):
    value = 0xFFFFFFFF
    for byte in data:
        value = TABLE[(value ^ byte) & 255] ^ value >> 8
    return value ^ 0xFFFFFFFF
