"""What has been read of a pack, as values: the input of the rules. `asdstore.facts` gathers it; nothing here reads a disk."""
from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spec.errors import Fault
from spec.index import Index
from spec.layout import Layout, Stream
from spec.manifest import Manifest
from spec.seal import Seal


class Piece(NamedTuple):
    """Rows `start` to `start + rows` of an array lie uncompressed, in C order, at byte `offset` of a file."""

    path: str
    offset: int
    start: int
    rows: int


class ArrayFacts(NamedTuple):
    """One array of a shard: what its file or its Zarr document says.

    `pieces` covers the rows in order, or is None where the bytes cannot be mapped (compressed); `data_end` is the byte
    behind the last row in the only piece, for the size rule, and `size` that file's size.
    """

    file: str  # relative to the pack
    dtype: str = ""
    shape: tuple[int, ...] = ()
    size: int = 0
    data_end: int = 0
    header: bytes = b""
    pieces: tuple[Piece, ...] | None = ()
    fault: Fault | None = None  # why nothing more is known

    @property
    def rows(self) -> int:
        return self.shape[0] if self.shape else 0


class Contents(NamedTuple):
    """What reading a pack further than `open` does adds to its facts. Columns have an entry for each row of the index."""

    files: tuple[str, ...] = ()  # every file of the pack, mirrors left out
    tails: dict[str, bytes] = {}  # of npy files that have one: what stands where the Zarr shard index must be
    positives: np.ndarray | None = None  # int64, the sum of the labels; -1 where they could not be read
    odd_labels: tuple[tuple[int, int, int], ...] = ()  # row, frame and value of each row's first label that is not 0 or 1
    pcm: np.ndarray | None = None  # float64 [rows, 3], mean, rms and peak of the stored audio / 32767; NaN where not read
    full_scale: np.ndarray | None = None  # bool, whether the audio reaches full scale: it may have been clamped
    lowest: tuple[tuple[int, int], ...] = ()  # row and sample of each row's first -32768
    columns: Index | None = None  # the sidecar in columns/
    documents: Index | None = None  # what the index.json files say
    mirrors: tuple[Mirrored, ...] = ()
    faults: tuple[Fault, ...] = ()  # what could not be read, and bytes that have another checksum


class Mirrored(NamedTuple):
    """A Zarr mirror in the folder of a pack."""

    name: str
    facts: Facts
    faults: tuple[Fault, ...] = ()  # chunks that are not the pack's data, documents that disagree with one another


class Facts(NamedTuple):
    """One pack. Whatever could not be read is in `faults`, and is missing elsewhere."""

    root: str
    manifest: Manifest | None = None
    index: Index | None = None  # all rows, in order of the shards; None where a shard's index cannot be read
    shards: tuple[str, ...] = ()
    arrays: tuple[tuple[ArrayFacts, ...], ...] = ()  # [shard][stream]
    entries: tuple[str, ...] = ()  # names in the pack's folder
    sizes: dict[str, int] = {}  # of the sealed files that are there
    first_blocks: dict[str, int] = {}  # CRC-32C of the first block of sealed files; of index files all blocks were compared
    seal: Seal | None = None
    faults: tuple[Fault, ...] = ()
    mirror: bool = False  # a Zarr mirror, not a folder of npy files
    contents: Contents | None = None  # of a pack that is checked

    @property
    def layout(self) -> Layout:
        assert self.manifest is not None
        return self.manifest.layout

    def stream_arrays(self, stream: Stream) -> list[ArrayFacts]:
        """The arrays of one stream, a shard each."""
        at = self.layout.streams.index(stream)
        return [shard[at] for shard in self.arrays]

    def rows_of(self, shard: int) -> slice:
        """The index rows of one shard."""
        assert self.index is not None
        first, last = np.searchsorted(self.index.shard, [shard, shard + 1])
        return slice(int(first), int(last))

    def index_file(self, row: int) -> tuple[str, int]:
        """The file that holds a row of the whole index, and the row's number in it."""
        assert self.index is not None
        shard = int(self.index.shard[row])
        return f"{self.shards[shard]}/{'zarr.json' if self.mirror else 'index.json'}", row - self.rows_of(shard).start
