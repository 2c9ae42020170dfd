"""`python -m adapters.prepare CORPUS ...`: pack a corpus.

Everything that can be known without decoding is looked at first, and every fault of it reported at once; then the pack is
written by any number of workers, with the same bytes from each number. Exit codes: 0 fine, 1 faults, 2 usage, 3 unreadable.
"""
from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from adapters.frame_options import frame_options
from adapters.speech.options import speech_options

if TYPE_CHECKING:
    from adapters.survey import Survey
    from asdstore.errors import AsdError, Fault
    from asdstore.records import Media, Record

FINE, FAULTS, USAGE, UNREADABLE = 0, 1, 2, 3
STOPPED = 130  # Ctrl-C
OPTIONS = ("corpus", "name", "output", "pack", "rows-per-file", "shuffle-window", "source", "spec",
           "window")  # kinds that blame options


class Job(NamedTuple):
    """One corpus to pack: how to survey it (given frame counts of videos that decoding corrected), how to load it, where to."""

    survey: Callable[[dict[str, int]], Survey]
    load: Callable[[Record], Media]
    output: Path
    changed: Callable[[Record, int], bool] = lambda record, since: False  # as in `write_pack`


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Returns its exit code."""
    options = _parser().parse_args(argv)
    from asdstore.errors import AsdError, MissingError, StoreError

    try:
        return options.run(options, _say_faults) if hasattr(options, "run") else _run(options.job(options), options)
    except StoreError as error:
        _say_error(error, options)
        return USAGE if error.kind == "exists" else UNREADABLE
    except AsdError as error:
        _say_error(error, options)
        return UNREADABLE if isinstance(error, MissingError) else USAGE if error.kind in OPTIONS else FAULTS
    except MemoryError as error:
        found = "; ".join([str(error) or "no more", *getattr(error, "__notes__", [])])
        _say_error(StoreError("memory", expected="memory for one track", found=found), options)
        return UNREADABLE
    except OSError as error:  # a file or folder that may not be read
        why = error.strerror or str(error)
        _say_error(StoreError("io", file=error.filename or "", expected="it to open", found=why), options)
        return UNREADABLE
    except KeyboardInterrupt:
        print("\nstopped; the same command goes on where this one was", file=sys.stderr)
        return STOPPED


def _run(job: Job, options: argparse.Namespace) -> int:
    from adapters import msdwild
    from asdstore.errors import InputError

    counted: dict[str, int] = {}
    while True:
        survey = job.survey(counted)
        if survey.faults:
            return _say_faults(survey.faults, options)
        if not survey.records:
            return _say_nothing(survey, options)
        if options.dry_run:
            return _say_plan(survey, job, options)
        try:
            return _pack(survey, job, options)
        except InputError as error:
            if error.kind != msdwild.TOO_FEW:
                raise
            video, frames = msdwild.recount(error.fault)
            if frames >= counted.get(video, frames + 1):
                raise
            counted[video] = frames
            print(f"{video} decodes to {frames} frames; its windows are laid again and packing begins anew", file=sys.stderr)


def _pack(survey: Survey, job: Job, options: argparse.Namespace) -> int:
    from adapters import engine
    from adapters.progress import Bar
    from asdstore.writer import write_pack
    from spec.layout import SHARD_NAME
    from spec.plan import track_bytes

    bar = Bar(f"packing {job.output}", sum(track_bytes(r.frames, r.fps) for r in survey.records))
    seen: set[str] = set()

    def progress(record: Record) -> None:
        if record.sample_id not in seen:  # a worker's record is heard of twice: when it is done, and with its shard
            seen.add(record.sample_id)
            bar.add(track_bytes(record.frames, record.fps))

    run = engine.chosen(options.engine, options.workers, options.address, bar.say, progress,
                        lambda task: SHARD_NAME.format(task.number))
    try:
        pack = write_pack(job.output, survey.records, job.load, max_shard_bytes=round(options.max_shard_gb * 1e9),
                          sources=survey.sources, changed=job.changed, overwrite=options.overwrite, run=run, progress=progress,
                          report={**survey.report, "skipped": survey.skipped}, extras=survey.extras)
    finally:
        bar.close()
    report = json.loads((pack / "report.json").read_bytes())
    _say(options, {"pack": str(pack), **report}, f"{pack}\n", report)
    return FINE


def _say_plan(survey: Survey, job: Job, options: argparse.Namespace) -> int:
    from spec.plan import plan_shards, track_bytes

    sizes = [track_bytes(record.frames, record.fps) for record in survey.records]
    shards = len(plan_shards(sizes, round(options.max_shard_gb * 1e9)))
    report = _foreseen(survey)
    plan = {"output": str(job.output), "shards": shards, "bytes": sum(sizes)}
    _say(options, {**plan, **report}, f"would write {job.output}: {shards} shards, {sum(sizes) / 1e9:.3f} GB\n", report)
    return FINE


def _say_nothing(survey: Survey, options: argparse.Namespace) -> int:
    from adapters.summary import table
    from asdstore.errors import Fault

    report = _foreseen(survey)
    nothing = Fault("no-tracks", expected="at least one track", found="no track is left to pack")
    if options.json:
        print(json.dumps({"faults": [nothing._asdict()], **report}, indent=2))
    else:
        print(f"{table(report)}\n{nothing.text()}", file=sys.stderr)
    return FAULTS


def _foreseen(survey: Survey) -> dict[str, Any]:
    """The part of the report that is known before anything is decoded."""
    return {"tracks": len(survey.records), "frames": sum(record.frames for record in survey.records),
            "hours": round(sum(record.frames / record.fps for record in survey.records) / 3600, 6),
            **survey.report, "skipped": survey.skipped}


def _say(options: argparse.Namespace, document: dict[str, Any], head: str, report: dict[str, Any]) -> None:
    from adapters.summary import table

    print(json.dumps(document, indent=2) if options.json else head + table(report))


def _say_faults(faults: list[Fault], options: argparse.Namespace) -> int:
    if options.json:
        print(json.dumps({"faults": [fault._asdict() for fault in faults]}, indent=2))
    else:
        print("\n".join(fault.text() for fault in faults), file=sys.stderr)
        print(f"faults found: {len(faults):,}; nothing was packed", file=sys.stderr)
    return FAULTS


def _say_error(error: AsdError, options: argparse.Namespace) -> None:
    notes = getattr(error, "__notes__", [])  # what other workers met
    if options.json:
        print(json.dumps({"faults": [error.fault._asdict()]} | ({"notes": notes} if notes else {}), indent=2))
    else:
        print("\n".join([str(error), *notes]), file=sys.stderr)


# ---- the corpora

def _clip_tree(options: argparse.Namespace) -> Job:
    from functools import partial

    from adapters import ava
    from adapters.progress import watch

    loader = Path(options.loader)
    visual = Path(options.visual_root or loader.absolute().parent.parent / "clips_videos")
    beside = [visual.absolute().parent / name for name in ("clips_audios", "clip_audios", "clip_audio")]
    split = options.split or loader.stem.removesuffix("_loader")
    beside.sort(key=lambda path: (path / split).is_dir() + path.is_dir(), reverse=True)  # a converted split has moved
    audio = Path(options.audio_root or beside[0])
    survey = partial(ava.survey, options.corpus, loader, visual, audio, split, skip_missing=options.skip_missing,
                     truth=options.orig, watch=watch("looking at tracks"))
    return Job(lambda _: survey(), ava.load, _output(options, visual.absolute().parent, split), ava.changed)


def _avcc(options: argparse.Namespace) -> Job:
    from functools import partial

    from adapters import avcc
    from adapters.progress import watch

    root = Path(options.root or Path(options.loader).absolute().parent)
    survey = partial(avcc.survey, options.loader, root, skip_missing=options.skip_missing, watch=watch("looking at tracks"))
    output = _output(options, root, options.split or Path(options.loader).stem)
    return Job(lambda _: survey(), avcc.load, output, avcc.changed)


def _msdwild(options: argparse.Namespace) -> Job:
    from functools import partial

    from adapters import msdwild
    from adapters.progress import watch
    from adapters.windows import Choice
    from asdstore.errors import InputError

    if options.overlap_seconds >= options.clip_seconds:
        raise InputError("window", expected="an overlap shorter than the clip",
                         found=f"--clip-seconds {options.clip_seconds:g} and --overlap-seconds {options.overlap_seconds:g}")
    if options.tail == "keep" and options.min_clip_seconds > options.clip_seconds:
        raise InputError("window", expected="tails no longer than the clip",
                         found=f"--clip-seconds {options.clip_seconds:g} and --min-clip-seconds {options.min_clip_seconds:g}")
    choice = Choice(options.clip_seconds, options.overlap_seconds, options.tail, options.min_clip_seconds,
                    options.min_face_ratio)
    survey = partial(msdwild.survey, options.input, options.rttm, options.split or "", choice,
                     skip_missing=options.skip_missing, watch=watch("looking at videos"))
    name = Path(options.split).name.removesuffix(".rttm") if options.split else "all"
    output = _output(options, Path(options.input).absolute().parent, name)
    return Job(lambda counted: survey(counted=counted), msdwild.Load(), output)


def _output(options: argparse.Namespace, root: Path, split: str) -> Path:
    return Path(options.output or root / "packed" / split)


# ---- the command line

def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=None if sys.argv[0].startswith("asdstore") else "python -m adapters.prepare",
                                     description="Pack a corpus of face tracks, audio and labels.")
    corpora = parser.add_subparsers(dest="corpus", required=True, metavar="CORPUS")
    common = _common()
    for name, text in (("ava", "AVA-ActiveSpeaker: a loader TSV, JPEG crops and WAV clips"),
                       ("wasd", "WASD: the same, its flattened trees too")):
        verb = corpora.add_parser(name, parents=[common], help=text, description=text)
        verb.add_argument("--loader", required=True, help="<split>_loader.csv, tabs, no header")
        verb.add_argument("--visual-root", help="folder of the JPEG crops (default: clips_videos beside the loader's folder)")
        verb.add_argument("--audio-root", help="folder of the WAV clips (default: clips_audios or clip_audio beside it)")
        verb.add_argument("--orig", help="ground truth, <split>_orig.csv or a folder of official CSVs: checked, kept")
        verb.set_defaults(job=_clip_tree)
    text = "AVCC and corpora of your own: a TSV with a header that names faces, audio and labels"
    verb = corpora.add_parser("avcc", parents=[common], help=text, description=text)
    verb.add_argument("--loader", required=True, help="the manifest")
    verb.add_argument("--root", help="what relative paths are relative to (default: the manifest's folder)")
    verb.set_defaults(job=_avcc)
    text = "MSDWild: MP4 videos with their bbox CSVs, and RTTM"
    verb = corpora.add_parser("msdwild", parents=[common], help=text, description=text)
    verb.add_argument("--input", required=True, help="folder of <video>.mp4 and <video>.csv")
    verb.add_argument("--rttm", required=True, help="all.rttm, or a folder of RTTMs")
    verb.add_argument("--clip-seconds", type=_positive, default=30.0, help="length of a window (30)")
    verb.add_argument("--overlap-seconds", type=_seconds, default=10.0, help="overlap of windows (10)")
    verb.add_argument("--min-face-ratio", type=_share, default=0.9, help="presence that keeps a face in a window (0.9)")
    verb.add_argument("--tail", choices=("drop", "keep"), default="drop", help="what to do with incomplete last windows (drop)")
    verb.add_argument("--min-clip-seconds", type=_seconds, default=2.0, help="shortest tail to keep (2)")
    verb.add_argument("--loader", action=_NoLoader, help=argparse.SUPPRESS)
    verb.set_defaults(job=_msdwild)
    speech_options(corpora, _running())
    frame_options(corpora, _running())
    return parser


def _common() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False, parents=[_running()])
    common.add_argument("--split", help="part of the corpus: a folder below the roots; msdwild: an RTTM that lists videos")
    common.add_argument("--output", help="the pack (default: <dataset root>/packed/<split>)")
    common.add_argument("--skip-missing", action="store_true", help="leave out tracks whose files are missing; they are listed")
    return common


def _running() -> argparse.ArgumentParser:
    """The options that every corpus has: who does the work, and what is said of it."""
    running = argparse.ArgumentParser(add_help=False)
    running.add_argument("--workers", type=_count, metavar="N", help="processes, a core each (this one, with a thread that "
                         "stores; with Ray, one for each processor)")
    running.add_argument("--engine", choices=("local", "ray"), default="local", help="processes of this machine or Ray (local)")
    running.add_argument("--address", default="", help="of a running Ray cluster: auto or host:port (one is started here)")
    running.add_argument("--overwrite", action="store_true", help="replace what is at the output once the new one is complete")
    running.add_argument("--max-shard-gb", type=_positive, default=1.0, help="gigabytes of a shard of a pack at the most (1.0)")
    running.add_argument("--dry-run", action="store_true", help="look for faults and say what would be written")
    running.add_argument("--json", action="store_true", help="the report, or the faults, as JSON on stdout")
    return running


class _NoLoader(argparse.Action):
    def __call__(self, parser, *_: object) -> None:
        parser.error("MSDWild has no loader table: give the folder of MP4 and CSV files with --input and the speech with "
                     "--rttm. A table of your own goes through `prepare avcc --loader`.")


def _positive(text: str) -> float:
    return _checked(text, float, lambda value: value > 0, "a number above 0")


def _share(text: str) -> float:
    return _checked(text, float, lambda value: 0 < value <= 1, "a number above 0, and 1 at the most")


def _seconds(text: str) -> float:
    return _checked(text, float, lambda value: value >= 0, "a number from 0")


def _count(text: str) -> int:
    return _checked(text, int, lambda value: value >= 1, "a whole number from 1")


def _checked(text: str, number: Callable[[str], Any], fits: Callable[[Any], bool], expected: str) -> Any:
    try:
        value = number(text)
    except ValueError:
        value = float("nan")
    if not fits(value) or value == float("inf"):
        raise argparse.ArgumentTypeError(f"expected {expected}, found {text!r}")
    return value


if __name__ == "__main__":
    sys.exit(main())
