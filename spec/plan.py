"""Which tracks go into which shard, and how much a track takes: computed from metadata, before anything is decoded."""
from __future__ import annotations

from collections.abc import Iterable

from spec.layout import ASD, Layout
from spec.timeline import audio_sample_count


def track_rows(frames: int, fps: float, layout: Layout = ASD) -> dict[str, int]:
    """Rows of each stream that a track takes.

    >>> track_rows(607, 25.0)
    {'faces': 607, 'audio': 388480, 'labels': 607}
    """
    return {s.name: audio_sample_count(frames, fps) if s.name == "audio" else frames for s in layout.streams}


def track_bytes(frames: int, fps: float, layout: Layout = ASD) -> int:
    """Bytes of the arrays of a track.

    >>> track_bytes(607, 25.0)
    8391775
    """
    rows = track_rows(frames, fps, layout)
    return sum(rows[stream.name] * stream.row_bytes for stream in layout.streams)


def plan_shards(sizes: Iterable[int], max_shard_bytes: int) -> list[range]:
    """The tracks of every shard. A new shard starts when a track would exceed `max_shard_bytes` and the shard is not empty,
    so a track that is larger by itself has a shard of its own.

    >>> plan_shards([4, 6, 1, 20, 3], max_shard_bytes=10)
    [range(0, 2), range(2, 3), range(3, 4), range(4, 5)]
    """
    shards: list[range] = []
    filled = 0
    for track, size in enumerate(sizes):
        if shards and filled + size <= max_shard_bytes:
            shards[-1] = range(shards[-1].start, track + 1)
            filled += size
        else:
            shards.append(range(track, track + 1))
            filled = size
    return shards
