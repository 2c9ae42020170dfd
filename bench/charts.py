"""The charts of bench/RESULTS.md."""
from __future__ import annotations

from pathlib import Path
from typing import Any

OURS, OTHER, BASE = "#1b6ca8", "#b8c4cf", "#d9822b"


def draw(results: dict[str, Any], folder: Path) -> None:
    """Write reading.png and growth.png into `folder`, as far as results are there."""
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    style: Any = {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "figure.dpi": 130}
    with plt.rc_context(style):
        if results["peers"]:
            _reading(plt, results["peers"]).savefig(folder / "reading.png")
        if results.get("growth"):
            _growth(plt, results["growth"]).savefig(folder / "growth.png")
        plt.close("all")


def _reading(plt: Any, peers: dict[str, Any]) -> Any:
    from bench.report import best_epoch, of_memcpy

    panels = (("E: an epoch of batches, best count of workers", best_epoch),
              ("R: windows of 250 frames copied out", lambda peer: of_memcpy(peer, "read")))
    figure, axes = plt.subplots(1, 2, figsize=(12, 5.2), layout="constrained")
    for axis, (title, measure) in zip(axes, panels, strict=True):
        _bars(axis, title, {name: value for name, peer in peers.items() if (value := measure(peer))})
    return figure


def _bars(axis: Any, title: str, values: dict[str, float]) -> None:
    from bench.report import NAMES

    order = sorted(values.items(), key=lambda item: item[1])
    names, lengths = [NAMES[name] for name, _ in order], [value for _, value in order]
    colours = [OURS if name.startswith("asdstore") else OTHER for name, _ in order]
    axis.barh(names, lengths, color=colours)
    for position, value in enumerate(lengths):
        axis.text(value + 0.01, position, f"{value:.2f}" if value >= 0.1 else f"{value:.3f}", va="center", fontsize=9)
    axis.plot([1, 1], [-0.6, len(order) - 0.5], color=BASE, linewidth=1.2)
    axis.text(1, len(order) - 0.45, "memcpy", color=BASE, ha="center", va="bottom", fontsize=9)
    axis.set_xlim(0, max([1.1, *(value + 0.12 for value in lengths)]))
    axis.set_xlabel("share of memcpy's speed, higher is better")
    axis.set_title(title, loc="left", fontsize=11, pad=18)


def _growth(plt: Any, rows: list[dict[str, Any]]) -> Any:
    tracks = [row["tracks"] for row in rows]
    opened = [row["open"] for row in rows]
    figure, axes = plt.subplots(1, 3, figsize=(12, 4), layout="constrained")
    lines = (("seconds", {"json.load of the index": [row["json"]["seconds"] for row in rows],
                          "open + plan + first batch": [o["open"] + o["plan"] + o["first"] for o in opened],
                          "open": [o["open"] for o in opened]}),
             ("anonymous memory, MB", {"json.load of the index": [row["json"]["bytes"] / 1e6 for row in rows],
                                       "open": [o["open_bytes"] / 1e6 for o in opened]}),
             ("a later batch of 2048 frames, ms", {"batch": [o["batch"] * 1e3 for o in opened]}))
    looks = {"json.load of the index": (BASE, "-"), "open + plan + first batch": (OURS, "-"), "open": (OURS, "--"),
             "batch": (OURS, "-")}
    for axis, (title, curves) in zip(axes, lines, strict=True):
        for name, values in curves.items():
            axis.plot(tracks, values, color=looks[name][0], linestyle=looks[name][1], marker="o", markersize=4, label=name)
        axis.set_xscale("log")
        axis.set_xlabel("tracks")
        axis.set_title(title, loc="left", fontsize=11)
        if len(curves) > 1:
            axis.set_yscale("log")
            axis.legend(frameon=False, fontsize=9)
        else:
            axis.set_ylim(0, 2 * max(curves["batch"]))
    return figure
