"""bench/results.json as tables (RESULTS.md) and charts: `python -m bench.report` draws them again without measuring."""
from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bench.environments import HOME

NAMES = {"asdstore_pack": "asdstore", "asdstore_int16": "asdstore, int16 audio", "memmap": "np.memmap", "hdf5": "h5py",
         "safetensors_file": "safetensors", "zarr_python": "zarr-python", "tensorstore_zarr": "TensorStore",
         "hf_datasets": "HF datasets", "webdataset_tar": "WebDataset", "mosaic_mds": "Mosaic Streaming",
         "litdata_temporal": "LitData", "lhotse_hdf5": "Lhotse", "array_record_grain": "ArrayRecord + Grain",
         "lance_file": "Lance", "jpeg_wav": "JPEG + WAV"}
OURS, OUTSIDE, TODAY = "asdstore_pack", "asdstore_int16", "jpeg_wav"
WORKERS = (0, 2, 4, 8)


class Target(NamedTuple):
    """What is asked for, and what was measured."""

    text: str
    found: str
    holds: bool | None  # None: not measured


def write_report(results: dict[str, Any], folder: Path) -> None:
    """RESULTS.md and the charts, in `folder`."""
    from bench.charts import draw

    (folder / "RESULTS.md").write_text("\n".join(_pages(results)) + "\n")
    draw(results, folder)


# --- figures -------------------------------------------------------------------------------------------------------------

def of_memcpy(peer: dict[str, Any], task: str) -> float | None:
    """The speed of a task as a share of memcpy's in the same process; for an epoch, of the frames that it gave."""
    found = peer.get(task)
    return found.get("share", 1.0) * _median(found, "memcpy") / _median(found, "peer") if found else None


def over_memmap(peer: dict[str, Any]) -> float | None:
    """Seconds of work R over those of np.memmap, slice and copy, in the same process."""
    found = peer.get("read")
    return _median(found, "peer") / _median(found, "memmap") if found else None


def best_epoch(peer: dict[str, Any]) -> float | None:
    """The best share of memcpy with any count of workers."""
    return max((share for w in WORKERS if (share := of_memcpy(peer, f"epoch_{w}"))), default=None)


def _median(found: dict[str, Any], side: str) -> float:
    return statistics.median(found[side])


def targets(results: dict[str, Any]) -> Iterator[Target]:
    """Everything that the issue asks for and one run can tell."""
    peers = results["peers"]
    ours, others = peers.get(OURS, {}), {k: p for k, p in peers.items() if k not in (OURS, OUTSIDE)}
    yield _at_most("R: time over np.memmap, slice and copy", over_memmap(ours), 1.1)
    rivals = {NAMES[k]: r for k, p in others.items() if k != "memmap" and (r := over_memmap(p))}
    yield _first("R: first of all that hand out a copy (time over np.memmap)", over_memmap(ours), rivals, least=True)
    yield _at_least("E: share of memcpy with defaults", of_memcpy(ours, "epoch_0"), 0.7)
    epochs = {NAMES[k]: e for k, p in others.items() if (e := best_epoch(p))}
    yield _first("E: first of all peers, each with its best count of workers", of_memcpy(ours, "epoch_0"), epochs, least=False)
    today = best_epoch(peers.get(TODAY, {}))
    yield _at_least("E: times as fast as the JPEG and WAV loader at its best", _over(of_memcpy(ours, "epoch_0"), today), 20)
    for row in results.get("growth", [])[-2:]:
        tracks, index, opened = f"{row['tracks']:,} tracks", row["json"], row["open"]
        yield _at_most(f"O: seconds over json.load, {tracks}", opened["open"] / index["seconds"], 1 / 3)
        yield _at_most(f"O: anonymous memory over json.load, {tracks}", opened["open_bytes"] / index["bytes"], 1 / 4)
        yield _at_most(f"O: anonymous memory, MB, {tracks}", opened["open_bytes"] / 1e6, 250)
        whole = opened["open"] + opened["plan"] + opened["first"]
        yield _at_most(f"open + plan + first batch over json.load, {tracks}", whole / index["seconds"], 4)
    if len(rows := results.get("growth", [])) > 1:
        yield _at_most(f"a later batch, {rows[-1]['tracks']:,} tracks over {rows[0]['tracks']:,}",
                       rows[-1]["open"]["batch"] / rows[0]["open"]["batch"], 1.25)
    if written := results.get("writing"):
        yield _at_least("W: 2 workers over 1, JPEG and WAV", written["one worker"] / written["two workers"], 1.7)
        yield _at_most("W: prepare over decoding and resizing alone", written["no option"] / written["decoding and resizing"],
                       1.25)


def _over(a: float | None, b: float | None) -> float | None:
    return a / b if a and b else None


def _at_most(text: str, value: float | None, most: float) -> Target:
    return Target(f"{text}: at most {most:.3g}", "-" if value is None else f"{value:.3g}",
                  None if value is None else value <= most)


def _at_least(text: str, value: float | None, least: float) -> Target:
    return Target(f"{text}: at least {least:.3g}", "-" if value is None else f"{value:.3g}",
                  None if value is None else value >= least)


def _first(text: str, value: float | None, others: dict[str, float], least: bool) -> Target:
    if value is None or not others:
        return Target(text, "-", None)
    name, best = (min if least else max)(others.items(), key=lambda item: item[1])
    return Target(text, f"{value:.3g}; next {name} {best:.3g}", value < best if least else value > best)


# --- tables --------------------------------------------------------------------------------------------------------------

def _pages(results: dict[str, Any]) -> Iterator[str]:
    about = results["about"]
    yield "# Results\n"
    yield "Written by `make bench`; everything is in `results.json`. What was tried, and why it is so: `NOTES.md`.\n"
    yield (f"{about['date']}, {about['machine']}, shared with other work; Python {about['python']}. Corpus: "
           f"{about['corpus_MB']:g} MB, lengths as in AVA and WASD, page cache warm.\n")
    yield "## Asked for, and found\n"
    yield from _table(["asked for", "found", ""], [[t.text, t.found, {True: "holds", False: "**missed**", None: "not measured"}
                                                    [t.holds]] for t in targets(results)])
    yield "\n## Peers\n"
    yield from _peers(results["peers"])
    yield _MEANING
    yield "![work R and E](reading.png)\n"
    if failed := {NAMES[k]: p["error"] for k, p in results["peers"].items() if "error" in p}:
        yield "Failed:\n"
        yield from (f"- {name}, {task}: {why}" for name, errors in failed.items() for task, why in errors.items())
        yield ""
    yield "How each is used, and its versions:\n"
    yield from (f"- {NAMES[k]}: {p['about']}. {', '.join(f'{n} {v}' for n, v in p.get('versions', {}).items())}"
                for k, p in results["peers"].items())
    if "growth" in results:
        yield from _growth(results["growth"])
    if written := results.get("writing"):
        yield f"\n## Writing from {written['pictures']:,} JPEGs and their WAVs\n"
        yield from _table(["", "seconds"], [[name, f"{value:.2f}"] for name, value in written.items() if name != "pictures"])
        yield "\nDecoding and resizing: cv2.imread in grey and cv2.resize to 112 x 112 of the same pictures, kept nowhere."


def _peers(peers: dict[str, Any]) -> Iterator[str]:
    head = ["", "R / memcpy", "R time / memmap", *(f"E / memcpy, {w} workers" for w in WORKERS), "O seconds", "O MB",
            "W / np.save", "disk / raw"]
    order = sorted(peers.items(), key=lambda item: -(best_epoch(item[1]) or 0))
    yield from _table(head, [_row(name, peer) for name, peer in order])


def _row(name: str, peer: dict[str, Any]) -> list[str]:
    opened, written = peer.get("open", {}), peer.get("write")
    return [f"**{NAMES[name]}**" if name == OURS else NAMES[name], _number(of_memcpy(peer, "read")), _number(over_memmap(peer)),
            *(_number(of_memcpy(peer, f"epoch_{w}")) for w in WORKERS),
            *([f"{opened['seconds']:.3f}", f"{opened['bytes'] / 1e6:.0f}"] if "seconds" in opened else ["-", "-"]),
            *([f"{written['seconds'] / written['save']:.1f}", f"{written['bytes'] / written['raw']:.3f}"] if written else "--")]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


_MEANING = """
Ratios of medians, both sides measured in turn in one process. A dash: the peer has no such thing, or it failed (see below).
memcpy is np.copyto of the same bytes (uint8 faces, int16 audio, labels) from a warm map into one batch-sized buffer that is
used again, by one thread. A share above 1 is two threads that write past the processor's cache.

- **R / memcpy**: 2,000 windows of up to 250 frames (fewer where a pass takes over 2 s), faces + audio + labels copied out into
  arrays of their own; the share of memcpy's speed, higher is better. The C library is told to keep freed memory
  (`MALLOC_TRIM_THRESHOLD_`), for everyone: else page faults by luck of the heap decide. **R time / memmap**: seconds over
  those of np.memmap, slice and copy; 1 is that, lower is better.
- **E / memcpy**: an epoch of batches of at most 2048 frames in chunks of up to 250: faces uint8, audio float32 normalised,
  labels float32, padded; the share of memcpy's speed. Everyone gets the same batches, but for WebDataset and Lhotse, which
  group by themselves. The sums of an epoch are checked. "int16 audio" leaves normalising to the device: less work, so it
  stands outside the comparison.
- **O**: a store of 100,000 tracks opened in a fresh process, seconds and anonymous memory. asdstore's has the real lengths and
  every field of its index, the others' have tracks of one frame and nothing but where they begin.
- **W / np.save**: seconds to write from arrays, over np.save of them (no sync); asdstore computes levels and digests, and waits
  for the disk. **disk / raw**: bytes on the disk over bytes of the arrays.
"""


def _growth(rows: list[dict[str, Any]]) -> Iterator[str]:
    yield "\n## Growth\n"
    head = ["tracks", "json.load, s", "open, s", "plan, s", "first batch, s", "sum / json.load", "later batch, ms",
            "json.load, MB", "open, MB", "whole process, MB"]
    body = []
    for row in rows:
        j, o = row["json"], row["open"]
        body.append([f"{row['tracks']:,}", f"{j['seconds']:.3f}", f"{o['open']:.3f}", f"{o['plan']:.3f}", f"{o['first']:.3f}",
                     f"{(o['open'] + o['plan'] + o['first']) / j['seconds']:.2f}", f"{o['batch'] * 1e3:.2f}",
                     f"{j['bytes'] / 1e6:.0f}", f"{o['open_bytes'] / 1e6:.0f}", f"{o['all_bytes'] / 1e6:.0f}"])
    yield from _table(head, body)
    yield ("\nPacks without pixels, true in every document. json.load is of the same `index.json` files. A later batch is one "
           "of 2048 frames whose pages are in the cache. MB are anonymous memory; the whole process has its libraries and the "
           "plan.\n\n![growth](growth.png)")


def _table(head: list[str], rows: list[list[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    yield from (f"| {' | '.join(row)} |" for row in rows)


if __name__ == "__main__":
    write_report(json.loads((HOME / "results.json").read_text()), HOME)
    sys.exit(0)
