"""MSDWild: windows through the command, one pass over a video, and everything that must be loud."""
from __future__ import annotations

import json
import math
import pickle
from pathlib import Path

import numpy as np
import pytest

import asdstore
from adapters import msdwild, prepare
from adapters.media import video
from adapters.media.probe import probe
from adapters.windows import Choice
from asdstore.errors import InputError
from asdstore.writer import write_pack

BOX = "8,0,56,48"  # the bars of the test videos
SHORT = ("--clip-seconds", "2", "--overlap-seconds", "0.5")


class Videos:
    """A folder of videos with boxes, and their RTTM."""

    def __init__(self, root: Path, capsys, media):
        self.root, self.capsys, self.media = root, capsys, media
        self.input, self.rttm = root / "in", root / "all.rttm"
        self.input.mkdir()
        self.rttm.touch()

    def add(self, name: str, frames: int, faces: dict[str, range] | None = None, *, speech: str | None = None, rows: str = "",
            **video_options) -> Path:
        self.media["video"](self.input / f"{name}.mp4", frames, **video_options)
        faces = {"0": range(frames)} if faces is None else faces
        boxes = [f"{n},face,{face},{BOX},0\n" for face, seen in faces.items() for n in seen]
        (self.input / f"{name}.csv").write_text("".join(boxes) + rows)
        with self.rttm.open("a") as file:
            file.write(f"SPEAKER {name} 0 0.5 1.0 <NA> <NA> 0 <NA> <NA>\n" if speech is None else speech)
        return self.input / f"{name}.mp4"

    def prepare(self, *arguments: str, code: int = 0) -> dict:
        self.capsys.readouterr()
        found = prepare.main(["msdwild", "--input", str(self.input), "--rttm", str(self.rttm), "--json", *arguments])
        out, self.err = self.capsys.readouterr()
        assert found == code, out + self.err
        return json.loads(out) if out else {}

    @property
    def pack(self) -> asdstore.Pack:
        return asdstore.open(self.root / "packed" / "all")


@pytest.fixture
def videos(tmp_path, capsys, media) -> Videos:
    return Videos(tmp_path, capsys, media)


def numbers(videos: Videos, faces: np.ndarray) -> list[int]:
    return videos.media["numbers"](faces, 8, 48).tolist()


def test_windows_overlap_and_share_their_recording(videos):
    videos.add("v", 160, {"0": range(160), "1": range(3, 160)})
    report = videos.prepare(*SHORT)
    pack = videos.pack
    assert [track.id for track in pack] == [f"v_{n:05d}_{face}" for n in range(3) for face in "01"]
    assert {track.recording for track in pack} == {"v"} and pack.index["start_sec"].tolist() == [0, 0, 1.52, 1.52, 3.04, 3.04]
    for track, start in zip(pack, (0, 0, 38, 38, 76, 76), strict=True):
        assert [n for n in numbers(videos, track.faces)][3:] == [(start + n) % 64 for n in range(3, 50)]
        assert len(track.audio) == 32000
    assert pack["v_00000_0"].labels.tolist() == [0] * 12 + [1] * 25 + [0] * 13
    assert (pack["v_00000_1"].faces[:3] == 128).all() and report["notes"]["faces_absent"] == 3
    assert report["windows"]["hours_in_windows"] == pytest.approx(126 / 25 / 3600, abs=1e-6)


def test_a_window_far_into_a_video_begins_with_its_own_frame(videos):
    videos.add("v", 560, {"0": range(503, 560)})
    videos.prepare("--clip-seconds", "2", "--overlap-seconds", "0")
    assert numbers(videos, videos.pack[0].faces) == [n % 64 for n in range(503, 553)]


def test_default_windows_lose_short_videos_and_say_so(videos):
    videos.add("long", 760)
    videos.add("short", 100)
    report = videos.prepare()["windows"]
    assert (report["videos"], report["videos_without_window"], report["lost_videos"]) == (2, 1, ["short"])
    assert report["share_of_hours_in_windows"] == round(750 / 860, 4)
    kept = videos.prepare("--overwrite", "--tail", "keep", "--overlap-seconds", "0", "--min-clip-seconds", "2")
    assert kept["windows"]["lost_videos"] == [] and kept["tracks"] == 2


def test_splits_by_list(videos):
    for name in ("a", "b", "c"):
        videos.add(name, 60)
    (videos.root / "few.val.rttm").write_text("SPEAKER b 0 0 1 <NA> <NA> 0 <NA> <NA>\n")
    report = videos.prepare(*SHORT, "--split", "few.val")
    assert report["pack"] == str(videos.root / "packed" / "few.val") and report["windows"]["videos"] == 1
    assert videos.prepare("--split", "many.val", code=3)["faults"][0]["cure"] == "There are all, few.val."


def test_faults_of_a_split_are_reported(videos):
    videos.add("a", 60)
    split = videos.root / "few.val.rttm"
    split.write_text("SPEAKER a 0 0 1 <NA> <NA> 0 <NA> <NA>\nSPEAKER b c 0 0 1 <NA> <NA> 0 <NA> <NA>\n")
    for rttm in (str(videos.rttm), str(videos.root)):  # once, also where the split is among the RTTMs
        (fault,) = videos.prepare(*SHORT, "--split", "few.val", "--rttm", rttm, code=1)["faults"]
        assert (fault["kind"], fault["file"], fault["row"]) == ("rttm", str(split), 2)
    split.write_text("a\n")
    (fault,) = videos.prepare(*SHORT, "--split", "few.val", code=1)["faults"]
    assert (fault["kind"], fault["file"], fault["found"]) == ("rttm", str(split), "none")


def test_a_video_is_decoded_once_for_all_faces_and_windows(videos, monkeypatch):
    videos.add("v", 160, {"0": range(160), "1": range(160), "2": range(160)})
    opened, sounds = [], []
    frames, window = video.frames, msdwild.audio.decode
    monkeypatch.setattr(video, "frames", lambda path, *rest: opened.append(path) or frames(path, *rest))
    monkeypatch.setattr(msdwild.audio, "decode", lambda path, *rest, **more: sounds.append(path) or window(path, *rest, **more))
    assert videos.prepare(*SHORT, "--max-shard-gb", "0.0007")["tracks"] == 9
    assert len(opened) == 1 and len(sounds) <= 1


def test_loading_in_any_order_gives_the_same(videos):
    videos.add("v", 160)
    records = msdwild.survey(videos.input, videos.rttm, choice=Choice(2, 0.5)).records
    load = msdwild.Load()
    forth = [load(record).faces for record in records]
    back = [pickle.loads(pickle.dumps(load))(record).faces for record in reversed(records)]
    again = [load(record).faces for record in reversed(records)]
    assert all(np.array_equal(a, b) and np.array_equal(a, c) for a, b, c in zip(forth, back[::-1], again[::-1], strict=True))


def test_a_face_seen_too_briefly_is_left_out_and_counted(videos):
    videos.add("v", 50, {"0": range(50), "1": range(44)})
    report = videos.prepare(*SHORT)
    assert report["tracks"] == 1 and report["windows"]["faces_left_out"] == 1


def test_videos_and_speech_that_are_lost_are_named(videos):
    videos.add("v", 50, {"0": range(50), "spk1": range(50)})
    videos.add("w", 50, {"0": range(44), "1": range(9, 50)},
               speech="SPEAKER w 0 0 1 <NA> <NA> 0\nSPEAKER x 0 0 1 <NA> <NA> 0\n")
    report = videos.prepare(*SHORT)
    assert report["windows"]["videos_without_lasting_face"] == ["w"] and report["windows"]["lost_videos"] == []
    assert report["windows"]["faces_not_in_rttm"] == ["v: spk1"] and report["rttm"]["recordings_without_video"] == 1
    videos.capsys.readouterr()
    assert not prepare.main(["msdwild", "--input", str(videos.input), "--rttm", str(videos.rttm), *SHORT, "--overwrite"])
    out = videos.capsys.readouterr().out
    assert "videos without a lasting face         1\n      w\n" in out and "      v: spk1\n" in out
    assert "RTTM without a video                  1\n" in out


def test_a_box_too_large_is_named_by_its_row(videos):
    videos.add("v", 50, {"0": range(50)}, rows="7,face,1,0,0,9,9,0\n7,face,1,0,0,9000,9000,0\n")
    (fault,) = videos.prepare(*SHORT, code=1)["faults"]
    assert (fault["kind"], Path(fault["file"]).name, fault["row"], fault["sample_id"]) == ("bbox", "v.csv", 52, "v, face 1")


def test_an_overlap_that_leaves_no_step_is_a_wrong_option(videos):
    videos.add("v", 50)
    (fault,) = videos.prepare("--clip-seconds", "5", code=2)["faults"]
    assert fault["kind"] == "window" and "--overlap-seconds 10" in fault["found"]
    (fault,) = videos.prepare("--clip-seconds", "5", "--overlap-seconds", "4.999", code=1)["faults"]
    assert fault["kind"] == "window" and Path(fault["file"]).name == "v.mp4"


def test_tails_longer_than_the_clip_are_a_wrong_option(videos):
    videos.add("v", 50)
    arguments = ("--clip-seconds", "1", "--overlap-seconds", "0", "--tail", "keep")
    (fault,) = videos.prepare(*arguments, code=2)["faults"]
    assert fault["kind"] == "window" and "--min-clip-seconds 2" in fault["found"]
    assert videos.prepare(*arguments, "--min-clip-seconds", "1")["tracks"] == 2


def test_boxes_inverted_outside_and_beyond_the_video_are_counted(videos):
    rows = "48,face,0,30,30,10,10,0\n49,face,0,500,500,600,600,0\n" + f"50,face,0,{BOX},0\n51,face,0,{BOX},0\n"
    videos.add("v", 50, {"0": range(48)}, rows=rows)
    report = videos.prepare(*SHORT)
    assert report["notes"]["faces_outside_picture"] == 2 and report["windows"]["box_rows_beyond_video"] == 2
    assert (videos.pack[0].faces[48:] == 128).all()


def test_a_box_that_is_no_number_and_rttm_faults_are_all_found(videos):
    videos.add("v", 50, rows="3,face,1,1,2,nan,4,0\nrubbish\n", speech="SPEAKER v v 0 1 1 <NA> <NA> 0 <NA> <NA>\n"
               "SPEAKER v 0 1 -1 <NA> <NA> 0 <NA> <NA>\nSPEAKER v 0 1 1 <NA> <NA> 0\n")
    faults = videos.prepare(*SHORT, code=1)["faults"]
    assert [(fault["kind"], fault["row"]) for fault in faults] == [("rttm", 1), ("rttm", 2), ("box", 51), ("box", 52)]


def test_rttm_lines_set_aside_are_counted(videos):
    videos.add("v", 50, speech="SPKR-INFO v 1 <NA>\n;; note\nSPEAKER v 0 1 0 <NA> <NA> 0\nSPEAKER v 0 1 .5 <NA> <NA> 0\n")
    assert videos.prepare(*SHORT)["rttm"] == {
        "zero_durations": 1, "other_lines": {"SPKR-INFO": 1, ";;": 1}, "recordings_without_video": 0}


def test_a_video_without_sound(videos):
    videos.add("v", 50, sound=None)
    videos.add("w", 50, sound=None)
    faults = videos.prepare(*SHORT, code=1)["faults"]
    assert [(fault["kind"], Path(fault["file"]).name) for fault in faults] == [
        ("audio-missing-stream", "v.mp4"), ("audio-missing-stream", "w.mp4")]


def test_sound_that_ends_early(videos):
    videos.add("v", 100, sound=0.5)
    (fault,) = videos.prepare("--clip-seconds", "4", "--overlap-seconds", "0", code=1)["faults"]
    assert (fault["kind"], fault["sample_id"]) == ("audio-length", "v_00000_0")


def test_missing_halves_are_listed_or_skipped(videos):
    videos.add("good", 50)
    videos.add("nobox", 50)
    videos.add("novideo", 50)
    videos.add("nospeech", 50, speech="")
    (videos.input / "nobox.csv").unlink()
    (videos.input / "novideo.mp4").unlink()
    assert [fault["kind"] for fault in videos.prepare(*SHORT, code=1)["faults"]] == [
        "boxes-missing", "rttm-missing", "video-missing"]
    assert videos.prepare(*SHORT, "--skip-missing")["skipped"] == {
        "boxes-missing": ["nobox"], "rttm-missing": ["nospeech"], "video-missing": ["novideo"]}


def test_a_folder_without_videos_is_named(videos):
    videos.add("v", 50)
    (fault,) = videos.prepare("--input", str(videos.root), "--skip-missing", code=3)["faults"]
    assert (fault["kind"], fault["file"]) == ("missing", str(videos.root)) and "MP4" in fault["expected"]


def test_a_video_cut_short_is_counted_by_decoding(videos):
    path = videos.add("v", 200)
    path.write_bytes(path.read_bytes()[:int(path.stat().st_size * 0.55)])
    found = probe(path)
    assert found.claimed_frames == 200 and 50 < found.frames < 150
    assert found.frames == sum(1 for _ in video.frames(path))


def test_a_video_whose_titles_are_no_utf8(videos):
    path = videos.add("v", 50)
    assert b"Lavf" in path.read_bytes()
    path.write_bytes(path.read_bytes().replace(b"Lavf", b"\xe9\xff\xfef"))
    assert probe(path).frames == 50


@pytest.mark.parametrize("share", [0.55, 0.7, 0.85])
def test_a_video_cut_short_is_packed_as_far_as_it_goes(videos, share):
    path = videos.add("v", 200)
    path.write_bytes(path.read_bytes()[:int(path.stat().st_size * share)])
    report = videos.prepare("--clip-seconds", "2", "--overlap-seconds", "0", "--tail", "keep", "--min-clip-seconds", "0")
    count = sum(1 for _ in video.frames(path))
    assert report["frames"] == count and report["windows"]["frames_miscounted"] == [f"v: 200 frames claimed, {count} found"]
    shown = [n for track in videos.pack for n in numbers(videos, track.faces)]
    assert shown[:-1] == [n % 64 for n in range(count - 1)]  # the last one may be damaged


def test_a_container_that_claims_too_much_is_corrected_and_reported(videos, monkeypatch):
    from adapters.media import probe as probing

    videos.add("v", 120)
    real = probing.container_facts
    monkeypatch.setattr(probing, "container_facts", lambda path: real(path)._replace(claimed_frames=155))
    report = videos.prepare("--clip-seconds", "2", "--overlap-seconds", "0", "--tail", "keep", "--min-clip-seconds", "0.2")
    assert report["frames"] == 120 and report["windows"]["frames_miscounted"] == ["v: 155 frames claimed, 120 found"]


def move(path: Path, kind: str, seconds: float, since: float = -math.inf) -> None:
    """Move the time stamps of a video's picture or sound, those from `since` on, by some seconds."""
    import av

    source = path.rename(path.with_suffix(".moved"))
    with av.open(str(source)) as found, av.open(str(path), "w") as out:
        streams = {stream.index: out.add_stream_from_template(stream) for stream in found.streams}
        for packet in found.demux():
            if packet.dts is None or packet.pts is None:
                continue
            tick = packet.time_base
            if packet.stream.type == kind:
                packet.pts, packet.dts = (n + round(seconds / tick) * (n * tick >= since) for n in (packet.pts, packet.dts))
            packet.stream = streams[packet.stream.index]
            out.mux(packet)
    source.unlink()


def test_frames_at_no_even_rate_are_named(videos):
    move(videos.add("pause", 120), "video", 0.6, since=2.0)
    videos.add("even", 120)
    (said,) = videos.prepare(*SHORT)["windows"]["frames_uneven"]
    assert said.startswith("pause: up to 0.") and "s off" in said


@pytest.mark.parametrize(("kind", "said"), [("audio", "v: +0."), ("video", "v: -0.")])
def test_sound_that_starts_apart_from_the_picture_is_named(videos, kind, said):
    move(videos.add("v", 120), kind, 0.6)
    videos.add("together", 120)
    report = videos.prepare(*SHORT)
    assert [name[:6] for name in report["windows"]["sound_after_picture"]] == [said]
    assert report["windows"]["frames_uneven"] == []


def test_packets_that_do_not_decode_lay_the_windows_again(videos, monkeypatch):
    videos.add("v", 120, {"0": range(155)})
    real = msdwild.probe
    monkeypatch.setattr(msdwild, "probe", lambda path: real(path)._replace(frames=155))
    report = videos.prepare("--clip-seconds", "3", "--overlap-seconds", "0", "--tail", "keep", "--min-clip-seconds", "1")
    assert "decodes to 120 frames" in videos.err and [track.frames for track in videos.pack] == [75, 45]
    assert report["windows"]["frames_miscounted"] == []


def test_the_decoded_count_travels_in_the_error(videos):
    videos.add("v", 50)
    (record,) = msdwild.survey(videos.input, videos.rttm, choice=Choice(2, 0)).records
    with pytest.raises(InputError) as caught:
        msdwild.Load()(record._replace(frames=80))
    assert msdwild.recount(caught.value.fault) == (str(videos.input / "v.mp4"), 50)


def test_names_that_look_like_options_or_protocols(videos):
    videos.add("-a:b%03d", 50)
    assert videos.prepare(*SHORT)["tracks"] == 1 and videos.pack[0].recording == "-a:b%03d"


def test_a_loader_table_is_refused_with_the_way_to_go(capsys):
    with pytest.raises(SystemExit) as caught:
        prepare.main(["msdwild", "--loader", "train_loader.csv"])
    assert caught.value.code == 2 and "--rttm" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "choice"), [
    ("msdwild_default", Choice(30, 0, "keep", 2)), ("msdwild_5s", Choice(5, 1, "keep", 2, 0.5))])
def test_golden_packs_of_the_real_video(golden, tmp_path, name, choice):
    source = golden / "corpora" / "msdwild"
    survey = msdwild.survey(source / "in", source / "all.rttm", choice=choice)
    assert not survey.faults
    pack = asdstore.open(write_pack(tmp_path / "pack", survey.records, msdwild.Load()), verify="deep")
    entries = json.loads((golden / "packs" / name / "arrays.json").read_text())["entries"]
    rows = json.loads((golden / "packs" / name / "shard-000000" / "index.json").read_text())
    sound = np.load(golden / "packs" / "msdwild_00001_audio_16k_int16.npy")
    assert len(pack) == len(rows) == len(entries)
    for n, (track, row, entry) in enumerate(zip(pack, rows, entries, strict=True)):
        for key, value in row.items():
            found = pack.index[key][n]
            assert found == value or (key in ("audio_mean", "audio_rms", "audio_peak") and abs(found - value) < 1e-3), key
        assert "".join(map(str, track.labels)) == entry["labels"]
        assert abs(track.faces.mean() - entry["faces_mean"]) < 0.5  # decoders may differ in the last bits
        first = round(row["start_sec"] * 16000)
        expected = np.zeros(row["audio_samples"])
        expected[:len(sound[first:first + len(expected)])] = sound[first:first + len(expected)]
        noise = np.sum((expected - track.audio.astype(float)) ** 2)
        assert 10 * np.log10(np.sum(expected ** 2) / max(noise, 1e-9)) > 24
