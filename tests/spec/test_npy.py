"""npy headers: the same bytes as numpy's, every numpy header read alike, everything else refused."""
from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec import npy
from spec.errors import FormatError

DTYPES = ["|b1", "|u1", "|i1", "<i2", ">i2", "<u4", "<i8", "<f2", "<f4", ">f8", "<c8", "<c16"]


def written(text: str | bytes, version: int = 1) -> bytes:
    """A header with this dictionary."""
    data = text.encode() if isinstance(text, str) else text
    return npy.MAGIC + bytes([version, 0]) + len(data).to_bytes(2 if version == 1 else 4, "little") + data


def refused(head: bytes, kind: str = "npy-header") -> FormatError:
    with pytest.raises(FormatError) as caught:
        npy.parse_header(head, "x.npy")
    assert caught.value.kind == kind and caught.value.fault.file == "x.npy"
    return caught.value


@given(st.sampled_from(DTYPES), st.lists(st.integers(0, 6), max_size=5).map(tuple))
def test_the_bytes_are_those_of_numpy_save(dtype, shape):
    file = io.BytesIO()
    np.save(file, np.zeros(shape, dtype))
    head = npy.header(dtype, shape)
    assert file.getvalue().startswith(head)
    assert npy.parse_header(file.getvalue()) == npy.Header(dtype, shape, len(head))
    assert npy.parse_header(head).nbytes_data == len(file.getvalue()) - len(head)


@given(st.lists(st.integers(0, 10**9), max_size=6).map(tuple))
def test_large_shapes_have_the_header_of_numpy(shape):
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
    assert npy.header("|u1", shape) == file.getvalue()


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_every_version_of_numpy_is_read(version):
    file = io.BytesIO()
    np.lib.format.write_array(file, np.zeros((3, 4), "<i2"), version)
    found = npy.parse_header(file.getvalue())
    assert found == ("<i2", (3, 4), len(file.getvalue()) - 24)


def test_keys_in_another_order_and_one_byte_types_with_an_order_are_read():
    assert npy.parse_header(written("{'shape': (), 'fortran_order': False, 'descr': '<u1'}\n")).dtype == "|u1"


GOOD = "{'descr': '|u1', 'fortran_order': False, 'shape': (5,), }"
REPLACED = {
    "'|u1'": ["'|O'", "'|V8'", "[('a', '<i2')]", "'<U4'", "'|S4'", "'<M8[ns]'", "'|i2'", "'=i2'", "'u1'", "'<i3'",
              "('|u1', (3,))", "'\\x7cu1'", '"|u1"'],
    "False": ["True", "0", "not True", "'False'"],
    "(5,)": ["(-5,)", "(5)", "5", "[5]", "(5 5)", "(,)", "(5,,)", "(05,)", "(5L,)", "(0x5,)", "(5_0,)", "(True,)",
             f"({2**63},)", f"({2**64},)", f"({2**40}, {2**40})", f"(0, {2**64})", f"({'9' * 400},)", f"({'1, ' * 33})",
             "(__import__('os').getpid(),)", "(\u0665,)"],
    "'descr'": ["'shape'", "'dtype'", "3"],
    "'shape': (5,), ": [""],
    " ": ["\u00a0", "\t"],
}
BROKEN = [GOOD.replace(old, new) for old, values in REPLACED.items() for new in values]


@pytest.mark.parametrize("text", [
    *BROKEN, GOOD + "x", GOOD + "\0", GOOD[:-1], GOOD[1:], "", "{}", "{,}", "[]", "{" * 5000, "# " + GOOD,
    GOOD[:-1] + "'descr': '|u1', }", GOOD[:-1] + "'more': 1, }"])
def test_every_other_dictionary_is_refused(text):
    for version in (1, 2, 3):
        fault = refused(written(text, version)).fault
        assert fault.offset is not None and 8 <= fault.offset <= 12 + len(text.encode())


def test_bytes_that_are_not_text_are_refused():
    for version in (1, 2, 3):
        refused(written(GOOD.encode() + b"\xff\xfe", version))
        refused(written(GOOD.encode().replace(b"|u1", b"\xc3\x28"), version))


def test_other_files_are_refused():
    assert "an empty file" in str(refused(b"", "npy-magic"))
    refused(b"PK\x03\x04 and so on", "npy-magic")
    refused(npy.header("|u1", (5,))[:5], "npy-magic")
    for version in (b"\x00\x00", b"\x01\x01", b"\x04\x00", b""):
        refused(npy.MAGIC + version, "npy-version")


def test_lengths_beyond_the_file_or_the_limit_are_refused():
    whole = npy.header("|u1", (5,))
    for end in (8, 9, 10, 127):
        refused(whole[:end])
    refused(npy.MAGIC + b"\x02\x00" + b"\xff\xff\xff\xff" + b" " * 99)
    refused(written(GOOD + " " * npy.MAX_DICTIONARY))
    assert npy.parse_header(written(GOOD.ljust(npy.MAX_DICTIONARY)))[:2] == ("|u1", (5,))


@given(st.binary(max_size=80), st.integers(0, 127), st.integers(0, 255))
def test_no_bytes_make_it_raise_anything_else(noise, at, byte):
    flipped = bytearray(npy.header("<i2", (5, 7)))
    flipped[at] = byte
    for head in (bytes(flipped), npy.MAGIC + b"\x01\x00" + noise, written(noise)):
        try:
            found = npy.parse_header(head)
        except FormatError:
            continue
        assert found == npy.parse_header(head)
        file = io.BytesIO(head + bytes(found.nbytes_data) if found.nbytes_data < 1 << 16 else b"")
        if file.getbuffer().nbytes and found.shape != () and len(head) == found.nbytes_header:
            assert np.load(file).shape == found.shape  # what we read, numpy reads alike
