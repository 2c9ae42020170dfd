from __future__ import annotations

import numpy as np
import pytest

from asdstore.errors import InputError, MissingError
from asdstore.npyfile import map_npy


@pytest.mark.parametrize("array", [np.arange(24, dtype=np.int16).reshape(2, 3, 4), np.arange(24.0).reshape(4, 6).T,
                                   np.zeros((0, 5), np.uint8), np.float32(3), np.arange(5, dtype=">i4")], ids=str)
def test_equals_numpy_load(tmp_path, array):
    np.save(tmp_path / "a.npy", array)
    with open(tmp_path / "a.npy", "ab") as file:
        file.write(b"bytes after the data")
    found = map_npy(tmp_path / "a.npy")
    np.testing.assert_array_equal(found, array)
    assert found.dtype == array.dtype and found.shape == array.shape
    assert type(found) is np.ndarray and not found.flags.writeable


def test_data_that_looks_like_a_fortran_header(tmp_path):
    text = np.frombuffer(b"\n'fortran_order': True, \n", np.uint8).reshape(5, 5)
    np.save(tmp_path / "a.npy", text)
    np.testing.assert_array_equal(map_npy(tmp_path / "a.npy"), text)


@pytest.mark.parametrize("order", ["C", "F"])
def test_cut_short(tmp_path, order):
    np.save(tmp_path / "a.npy", np.zeros((20, 30), order=order))
    data = (tmp_path / "a.npy").read_bytes()
    for size in (0, 5, 60, len(data) - 1):
        (tmp_path / "a.npy").write_bytes(data[:size])
        with pytest.raises(InputError, match="a.npy, sample 's'") as error:
            map_npy(tmp_path / "a.npy", "faces", "s")
        assert error.value.kind == "faces-npy"


def test_what_is_not_there(tmp_path):
    (tmp_path / "file").touch()
    for name in ("none.npy", "file/none.npy"):
        with pytest.raises(MissingError):
            map_npy(tmp_path / name)
    with pytest.raises(InputError):
        map_npy(tmp_path)
