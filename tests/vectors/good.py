"""The good vectors: packs and mirrors that every reader must accept."""
from __future__ import annotations

import json
import shutil
from pathlib import Path

from asdstore.mirror import mirror
from asdstore.records import Record
from spec import npy, zarr3
from spec.document import dump_json
from spec.layout import ASD
from tests.vectors.tools import SHAPE, edit_json, media_112, plain, records, sealed

UNSEALED = [("R036", "unsealed")]


def as_the_original_writes(at: Path) -> None:
    """A pack as the original program writes it: 112x112 faces, no seal, arrays that end with their data."""
    plain(at, records((2, 1)), load=media_112, shape=(112, 112))


def sealed_shards(at: Path) -> None:
    """A pack as asdstore writes it: three shards, Zarr tails, columns, report, seal."""
    sealed(at, records((3, 2, 70)), shards=3, columns=True)


def rates_and_texts(at: Path) -> None:
    """Fractional rates, a track without a model frame, silence, a start, ids beyond ASCII and with escapes."""
    tracks = [("ava", "a:1", 59.94, 3, 0.0, "a"), ("wasd", 'naïve "é" \\:1', 29.97, 2, 1.5, "b"),
              ("silent", "日本:1", 23.976, 2, 0.0, ""), ("msdwild", "00001_00000_0", 240.0, 1, 0.0, "00001")]
    sealed(at, [Record(*track, None) for track in tracks], columns=True)


def unknown_fields(at: Path) -> None:
    """Documents of another program: unknown fields, blanks, rows out of order, a longer npy header, files beside the shards."""
    plain(at, records((3, 2)), shards=1)
    edit_json(at / "dataset.json", lambda found: found.update(groundtruth_rows=5, tool={"name": "other"}))
    rows = json.loads((at / "shard-000000/index.json").read_bytes())
    rows = [dict(reversed((row | {"quality": [0.5, None], "start_sec": 0}).items())) for row in reversed(rows)]
    (at / "shard-000000/index.json").write_bytes(json.dumps(rows, indent=4).encode())
    path = at / "shard-000000/labels.npy"
    data, dictionary = path.read_bytes()[128:], b"{'descr': '|u1', 'shape': (5,), 'fortran_order': False}"
    path.write_bytes(npy.MAGIC + b"\x02\x00" + (180).to_bytes(4, "little") + dictionary.ljust(179) + b"\n" + data)
    (at / "ground_truth.csv").write_text("anything\n")
    (at / "notes").mkdir()
    (at / "notes/readme.txt").write_text("anything\n")


def mirrored(at: Path) -> None:
    """A sealed pack with a Zarr mirror of relative links in it."""
    sealed(at)
    mirror(at)


def mirror_alone(at: Path) -> None:
    """A Zarr mirror that holds copies, without its pack."""
    pack = at.with_name("pack-of-it")
    sealed(pack, shards=2)
    mirror(pack, at, link="copy")
    shutil.rmtree(pack)


def mirror_of_another_program(at: Path) -> None:
    """A mirror as a Zarr library writes it on its own: no shards, uncompressed chunks of two rows, no consolidated metadata."""
    pack = at.with_name("pack-of-it")
    plain(pack, records((3, 2)), shards=1)
    (at / "shard-000000").mkdir(parents=True)
    manifest = json.loads((pack / "dataset.json").read_bytes())
    rows = json.loads((pack / "shard-000000/index.json").read_bytes())
    (at / "zarr.json").write_bytes(dump_json(zarr3.group_document({"asdstore": {"manifest": manifest}})))
    (at / "shard-000000/zarr.json").write_bytes(dump_json(zarr3.group_document({"index": rows})))
    for stream in ASD.with_face_shape(SHAPE).streams:
        data = (pack / "shard-000000" / stream.file).read_bytes()
        header = npy.parse_header(data)
        chunk = 2 if stream.name != "audio" else 500
        document = zarr3.array_document(stream, header.shape[0], chunk)
        document["chunk_grid"] = {"name": "regular", "configuration": {"chunk_shape": [chunk, *stream.item_shape]}}
        document["codecs"] = [{"name": "bytes", "configuration": {"endian": "little"}}]
        folder = at / "shard-000000" / stream.name
        folder.mkdir()
        (folder / "zarr.json").write_bytes(dump_json(document))
        size = chunk * stream.row_bytes
        for k, start in enumerate(range(header.nbytes_header, len(data), size)):
            path = folder / "c" / "/".join([str(k), *("0" * len(stream.item_shape))])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data[start:start + size].ljust(size, b"\0"))
    shutil.rmtree(pack)


GOOD = {
    as_the_original_writes: UNSEALED, sealed_shards: [], rates_and_texts: [], unknown_fields: UNSEALED, mirrored: [],
    mirror_alone: [], mirror_of_another_program: UNSEALED,
}
