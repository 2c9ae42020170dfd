"""The layout asdstore-frames: its manifest, shapes that it records, and what breaks them."""
from __future__ import annotations

import json
from typing import Any

import pytest

from asdstore.frame_tracks import frame_layout
from spec import index, manifest
from spec.errors import FormatError
from spec.layout import FRAMES
from spec.manifest import Manifest
from spec.plan import track_bytes, track_rows


@pytest.mark.parametrize("columns,shape", [(0, None), (1, []), (3, [3])])
def test_manifest(columns, shape):
    layout = frame_layout(40, columns)
    document = json.loads(manifest.dump(Manifest(layout, 2, 7)))
    assert document["feature_shape"] == [40] and document["label_shape"] == shape and document["feature_dtype"] == "float32"
    assert ("label_dtype" in document) == (columns > 0)
    assert manifest.parse(json.dumps(document).encode()) == Manifest(layout, 2, 7)
    assert layout.has("labels") == (columns > 0) and track_rows(5, 100.0, layout)["features"] == 5
    assert track_bytes(5, 100.0, layout) == 5 * 4 * (40 + columns)
    fields = [field.name for field in layout.fields]
    assert ("label_offset" in fields) == (columns > 0) and "source_fps" not in fields


@pytest.mark.parametrize("kind,keys", [
    ("geometry", {"feature_shape": []}), ("geometry", {"feature_shape": None}), ("geometry", {"feature_shape": [0]}),
    ("geometry", {"feature_shape": [40, 2]}), ("geometry", {"feature_shape": [True]}), ("geometry", {"feature_shape": 40}),
    ("geometry", {"label_shape": [2, 2]}), ("geometry", {"label_shape": [1 << 20]}), ("dtype", {"label_dtype": "uint8"}),
    ("dtype", {"feature_dtype": "float64"}), ("version", {"version": 2}), ("count", {"samples": 0})])
def test_wrong_manifests(kind: str, keys: dict[str, Any]):
    document = json.loads(manifest.dump(Manifest(frame_layout(40, 1), 1, 1))) | keys
    with pytest.raises(FormatError) as e:
        manifest.parse(json.dumps(document).encode())
    assert e.value.kind == kind


def test_a_missing_shape():
    document = json.loads(manifest.dump(Manifest(frame_layout(40, 1), 1, 1)))
    del document["label_shape"]
    with pytest.raises(FormatError) as e:
        manifest.parse(json.dumps(document).encode())
    assert e.value.kind == "geometry"


def test_index_rows():
    row = {"dataset": "pfile", "sample_id": "a.pfile:0", "source_frames": 3, "feature_offset": 0, "label_offset": 0}
    found = index.parse(json.dumps([row]).encode(), frame_layout(2, 1))
    assert found.row(0) == row and len(found) == 1
    with pytest.raises(FormatError):
        index.parse(json.dumps([{**row, "source_frames": "3"}]).encode(), frame_layout(2, 1))
    del row["label_offset"]
    assert index.parse(json.dumps([row]).encode(), frame_layout(2, 0)).row(0) == row
    assert FRAMES.with_shapes({"features": (7,)}).stream("features").row_bytes == 28
