"""asdstore.writer: the bytes of a pack and its report, what is refused, memory. Stopping and targets: test_publish.py."""
from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asdstore
from asdstore import files, testing
from asdstore.errors import AsdError, InputError
from asdstore.records import Media, Record, check_records
from asdstore.testing import LAYOUT, digests, load
from asdstore.writer import write_pack
from spec import index, seal, zarr3
from spec.layout import ASD
from spec.plan import plan_shards, track_bytes
from spec.timeline import audio_sample_count, level, pcm16

RECORDS = testing.records()
SHARD_BYTES = 60_000


def write(target: Path, records: Sequence[Record] = RECORDS, load: Any = load, **options: Any) -> Path:
    return write_pack(target, records, load, **{"layout": LAYOUT, "max_shard_bytes": SHARD_BYTES} | options)


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("written") / "pack")


def rows_of(pack: Path) -> list[tuple[Path, dict[str, Any]]]:
    return [(folder, row) for folder in sorted(pack.glob("shard-*")) for row in json.loads((folder / "index.json").read_text())]


def test_tracks_come_back(pack: Path):
    found = rows_of(pack)
    assert [row["sample_id"] for _, row in found] == [record.sample_id for record in RECORDS]
    assert len(list(pack.glob("shard-*"))) > 2
    for record, (folder, row) in zip(RECORDS, found, strict=True):
        media, count = load(record), audio_sample_count(record.frames, record.fps)
        faces, audio, labels = (np.load(folder / f"{name}.npy") for name in ("faces", "audio", "labels"))
        start = row["face_offset"]
        assert row["label_offset"] == start
        np.testing.assert_array_equal(faces[start:start + record.frames], media.faces)
        np.testing.assert_array_equal(labels[start:start + record.frames], media.labels)
        wave = np.zeros(count, np.float32)
        wave[:min(count, len(media.audio))] = media.audio[:count]
        stored = audio[row["audio_offset"]:row["audio_offset"] + count]
        assert stored.dtype == np.int16
        np.testing.assert_array_equal(stored, pcm16(wave))
        assert (row["audio_mean"], row["audio_rms"], row["audio_peak"]) == level(wave)
        assert row["speaking_ratio"] == media.labels.mean()
        assert (row["recording"], row["source_fps"], row["start_sec"]) == (record.recording, record.fps, record.start_sec)


def test_index_is_v4_text(pack: Path):
    keys = [*(field.name for field in ASD.fields if field.required), "recording"]
    for folder in pack.glob("shard-*"):
        text = (folder / "index.json").read_text()
        rows = json.loads(text)
        assert all(list(row) == keys for row in rows)
        assert text == json.dumps(rows, separators=(",", ":"))  # no blanks, ASCII
        assert all(type(row["source_fps"]) is float and type(row["start_sec"]) is float for row in rows)


def test_a_record_without_recording_has_no_such_field(tmp_path: Path):
    write(tmp_path / "pack", [RECORDS[0]._replace(recording="")])
    assert "recording" not in rows_of(tmp_path / "pack")[0][1]


def test_arrays_are_zarr_shards(pack: Path):
    for folder in pack.glob("shard-*"):
        for stream in LAYOUT.streams:
            data = (folder / stream.file).read_bytes()
            rows = len(np.load(folder / stream.file))
            chunk = stream.chunk_rows(rows)
            assert len(data) == zarr3.file_bytes(128, rows, stream.row_bytes, chunk)
            chunks = zarr3.chunk_count(rows, chunk)
            tail = data[-zarr3.index_bytes(chunks):]
            assert zarr3.parse_shard_index(tail, chunks)[0].tolist() == [128, chunk * stream.row_bytes]
            padding = zarr3.padding_bytes(rows, stream.row_bytes, chunk)
            assert not any(data[len(data) - len(tail) - padding:len(data) - len(tail)])


def test_seal_names_every_file(pack: Path):
    sealed = seal.parse((pack / "seal.json").read_bytes())
    assert {file.name: file.sha256 for file in sealed.files} == {k: v for k, v in digests(pack).items() if k != "seal.json"}
    assert "columns/source_fps.npy" in sealed.named()
    assert [file.name for file in sealed.files] == sorted(file.name for file in sealed.files)


def test_opens_sealed_and_deeply_verified(pack: Path):
    found = asdstore.open(pack, verify="deep")
    assert [track.id for track in found] == [record.sample_id for record in RECORDS]
    np.testing.assert_array_equal(found[3].faces, load(RECORDS[3]).faces)


def test_report(pack: Path):
    report = json.loads((pack / "report.json").read_text())
    missing = {r.sample_id: audio_sample_count(r.frames, r.fps) - len(load(r).audio) for r in RECORDS}
    assert (report["tracks"], report["frames"]) == (7, sum(r.frames for r in RECORDS))
    assert report["hours"] == round(sum(r.frames / r.fps for r in RECORDS) / 3600, 6)
    assert {name: size["tracks"] for name, size in report["datasets"].items()} == {"wasd": 4, "ava": 3}
    audio = report["audio"]
    assert audio["cropped"]["tracks"] == sum(n < 0 for n in missing.values()) > 0
    assert audio["padded_up_to_one_frame"]["tracks"] == sum(n > 0 for n in missing.values()) > 0
    assert audio["cropped"]["seconds"] == round(sum(-n for n in missing.values() if n < 0) / 16000, 3)
    assert audio["padded_more"] == {"tracks": 0, "seconds": 0.0, "samples": []}
    assert audio["clipped_samples"] > 0
    assert report["without_model_frames"] == [RECORDS[2].sample_id]
    assert report["notes"] == {"gaps": 7, "decoder": {"made up": 7}, "seconds": 3.5}


def test_report_names_tracks_padded_by_more_than_a_frame(tmp_path: Path):
    def short(record: Record, frames: int) -> Media:
        media = load(record)
        return media._replace(audio=np.zeros(audio_sample_count(record.frames, record.fps) - 640 * frames, np.float32))

    write(tmp_path / "one", RECORDS[:1], partial(short, frames=1))
    write(tmp_path / "two", RECORDS[:1], partial(short, frames=2))
    found = [json.loads((tmp_path / name / "report.json").read_text())["audio"] for name in ("one", "two")]
    assert found[0]["padded_up_to_one_frame"] == {"tracks": 1, "seconds": .04} and not found[0]["padded_more"]["samples"]
    assert found[1]["padded_more"] == {"tracks": 1, "seconds": .08, "samples": [RECORDS[0].sample_id]}


def test_callers_report_and_extras_are_in_the_pack_and_sealed(tmp_path: Path):
    pack = write(tmp_path / "pack", report={"skipped": {"a:1": "no audio"}}, extras={"ground_truth.csv": b"a,b\n"})
    assert json.loads((pack / "report.json").read_text())["skipped"] == {"a:1": "no audio"}
    assert (pack / "ground_truth.csv").read_bytes() == b"a,b\n"
    assert "ground_truth.csv" in seal.parse((pack / "seal.json").read_bytes()).named()


@pytest.mark.parametrize("name", [
    "seal.json", "dataset.json", "report.json", "columns", "shard-9", "../a", "a/b", "", ".hidden", "a:b"])
def test_extras_cannot_take_the_names_of_the_pack(tmp_path: Path, name: str):
    with pytest.raises(InputError) as found:
        write(tmp_path / "pack", extras={name: b""})
    assert found.value.kind == "extra-name" and not any(tmp_path.iterdir())


# --- the original's pack ---

def test_equals_the_pack_of_the_original(golden: Path, tmp_path: Path):
    soundfile = pytest.importorskip("soundfile")
    original = golden / "packs" / "ava_val_full"
    rows = rows_of(original)

    def load(record: Record) -> Media:
        folder, row = rows[int(str(record.source))]
        part = slice(row["face_offset"], row["face_offset"] + record.frames)
        path = golden / f"corpora/ava/clips_audios/val/{record.recording}/{record.sample_id}.wav"
        wave = soundfile.read(path, dtype="float32", always_2d=True)[0].clip(-1, 1).mean(1, dtype=np.float32)
        return Media(np.load(folder / "faces.npy")[part], wave, np.load(folder / "labels.npy")[part])

    records = [Record("ava", row["sample_id"], row["source_fps"], row["source_frames"], 0.0, row["sample_id"][:11], n)
               for n, (_, row) in enumerate(rows)]
    pack = write_pack(tmp_path / "pack", records, load, max_shard_bytes=1_200_000)
    assert (pack / "dataset.json").read_bytes() == (original / "dataset.json").read_bytes()
    for (ours, found), (theirs, expected) in zip(rows_of(pack), rows, strict=True):
        assert ours.name == theirs.name
        assert list(found) == [*expected, "recording"]
        measured = {"audio_mean", "audio_rms", "audio_peak"}
        assert {k: v for k, v in found.items() if k in expected and k not in measured} == {
            k: v for k, v in expected.items() if k not in measured}
        assert all(abs(found[k] - expected[k]) <= 1e-6 for k in measured)
    for array in ("faces.npy", "audio.npy", "labels.npy"):
        for folder in original.glob("shard-*"):
            theirs = (folder / array).read_bytes()
            assert (pack / folder.name / array).read_bytes()[:len(theirs)] == theirs  # and then our tail
    report = json.loads((pack / "report.json").read_text())
    assert report["audio"]["padded_more"]["tracks"] == 0 and report["without_model_frames"] == ["Gvp-cj3bmIY_0960_1020:8"]


# --- shard plan ---

def test_shards_hold_what_the_plan_says(pack: Path):
    sizes = [track_bytes(r.frames, r.fps, LAYOUT) for r in RECORDS]
    for folder, part in zip(sorted(pack.glob("shard-*")), plan_shards(sizes, SHARD_BYTES), strict=True):
        rows = json.loads((folder / "index.json").read_text())
        assert [row["sample_id"] for row in rows] == [RECORDS[n].sample_id for n in part]
        stored = sum(np.load(folder / s.file).nbytes for s in LAYOUT.streams)
        assert stored == sum(sizes[n] for n in part) and (stored <= SHARD_BYTES or len(part) == 1)


# --- what is refused ---

@pytest.mark.parametrize(("change", "kind"), [
    ({"sample_id": RECORDS[0].sample_id}, "duplicate-id"), ({"sample_id": ""}, "sample-id"),
    ({"sample_id": "\udc80"}, "sample-id"), ({"recording": "a\x00"}, "sample-id"),
    ({"frames": 0}, "frames"), ({"frames": -3}, "frames"), ({"frames": 2.0}, "frames"), ({"fps": 0.0}, "fps"),
    ({"fps": np.nan}, "fps"), ({"start_sec": -1.0}, "start"), ({"start_sec": np.inf}, "start")])
def test_bad_records_are_refused_before_anything_is_loaded(tmp_path: Path, change: dict[str, Any], kind: str):
    loaded = []
    with pytest.raises(InputError) as found:
        write(tmp_path / "pack", [*RECORDS[:3], RECORDS[3]._replace(**change)], loaded.append)
    assert found.value.kind == kind and found.value.fault.row == 3
    assert not loaded and not any(tmp_path.iterdir())


def test_no_records_is_an_error(tmp_path: Path):
    with pytest.raises(InputError) as found:
        write(tmp_path / "pack", [])
    assert found.value.kind == "no-tracks" and not any(tmp_path.iterdir())
    with pytest.raises(InputError):
        check_records([])


def broken(record: Record, **parts: Any) -> Media:
    return load(record)._replace(**parts) if record == RECORDS[4] else load(record)


FACES, LABELS, WAVE = np.zeros((33, 8, 6), np.uint8), np.zeros(33, np.uint8), np.zeros(100, np.float32)


@pytest.mark.parametrize(("parts", "kind", "text"), [
    ({"labels": LABELS[:10], "faces": FACES[:9]}, "labels", "9 faces but 10 labels"),
    ({"labels": LABELS[:10], "faces": FACES[:10]}, "frames", "33"),
    ({"labels": LABELS + 2}, "labels", "2 at frame 0"), ({"labels": LABELS.astype(bool)}, "labels", "bool"),
    ({"labels": LABELS + .7}, "labels", "float64"), ({"labels": LABELS[:, None]}, "labels", "[33, 1]"),
    ({"faces": FACES.astype(np.float32)}, "faces", "float32"), ({"faces": FACES[:, :7]}, "faces", "[33, 7, 6]"),
    ({"faces": FACES[0]}, "faces", "[8, 6]"), ({"faces": FACES[..., None]}, "faces", "[33, 8, 6, 1]"),
    ({"audio": WAVE[:0]}, "audio-empty", "no sample"), ({"audio": WAVE + np.float32("nan")}, "audio-nan", "sample 0"),
    ({"audio": np.append(WAVE, np.float32("-inf"))}, "audio-nan", "sample 100"),
    ({"audio": WAVE.astype(np.float64)}, "audio", "float64"), ({"audio": WAVE[None]}, "audio", "[1, 100]")])
def test_bad_media_are_refused_with_the_sample(tmp_path: Path, parts: dict[str, Any], kind: str, text: str):
    with pytest.raises(InputError) as found:
        write(tmp_path / "pack", load=partial(broken, **parts))
    assert (found.value.kind, found.value.fault.sample_id) == (kind, RECORDS[4].sample_id)
    assert text in str(found.value)
    assert not (tmp_path / "pack").exists()


def test_a_track_of_one_frame_may_have_no_audio(tmp_path: Path):
    pack = write(tmp_path / "pack", [RECORDS[2]], lambda record: load(record)._replace(audio=WAVE[:0]))
    assert not np.load(pack / "shard-000000" / "audio.npy").any() and len(np.load(pack / "shard-000000" / "audio.npy")) == 533


@pytest.mark.parametrize("error", [InputError("audio-missing", file="a.wav"), OSError("cannot read"), ZeroDivisionError()])
def test_what_goes_wrong_in_loading_names_the_sample(tmp_path: Path, error: Exception):
    def fail(record: Record) -> Media:
        raise error

    with pytest.raises(type(error)) as found:
        write(tmp_path / "pack", load=fail)
    named = found.value.fault.sample_id if isinstance(found.value, AsdError) else found.value.__notes__[0]
    assert RECORDS[0].sample_id in named


# --- memory ---

def large(record: Record) -> Media:
    return Media(np.full((record.frames, 112, 112), 7, np.uint8), np.zeros(640 * record.frames, np.float32),
                 np.zeros(record.frames, np.uint8))


def test_memory_is_one_track_whatever_the_shard_size(tmp_path: Path):
    code = f"""if True:
        import sys
        sys.path[:0] = [{str(Path(__file__).parent)!r}, {str(Path(asdstore.__file__).parent.parent)!r}]
        import test_writer as t
        def peak():  # of this process alone; getrusage would tell that of the one which started it
            return next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM:"))
        records = [t.Record("d", str(n), 25.0, 1000, 0.0, "", n) for n in range(48)]  # 12.5 MB each, 600 MB in one shard
        before = peak()
        t.write_pack({str(tmp_path / "pack")!r}, records, t.large)
        print(before, peak())
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    before, peak = (int(word) / 1024 for word in done.stdout.split())
    assert (tmp_path / "pack/shard-000000/faces.npy").stat().st_size > 600e6
    files.remove_tree(tmp_path / "pack")
    assert peak - before < 60, f"{peak - before:.0f} MiB for tracks of 14 MiB"
    assert peak < 250


def test_index_of_many_shards_is_read_back_in_order(tmp_path: Path):
    records = [Record("d", f"t{n}", 25.0, 1, 0.0, "r", n) for n in range(30)]
    pack = write(tmp_path / "pack", records, max_shard_bytes=1)
    assert len(list(pack.glob("shard-*"))) == 30
    found = index.concat([index.parse((pack / f"shard-{n:06d}/index.json").read_bytes(), LAYOUT, n) for n in range(30)])
    assert list(found.texts("sample_id")) == [r.sample_id for r in records] and found.shard.tolist() == list(range(30))
