"""The columnar sidecar: the index of a whole pack as npy files that are mapped, not parsed. `index.json` is the truth.

`columns/<field>.npy` holds a numeric column, `columns/<field>.utf8.npy` (uint8) and `columns/<field>.offsets.npy` (int64)
a text column, `columns/shard.npy` (int32) the shard of each row. Readers use it only from a pack whose seal lists it.
"""
from __future__ import annotations

from collections.abc import Callable

import numpy as np

from spec import npy
from spec.errors import FormatError
from spec.index import DTYPES, Index
from spec.layout import Field, Layout
from spec.strings import Strings

FOLDER = "columns"
CURE = "Remove columns/ and seal.json, then check the pack."


def dump(index: Index) -> dict[str, bytes]:
    """The files of the sidecar by name. An index with unknown fields has none: they live in `index.json` only."""
    if index.extra:
        return {}
    arrays = {f"{FOLDER}/shard.npy": index.shard}
    for name, column in index.columns.items():
        if isinstance(column, Strings):
            arrays |= {f"{FOLDER}/{name}.utf8.npy": column.blob, f"{FOLDER}/{name}.offsets.npy": column.offsets}
        else:
            arrays[f"{FOLDER}/{name}.npy"] = column
    return {name: npy.header(array.dtype.str, array.shape) + array.tobytes() for name, array in arrays.items()}


def load(read: Callable[[str], np.ndarray], names: set[str], layout: Layout, rows: int, shards: int) -> Index:
    """The index from the sidecar; `read(name)` gives a file's array, `names` are the files that are there.

    Raises FormatError, kind "columns", where an array does not fit the pack.
    """
    def fit(name: str, dtype: str, length: int | None) -> np.ndarray:
        found = read(name)
        if found.dtype.str != dtype or found.ndim != 1 or (length is not None and len(found) != length):
            raise FormatError("columns", file=name, expected=f"{dtype} [{'any' if length is None else length}]",
                              found=f"{found.dtype.str} {list(found.shape)}", cure=CURE)
        return found

    def column(field: Field) -> np.ndarray | Strings:
        stem = f"{FOLDER}/{field.name}"
        if field.type is not str:
            return fit(f"{stem}.npy", DTYPES[field.type].str, rows)
        texts = Strings(fit(f"{stem}.utf8.npy", "|u1", None), fit(f"{stem}.offsets.npy", "<i8", rows + 1))
        if texts.offsets[0] != 0 or texts.offsets[-1] != len(texts.blob) or np.any(np.diff(texts.offsets) < 0):
            raise FormatError("columns", file=f"{stem}.offsets.npy", found="others", cure=CURE,
                              expected="offsets that rise from 0 to the end of the texts")
        if not texts.are_utf8():
            raise FormatError("columns", file=f"{stem}.utf8.npy", expected="texts in UTF-8", found="other bytes", cure=CURE)
        return texts

    shard = fit(f"{FOLDER}/shard.npy", "<i4", rows)
    if rows and (shard[0] < 0 or shard[-1] >= shards or np.any(np.diff(shard) < 0)):
        raise FormatError("columns", file=f"{FOLDER}/shard.npy", expected=f"shards 0 to {shards - 1} in order", found="others")
    present = [f for f in layout.fields if f.required or f"{FOLDER}/{f.name}.offsets.npy" in names]
    return Index({field.name: column(field) for field in present}, shard)
