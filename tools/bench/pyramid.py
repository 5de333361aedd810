"""Tiles with and without their levels, and reading them stitched."""

from __future__ import annotations

import math
import statistics
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from acqstream.bench.child_process import started_child, timeout_for
from acqstream.bench.comparison import DATASET, Bench, BenchSettings, Observer, started_bench
from acqstream.bench.measurement import (
    GIGA,
    BenchReport,
    Figures,
    Table,
    children_cpu_seconds,
    cpu_seconds,
)
from acqstream.bench.producer import BenchDaemon, close_complete, open_run, serving, transport_for, wait_for_view
from acqstream.bench.workload import Workload, run_workload, workload_of
from acqstream.client.connector import Transport
from acqstream.dataset.dataset import open_dataset
from acqstream.model.view_spec import PYRAMID_KIND, ViewSpec

_LEVELS_SHARE = 1.5  # at most, of the bytes on the disk
_MIN_REGION = 256
_READS = 5  # of each region
WITHOUT, WITH = "0", "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class PyramidPlan:
    """Scans of side x side tiles of `shape` (Y, X) uint16."""

    shape: tuple[int, int] = (2048, 2048)
    side: int = 8


@dataclass(frozen=True, slots=True)
class _Run:
    """Seconds until the log is durable, until levels are too, and what the daemon and the views' process spent."""

    log_s: float
    all_s: float
    daemon_cpu_s: float
    views_cpu_s: float


def run_pyramid_benchmark(
    settings: BenchSettings, observe: Observer, *, plan: PyramidPlan | None = None
) -> BenchReport:
    """Over the first transport of settings.rows that this platform has: pairs of runs without and with levels, in turn.

    Raises ConfigError if there is none, or too little space.
    """
    plan = plan or PyramidPlan()
    transport = transport_for(settings.rows, "pyramid")
    workload = workload_of(plan.shape, "uint16", settings.payload_bytes)
    steps = 2 * settings.pairs + 1
    with started_bench(settings, observe, steps, int(_LEVELS_SHARE * workload.payload_bytes)) as bench:
        runs: dict[str, list[_Run]] = {WITHOUT: [], WITH: []}
        for number in range(2 * settings.pairs):
            levels = (WITHOUT, WITH, WITH, WITHOUT)[number % 4]  # in turn, because the first one may find an idle disk
            bench.tell(f"{transport}, levels {levels}")
            is_kept = levels == WITH and len(runs[WITH]) + 1 == settings.pairs
            runs[levels].append(_measure(bench, transport, workload, plan, levels=levels, is_kept=is_kept))
        bench.tell("stitched reading")
        reads = _stitched_reads(bench.folder / DATASET)
        return bench.report(tables=[_writing_table(runs, workload, plan, transport), reads])


def _measure(
    bench: Bench, transport: str, workload: Workload, plan: PyramidPlan, *, levels: str, is_kept: bool
) -> _Run:
    with bench.run_folder("pyramid") as folder:
        run = _recorded(serving(transport, folder, bench.settings.daemon_memory_mb), transport, workload, plan, levels)
        if is_kept:
            (folder / "data" / DATASET).rename(bench.folder / DATASET)
    return run


def _recorded(
    served: AbstractContextManager[BenchDaemon], transport: str, workload: Workload, plan: PyramidPlan, levels: str
) -> _Run:
    with served as daemon:
        before_s, views_before_s = cpu_seconds(daemon.pid), children_cpu_seconds(daemon.pid)
        tiles = {"side": plan.side, "levels": levels if levels == WITH else int(levels)}
        to = {"endpoint": daemon.endpoint, "name": DATASET, "transport": transport}
        timeout_s = timeout_for(workload.payload_bytes)
        with started_child("tiled producer", send_tiled, timeout_s, workload=workload, **to, **tiles) as producer:
            found = producer.result()
        views_s = children_cpu_seconds(daemon.pid) - views_before_s
        daemon_s = cpu_seconds(daemon.pid) - before_s - views_s
    return _Run(float(found["log"]["seconds"]), float(found["all_seconds"]), daemon_s, views_s)


def send_tiled(
    endpoint: str, name: str, workload: Workload, transport: Transport, *, side: int, levels: str | int
) -> dict[str, Any]:
    """Send scans of side x side tiles, one time point after the other; levels is "auto" or a number.

    Returns the measurement until the receipt as "log", and the seconds until the levels are durable as "all_seconds".
    """
    more = {"tiles": {"overlap": (0, 0)}, "levels": levels, "expect": workload.frames}
    with open_run(endpoint, name, workload, transport, **more) as run:

        def put(image: NDArray[Any], number: int) -> None:
            scan, tile = divmod(number, side * side)
            run.put(image, time=scan, row=tile // side, column=tile % side)

        log = run_workload(workload, put, lambda: close_complete(run, workload))
        if not levels:
            return {"log": log, "all_seconds": log.seconds}
        durable_s = time.perf_counter()
        wait_for_view(Path(run.path), ViewSpec(PYRAMID_KIND))
        return {"log": log, "all_seconds": log.seconds + time.perf_counter() - durable_s}


def _writing_table(runs: dict[str, list[_Run]], workload: Workload, plan: PyramidPlan, transport: str) -> Table:
    size = workload.payload_bytes
    rows: list[Figures] = []
    for name, some in (("without levels", runs[WITHOUT]), ("with levels", runs[WITH])):
        rows.append(
            {
                "row": name,
                "log_gb_per_s": size / GIGA / statistics.median(run.log_s for run in some),
                "log_and_levels_gb_per_s": size / GIGA / statistics.median(run.all_s for run in some),
                "daemon_cpu_s_per_gb": statistics.median(run.daemon_cpu_s for run in some) / (size / GIGA),
                "views_cpu_s_per_gb": statistics.median(run.views_cpu_s for run in some) / (size / GIGA),
            }
        )
    pairs = list(zip(runs[WITHOUT], runs[WITH], strict=True))
    rows.append(
        {
            "row": "with / without",
            "log_gb_per_s": statistics.median(without.log_s / with_.log_s for without, with_ in pairs),
            "log_and_levels_gb_per_s": statistics.median(without.log_s / with_.all_s for without, with_ in pairs),
        }
    )
    sides = " x ".join(str(side) for side in workload.shape)
    title = f"{workload.frames} tiles of {sides} uint16 in scans of {plan.side} x {plan.side}, over {transport}"
    note = "until durable; medians, and the median of the ratios of the pairs; GB of the full resolution"
    return Table(title=title, rows=tuple(rows), note=note)


def _stitched_reads(path: Path) -> Table:
    """Reads of squares in the middle of the first scan, from 256 on, doubled each time, and of all; page cache."""
    rows: list[Figures] = []
    with open_dataset(path) as dataset:
        level = dataset.levels[0]
        height, width = level.shape[-2:]
        doublings = max(0, math.floor(math.log2(min(height, width) / _MIN_REGION))) if min(height, width) else 0
        sizes = [(_MIN_REGION << n, _MIN_REGION << n) for n in range(doublings + 1)]
        sizes = [size for size in sizes if size[0] < height and size[1] < width]
        for region in [*sizes, (height, width)]:
            spans = [
                slice((side - part) // 2, (side + part) // 2)
                for side, part in zip((height, width), region, strict=True)
            ]
            took = []
            for _ in range(_READS + 1):
                started_s = time.perf_counter()
                read = level.read((0, ..., *spans))
                took.append(time.perf_counter() - started_s)
            seconds = statistics.median(took[1:])  # the first one brings it into the page cache
            side_text = f"{region[0]} x {region[1]}"
            rows.append(
                {
                    "region": side_text,
                    "ms": seconds * 1e3,
                    "mb": read.nbytes / 1e6,
                    "ns_per_pixel": seconds * 1e9 / read.size,
                }
            )
    return Table(title=f"stitched reading of {height} x {width}, medians of {_READS}", rows=tuple(rows))
