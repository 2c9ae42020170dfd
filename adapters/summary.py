"""The closing report of `prepare`: what `report.json` says, as a table for people."""
from __future__ import annotations

from typing import Any

NAMED = 5  # ids that the table names; report.json and --json have them all

LABELS = {  # of the notes that adapters leave: text, and what is counted
    "audio_differs_from_time_stamps": "audio differs from time stamps",
    "audio_header_wrong": "audio header wrong",
    "audio_clipped_source_samples": "audio clipped in the source, samples",
    "audio_clipped_recording_tracks": "tracks of clipped recordings",
    "audio_resampled_tracks": "audio resampled, tracks",
    "video_at_another_rate": "clips at another frame rate",
    "faces_absent": "frames without the face (blank)",
    "faces_outside_picture": "frames with the box empty or outside",
}


def table(report: dict[str, Any]) -> str:
    """The report as lines of label, figures and, below, the names that matter.

    >>> print(table({"tracks": 2, "frames": 1500, "hours": 0.0167, "skipped": {"audio-missing": ["a:1"]}}))
      tracks                                2
      frames                                1,500
      hours                                 0.017
      skipped: audio-missing                1
          a:1
    """
    lines = [_line(name, _figure(report[name])) for name in ("tracks", "frames", "hours")]
    lines += _audio(report.get("audio", {})) + _notes(report.get("notes", {})) + _stamps(report)
    lines += _windows(report.get("windows", {})) + _rttm(report.get("rttm", {}))
    lines += _named("no frame at 25 Hz, tracks", report.get("without_model_frames", []))
    lines += _named("columns that nobody reads", report.get("ignored_columns", []))
    for reason, names in report.get("skipped", {}).items():
        lines += _named(f"skipped: {reason}", names)
    return "\n".join(lines)


def _audio(audio: dict[str, Any]) -> list[str]:
    lines = []
    for key, label in (("padded_up_to_one_frame", "audio padded, up to a frame"), ("padded_more", "audio padded, more"),
                       ("cropped", "audio cropped")):
        found = audio.get(key, {"tracks": 0})
        if found["tracks"]:
            lines += [_line(label, f"{found['tracks']:,} tracks, {found['seconds']:,.2f} s"), *_names(found.get("samples", []))]
    return lines


def _notes(notes: dict[str, Any]) -> list[str]:
    lines = []
    for key, found in notes.items():
        label = LABELS.get(key, key)
        lines += _named(label, list(found)) if isinstance(found, dict) else [_line(label, _figure(found))]
    return lines


def _stamps(report: dict[str, Any]) -> list[str]:
    lines, gaps = [], report.get("gaps", {"tracks": 0})
    if gaps["tracks"]:
        lines = [_line("gaps in the time stamps", f"{gaps['gaps']:,} in {gaps['tracks']:,} tracks, {gaps['seconds']:,.2f} s"),
                 *_names(gaps["samples"])]
    truth = report.get("ground_truth")
    if truth:
        lines.append(_line("ground truth, rows", f"{truth['rows']:,} and {truth['rows_of_other_tracks']:,} of other tracks"))
    lines += _named("time stamps at another rate", report.get("time_stamps_at_another_rate", []))
    return lines + _named("time stamps uneven", report.get("time_stamps_uneven", []))


def _windows(windows: dict[str, Any]) -> list[str]:
    if not windows:
        return []
    share = 1 - windows["videos_without_window"] / max(1, windows["videos"])
    lines = [
        _line("videos with a window", f"{windows['videos'] - windows['videos_without_window']:,} of {windows['videos']:,} "
              f"({share:.1%})"),
        _line("hours in windows", f"{windows['hours_in_windows']:,.3f} of {windows['hours']:,.3f} "
              f"({windows['share_of_hours_in_windows']:.1%})"),
        _line("windows", f"{windows['windows']:,}, {windows['windows_without_face']:,} of them without a lasting face")]
    for key, label in (("faces_left_out", "faces seen too briefly"), ("box_rows_beyond_video", "boxes beyond the video's end"),
                       ("box_rows_repeated", "boxes replaced by a later row")):
        if windows[key]:
            lines.append(_line(label, _figure(windows[key])))
    lines += _named("videos lost", windows["lost_videos"])
    lines += _named("videos without a lasting face", windows["videos_without_lasting_face"])
    lines += _named("faces that the RTTM does not name", windows["faces_not_in_rttm"])
    lines += _named("frame counts corrected", windows["frames_miscounted"])
    lines += _named("videos of no even frame rate", windows["frames_uneven"])
    return lines + _named("sound starts apart from the picture", windows["sound_after_picture"])


def _rttm(rttm: dict[str, Any]) -> list[str]:
    lines = [_line(f"RTTM lines of type {name}", _figure(count)) for name, count in rttm.get("other_lines", {}).items()]
    for key, label in (("zero_durations", "RTTM lines of no duration"), ("recordings_without_video", "RTTM without a video")):
        if rttm.get(key, 0):
            lines.append(_line(label, _figure(rttm[key])))
    return lines


def _named(label: str, names: list[str]) -> list[str]:
    return [_line(label, _figure(len(names))), *_names(names)] if names else []


def _names(names: list[str]) -> list[str]:
    more = [f"      and {len(names) - NAMED:,} more, --json names all"] if len(names) > NAMED else []
    return [f"      {name}" for name in names[:NAMED]] + more


def _figure(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"


def _line(label: str, figures: str) -> str:
    return f"  {label:<38}{figures}"
