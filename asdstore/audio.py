"""Audio files to float32 mono at one rate. The only place of the project that decodes or resamples audio.

One way for every file: blocks of [samples, channels] on full scale 1 -> clamp to [-1, 1] -> mean over the channels in
float32 -> soxr HQ. Sound files are read by libsndfile, containers (mp4, m4a ...) by FFmpeg through PyAV, `.npy` arrays are
mapped. Nothing is allocated by what a header claims; a waveform beyond HELD_BYTES lies in a temporary file that is mapped.
"""
from __future__ import annotations

import io
import mmap
import os
import re
import stat
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from asdstore.errors import DependencyError, InputError, MissingError
from asdstore.npyfile import map_npy
from spec.layout import SAMPLE_RATE
from spec.timeline import start_sample

BLOCK = 1 << 18  # samples per channel that are decoded at a time
HELD_BYTES = 32 << 20  # of recordings kept for `window`, and of one waveform before it moves to a temporary file
MAX_CHANNELS = 8  # a two-dimensional .npy has its channels on the axis that is not longer than this
FLOAT_LIMIT = 1.0001  # beyond this a float .npy is not audio on full scale 1

Floats = NDArray[np.float32]
Fail = partial[InputError]  # InputError that knows the file and the sample


class _CutShort(InputError):
    """Raised after the last block of a file that is cut short; the blocks are sound."""


class Decoded(NamedTuple):
    """A decoded file. `source_samples` and `clipped` count what was read: the whole file, or the span of an exact `window`."""

    samples: Floats  # [n] mono in [-1, 1]
    source_rate: int  # Hz
    source_samples: int  # decoded, per channel, at source_rate
    channels: int
    clipped: int  # source values beyond [-1, 1], all channels
    header_samples: int  # what the header claims for the whole file, per channel; -1: it does not say
    backend: str  # what decoded and resampled it, with versions


class _Source(NamedTuple):
    """An open file: what it claims, and `blocks(start, stop)` of [n, channels] on full scale 1, not yet clamped."""

    rate: int
    channels: int
    header_samples: int
    backend: str
    seekable: bool  # blocks may start anywhere, with exact samples
    blocks: Callable[[int, int | None], Iterator[Floats]]


def decode(path: str | os.PathLike[str], rate: int = SAMPLE_RATE, declared_rate: int = SAMPLE_RATE, start_sec: float = 0.0,
           sample_id: str = "") -> Decoded:
    """The whole file as float32 mono at `rate` Hz, without its first round(start_sec * rate) samples.

    There are exactly ceil(rate * n / source rate) samples before that drop. `declared_rate` is the rate of a `.npy`, which
    carries none; other files carry their own. A file with 0 samples gives an empty array.

    Raises: MissingError "audio-missing"; InputError "audio-corrupt" (cannot be decoded), "audio-missing-stream" (a video
    without sound), "audio-nan" (NaN or Inf), "audio-range" (a float .npy beyond full scale), "audio-layout" or "audio-npy"
    (a .npy that is not audio), "audio-rate", "timeline" (start_sec); DependencyError "dependency".
    """
    first = start_sample(start_sec, rate)
    fail = partial(InputError, file=path, sample_id=sample_id)
    with _opened(Path(path), declared_rate, fail) as source:
        whole = _read(source, rate, fail)
    return whole._replace(samples=whole.samples[first:])


def decode_bytes(data: bytes | bytearray | memoryview, rate: int = SAMPLE_RATE, file: object = "",
                 sample_id: str = "") -> Decoded:
    """What `decode` gives for a file with these bytes, in any format but `.npy`. `file` says in messages where they are from.

    Raises: as `decode`.
    """
    fail = partial(InputError, file=file, sample_id=sample_id)
    data = bytes(data)  # which BytesIO does not copy again
    with _encoded(io.BytesIO(data), io.BytesIO(data), fail) as source:
        return _read(source, rate, fail)


def window(path: str | os.PathLike[str], start_sec: float, count: int, rate: int = SAMPLE_RATE,
           declared_rate: int = SAMPLE_RATE, sample_id: str = "") -> Decoded:
    """`count` samples of a recording from round(start_sec * rate) on, or fewer where it ends: the samples `decode` gives there.

    For many tracks of one long recording. PCM files at `rate` are read at the place; others are decoded whole, once, and the
    last few recordings are kept (HELD_BYTES per process). A container that is cut short, which `decode` refuses, is a recording
    that ends where it is cut. Raises: as `decode`.
    """
    first = start_sample(start_sec, rate)
    fail = partial(InputError, file=path, sample_id=sample_id)
    key = (*_identity(Path(path), fail), rate, declared_rate)
    whole = _held.get(key)
    if whole is None:
        with _opened(Path(path), declared_rate, fail) as source:
            if source.seekable and source.rate == rate:
                return _read(source, rate, fail, first, first + count)
            whole = _read(source, rate, fail, cut_short=True)
    _hold(key, whole)
    samples = whole.samples[first:first + count].copy()
    if isinstance(whole.samples.base, mmap.mmap):
        whole.samples.base.madvise(mmap.MADV_DONTNEED)  # the pages are in the file; they need not stay in memory too
    return whole._replace(samples=samples)


_held: dict[tuple, Decoded] = {}  # least recently used first
_lock = threading.Lock()


def _hold(key: tuple, whole: Decoded) -> None:
    with _lock:
        _held.pop(key, None)
        _held[key] = whole
        while len(_held) > 1 and sum(d.samples.nbytes for d in _held.values()) > HELD_BYTES:
            del _held[next(iter(_held))]


def _identity(path: Path, fail: Fail) -> tuple[str, int, int]:
    """Path, modification time and size of the file."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise MissingError("audio-missing", **fail.keywords, expected="an audio file", found="nothing") from None
    if not stat.S_ISREG(found.st_mode):
        raise fail("audio-corrupt", expected="an audio file", found="a folder or device")
    return str(path), found.st_mtime_ns, found.st_size


# ---- from blocks to a waveform

def _read(source: _Source, rate: int, fail: Fail, start: int = 0, stop: int | None = None, cut_short: bool = False) -> Decoded:
    if source.rate < 1 or rate < 1:
        raise fail("audio-rate", expected="a sample rate above 0", found=f"{source.rate} and {rate}")
    read = clipped = 0

    def mono() -> Iterator[Floats]:
        nonlocal read, clipped
        with suppress(_CutShort) if cut_short else nullcontext():
            for block in source.blocks(start, stop):
                clipped += _clamp(block, fail, start + read)
                read += len(block)
                yield _mean(block)

    if source.rate == rate:
        samples, backend = _gathered(mono()), source.backend
    else:
        soxr = _media("soxr")
        stream = soxr.ResampleStream(source.rate, rate, 1, dtype="float32", quality="HQ")
        samples = _gathered(_resampled(mono(), stream, source.rate, rate))
        backend = f"{source.backend} / soxr {soxr.__version__} HQ"
    return Decoded(samples, source.rate, read, source.channels, clipped, source.header_samples, backend)


def _mean(block: Floats) -> Floats:
    """`block.mean(axis=1)` in float32, to the last bit, column by column: ten times as fast for a few channels."""
    channels = block.shape[1]
    if channels == 1:
        return block[:, 0]
    if channels > 7:  # numpy adds more than these in another order
        return block.mean(axis=1, dtype=np.float32)
    total = block[:, 0] + block[:, 1]
    for channel in range(2, channels):
        total += block[:, channel]
    total /= np.float32(channels)
    return total


def _clamp(block: Floats, fail: Fail, at: int) -> int:
    """Clamps in place and returns how many values were beyond [-1, 1]."""
    low, high = float(block.min()), float(block.max())  # NaN goes through both
    if not np.isfinite((low, high)).all():
        bad = int(np.argmin(np.isfinite(block).all(axis=1)))
        raise fail("audio-nan", expected="finite samples", found=f"NaN or Inf at sample {at + bad}",
                   cure="Make the audio again.")
    if -1 <= low and high <= 1:
        return 0
    clipped = int(np.count_nonzero(np.abs(block) > 1))
    np.clip(block, -1, 1, out=block)
    return clipped


def _resampled(pieces: Iterable[Floats], stream: Any, source_rate: int, rate: int) -> Iterator[Floats]:
    """Exactly ceil(rate * n / source_rate) samples for the n of all pieces: soxr gives one more or less, now and then."""
    read = written = 0
    for piece in pieces:
        read += len(piece)
        out = stream.resample_chunk(piece)
        written += len(out)
        yield np.clip(out, -1, 1, out=out)
    missing = -(-rate * read // source_rate) - written
    out = stream.resample_chunk(np.empty(0, np.float32), last=True)[:missing]
    yield np.pad(np.clip(out, -1, 1), (0, missing - len(out)))


def _gathered(pieces: Iterable[Floats]) -> Floats:
    """All pieces as one array, in memory or, beyond HELD_BYTES, mapped from a temporary file that has no name."""
    held: list[Floats] = []
    spilled = None
    size = 0
    for piece in pieces:
        held.append(piece)
        size += piece.nbytes
        if size > HELD_BYTES:
            spilled = spilled or tempfile.TemporaryFile()
            for part in held:
                spilled.write(part.data)
            held.clear()
    if spilled is None:
        return held[0] if len(held) == 1 else np.concatenate([np.empty(0, np.float32), *held])
    with spilled:
        spilled.flush()
        mapped = mmap.mmap(spilled.fileno(), 0, access=mmap.ACCESS_READ)
        return np.ndarray(size // 4, np.float32, mapped)


# ---- from a file to blocks

@contextmanager
def _opened(path: Path, declared_rate: int, fail: Fail) -> Iterator[_Source]:
    _identity(path, fail)
    if path.suffix.lower() == ".npy":
        yield _npy(path, declared_rate, fail)
        return
    # as bytes, any name will do; and without "file:" a name that holds ":" would be taken for a protocol
    with _encoded(os.fsencode(path), f"file:{path}", fail) as source:
        yield source


@contextmanager
def _encoded(sound: Any, container: Any, fail: Fail) -> Iterator[_Source]:
    """The audio of one file, given as libsndfile and as FFmpeg open it."""
    import soundfile

    try:
        file = soundfile.SoundFile(sound)
    except (soundfile.SoundFileError, TypeError) as why:  # TypeError: it wants a rate for the suffix .raw
        with _container(container, fail, f"libsndfile: {_said(why)}") as source:
            yield source
        return
    with file:
        try:
            yield _sound(file, f"soundfile {soundfile.__version__} / libsndfile {soundfile.__libsndfile_version__}")
        except soundfile.SoundFileError as why:
            raise fail("audio-corrupt", expected="audio that decodes to its end", found=_said(why)) from why


def _said(why: Exception) -> str:
    """What libsndfile says, without the name or the address of the file, which would be another one in each report."""
    return getattr(why, "error_string", str(why))


def _sound(file: Any, backend: str) -> _Source:
    subtype, log = file.subtype, file.extra_info
    dtype = "int16" if subtype == "PCM_16" else "float32"  # libsndfile makes the same floats of it, three times as slowly

    def blocks(start: int, stop: int | None) -> Iterator[Floats]:
        if start:
            file.seek(min(start, file.frames))
        while stop is None or start < stop:
            wanted = BLOCK if stop is None else min(BLOCK, stop - start)
            block = file.read(wanted, dtype=dtype, always_2d=True)
            if dtype == "int16":
                block = block.astype(np.float32)
                block *= np.float32(1 / 32768)
            start += len(block)
            if len(block):
                yield block
            if len(block) < wanted:
                return

    # libsndfile corrects a claim that the file cannot hold, and says so only in its log: "data : 2147483647 (should be 12800)"
    claim = re.search(r"^data : (\d+) \(should be (\d+)\)", log, re.MULTILINE) if "should be" in log else None
    claimed = int(claim[1]) * file.frames // max(1, int(claim[2])) if claim else file.frames
    plain = (file.format in ("WAV", "WAVEX", "RF64", "W64", "AIFF", "AU", "CAF")
             and subtype.startswith(("PCM_", "FLOAT", "DOUBLE")))
    return _Source(file.samplerate, file.channels, claimed, backend, plain, blocks)


@contextmanager
def _container(file: Any, fail: Fail, before: str) -> Iterator[_Source]:
    """A file that libsndfile could not open (`before` says why): the first audio stream that FFmpeg finds in it."""
    av = _media("av")
    try:
        with av.open(file, metadata_errors="replace") as container:  # titles of any encoding
            if not container.streams.audio:
                kind = "audio-missing-stream" if container.streams.video else "audio-corrupt"
                raise fail(kind, expected="an audio stream", found="none",
                           cure="Give the recording's sound, or skip this video.")
            stream = container.streams.audio[0]
            if stream.codec_context is None or not stream.rate:  # nothing but its name is left of it
                raise fail("audio-corrupt", expected="an audio stream that FFmpeg can decode", found="one without a decoder")

            def blocks(_start: int, _stop: int | None) -> Iterator[Floats]:
                packed = av.AudioResampler(format="flt")  # the sample format only; of planes PyAV can read 8 at the most
                for frame in _frames(av, container, stream, fail):
                    if frame.sample_rate != stream.rate or frame.layout.nb_channels != stream.channels:
                        raise fail("audio-corrupt", expected=f"{stream.rate} Hz and {stream.channels} channels throughout",
                                   found=f"{frame.sample_rate} Hz and {frame.layout.nb_channels}")
                    yield from (part.to_ndarray().reshape(-1, stream.channels) for part in packed.resample(frame))

            claimed = -1 if stream.duration is None else round(stream.duration * stream.time_base * stream.rate)
            yield _Source(stream.rate, stream.channels, claimed, f"PyAV {av.__version__} / FFmpeg {av.ffmpeg_version_info}",
                          False, blocks)
    except av.FFmpegError as why:
        raise fail("audio-corrupt", expected="audio that can be decoded", found=f"{before}; FFmpeg: {why}") from why


def _frames(av: Any, container: Any, stream: Any, fail: Fail) -> Iterator[Any]:
    """What the packets of a stream decode to. Raises: _CutShort at its end where the file ends within a packet."""
    cut = None
    for packet in container.demux(stream):
        if cut is not None and packet.size:
            raise cut
        try:
            yield from packet.decode()
        except av.FFmpegError as why:
            if not packet.is_corrupt:  # so FFmpeg calls what it could not read whole
                raise
            cut = why
    if cut is not None:
        raise _CutShort(fail("audio-corrupt", expected="audio that is whole", found="a file that ends within a packet",
                             cure="Fetch the file again.").fault) from cut


def _npy(path: Path, declared_rate: int, fail: Fail) -> _Source:
    array = map_npy(path, "audio", fail.keywords["sample_id"])
    if array.dtype.kind not in "iuf" or array.ndim not in (1, 2) or (array.ndim == 2 and min(array.shape) > MAX_CHANNELS):
        raise fail("audio-layout", found=f"{array.dtype} {list(array.shape)}",
                   expected=f"integers or floats, [samples] or with at most {MAX_CHANNELS} channels on one axis")
    if array.ndim == 1:
        array = array[:, None]
    elif array.shape[0] <= MAX_CHANNELS:  # [channels, samples] is tried first
        array = array.T
    if not array.size:
        array = array.reshape(0, 1)

    def blocks(start: int, stop: int | None) -> Iterator[Floats]:
        end = len(array) if stop is None else min(stop, len(array))
        for at in range(start, end, BLOCK):
            yield _full_scale(array[at:min(at + BLOCK, end)], fail)

    return _Source(declared_rate, array.shape[1], len(array), f"npy {array.dtype}", True, blocks)


def _full_scale(values: NDArray[Any], fail: Fail) -> Floats:
    """Float32 copy of a piece of a .npy: integers over the larger end of their range, floats as they are."""
    if values.dtype.kind != "f":
        limits = np.iinfo(values.dtype)
        return values.astype(np.float32) / np.float32(max(abs(int(limits.min)), limits.max))
    peak = max(-float(values.min()), float(values.max()))
    if np.isfinite(peak) and peak > FLOAT_LIMIT:
        raise fail("audio-range", expected=f"floats within {FLOAT_LIMIT}", found=f"{peak:g}",
                   cure="Scale the array to [-1, 1], or store the integers.")
    return np.array(values, np.float32, order="C")


def _media(name: str) -> Any:
    """The module `name` of the extra `media`."""
    try:
        return import_module(name)
    except ImportError as why:
        raise DependencyError("dependency", expected=f"the package {name}", found=str(why),
                              cure="pip install 'asdstore[media]'") from why
