"""What a video file really holds, told by its packets: cheaper than decoding, and better than what the container claims."""
from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np

from adapters.media.video import container_facts, frames
from asdstore.errors import DependencyError, InputError


class Video(NamedTuple):
    """A video before decoding: its rate, the frames that it will give, the frames that its container claims, has it sound."""

    fps: float
    frames: int
    claimed_frames: int
    sound: bool
    uneven: float  # seconds that a frame is off its place at an even rate, at the most
    sound_after: float  # seconds that the sound starts after the picture; negative: before it


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
    packets, damaged, stamps = 0, False, []
    try:
        # without "file:" a name that holds ":" is taken for a protocol, and titles may be of any encoding
        with av.open(f"file:{os.fspath(path)}", metadata_errors="replace") as container:
            for packet in container.demux(container.streams.video[0]):
                damaged |= packet.is_corrupt
                if packet.size > 0 and not packet.is_discard:
                    packets += 1
                    stamps.append(packet.pts)
            sound = container.streams.audio
            uneven, sound_after = _timing(stamps, facts.fps, container.streams.video[0], sound[0] if sound else None)
    except FFmpegError as why:
        raise InputError("video-corrupt", file=path, expected="a video that can be read to its end", found=str(why)) from why
    if damaged or packets != facts.claimed_frames:
        packets = sum(1 for _ in frames(path))
    return Video(facts.fps, packets, facts.claimed_frames, bool(sound), uneven, sound_after)


def _timing(stamps: list[int | None], fps: float, picture: Any, sound: Any) -> tuple[float, float]:
    """`uneven` and `sound_after` of a Video, 0 where the container has no time stamps for them."""
    if not stamps or None in stamps:
        return 0.0, 0.0
    times = np.sort(np.array(stamps, np.float64)) * float(picture.time_base)  # packets come in the order of decoding
    uneven = np.abs(times - times[0] - np.arange(len(times)) / fps).max()
    if sound is None or sound.start_time is None:
        return float(uneven), 0.0
    return float(uneven), float(sound.start_time * sound.time_base - times[0])
