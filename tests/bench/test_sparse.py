"""The bench opens what it says it opens: sparse packs are packs, in both forms."""
from __future__ import annotations

from pathlib import Path

import pytest

import asdstore
from bench.opening import dictionaries
from bench.sparse import make_sparse_pack


@pytest.mark.parametrize("sealed", [True, False])
def test_a_sparse_pack_opens_like_its_documents(tmp_path: Path, sealed: bool):
    folder = make_sparse_pack(tmp_path / "pack", 3000, sealed=sealed)
    pack, rows = asdstore.open(folder), [row for shard in dictionaries(str(folder)) for row in shard]
    assert pack.sealed is sealed and len(pack) == len(rows) == 3000
    assert len({shard for shard in pack.all.shard.tolist()}) > 1
    assert [track.id for track in pack] == [row["sample_id"] for row in rows]
    assert pack.index["audio_rms"].tolist() == [row["audio_rms"] for row in rows]
    last = pack[-1]
    assert last.faces.shape == (last.frames, 112, 112) and not last.faces.any()
    assert ((folder / "columns").is_dir(), "recording" in rows[0]) == (sealed, sealed)
