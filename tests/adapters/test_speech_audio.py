"""The audio tools of the document: goldens of the original, every input type, no copy, no null row, no source changed."""
from __future__ import annotations

import io
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

pa = pytest.importorskip("pyarrow")

from adapters.speech.audio import (  # noqa: E402
    AudioTableProcessor,
    binary_to_list_int8,
    bytes_to_tensor,
    encode,
    map_to_target_schema,
    recode,
)
from asdstore.audio import decode_bytes  # noqa: E402
from asdstore.errors import InputError, MissingError  # noqa: E402


def tone(seconds: float = 0.5, rate: int = 16000, channels: int = 1, kind: str = "WAV", subtype: str = "PCM_16") -> bytes:
    wave = 0.4 * np.sin(2 * np.pi * 300 * np.arange(round(seconds * rate)) / rate)
    file = io.BytesIO()
    soundfile.write(file, np.stack([wave] * channels, axis=1), rate, format=kind, subtype=subtype)
    return file.getvalue()


def octets(cell: Any) -> bytes:
    return np.asarray(cell.values).view(np.uint8).tobytes()


def decoded(cell: Any) -> tuple[np.ndarray, int, str]:
    file = soundfile.SoundFile(io.BytesIO(octets(cell)))
    return file.read(dtype="float32"), file.samplerate, f"{file.format}/{file.subtype}"


# ---- goldens

def test_made_audio_as_the_original(shared: Path) -> None:
    golden = shared / "golden/omnilingual"
    for row in json.loads((golden / "audio.json").read_text()):
        if row["case"].startswith("err"):
            continue
        data = next((golden / "audio").glob(f"in_{row['case']}.*")).read_bytes()
        table = AudioTableProcessor(16000, row["audio_format"])(pa.table({"k": [1], "audio_bytes": pa.array([data])}))
        assert [f"{field.name}:{field.type}" for field in table.schema] == row["cols"]
        found, rate, kind = decoded(table["audio_bytes"][0])
        assert (rate, kind) == (16000, f"{row['out_format']}/{row['out_subtype']}")
        if row["case"] == "1sample_stereo":  # the original takes two channels for two samples
            assert table["audio_size"][0].as_py() == len(found) == 1
            continue
        assert table["audio_size"][0].as_py() == len(found) == row["audio_size"], row["case"]
        expected = np.load(golden / "audio" / f"out_{row['case']}.npy")
        if len(found) > 2:
            assert np.corrcoef(found, expected)[0, 1] > 0.999, row["case"]
        if row["in_sr"] == 16000 and row["audio_format"] == "flac" and len(found) > 2:
            assert np.array_equal(found, expected) and len(octets(table["audio_bytes"][0])) == row["out_bytes"]


def test_real_clips_as_the_original(shared: Path) -> None:
    compared = 0
    for row in json.loads((shared / "golden/omnilingual/real_audio_golden.json").read_text()):
        path = shared / "data/speech" / row["file"]
        if not path.exists():
            continue
        compared += 1
        table = AudioTableProcessor()(pa.table({"audio": [str(path)]}))
        found = decoded(table["audio_bytes"][0])[0].astype(np.float64)
        assert table["audio_size"][0].as_py() == len(found) == row["audio_size"]
        assert np.sqrt(np.mean(found ** 2)) == pytest.approx(row["rms"], rel=1e-3)
        assert found.sum() == pytest.approx(row["sum"], abs=0.01 + 1e-3 * len(found) ** 0.5)
    assert compared >= 10


# ---- the processor

@pytest.mark.parametrize("kind", ["paths", "binary", "large_binary", "list<int8>", "large_list<int8>", "struct",
                                  "struct of paths"])
def test_every_kind_of_column(kind: str, tmp_path: Path) -> None:
    data = tone()
    (tmp_path / "a.wav").write_bytes(data)
    column = {
        "paths": lambda: pa.array([str(tmp_path / "a.wav")]), "binary": lambda: pa.array([data], pa.binary()),
        "large_binary": lambda: pa.array([data], pa.large_binary()),
        "list<int8>": lambda: pa.array([np.frombuffer(data, np.int8)], pa.list_(pa.int8())),
        "large_list<int8>": lambda: pa.array([np.frombuffer(data, np.int8)], pa.large_list(pa.int8())),
        "struct": lambda: pa.array([{"bytes": data, "path": "a.wav"}]),
        "struct of paths": lambda: pa.array([{"bytes": None, "path": str(tmp_path / "a.wav")}],
                                            pa.struct({"bytes": pa.binary(), "path": pa.string()})),
    }[kind]()
    table = AudioTableProcessor()(pa.table({"k": [7], "audio": column}))
    found, rate, form = decoded(table["audio_bytes"][0])
    assert (rate, form) == (16000, "FLAC/PCM_16")
    assert np.array_equal(found, soundfile.read(io.BytesIO(data), dtype="float32")[0])
    assert table["audio_size"].to_pylist() == [8000] and table.column_names[-2:] == ["audio_size", "audio_bytes"]
    assert table.schema.field("audio_bytes").type == pa.list_(pa.int8())


def test_other_columns_are_refused() -> None:
    with pytest.raises(InputError) as error:
        AudioTableProcessor()(pa.table({"audio": pa.array([[1, 2]], pa.list_(pa.uint8()))}))
    assert error.value.kind == "audio-layout" and "uint8" in str(error.value)
    with pytest.raises(InputError, match="sound"):
        AudioTableProcessor(audio_column="sound")(pa.table({"audio": [b""]}))
    with pytest.raises(InputError) as error:
        AudioTableProcessor()(pa.table({"text": ["a"]}))
    assert error.value.kind == "column"
    with pytest.raises(InputError, match="flac, ogg, wav"):
        AudioTableProcessor(audio_format="mp3")


def test_rows_that_do_not_decode_are_left_out_and_named(tmp_path: Path) -> None:
    nan = io.BytesIO()
    soundfile.write(nan, np.array([0, np.nan, 0], np.float32), 16000, format="WAV", subtype="FLOAT")
    rows = [tone(), b"garbage", None, b"", tone(0), nan.getvalue(), tone(0.25)]
    processor = AudioTableProcessor()
    table = processor(pa.table({"k": list(range(7)), "audio": pa.array(rows, pa.binary())}))
    assert table["k"].to_pylist() == [0, 6] and table["audio_size"].to_pylist() == [8000, 4000]
    assert table["audio_bytes"].null_count == table["audio_size"].null_count == 0
    assert [(fault.row, fault.kind) for fault in processor.rejected] == [
        (1, "audio-corrupt"), (2, "audio-empty"), (3, "audio-empty"), (4, "audio-empty"), (5, "audio-nan")]
    processor(pa.table({"audio": ["nowhere.wav"]}))
    assert (processor.rejected[-1].row, processor.rejected[-1].kind) == (7, "audio-missing")


@pytest.mark.parametrize("claim", [0x7FFFFFFF, 0xFFFFFFFF])
def test_a_header_that_claims_too_much(claim: int) -> None:
    data = bytearray(tone(0.4))
    data[40:44] = claim.to_bytes(4, "little")
    clip = recode(bytes(data))
    assert clip.samples == 6400


def test_such_a_header_of_compressed_audio() -> None:
    file = io.BytesIO()
    soundfile.write(file, np.zeros(4000, np.float32), 16000, format="WAV", subtype="IMA_ADPCM")
    data = file.getvalue()
    at = data.index(b"data")
    clip = recode(data[:at + 4] + (0x7FFFFFFF).to_bytes(4, "little") + data[at + 8:])  # fewer bytes than samples
    assert clip.samples >= 4000 and clip.decoded.header_samples > 1 << 31


def test_channels_are_averaged_however_short_the_clip() -> None:
    file = io.BytesIO()
    soundfile.write(file, np.array([[0.5, -0.25]], np.float32), 16000, format="WAV", subtype="FLOAT")
    clip = recode(file.getvalue(), "wav")
    assert clip.samples == 1 and soundfile.read(io.BytesIO(clip.data))[0].tolist() == [0.125]


@pytest.mark.parametrize(("rate", "count"), [(8000, 8000), (44100, 32290), (48000, 1), (22050, 22051), (11025, 999)])
def test_sizes_after_resampling(rate: int, count: int) -> None:
    assert recode(tone(count / rate, rate)).samples == -(-16000 * count // rate)


def test_another_target_rate() -> None:
    table = AudioTableProcessor(target_sample_rate=8000)(pa.table({"audio": [tone(0.5)]}))
    found, rate, _ = decoded(table["audio_bytes"][0])
    assert rate == 8000 and table["audio_size"].to_pylist() == [len(found)] == [4000]


@pytest.mark.parametrize("audio_format", ["flac", "ogg", "wav"])
def test_the_same_audio_is_the_same_bytes(audio_format: str) -> None:
    samples = np.cumsum(np.random.default_rng(0).normal(0, 0.001, 200_000)).clip(-1, 1).astype(np.float32)
    one = encode(samples, audio_format)
    if audio_format == "wav":
        time.sleep(1.01)  # its PEAK chunk has a time in seconds
    assert one == encode(samples, audio_format)
    found = decode_bytes(one).samples
    assert len(found) == len(samples) and np.corrcoef(found, samples)[0, 1] > 0.99


def test_sixteen_bits_stay_what_they_were() -> None:
    values = np.arange(-32768, 32768, 3, dtype=np.int16)
    found, _ = soundfile.read(io.BytesIO(encode(values.astype(np.float32) / np.float32(32768))), dtype="int16")
    assert np.array_equal(found, values)


# ---- arrays

def test_lists_share_the_bytes() -> None:
    array = pa.array([b"ab", b"", b"xyz"])
    found = binary_to_list_int8(array)
    assert found.type == pa.list_(pa.int8()) and found.to_pylist() == [[97, 98], [], [120, 121, 122]]
    assert found.values.buffers()[1].address == array.buffers()[2].address


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_slices_leave_the_source_alone(kind: Any) -> None:
    source = pa.array([b"ab", b"xyz", None, b"cde", b"q"], kind)
    before = source.to_pylist()
    for start in range(5):
        for length in range(6 - start):
            found = binary_to_list_int8(source.slice(start, length))
            found.validate(full=True)
            given = [None if x is None else bytes(np.array(x, np.int8)) for x in found.to_pylist()]
            assert given == before[start:start + length]
    assert source.to_pylist() == before


def test_empty_chunked_and_other_arrays() -> None:
    assert binary_to_list_int8(pa.array([], pa.binary())).to_pylist() == []
    assert binary_to_list_int8(pa.array([], pa.large_binary())).to_pylist() == []
    assert binary_to_list_int8(pa.array([None], pa.binary())).to_pylist() == [None]
    chunked = binary_to_list_int8(pa.chunked_array([[b"a"], [b"b", None]], pa.binary()))
    assert chunked.to_pylist() == [[97], [98], None] and chunked.type == pa.list_(pa.int8())
    with pytest.raises(InputError, match="string"):
        binary_to_list_int8(pa.array(["a"]))


def test_bytes_to_tensor() -> None:
    data = tone(channels=2)
    expected = soundfile.read(io.BytesIO(data), dtype="float32")[0][:, 0]
    octet = np.frombuffer(data, np.uint8)
    for given in (data, octet, octet.view(np.int8), list(data), octet.view(np.int8).astype(np.int64)):
        found = bytes_to_tensor(given)
        assert found.dtype == np.float32 and np.array_equal(found, expected)
    assert bytes_to_tensor(octet, target_sample_rate=8000).shape == (4000,)
    for bad in (np.zeros((2, 2), np.int8), np.array([1.0]), np.array([400])):
        with pytest.raises(InputError) as error:
            bytes_to_tensor(bad)
        assert error.value.kind == "audio-layout"


# ---- the schema

def test_target_schema() -> None:
    table = AudioTableProcessor()(pa.table({"audio": [tone()], "transcription": ["hello"], "language": ["eng_Latn"]}))
    found = map_to_target_schema(table, "train", "fleurs")
    assert found.column_names == ["text", "audio_bytes", "language", "split", "corpus", "audio_size"]
    assert found.schema.field("corpus").type == pa.dictionary(pa.int32(), pa.string())
    assert found.drop_columns("audio_bytes").to_pylist() == [
        {"text": "hello", "language": "eng_Latn", "split": "train", "corpus": "fleurs", "audio_size": 8000}]


def test_target_schema_with_the_language_given() -> None:
    table = AudioTableProcessor()(pa.table({"audio": [tone()], "sentence": ["hello"]}))
    assert map_to_target_schema(table, "train", "cv", language="eng_Latn")["language"].to_pylist() == ["eng_Latn"]
    with pytest.raises(InputError, match="language"):
        map_to_target_schema(table, "train", "cv")


def test_paths_and_their_faults(tmp_path: Path) -> None:
    with pytest.raises(MissingError):
        recode(str(tmp_path / "nowhere.wav"))
    (tmp_path / "a.wav").write_bytes(b"RIFF")
    with pytest.raises(InputError, match="a.wav"):
        recode(str(tmp_path / "a.wav"))
