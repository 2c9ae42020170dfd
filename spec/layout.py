"""Layouts and streams as values: which arrays a shard holds, which columns its index has, what the manifest says.

The face geometry of the standard stands here and nowhere else. Readers follow the geometry that a pack's manifest
records (`manifest.parse` returns a layout with it), they never assume this one.
"""
from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

FACE_SHAPE = (112, 112)
SAMPLE_RATE = 16000  # Hz, of every audio stream


class Stream(NamedTuple):
    """One flat array of a shard: `<shard>/<name>.npy`, C order, rows of `item_shape` and `dtype`."""

    name: str
    dtype: str  # numpy descr with byte order: "|u1", "<i2"
    item_shape: tuple[int, ...]  # of one row: () for audio and labels, (height, width) for faces
    offset: str  # index column: the first row of a sample
    count: str  # index column: the rows of a sample
    chunk: int  # rows of an inner Zarr chunk, at the most
    axes: tuple[str, ...]  # Zarr dimension names

    @property
    def file(self) -> str:
        return f"{self.name}.npy"

    @property
    def row_bytes(self) -> int:
        """Bytes of one row.

        >>> ASD.stream("faces").row_bytes, ASD.stream("audio").row_bytes
        (12544, 2)
        """
        return int(self.dtype[2:]) * math.prod(self.item_shape)

    def chunk_rows(self, rows: int) -> int:
        """Rows of an inner Zarr chunk for an array of `rows`: `chunk`, or the smallest power of two that holds a shorter array
        of single values (faces keep `chunk`: their padding is small beside them).

        >>> [ASD.stream("labels").chunk_rows(n) for n in (0, 5, 4096, 9999)], ASD.stream("faces").chunk_rows(3)
        ([1, 8, 4096, 4096], 64)
        """
        if self.item_shape:
            return self.chunk
        return min(self.chunk, 1 << max(0, rows - 1).bit_length())


class Field(NamedTuple):
    """One column of the index."""

    name: str
    type: type  # str, float or int
    required: bool = True


class Shape(NamedTuple):
    """The manifest's record of what a row of one stream is, under the key `face_shape` for faces."""

    stream: str
    axes: tuple[int, ...]  # how many there may be
    largest: int  # of an axis
    optional: bool = False  # whether the stream may be missing: null in the manifest

    @property
    def key(self) -> str:
        return f"{self.stream.removesuffix('s')}_shape"


class Layout(NamedTuple):
    """A pack format: its name and version, the manifest's fixed keys, the streams of a shard and the columns of the index."""

    format: str
    version: int
    constants: tuple[tuple[str, object], ...]  # manifest keys with their only value, after format and version
    streams: tuple[Stream, ...]
    fields: tuple[Field, ...]  # in the order in which the index writes them
    shapes: tuple[Shape, ...] = ()  # streams whose rows are what the manifest says

    def has(self, name: str) -> bool:
        """Whether there is a stream of that name."""
        return any(s.name == name for s in self.streams)

    def stream(self, name: str) -> Stream:
        return next(s for s in self.streams if s.name == name)

    @property
    def face_shape(self) -> tuple[int, ...]:
        return self.stream("faces").item_shape

    def with_face_shape(self, shape: tuple[int, int]) -> Layout:
        """The same layout for faces of another geometry.

        >>> ASD.with_face_shape((96, 64)).face_shape
        (96, 64)
        """
        return self.with_shapes({"faces": shape})

    def with_shapes(self, shapes: Mapping[str, tuple[int, ...] | None]) -> Layout:
        """The same layout for streams whose rows have other shapes; None leaves a stream out.

        >>> [(s.name, s.item_shape, s.axes) for s in FRAMES.with_shapes({"features": (40,), "labels": None}).streams]
        [('features', (40,), ('frame', 'value'))]
        """
        gone = {s.offset for s in self.streams if s.name in shapes and shapes[s.name] is None}
        streams = []
        for stream in self.streams:
            shape = shapes.get(stream.name, stream.item_shape)
            if shape is not None:
                streams.append(stream._replace(item_shape=tuple(shape), axes=stream.axes[:1 + len(shape)]))
        return self._replace(streams=tuple(streams), fields=tuple(f for f in self.fields if f.name not in gone))


def _fields(type_: type, names: str, required: bool = True) -> tuple[Field, ...]:
    return tuple(Field(name, type_, required) for name in names.split())


ASD = Layout(
    format="muvap-asd-mmap",
    version=4,
    constants=(("timeline", "native"), ("audio_sample_rate", SAMPLE_RATE), ("audio_normalization", None),
               ("face_color", "grayscale")),
    streams=(
        Stream("faces", "|u1", FACE_SHAPE, "face_offset", "source_frames", 64, ("frame", "y", "x")),
        Stream("audio", "<i2", (), "audio_offset", "audio_samples", 16384, ("sample",)),
        Stream("labels", "|u1", (), "label_offset", "source_frames", 4096, ("frame",)),
    ),
    fields=(*_fields(str, "dataset sample_id"), *_fields(float, "source_fps"), *_fields(int, "source_frames"),
            *_fields(float, "start_sec"), *_fields(int, "model_frames face_offset audio_offset audio_samples label_offset"),
            *_fields(float, "audio_mean audio_rms audio_peak speaking_ratio"),
            *_fields(str, "recording", required=False)),
    shapes=(Shape("faces", (2,), 4096),),
)
FRAMES = Layout(
    format="asdstore-frames",
    version=1,
    constants=(),
    streams=(
        Stream("features", "<f4", (1,), "feature_offset", "source_frames", 1024, ("frame", "value")),
        Stream("labels", "<i4", (1,), "label_offset", "source_frames", 4096, ("frame", "column")),
    ),
    fields=(*_fields(str, "dataset sample_id"), *_fields(int, "source_frames feature_offset label_offset"),
            *_fields(str, "recording", required=False)),
    shapes=(Shape("features", (1,), 1 << 20), Shape("labels", (0, 1), 1 << 10, optional=True)),
)
SPEECH = Layout(
    format="asdstore-speech",
    version=1,
    constants=(("audio_sample_rate", SAMPLE_RATE), ("audio_normalization", None)),
    streams=(Stream("audio", "<i2", (), "audio_offset", "audio_samples", 16384, ("sample",)),),
    fields=(*_fields(str, "corpus sample_id text language split speaker"), *_fields(int, "audio_offset audio_samples"),
            *_fields(float, "audio_mean audio_rms audio_peak")),
)
LAYOUTS = (ASD, FRAMES, SPEECH)
SHARD_NAME = "shard-{:06d}"
