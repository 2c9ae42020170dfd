"""`seal.json`: round trips, and names, sizes and checksums that cannot be."""
from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec import seal
from spec.errors import FormatError
from spec.seal import BLOCK_BYTES, Seal, SealedFile

names = st.from_regex(r"[a-z0-9_]{1,8}(/[a-z0-9_.]{1,8}){0,2}", fullmatch=True).filter(
    lambda name: not {".", ".."} & set(name.split("/")))


@st.composite
def seals(draw) -> Seal:
    block = draw(st.sampled_from([4096, BLOCK_BYTES, 1 << 24]))
    files = []
    for name in sorted(draw(st.sets(names, max_size=5))):
        size = draw(st.integers(0, 5 * block))
        digits = 8 * -(-size // block)
        files.append(SealedFile(name, size, "ab" * 32, ("0123abcd" * 5)[:digits]))
    return Seal(block, tuple(files))


@given(seals())
def test_round_trip(one):
    assert seal.parse(seal.dump(one)) == one
    assert seal.of_document(seal.document(one)) == one


def test_blocks_are_numbers():
    assert SealedFile("a", 5000, "", "000000ffdeadbeef").block(1) == 0xDEADBEEF


def entry(**keys: object) -> dict:
    return {"name": "a/b.npy", "bytes": 1, "sha256": "0" * 64, "crc32c": "0" * 8} | keys


def document(*files: object, **keys: object) -> dict:
    return {"format": "asdstore-seal", "version": 1, "block_bytes": 4096, "files": list(files)} | keys


@pytest.mark.parametrize("name", [
    "", ".", "..", "../a", "a/../b", "a/..", "/a", "/", "a//b", "a/", "./a", "a/./b", "a\\b", "..\\a", "C:", "C:/a", "a:b",
    "a\0b", "a\nb", "a\x1fb", "x" * 1001, "\ud800", "a/\udfff/b", None, 7, ["a"], {"a": 1},
])
def test_names_that_leave_the_pack_or_cannot_be(name):
    with pytest.raises(FormatError) as caught:
        seal.of_document(document(entry(name=name)))
    assert caught.value.kind == "seal"


@pytest.mark.parametrize("wrong", [
    [], None, 5, {}, document(format="other"), document(version=2), document(version="1"), document(block_bytes=0),
    document(block_bytes=4095), document(block_bytes=1 << 30), document(block_bytes=True), document(block_bytes=4096.0),
    document(files={}), document(files=None), document(1), document([]), document({}), document(entry(more=1)),
    document(entry(bytes=-1)), document(entry(bytes=1.0)), document(entry(bytes=True)), document(entry(bytes=1 << 62)),
    document(entry(sha256="0" * 63)), document(entry(sha256="G" * 64)), document(entry(sha256=None)),
    document(entry(crc32c="")), document(entry(crc32c="0" * 16)), document(entry(crc32c="0000000G")), document(entry(crc32c=7)),
    document(entry(bytes=4097)), document(entry(bytes=0)), document(entry(crc32c="ABCDEF01")),
    document(entry(), entry()), document(entry(name="b"), entry(name="a")),
])
def test_other_documents_are_refused(wrong):
    with pytest.raises(FormatError) as caught:
        seal.parse(json.dumps(wrong).encode(), "pack/seal.json")
    assert caught.value.kind == "seal" and caught.value.fault.file == "pack/seal.json" and caught.value.fault.cure


def test_the_right_document_is_accepted():
    assert seal.of_document(document(entry(), entry(name="b", bytes=4097, crc32c="0" * 16))).named().keys() == {"a/b.npy", "b"}
