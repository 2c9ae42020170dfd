"""Audio columns of Arrow tables: decoded, mixed to mono, resampled, encoded anew, and counted.

What Omnilingual ASR's `audio_tools` offers, with the faults left out: a row that cannot be decoded is left out and named, never
kept with nulls; channels are averaged along the axis that the decoder gives; arrays are never changed in place.
"""
from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from adapters.speech.ogg import with_serial
from asdstore import audio
from asdstore.errors import AsdError, Fault, InputError
from spec.layout import SAMPLE_RATE

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

FORMATS = {"flac": ("FLAC", "PCM_16"), "ogg": ("OGG", "VORBIS"), "wav": ("WAV", "FLOAT")}
AUDIO_COLUMNS = ("audio_bytes", "audio.bytes", "audio", "audio.path", "audio_path", "path", "file")
TEXT_COLUMNS = ("text", "transcription", "raw_transcription", "transcript", "sentence")
BLOCKS = {"ogg": 1 << 16}  # samples that go to an encoder at a time: Vorbis needs much stack for more
MOST_BYTES = (1 << 31) - 1  # of a list<int8> array, whose offsets are int32


class Clip(NamedTuple):
    """An utterance as it is stored."""

    data: bytes  # an encoded file
    samples: int  # that it decodes to, at 16 kHz
    decoded: audio.Decoded  # what it was made from


def recode(source: str | bytes | memoryview, audio_format: str = "flac", rate: int = SAMPLE_RATE, file: object = "",
           sample_id: str = "") -> Clip:
    """A path or the bytes of an audio file as mono audio at `rate` in one of FORMATS.

    Raises: what `asdstore.audio.decode` raises; InputError "audio-empty" where there is no sample.
    """
    if not len(source):
        raise InputError("audio-empty", file=file, sample_id=sample_id, expected="an audio file", found="no bytes")
    found = (audio.decode(source, rate, sample_id=sample_id) if isinstance(source, str)
             else audio.decode_bytes(source, rate, file, sample_id))
    if not len(found.samples):
        raise InputError("audio-empty", file=source if isinstance(source, str) else file, sample_id=sample_id,
                         expected="at least one sample", found="none")
    return Clip(encode(found.samples, audio_format, rate), len(found.samples), found)


def encode(samples: NDArray[np.float32], audio_format: str = "flac", rate: int = SAMPLE_RATE) -> bytes:
    """Mono float32 [n] in [-1, 1] as a file, the same bytes each time.

    FLAC holds 16 bits: rint(32768 x), so audio that was 16 bits before is what it was.
    """
    import soundfile

    major, subtype = FORMATS[audio_format]
    file = io.BytesIO()
    with soundfile.SoundFile(file, "w", rate, 1, subtype, format=major) as out:
        block = BLOCKS.get(audio_format, max(1, len(samples)))
        for at in range(0, len(samples), block):
            out.write(samples[at:at + block])
    data = file.getvalue()
    return {"flac": bytes, "ogg": with_serial, "wav": _without_time}[audio_format](data)


def _without_time(wav: bytes) -> bytes:
    """The WAV file with the time of its PEAK chunk at 0."""
    at = wav.find(b"PEAK", 0, 64)
    return wav if at < 0 else wav[:at + 12] + bytes(4) + wav[at + 16:]


def bytes_to_tensor(audio_arr: Any, target_sample_rate: int = SAMPLE_RATE) -> NDArray[np.float32]:
    """The waveform, float32 [samples] mono at the target rate, of an encoded file given as int8 or uint8 [n] or as bytes.

    Raises: as `asdstore.audio.decode`.
    """
    data = audio_arr if isinstance(audio_arr, (bytes, bytearray, memoryview)) else _octets(audio_arr)
    return audio.decode_bytes(data, target_sample_rate).samples


def _octets(values: Any) -> bytes:
    found = np.asarray(values)
    if found.dtype.kind not in "iu" or found.ndim != 1 or (len(found) and not (-128 <= found.min() and found.max() <= 255)):
        raise InputError("audio-layout", expected="bytes, or 8-bit integers [n]", found=f"{found.dtype} {list(found.shape)}")
    return found.astype(np.uint8 if found.dtype.kind == "u" else np.int16).astype(np.uint8).tobytes()


def binary_to_list_int8(array: Any) -> Any:
    """A binary or large_binary array as list<int8>: its bytes are shared, not copied, and it stays as it is.

    Slices and nulls are kept; of large_binary the offsets alone are new. A ChunkedArray gives a ChunkedArray.
    Raises InputError: "audio-layout" for another type, "size" for more than 2 GiB in one array.

    >>> import pyarrow as pa
    >>> binary_to_list_int8(pa.array([b"ab", None, b"\\xff"]).slice(1)).to_pylist()
    [None, [-1]]
    """
    import pyarrow as pa

    if isinstance(array, pa.ChunkedArray):
        return pa.chunked_array([binary_to_list_int8(chunk) for chunk in array.chunks], pa.list_(pa.int8()))
    if array.type not in (pa.binary(), pa.large_binary()):
        raise InputError("audio-layout", expected="binary or large_binary", found=str(array.type))
    validity, offsets, data = array.buffers()
    start = array.offset
    if array.type == pa.large_binary():
        ends = np.frombuffer(offsets, np.int64)[start:start + len(array) + 1] if offsets else np.zeros(1, np.int64)
        if ends[-1] - ends[0] > MOST_BYTES:
            raise InputError("size", expected="at most 2 GiB in one array", found=f"{ends[-1] - ends[0]} bytes",
                             cure="Take a slice at a time.")
        data = data.slice(ends[0]) if data else data
        validity = pa.array(array.is_valid()).buffers()[1] if array.null_count else None
        offsets, start = pa.py_buffer((ends - ends[0]).astype(np.int32)), 0
    data = data or pa.py_buffer(b"")
    values = pa.Array.from_buffers(pa.int8(), data.size, [None, data])
    return pa.Array.from_buffers(pa.list_(pa.int8()), len(array), [validity, offsets], array.null_count, start, [values])


def cells(column: Any) -> list[str | memoryview | None]:
    """What each row of an audio column holds: a path, or the bytes of a file without a copy.

    Raises InputError "audio-layout" for columns that are not string, binary, large_binary or list<int8>.
    """
    import pyarrow as pa

    kind = column.type
    if pa.types.is_null(kind):
        return [None] * len(column)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return column.to_pylist()
    if kind in (pa.binary(), pa.large_binary()):
        return [None if not cell.is_valid else memoryview(cell.as_buffer()) for cell in column]
    if (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and kind.value_type == pa.int8():
        return [None if not cell.is_valid else np.asarray(cell.values).data.cast("B") for cell in column]
    raise InputError("audio-layout", expected="string (paths), binary, large_binary or list<int8>", found=str(kind))


class AudioTableProcessor:
    """Turns the audio of a pyarrow table into `audio_bytes` and `audio_size`, the samples that these decode to.

        processor = AudioTableProcessor(target_sample_rate=16000, audio_format="flac")
        table = processor(table)

    The column is named, or is the first of AUDIO_COLUMNS that is there; a struct of bytes and path, as Hugging Face has it, is
    laid open as `audio.bytes` and `audio.path`. Rows that cannot be decoded are left out; `rejected` has a fault for each,
    whose row counts from the first table on.
    """

    def __init__(self, target_sample_rate: int = SAMPLE_RATE, audio_format: str = "flac", audio_column: str = ""):
        if audio_format not in FORMATS:
            raise InputError("audio-format", expected=", ".join(FORMATS), found=repr(audio_format))
        self.target_sample_rate, self.audio_format, self.audio_column = target_sample_rate, audio_format, audio_column
        self.rejected: list[Fault] = []
        self.rows = 0

    def __call__(self, table: pa.Table) -> pa.Table:
        """The table with int64 `audio_size` and list<int8> `audio_bytes` at its end.

        Raises InputError: "column" where there is no audio, "audio-layout" where its type is none of those known.
        """
        import pyarrow as pa

        table = table.flatten()
        name = self.audio_column or next((name for name in AUDIO_COLUMNS if name in table.column_names), "")
        if name not in table.column_names:
            raise InputError("column", expected=name or f"one of {', '.join(AUDIO_COLUMNS)}",
                             found=", ".join(table.column_names) or "none")
        clips, kept = [], []
        for row, cell in enumerate(_or_path(table, name)):
            try:
                if cell is None:
                    raise InputError("audio-empty", expected="an audio file", found="null")
                clips.append(recode(cell, self.audio_format, self.target_sample_rate))
                kept.append(row)
            except AsdError as error:
                self.rejected.append(error.fault._replace(row=self.rows + row))
        self.rows += len(table)
        replaced = [name for name in ("audio_bytes", "audio_size") if name in table.column_names]
        table = table.take(pa.array(kept, pa.int64())).drop_columns(replaced)
        sizes = pa.array([clip.samples for clip in clips], pa.int64())
        data = binary_to_list_int8(pa.array([clip.data for clip in clips], pa.large_binary()))
        return table.append_column("audio_size", sizes).append_column("audio_bytes", data)


def _or_path(table: Any, name: str) -> list[str | memoryview | None]:
    """The cells of a column; where `x.bytes` is null, those of `x.path`."""
    found = cells(table.column(name))
    path = name.removesuffix(".bytes") + ".path"
    if name.endswith(".bytes") and path in table.column_names:
        found = [cell or other for cell, other in zip(found, cells(table.column(path)), strict=True)]
    return found


def map_to_target_schema(batch: pa.Table, split: str, corpus: str, language: str = "") -> pa.Table:
    """The columns text, audio_bytes, language, split, corpus, audio_size of a processed table, in that order.

    The text is the first of TEXT_COLUMNS that is there. `language` is for a table that has no such column.
    Raises InputError "column" where one is missing.
    """
    import pyarrow as pa

    def constant(value: str) -> Any:
        return pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(batch), np.int32)), pa.array([value]))

    def column(*names: str) -> Any:
        found = next((name for name in names if name in batch.column_names), None)
        if found is None:
            raise InputError("column", expected=" or ".join(names), found=", ".join(batch.column_names) or "none")
        return batch.column(found)

    return pa.table({"text": column(*TEXT_COLUMNS), "audio_bytes": column("audio_bytes"),
                     "language": constant(language) if language else column("language"), "split": constant(split),
                     "corpus": constant(corpus), "audio_size": column("audio_size")})
