"""`dataset.json`: the original's bytes, unknown keys kept, and every wrong value a fault of its kind."""
from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec import manifest
from spec.errors import FormatError
from spec.layout import ASD
from spec.manifest import Manifest

ORIGINAL = b"""{
  "format": "muvap-asd-mmap",
  "version": 4,
  "timeline": "native",
  "audio_sample_rate": 16000,
  "audio_normalization": null,
  "face_shape": [
    112,
    112
  ],
  "face_color": "grayscale",
  "face_dtype": "uint8",
  "audio_dtype": "int16",
  "label_dtype": "uint8",
  "shards": 5,
  "samples": 8
}"""
values = st.recursive(st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
                      lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=8)


def changed(**keys: Any) -> bytes:
    return json.dumps(json.loads(ORIGINAL) | keys).encode()


def test_bytes_are_those_of_the_original_program():
    assert manifest.dump(Manifest(ASD, 5, 8)) == ORIGINAL
    assert manifest.parse(ORIGINAL) == Manifest(ASD, 5, 8)


def test_bytes_of_the_golden_packs(golden):
    found = list(golden.glob("packs/*/dataset.json"))
    assert found
    for path in found:
        assert manifest.dump(manifest.parse(path.read_bytes())) == path.read_bytes()


@given(st.dictionaries(st.text(min_size=1).map("x-".__add__), values, max_size=4), st.integers(1, 4096), st.integers(1, 4096))
def test_unknown_keys_and_any_geometry_survive_a_round_trip(extra, height, width):
    one = Manifest(ASD.with_face_shape((height, width)), 3, 4, extra)
    assert manifest.parse(manifest.dump(one)) == one


@pytest.mark.parametrize(("kind", "keys"), [
    ("format", {"format": "ava-asd-mmap"}), ("format", {"format": None}), ("format", {"format": ["muvap-asd-mmap"]}),
    ("version", {"version": 5}), ("version", {"version": "4"}), ("version", {"version": 4.0}), ("version", {"version": True}),
    ("manifest", {"timeline": "model"}), ("manifest", {"audio_sample_rate": 8000}),
    ("manifest", {"audio_sample_rate": 16000.0}), ("manifest", {"audio_normalization": {}}),
    ("manifest", {"audio_normalization": False}), ("manifest", {"face_color": "rgb"}), ("dtype", {"face_dtype": "int8"}),
    ("dtype", {"label_dtype": None}), ("geometry", {"face_shape": [112]}), ("geometry", {"face_shape": [0, 112]}),
    ("geometry", {"face_shape": [112, 5000]}), ("geometry", {"face_shape": [112.0, 112]}),
    ("geometry", {"face_shape": "112"}), ("geometry", {"face_shape": [True, 112]}), ("count", {"shards": 0}),
    ("count", {"shards": -1}), ("count", {"shards": True}), ("count", {"shards": 10**6}), ("count", {"samples": 0}),
    ("count", {"samples": 2.0}), ("count", {"samples": 10**30}),
])
def test_wrong_values_are_faults_of_their_kind(kind, keys):
    with pytest.raises(FormatError) as caught:
        manifest.parse(changed(**keys), "pack/dataset.json")
    assert caught.value.kind == kind and caught.value.fault.file == "pack/dataset.json"


@pytest.mark.parametrize("key", json.loads(ORIGINAL))
def test_every_key_must_be_there(key):
    document = json.loads(ORIGINAL)
    del document[key]
    with pytest.raises(FormatError):
        manifest.parse(json.dumps(document).encode())


@pytest.mark.parametrize("data", [b"", b"[]", b"4", b"null", b"{", b'{"a":1,"a":2}', b"\xff{}", b'{"a":NaN}', b"[" * 200_000,
                                  b"1" * 5000, b'{"format":1e999}'])
def test_other_documents_are_refused(data):
    with pytest.raises(FormatError) as caught:
        manifest.parse(data)
    assert caught.value.kind in ("json", "manifest", "format")


def test_all_faults_are_told_not_only_the_first():
    document = json.loads(changed(timeline="model", face_dtype="int8", face_shape=[1], shards=0, samples=0))
    assert [f.kind for f in manifest.faults(document)] == ["manifest", "dtype", "geometry", "count", "count"]
