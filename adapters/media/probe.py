"""What a video file really holds, told by its packets: cheaper than decoding, and better than what the container claims."""
from __future__ import annotations

import os
from typing import NamedTuple

from adapters.media.video import container_facts, frames
from asdstore.errors import DependencyError, InputError


class Video(NamedTuple):
    """A video before decoding: its rate, the frames that it will give, the frames that its container claims, has it sound."""

    fps: float
    frames: int
    claimed_frames: int
    sound: bool


def probe(path: str | os.PathLike[str]) -> Video:
    """Count the video's packets; where that is not what the container claims, or a packet is damaged, decode and count.

    A video may still decode to fewer frames than it has packets: whoever decodes it compares.
    Raises: MissingError "video-missing"; InputError "video-corrupt", "video-rate", "video-empty"; DependencyError "dependency".
    """
    facts = container_facts(path)
    try:
        import av
        from av.error import FFmpegError
    except ImportError as why:
        raise DependencyError("dependency", expected="the package av", found=str(why),
                              cure="pip install 'asdstore[media]'") from why
    packets, damaged = 0, False
    try:
        with av.open(f"file:{os.fspath(path)}") as container:  # without "file:" a name that holds ":" is taken for a protocol
            for packet in container.demux(container.streams.video[0]):
                packets += packet.size > 0 and not packet.is_discard
                damaged |= packet.is_corrupt
            sound = bool(container.streams.audio)
    except FFmpegError as why:
        raise InputError("video-corrupt", file=path, expected="a video that can be read to its end", found=str(why)) from why
    if damaged or packets != facts.claimed_frames:
        packets = sum(1 for _ in frames(path))
    return Video(facts.fps, packets, facts.claimed_frames, sound)
