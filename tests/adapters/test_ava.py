"""AVA and WASD clip trees: both layouts, and every silent failure of the original made loud."""
from __future__ import annotations

import shutil

import numpy as np
import pytest

import asdstore
from adapters import ava
from adapters.survey import refuse
from asdstore.errors import InputError, MissingError

A, B = "HV0H6oc4Kvs_0960_1020:1", "-5KQ66BBWC4_0900_0960:2"
WASD = "0BRxm7G1acw_1449-1479_0000_0030:0"


def kinds(faults: list[dict]) -> list[tuple[str, str]]:
    return [(fault["sample_id"], fault["kind"]) for fault in faults]


def test_a_tree_becomes_a_pack_in_the_order_of_the_table(clip_tree):
    clip_tree.add(B, 30, 29.97)
    clip_tree.add(A, 12)
    report = clip_tree.report()
    pack = asdstore.open(clip_tree.pack)
    assert [track.id for track in pack] == [B, A] and [track.recording for track in pack] == ["-5KQ66BBWC4", "HV0H6oc4Kvs"]
    assert pack[0].faces.shape == (30, 112, 112) and pack[0].labels.tolist() == [n % 3 % 2 for n in range(30)]
    assert report["tracks"] == 2 and report["frames"] == 42 and report["audio"]["padded_up_to_one_frame"]["tracks"] == 2
    assert report["skipped"] == {} and report["gaps"]["tracks"] == 0


def test_jpegs_are_ordered_as_numbers(clip_tree):
    import cv2

    faces = clip_tree.add(A, 3, stamps=["9.96", "10.00", "10.04"])
    for level, stamp in ((10, "9.96"), (100, "10.00"), (200, "10.04")):
        (faces / f"{stamp}.jpg").write_bytes(cv2.imencode(".jpg", np.full((20, 16, 3), level, np.uint8))[1].tobytes())
    clip_tree.report()
    assert asdstore.open(clip_tree.pack)[0].faces.mean((1, 2)).round(-1).tolist() == [10, 100, 200]


@pytest.mark.parametrize("flat", ["both", "faces", "neither"])
def test_wasd_nested_flattened_and_half_flattened(wasd_tree, flat):
    other = "-aXx9Jt1S2k_300-330_0000_0030:1"
    wasd_tree.add(WASD, 20, 30.0)
    wasd_tree.add(other, 5, 10.0)
    clips = {"both": (wasd_tree.visual, wasd_tree.audio), "faces": (wasd_tree.visual,), "neither": ()}[flat]
    for root in clips:  # what WASD's convert script does
        for folder in list((root / "train").iterdir()):
            for child in list(folder.iterdir()):
                shutil.move(child, root / "train" / child.name)
            folder.rmdir()
    audio = wasd_tree.audio.rename(wasd_tree.root / "clip_audio")
    wasd_tree.audio = audio
    assert wasd_tree.report()["datasets"]["wasd"]["tracks"] == 2
    assert [track.recording for track in asdstore.open(wasd_tree.pack)] == ["0BRxm7G1acw", "-aXx9Jt1S2k"]


def test_the_roots_are_found_beside_the_table(wasd_tree, capsys):
    from adapters import prepare

    wasd_tree.add(WASD, 20, 30.0)
    wasd_tree.audio.rename(wasd_tree.root / "clip_audio")
    (wasd_tree.audio / "val").mkdir(parents=True)  # a split that was not converted
    assert prepare.main(["wasd", "--loader", str(wasd_tree.loader)]) == 0
    assert len(asdstore.open(wasd_tree.pack)) == 1


def test_ids_of_another_form_keep_their_own_recording(clip_tree):
    clip_tree.add("interview:1", folder="v1")
    clip_tree.add("interview:2", folder="v1")
    clip_tree.report()
    assert [track.recording for track in asdstore.open(clip_tree.pack)] == ["interview", "interview"]


# ---- silent failures of the original, one after the other

def test_column_2_against_the_labels(clip_tree):
    clip_tree.add(A, 10, row=f"{A}\t99\t25.0\t{[0] * 10}\t0")
    (fault,) = clip_tree.faults()
    assert (fault["kind"], fault["row"], fault["file"]) == ("frames", 1, str(clip_tree.loader))


def test_a_label_that_is_not_0_or_1(clip_tree):
    clip_tree.add(A, 3, labels=[0, 0.7, 1])
    clip_tree.add(B, 3, labels=[0, 7, 1])
    assert kinds(clip_tree.faults()) == [(A, "labels"), (B, "labels")]


def test_jpegs_against_the_labels(clip_tree):
    faces = clip_tree.add(A, 10)
    next(faces.iterdir()).unlink()
    (fault,) = clip_tree.faults()
    assert fault["kind"] == "faces" and fault["found"] == "9" and "10 JPEGs" in fault["expected"]


def test_rates_whose_names_collide_are_explained(clip_tree):
    clip_tree.add(A, 2, 120.0, stamps=["1.00"], labels=[0, 1])
    assert "collide" in clip_tree.faults()[0]["cure"]


def test_all_missing_inputs_are_listed(clip_tree):
    for number in range(4):
        clip_tree.add(f"HV0H6oc4Kvs_0960_1020:{number}")
    shutil.rmtree(clip_tree.visual / "train" / "HV0H6oc4Kvs" / "HV0H6oc4Kvs_0960_1020:1")
    clip_tree.wav("HV0H6oc4Kvs_0960_1020:2").unlink()
    for jpeg in (clip_tree.visual / "train" / "HV0H6oc4Kvs" / "HV0H6oc4Kvs_0960_1020:3").iterdir():
        jpeg.unlink()
    assert kinds(clip_tree.faults()) == [
        ("HV0H6oc4Kvs_0960_1020:1", "faces-missing"), ("HV0H6oc4Kvs_0960_1020:2", "audio-missing"),
        ("HV0H6oc4Kvs_0960_1020:3", "faces-missing")]


def test_skip_missing_counts_and_lists(clip_tree):
    for sample_id in (A, B):
        clip_tree.add(sample_id)
    clip_tree.wav(B).unlink()
    assert clip_tree.report("--skip-missing")["skipped"] == {"audio-missing": [B]}
    assert [track.id for track in asdstore.open(clip_tree.pack)] == [A]


def test_links_that_lead_nowhere_are_missing_files(clip_tree):
    for sample_id in (A, B, WASD):
        clip_tree.add(sample_id)
    lost = clip_tree.wav(B)
    lost.unlink()
    lost.symlink_to("annexed.wav")
    clip_tree.wav(WASD).rename(clip_tree.root / "elsewhere.wav")
    (lost.parent.parent / f"{WASD}.wav").symlink_to(clip_tree.root / "elsewhere.wav")
    assert kinds(clip_tree.faults()) == [(B, "audio-missing")]
    assert clip_tree.report("--skip-missing")["skipped"] == {"audio-missing": [B]}
    assert [track.id for track in asdstore.open(clip_tree.pack)] == [A, WASD]


def test_skipping_everything_is_no_pack(clip_tree):
    clip_tree.add(A)
    clip_tree.wav(A).unlink()
    code, _, err = clip_tree.prepare("--skip-missing")
    assert code == 1 and "no track is left" in err and A in err and not clip_tree.pack.exists()


def test_a_wav_without_samples(clip_tree):
    clip_tree.add(A, 10, seconds=0)
    (fault,) = clip_tree.faults()
    assert (fault["sample_id"], fault["kind"], fault["file"]) == (A, "audio-empty", str(clip_tree.wav(A)))


def test_a_wav_without_samples_for_one_frame_is_normal(clip_tree):
    clip_tree.add(A, 1, seconds=0)
    report = clip_tree.report()
    assert report["audio"]["padded_up_to_one_frame"]["tracks"] == 1 and not asdstore.open(clip_tree.pack)[0].audio.any()


@pytest.mark.parametrize("seconds", [3.0, 8.5])
def test_audio_two_seconds_off_is_refused(clip_tree, seconds):
    clip_tree.add(A, 151, seconds=seconds)  # the time stamps span 6 s
    (fault,) = clip_tree.faults()
    assert (fault["sample_id"], fault["kind"]) == (A, "audio-length") and "6.00 s" in fault["expected"]


@pytest.mark.parametrize(("seconds", "note"), [(5.0, "-1.00 s"), (7.5, "+1.50 s")])
def test_audio_a_little_off_is_reported(clip_tree, seconds, note):
    clip_tree.add(A, 151, seconds=seconds)
    report = clip_tree.report()
    assert report["notes"]["audio_differs_from_time_stamps"] == {f"{A}: {note}": 1}
    assert report["audio"]["cropped" if seconds > 6 else "padded_more"]["tracks"] == 1


@pytest.mark.parametrize("seconds", [0.96, 4.96])
def test_audio_two_seconds_off_to_the_sample_is_still_reported(clip_tree, seconds):
    clip_tree.add(A, 75, seconds=seconds)  # from 900.00 to 902.96
    (note,) = clip_tree.report()["notes"]["audio_differs_from_time_stamps"]
    assert note.endswith("2.00 s")


def test_audio_within_a_frame_is_only_counted(clip_tree):
    clip_tree.add(A, 151, seconds=5.97)
    assert "audio_differs_from_time_stamps" not in clip_tree.report()["notes"]


def test_gaps_are_reported_and_frames_stay_paired_by_position(clip_tree):
    stamps = [f"{n / 25:.2f}" for n in range(60)] + [f"{3 + n / 25:.2f}" for n in range(18)]
    labels = [0] * 59 + [1] * 19
    clip_tree.add(A, 78, stamps=stamps, labels=labels)
    report = clip_tree.report()
    assert report["gaps"] == {"tracks": 1, "gaps": 1, "seconds": 0.6, "samples": [A]}
    assert asdstore.open(clip_tree.pack)[0].labels.tolist() == labels
    assert report["audio"]["cropped"]["tracks"] == 1 and not report["notes"]


@pytest.mark.parametrize(("table", "truth"), [(25.0, 30.0), (25.0, 24.0), (24.0, 25.0), (60.0, 50.0)])
@pytest.mark.parametrize("frames", [26, 200])
def test_a_rate_that_the_time_stamps_contradict_is_reported(clip_tree, table, truth, frames):
    clip_tree.add(A, frames, table, stamps=[f"{900 + n / truth:.2f}" for n in range(frames)])
    clip_tree.add(B, frames, 29.97)
    clip_tree.add(WASD, frames, 30.0, stamps=[f"{900 + n / 29.97:.2f}" for n in range(frames)])
    assert clip_tree.report()["time_stamps_at_another_rate"] == [A]


@pytest.mark.parametrize(("fps", "moved"), [(25.0, 0.03), (25.0, -0.03), (29.97, 0.02), (24.0, -0.02)])
def test_a_time_stamp_off_its_place_is_reported(clip_tree, fps, moved):
    stamps = [f"{900 + n / fps + (moved if n == 7 else 0):.2f}" for n in range(60)]
    clip_tree.add(A, 60, fps, stamps=stamps)
    clip_tree.add(B, 60, fps)
    report = clip_tree.report()
    (told,) = report["time_stamps_uneven"]
    assert told.startswith(f"{A}: ") and (stamps[7] in told or stamps[8] in told)
    assert "time stamps uneven                    1\n" in clip_tree.prepare("--overwrite")[1]


def test_tracks_that_vanish_at_25_hz_are_kept_and_named(clip_tree):
    clip_tree.add(A, 1, 30.0)
    clip_tree.add(B, 2, 59.94)
    clip_tree.add("HV0H6oc4Kvs_0960_1020:2", 1, 25.0)
    assert clip_tree.report()["without_model_frames"] == [A, B]
    assert len(asdstore.open(clip_tree.pack)) == 3
    assert "no frame at 25 Hz" in clip_tree.prepare("--overwrite")[1]


def test_a_float_wav_beyond_full_scale_is_clamped_and_counted(clip_tree, media):
    clip_tree.add(A, 26)
    media["wav"](clip_tree.wav(A), 1.0, amplitude=1.5, subtype="FLOAT")
    assert clip_tree.report()["notes"]["audio_clipped_source_samples"] > 1000


def test_a_wav_with_nan(clip_tree, media):
    import soundfile

    clip_tree.add(A, 26)
    soundfile.write(clip_tree.wav(A), np.full(16000, np.nan, np.float32), 16000, subtype="FLOAT")
    assert kinds(clip_tree.faults()) == [(A, "audio-nan")]


def test_a_wav_whose_header_promises_too_much(clip_tree):
    clip_tree.add(A, 26)
    data = bytearray(clip_tree.wav(A).read_bytes())
    at = data.index(b"data") + 4
    data[at:at + 4] = (0x7FFFFFFF).to_bytes(4, "little")
    clip_tree.wav(A).write_bytes(data)
    (note,) = clip_tree.report()["notes"]["audio_header_wrong"]
    assert note.startswith(f"{A}: ") and note.endswith("16000 decoded")


def test_duplicate_ids(clip_tree):
    clip_tree.add(A)
    clip_tree.add(A)
    (fault,) = clip_tree.faults()
    assert fault["kind"] == "duplicate" and fault["row"] == 2 and "row 1" in fault["found"]


@pytest.mark.parametrize("what", ["faces", "audio"])
def test_the_same_entity_under_two_clip_folders(clip_tree, what):
    faces = clip_tree.add(A)
    if what == "faces":
        shutil.copytree(faces, clip_tree.visual / "train" / "other" / A)
    else:
        (clip_tree.audio / "train" / "other").mkdir()
        shutil.copy(clip_tree.wav(A), clip_tree.audio / "train" / "other")
    (fault,) = clip_tree.faults()
    assert fault["kind"] == "ambiguous" and "other" in fault["found"] and " and " in fault["found"]
    assert (fault["file"], fault["row"], fault["sample_id"]) == (str(clip_tree.loader), 1, A)


def test_a_foreign_file_is_named_and_system_files_are_not(clip_tree):
    faces = clip_tree.add(A)
    (faces / "Thumbs.db").touch()
    (faces / ".DS_Store").touch()
    clip_tree.report()
    (faces / "thumb.jpg").touch()
    shutil.rmtree(clip_tree.pack)
    (fault,) = clip_tree.faults()
    assert fault["kind"] == "faces-foreign" and "thumb.jpg" in fault["file"] and fault["sample_id"] == A


def test_a_jpeg_of_no_bytes(clip_tree):
    faces = clip_tree.add(A)
    next(faces.iterdir()).write_bytes(b"")
    (fault,) = clip_tree.faults()
    assert fault["kind"] == "faces-corrupt" and fault["sample_id"] == A and fault["file"].endswith(".jpg")


def test_a_jpeg_that_is_gone_since_the_survey(clip_tree):
    faces = clip_tree.add(A, 3, stamps=["9.96", "10.00", "10.04"])
    (record,) = ava.survey("ava", clip_tree.loader, clip_tree.visual, clip_tree.audio, "train").records
    (faces / "10.00.jpg").rename(faces / "11.00.jpg")
    with pytest.raises(MissingError, match=r"10\.00\.jpg"):
        ava.load(record)


def test_all_kinds_of_faults_in_one_run(clip_tree):
    clip_tree.add(A, labels=[2] * 10)
    clip_tree.add(B)
    clip_tree.wav(B).unlink()
    clip_tree.add("HV0H6oc4Kvs_0960_1020:9", 5, stamps=["1.00"], labels=[0] * 5)
    assert {fault["kind"] for fault in clip_tree.faults()} == {"labels", "audio-missing", "faces"}


def test_a_fault_stops_the_python_call_too_with_all_of_them(clip_tree):
    clip_tree.add(A, labels=[2])
    clip_tree.add(B, labels=[3])
    with pytest.raises(InputError, match="'2' for frame 0") as caught:
        refuse(ava.survey("ava", clip_tree.loader, clip_tree.visual, clip_tree.audio, "train").faults)
    assert len(caught.value.__notes__) == 1 and B in caught.value.__notes__[0]


def test_a_missing_root_names_its_twin(clip_tree):
    clip_tree.add(A)
    clip_tree.audio.rename(clip_tree.root / "clip_audio")
    with pytest.raises(MissingError, match="clip_audio"):
        ava.survey("ava", clip_tree.loader, clip_tree.visual, clip_tree.audio, "train")


def test_a_lost_shard_is_an_error_at_open(clip_tree):
    clip_tree.add(A, 40)
    clip_tree.add(B, 40)
    clip_tree.report("--max-shard-gb", "0.0003")
    shutil.rmtree(clip_tree.pack / "shard-000001")
    with pytest.raises(asdstore.errors.AsdError, match="shard-000001"):
        asdstore.open(clip_tree.pack)
