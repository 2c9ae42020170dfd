"""A npy file of anyone's as a read-only array: its header checked by our own parser, its data mapped and never executed."""
from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asdstore.errors import FormatError, InputError, MissingError
from asdstore.storage import map_file
from spec.npy import MAX_HEAD, parse_header

# numpy.save writes a transposed array as it lies in memory and says so; the parser of packs, which never do that, refuses it
_TRANSPOSED, _PLAIN = b"'fortran_order': True, ", b"'fortran_order': False,"


def map_npy(path: str | os.PathLike[str], kind: str = "npy", sample_id: str = "") -> NDArray[Any]:
    """The array in `path`: its dtype and shape, read-only; pages are read when touched.

    Either memory order is read; bytes after the data are allowed.

    Raises: MissingError "<kind>-missing"; InputError "<kind>-npy" when the header cannot be used or the data is cut short.

    >>> map_npy("nowhere.npy", kind="faces")
    Traceback (most recent call last):
    spec.errors.MissingError: nowhere.npy: expected a npy file, found nothing [faces-missing]
    """
    try:
        data = map_file(os.fspath(path), os.path.getsize(path))
        head = data[:MAX_HEAD].tobytes()
        transposed = _TRANSPOSED in head[:head.find(b"\n") + 1]
        header = parse_header(head.replace(_TRANSPOSED, _PLAIN, 1) if transposed else head, path)
    except FormatError as why:
        raise InputError(f"{kind}-npy", file=path, sample_id=sample_id, offset=why.fault.offset, expected=why.fault.expected,
                         found=why.fault.found, cure="Save it again with numpy.save, as plain numbers.") from why
    except (FileNotFoundError, NotADirectoryError) as why:
        raise MissingError(f"{kind}-missing", file=path, sample_id=sample_id, expected="a npy file", found="nothing") from why
    except OSError as why:
        raise InputError(f"{kind}-npy", file=path, sample_id=sample_id, expected="a npy file", found=str(why)) from why
    end = header.nbytes_header + header.nbytes_data
    if len(data) < end:
        raise InputError(f"{kind}-npy", file=path, sample_id=sample_id, expected=f"{end} bytes", found=str(len(data)),
                         cure="The file is cut short: write it again.")
    return np.ndarray(header.shape, header.dtype, data, header.nbytes_header, order="F" if transposed else "C")
