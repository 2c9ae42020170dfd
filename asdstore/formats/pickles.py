"""PDNN's pickles: a pair of arrays (features, labels), one utterance a file. Parsed by `pickle_parser`, never executed."""
from __future__ import annotations

import os
import re

import numpy as np

from asdstore.errors import InputError
from asdstore.formats import compressed
from asdstore.formats.pickle_parser import Array, parse
from asdstore.formats.source import Source, ends, narrow


class Pickle(Source):
    """The one utterance of a pickle, named like its file. Made by `open_pickle`; pickles as its path."""

    format = "pickle"

    def __init__(self, path: str, features: np.ndarray, labels: np.ndarray):
        self.path = path
        self.ids = [re.sub(r"\.(pkl|pickle)(\.|$).*", "", os.path.basename(path))]
        self.offsets, self.dim, self.label_columns = ends([len(features)]), features.shape[1], 1
        self._arrays: tuple[np.ndarray, np.ndarray] | None = (features, labels[:, None])
        self.notes = {} if features.dtype.newbyteorder("=") == np.float32 else {
            "features are read as float32": [features.dtype.name]}

    def _features(self, i: int) -> np.ndarray:
        return self._pair()[0]

    def _labels(self, i: int) -> np.ndarray:
        return self._pair()[1]

    def _pair(self) -> tuple[np.ndarray, np.ndarray]:
        if self._arrays is None:
            self._arrays = open_pickle(self.path)._arrays
        assert self._arrays is not None
        return self._arrays

    def release(self) -> None:
        self._arrays = None

    def __reduce__(self):
        return open_pickle, (self.path,)


def open_pickle(path: str | os.PathLike[str], limit: int = compressed.LARGEST) -> Pickle:
    """Opens a pickle of (features, labels), plain or compressed (at most `limit` bytes then), of any protocol.

    Features are floats [frames, dim], labels integers [frames], in the types and byte orders that the file has.

    Raises: MissingError "missing"; InputError "pickle" (anything else inside; nothing is executed), "labels" (of another
        number than the frames), "label-range"; FormatError "pickle-truncated", "pickle-size", "compressed", "too-large".
    """
    name = compressed.found(path)
    pair = parse(compressed.read(name, limit), name)
    parts = list(pair) if isinstance(pair, (tuple, list)) else [pair]
    arrays = [part.value for part in parts if isinstance(part, Array) and part.value is not None]
    if len(parts) != 2 or len(arrays) != 2:
        raise _wrong(name, f"{type(pair).__name__} of {len(parts)}, of which {len(arrays)} are arrays")
    features, labels = arrays
    if features.ndim != 2 or features.dtype.kind != "f" or labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise _wrong(name, f"{features.dtype} {list(features.shape)} and {labels.dtype} {list(labels.shape)}")
    if len(features) != len(labels):
        raise InputError("labels", file=name, expected=f"a label for each of {len(features)} frames", found=str(len(labels)))
    return Pickle(name, features, narrow(labels, name))


def _wrong(name: str, found: str) -> InputError:
    return InputError("pickle", file=name, expected="floats [frames, dim] and integers [frames]", found=found)
