"""Alignments: array-parsed text equals a loop over tokens, on everything that a text may hold."""
from __future__ import annotations

import gzip

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asdstore.errors import FormatError, InputError
from asdstore.formats import alignments
from asdstore.formats.alignments import read_alignments
from asdstore.formats.kaldi_write import write_ark


def by_hand(text: str) -> list[tuple[str, list[int]]]:
    return [(words[0], [int(w) for w in words[1:]]) for line in text.split("\n") if (words := line.split())]


numbers = st.one_of(st.integers(0, 99), st.integers(0, 2**31 - 1), st.integers(-2**31, -1),
                    st.sampled_from([0, 99999999, 10**8]))
lines = st.tuples(st.text("abc_09éλ-", min_size=1, max_size=20), st.lists(numbers, max_size=30),
                  st.sampled_from([" ", "\t", "  "]), st.sampled_from(["", " ", "\r", "\n\n"]))


@settings(max_examples=150, deadline=None)
@given(st.lists(lines, max_size=20), st.booleans(), st.sampled_from([16, 100, 1 << 18]))
def test_equals_a_loop_over_tokens(tmp_path_factory, rows, last, piece):
    text = "".join(key + sep + sep.join(map(str, values)) + tail + "\n" for key, values, sep, tail in rows)
    text = text if last else text.rstrip("\n")
    path = tmp_path_factory.mktemp("ali") / "a.ali"
    path.write_text(text, newline="")
    before, alignments.PIECE = alignments.PIECE, piece
    try:
        found = read_alignments(path)
    finally:
        alignments.PIECE = before
    assert [(key, found.of(i).tolist()) for i, key in enumerate(found.ids)] == by_hand(text)
    assert found.labels.dtype == np.int32


def test_compressed_and_binary(tmp_path):
    values = [("u1", np.array([1, -2, 2**31 - 1])), ("u2", np.array([], np.int32)), ("u3", np.array([7]))]
    write_ark(tmp_path / "b.ark", values)
    write_ark(tmp_path / "t.ali", values, text=True)
    (tmp_path / "z.ali.gz").write_bytes(gzip.compress((tmp_path / "t.ali").read_bytes()))
    for name in ("b.ark", "t.ali", "z.ali", "z.ali.gz"):  # z.ali is found with .gz behind it
        found = read_alignments(tmp_path / name)
        assert list(found.ids) == ["u1", "u2", "u3"]
        assert [found.of(i).tolist() for i in range(3)] == [v.tolist() for _, v in values]


@pytest.mark.parametrize("token", ["x", "1.5", "0x1", "1_0", "--1", "12345678x", "é"])
def test_a_token_that_is_no_number(tmp_path, token):
    path = tmp_path / "a.ali"
    path.write_text(f"u1 0 1\nutt2 5 {token} 3\n")
    with pytest.raises(FormatError) as e:
        read_alignments(path)
    fault = e.value.fault
    assert (fault.kind, fault.sample_id, fault.row, fault.offset, fault.file) == ("alignment", "utt2", 2, 14, str(path))


def test_labels_beyond_32_bits_and_ids_of_other_encodings(tmp_path):
    (tmp_path / "a.ali").write_text("u1 2147483648\n")
    with pytest.raises(InputError, match="2147483648"):
        read_alignments(tmp_path / "a.ali")
    (tmp_path / "a.ali").write_bytes(b"u 1\n\nu\xff 1\n")
    with pytest.raises(FormatError, match="UTF-8") as e:
        read_alignments(tmp_path / "a.ali")
    assert (e.value.fault.row, e.value.fault.offset) == (3, 5)
    (tmp_path / "a.ali").write_bytes(b"")
    assert len(read_alignments(tmp_path / "a.ali")) == 0
