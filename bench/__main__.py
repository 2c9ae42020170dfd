"""The comparison with all peers: `python -m bench [--size MB] [--only PEER ...] [--parts ...] [--quick]`, or `make bench`.

One seeded corpus is written in every form, and the same work is done on each, every peer in processes of its own. What was
measured goes to bench/results.json, and from there to bench/RESULTS.md and the charts; with --only, --work or --parts the
rest of results.json stays as it was. A peer that cannot be installed or fails is named with its reason.
"""
from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

from bench.environments import HOME, ROOT, install, interpreter
from bench.report import write_report

PEERS = ("asdstore_pack", "asdstore_int16", "memmap", "hdf5", "safetensors_file", "zarr_python", "tensorstore_zarr",
         "hf_datasets", "webdataset_tar", "mosaic_mds", "litdata_temporal", "lhotse_hdf5", "array_record_grain", "lance_file",
         "jpeg_wav")
PARTS = ("peers", "growth", "writing")
WORK = ("write", "read", "epoch", "open")  # W, R, E, O
ENTRIES = 100_000  # that task O opens
UNMADE = {"jpeg_wav": "100,000 folders of JPEGs", "lhotse_hdf5": "100,000 WAV files"}  # not written for task O
RESULTS = HOME / "results.json"
LIMIT = 600  # seconds for one process
# What a freed array of 3 MB costs when the next one is made is luck of the heap's layout (0.5 to 2.8 s for the very same loop
# over np.memmap in two processes), so in work R the C library keeps what is freed, for everyone.
KEEPING = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 30)}


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0; 1 if a peer failed, which the report names."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Compare asdstore with its peers.")
    parser.add_argument("--size", type=float, default=400, metavar="MB", help="of the corpus, 400")
    parser.add_argument("--only", nargs="+", choices=PEERS, default=PEERS, metavar="PEER", help=f"of {', '.join(PEERS)}")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--work", nargs="+", choices=WORK, default=WORK, metavar="WORK", help=f"of {', '.join(WORK)}")
    parser.add_argument("--workers", nargs="+", type=int, default=[0, 2, 4, 8], help="counts of worker processes")
    parser.add_argument("--entries", type=int, default=ENTRIES, help="of the store that work O opens")
    parser.add_argument("--growth", nargs="+", type=int, default=[10**3, 10**4, 10**5, 10**6], metavar="TRACKS")
    parser.add_argument("--folder", type=Path, help="keep corpora and stores here; otherwise they are removed")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the JSON file; report and charts go beside it")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="asdstore-bench-") as temporary:
        results = _results(options, options.folder or Path(temporary))
    write_report(results, options.results.parent)
    return 1 if any("error" in peer for peer in results["peers"].values()) else 0


def _results(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    results: dict[str, Any] = {"peers": {}}
    if options.results.is_file():
        results = json.loads(options.results.read_text())
    results["about"] = {"date": str(date.today()), "corpus_MB": options.size, **machine()}
    folder.mkdir(parents=True, exist_ok=True)

    def save() -> None:
        options.results.write_text(json.dumps(results, indent=1) + "\n")

    if "peers" in options.parts:
        make_corpora(folder, options)
        for name in options.only:
            before = results["peers"].get(name, {}) if options.work != WORK else {}
            results["peers"][name] = before | compare(name, folder, options)
            save()
    if "growth" in options.parts:
        from bench.growth import growth
        results["growth"] = growth(folder, tuple(options.growth))
        save()
    if "writing" in options.parts:
        from bench.writing import writing
        with tempfile.TemporaryDirectory(dir=folder) as inside:
            results["writing"] = writing(Path(inside))
        save()
    return results


def machine() -> dict[str, Any]:
    """What the figures depend on, in general words."""
    import platform

    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"machine": f"{os.cpu_count()} cores, {memory / 2**30:.0f} GiB of memory, {platform.machine()}, {platform.system()}",
            "python": platform.python_version()}


def make_corpora(folder: Path, options: argparse.Namespace) -> None:
    """The corpus, the small one of task O, and the plans that all peers get, made once."""
    import numpy as np

    import asdstore
    from bench.corpus import write_corpus, write_small
    from bench.peers import asdstore_pack
    from bench.peers.common import Plan, save_plan

    if not (folder / "plan.npz").is_file():
        corpus = write_corpus(folder / "corpus", options.size)
        asdstore_pack.write(corpus, folder, None)  # type: ignore[arg-type]
        save_plan(folder / "plan.npz", asdstore_pack.plan_of(asdstore.open(folder / "pack")))
    if not (folder / "small.npz").is_file():
        count = np.arange(write_small(folder / "small", options.entries).count)
        start, level = np.zeros_like(count), np.ones(len(count), np.float32)
        save_plan(folder / "small.npz", Plan(count, start, start + 1, np.append(count, len(count)), level, level))


def compare(name: str, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Everything that is measured of one peer; what failed is there as "error", by task."""
    import importlib
    import shutil

    peer = importlib.import_module(f"bench.peers.{name}")
    missing = install(peer.VENV)
    absent = [f"{line}: {why}" for line, why in missing.items() if line.split("=")[0] in peer.PACKAGES]
    found: dict[str, Any] = {"about": peer.ABOUT}
    if absent:
        return found | {"error": {"install": "; ".join(absent)}}
    store, corpus, plan = folder / "stores" / name, str(folder / "corpus"), str(folder / "plan.npz")
    tasks: dict[str, tuple[list[str], dict[str, str]]] = {"write": (["write", name, corpus, str(store), plan], {})}
    if "read" in options.work:
        tasks["read"] = (["read", name, corpus, str(store), plan], KEEPING)
    for workers in (w for w in options.workers if w in peer.WORKERS and "epoch" in options.work):
        tasks[f"epoch_{workers}"] = (["epoch", name, corpus, str(store), plan, str(workers)], {})
    if name in UNMADE:
        found["open"] = {"left_out": UNMADE[name]}
    elif "open" in options.work:
        small = folder / "stores" / f"{name}_small"
        if name.startswith("asdstore"):
            _sparse(small, options.entries)
        else:
            shutil.rmtree(small, ignore_errors=True)
            tasks["write_small"] = (["write", name, str(folder / "small"), str(small), str(folder / "small.npz")], {})
        tasks["open"] = (["open", name, corpus, str(small)], {})
    shutil.rmtree(store, ignore_errors=True)
    for task, (arguments, environment) in tasks.items():
        result = _run(interpreter(peer.VENV), arguments, environment)
        if "error" in result:
            found.setdefault("error", {})[task] = result["error"]
        else:
            found["versions"] = result["versions"]
            if task.split("_")[0] in options.work and task != "write_small":
                found[task] = result["found"]
        print(f"{name:<20}{task:<12}{result.get('error', 'done')}", file=sys.stderr, flush=True)
    shutil.rmtree(store, ignore_errors=True)
    return found


def _sparse(folder: Path, entries: int) -> None:
    from bench.sparse import make_sparse_pack

    if not folder.is_dir():
        make_sparse_pack(folder, entries, sealed=True)


def _run(python: Path, arguments: list[str], environment: dict[str, str]) -> dict[str, Any]:
    """What `bench.measure` prints, or {"error": the last line of stderr}."""
    try:
        done = subprocess.run([str(python), "-m", "bench.measure", *arguments], capture_output=True, text=True, cwd=ROOT,
                              timeout=LIMIT, env={**os.environ, **environment})
    except subprocess.TimeoutExpired:
        return {"error": f"not finished after {LIMIT} s"}
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        errors = [line for line in done.stderr.splitlines() if line.strip()]
        return {"error": (errors or [f"exit code {done.returncode}"])[-1][:300]}
    return json.loads(lines[-1])


if __name__ == "__main__":
    sys.exit(main())
