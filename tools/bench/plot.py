"""A picture of a benchmark: rate against frame size, with the limit drawn in."""

from __future__ import annotations

import importlib.util
import math
from dataclasses import replace
from pathlib import Path

import numpy as np

from acqstream.bench.comparison import BenchSettings, Observer, run_benchmark
from acqstream.bench.measurement import LIMIT, BenchReport, Spread
from acqstream.errors import ConfigError

PLOTTED_SITUATIONS = tuple(
    (shape, "uint16")
    for shape in ((64, 64), (128, 128), (256, 256), (512, 512), (1024, 1024), (2048, 2048), (4096, 8192))
)
SUFFIXES = (".svg", ".png")
_COLORS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#F0E442",
)  # distinct for colour-blind readers too


def run_plotted_benchmark(
    settings: BenchSettings,
    observe: Observer,
    *,
    path: Path,
    situations: tuple[tuple[tuple[int, ...], str], ...] = PLOTTED_SITUATIONS,
) -> BenchReport:
    """`run_benchmark` for frames of 8 KiB to 64 MiB, and a picture of it in `path`."""
    check_plot(path)
    report = run_benchmark(replace(settings, situations=situations), observe)
    draw(report, path)
    return report


def check_plot(path: Path) -> None:
    """Raise ConfigError if `draw` could not write there, or matplotlib is missing: before anything is measured."""
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigError(f"--out {path}: the name must end in {' or '.join(SUFFIXES)}")
    if not path.parent.is_dir():
        raise ConfigError(f"--out {path}: folder {path.parent} does not exist")
    if importlib.util.find_spec("matplotlib") is None:
        raise ConfigError("plot needs matplotlib: pip install matplotlib")


def rates_by_size(report: BenchReport) -> dict[str, dict[int, Spread]]:
    """Bytes per second by bytes of a frame, for each row that was measured."""
    rates: dict[str, dict[int, Spread]] = {}
    for situation in report.situations:
        frame_bytes = math.prod(situation.shape) * np.dtype(situation.dtype).itemsize
        for row in situation.rows:
            if row.bytes_per_s is not None:
                rates.setdefault(row.name, {})[frame_bytes] = row.bytes_per_s
    return rates


def draw(report: BenchReport, path: Path) -> None:
    """Write the picture to `path`: medians as lines, smallest and largest run as bars; the limit's as a band."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"svg.hashsalt": "acqstream", "font.size": 10}):
        figure = Figure(figsize=(8, 4.5), layout="constrained")
        axes = figure.add_subplot()
        colors = iter(_COLORS * 2)
        for name, by_size in rates_by_size(report).items():
            sizes = sorted(by_size)
            medians, lows, highs = (
                [getattr(by_size[size], part) / 1e9 for size in sizes] for part in ("median", "low", "high")
            )
            if name == LIMIT:
                axes.plot(sizes, medians, "--", color="black", label="limit of the disk")
                axes.fill_between(sizes, lows, highs, color="black", alpha=0.1, linewidth=0)
                continue
            reach = [np.subtract(medians, lows), np.subtract(highs, medians)]
            axes.errorbar(sizes, medians, yerr=reach, marker="o", markersize=4, color=next(colors), label=name)
        axes.set_xscale("log", base=2)
        axes.set_xticks(sizes := _sizes(report), [_size_text(size) for size in sizes])
        axes.set_ylim(bottom=0)
        axes.set_xlabel("one frame (uint16)")
        axes.set_ylabel("GB/s, first put until durable")
        axes.set_title(f"{report.machine['processors']} processors, {report.machine['file_system']}", fontsize=9)
        axes.grid(alpha=0.3)
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
        is_svg = path.suffix.lower() == ".svg"
        figure.savefig(path, dpi=150, metadata={"Date": None} if is_svg else None)


def _sizes(report: BenchReport) -> list[int]:
    return sorted({size for by_size in rates_by_size(report).values() for size in by_size})


def _size_text(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:g} MiB" if size_bytes >= 2**20 else f"{size_bytes / 1024:g} KiB"
