"""Recording with mirrors, and mirrors by themselves: `acqstream bench --mirror`."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from acqstream.bench.child_process import started_child, timeout_for
from acqstream.bench.comparison import DATASET, BenchSettings, Observer, bench_folder, bench_report, run_folder
from acqstream.bench.daemon import Served, serving, transport_absent, transports_of
from acqstream.bench.limit import measure_limit
from acqstream.bench.measurement import GIGA, children_cpu_seconds, cpu_seconds, spread_of, watched_children
from acqstream.bench.mirror_alone import ALONE_ROWS, AloneBench, AloneRow
from acqstream.bench.producers import MirroredRun
from acqstream.bench.report import BenchReport, Table
from acqstream.bench.workload import Workload, workload_of
from acqstream.errors import ConfigError

POOL_BYTES = 64 * 2**20  # of prepared frames
Z = 128  # frames of a stack, or all of them
DIM_BITS = 10  # of frames to compress; the noise of brighter frames has no high byte that repeats
LIVE_ROWS: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    "n5": ({"format": "n5"},),
    "wkw": ({"format": "wkw"},),
    "n5 and wkw": ({"format": "n5"}, {"format": "wkw"}),
    "ome-zarr": ({"format": "ome-zarr"},),
    "ome-zarr raw one level": ({"format": "ome-zarr", "compression": "none", "levels": 1},),
    "hsds": ({"format": "hsds"},),
}
PACED_ROWS: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    **{f"{name} paced": mirrors for name, mirrors in LIVE_ROWS.items()},
    "n5 one level paced": ({"format": "n5", "levels": 1},),
    "wkw one level paced": ({"format": "wkw", "levels": 1},),
}
_WITHOUT = "without"
_MAX_COPIES = 5  # the log, two mirrors with their levels, and what is reserved

Figures = dict[str, str | float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorPlan:
    """Frames of `shape` (Y, X) uint16 that are mirrored while they are recorded, at full speed by those of `live` and
    at `share` of the limit by those of `paced`; and of `alone_shape`, mirrored afterwards by those of `alone`."""

    shape: tuple[int, int] = (2048, 2048)
    alone_shape: tuple[int, int] = (1024, 1024)
    share: float = 0.4
    live: Mapping[str, tuple[Mapping[str, Any], ...]] = field(default_factory=lambda: LIVE_ROWS)
    paced: Mapping[str, tuple[Mapping[str, Any], ...]] = field(default_factory=lambda: PACED_ROWS)
    alone: tuple[AloneRow, ...] = ALONE_ROWS


@dataclass(frozen=True, slots=True)
class _Live:
    """One recording. views_peak_bytes: private memory of the views' process."""

    run: MirroredRun
    daemon_cpu_s: float
    views_cpu_s: float
    views_peak_bytes: int


def chosen_plan(names: Sequence[str]) -> MirrorPlan:
    """The mirrors of these names, by default all that are not extra ones. Raises ConfigError for an unknown name."""
    alone = {row.name: row for row in ALONE_ROWS}
    known = tuple(dict.fromkeys((*LIVE_ROWS, *PACED_ROWS, *alone)))
    if unknown := [name for name in names if name not in known]:
        raise ConfigError(f"unknown mirrors {unknown}; there are {list(known)}")
    if not names:
        return MirrorPlan(alone=tuple(row for row in ALONE_ROWS if not row.is_extra))
    return MirrorPlan(
        live={name: LIVE_ROWS[name] for name in names if name in LIVE_ROWS},
        paced={name: PACED_ROWS[name] for name in names if name in PACED_ROWS},
        alone=tuple(alone[name] for name in names if name in alone),
    )


def run_mirror_benchmark(
    settings: BenchSettings, observe: Observer, *, names: Sequence[str] = (), plan: MirrorPlan | None = None
) -> BenchReport:
    """Over the first transport of settings.rows that this platform has. names are those of `chosen_plan`.

    Raises ConfigError if there is no transport, for an unknown name, or too little space.
    """
    plan = plan or chosen_plan(names)
    there = [one for one in transports_of(settings.rows, "--mirror") if not transport_absent(one)]
    if not there:
        raise ConfigError("--mirror needs a transport that this platform has")
    with bench_folder(settings, _MAX_COPIES * settings.payload_bytes) as folder:
        bench = _Bench(settings, folder, observe, there[0], plan)
        runs = ((plan.live, bench.full_speed), (plan.paced, bench.paced), (plan.alone, bench.alone))
        tables = [run() for rows, run in runs if rows]
    return bench_report(settings, tables=tables)


class _Bench:
    def __init__(
        self, settings: BenchSettings, folder: Path, observe: Observer, transport: str, plan: MirrorPlan
    ) -> None:
        self._settings = settings
        self._folder = folder
        self._observe = observe
        self._transport = transport
        self._plan = plan
        self._workload = stacks_of(plan.shape, settings.payload_bytes)
        self._done = 0
        alone = sum(1 + len(row.beside) for row in plan.alone)
        self._steps = settings.pairs * (2 * (len(plan.live) + len(plan.paced)) + alone) + 1

    def full_speed(self) -> Table:
        """Pairs of runs without and with mirrors, in turn, because the first one may find an idle disk."""
        pairs: dict[str, list[tuple[_Live, _Live]]] = {name: [] for name in self._plan.live}
        for turn in range(self._settings.pairs):
            for name in self._plan.live:
                kinds = (_WITHOUT, name) if turn % 2 == 0 else (name, _WITHOUT)
                runs = {kind: self._live(f"full speed: {kind}", self._plan.live.get(kind, ())) for kind in kinds}
                pairs[name].append((runs[_WITHOUT], runs[name]))
        size = self._workload.payload_bytes / GIGA
        without = [pair[0] for some in pairs.values() for pair in some]
        rows: list[Figures] = [
            {
                "row": _WITHOUT,
                "log_gb_per_s": statistics.median(size / one.run.log.seconds for one in without),
                "daemon_cpu_s_per_gb": statistics.median(one.daemon_cpu_s for one in without) / size,
            }
        ]
        for name, some in pairs.items():
            ratio = spread_of([before.run.log.seconds / after.run.log.seconds for before, after in some])
            with_ = [after for _, after in some]
            rows.append(
                {
                    "row": name,
                    "log_gb_per_s": statistics.median(size / one.run.log.seconds for one in with_),
                    "log_to_without": ratio.median,
                    "lowest": ratio.low,
                    "highest": ratio.high,
                    "mirrors_done_s": statistics.median(one.run.all_s for one in with_),
                    "mirrors_done_gb_per_s": statistics.median(size / one.run.all_s for one in with_),
                    "daemon_cpu_s_per_gb": statistics.median(one.daemon_cpu_s for one in with_) / size,
                    **_mirror_costs(with_, size),
                }
            )
        title = f"full speed with mirrors, {self._what()}"
        note = "log: until the receipt; done: from the first frame until all mirrors are durable; medians of pairs"
        return Table(title=title, rows=tuple(rows), note=note)

    def paced(self) -> Table:
        """Each kind of mirror in turn, the limit right before it."""
        runs: dict[str, list[tuple[float, _Live]]] = {name: [] for name in self._plan.paced}
        for _ in range(self._settings.pairs):
            for name, mirrors in self._plan.paced.items():
                self._tell(f"{self._plan.share:g} of the limit: limit")
                limit = measure_limit(self._folder, self._workload.payload_bytes)
                rate = self._plan.share * limit.bytes_per_s / self._workload.frame_bytes
                live = self._live(f"{self._plan.share:g} of the limit: {name}", mirrors, rate)
                runs[name].append((rate, live))
        title = f"a camera at {self._plan.share:g} of the limit with mirrors, {self._what()}"
        note = (
            "behind: frames put, but not taken by the slowest mirror; done: until all are durable; medians of the "
            "runs; the daemon is configured for the mirrors of the row, and has taken their memory ahead"
        )
        return Table(title=title, rows=tuple(self._paced_row(name, some) for name, some in runs.items()), note=note)

    def _paced_row(self, name: str, runs: Sequence[tuple[float, _Live]]) -> Figures:
        finish = spread_of([live.run.finish_s for _, live in runs])
        rate = statistics.median(rate for rate, _ in runs)
        return {
            "row": name,
            "gb_per_s": rate * self._workload.frame_bytes / GIGA,
            "frames_per_s": rate,
            "behind_at_the_end_frames": statistics.median(live.run.behind_frames for _, live in runs),
            "behind_at_the_end_s": statistics.median(live.run.behind_frames / rate for rate, live in runs),
            "done_after_last_frame_s": finish.median,
            "earliest": finish.low,
            "latest": finish.high,
            **_mirror_costs([live for _, live in runs], self._workload.payload_bytes / GIGA),
        }

    def alone(self) -> Table:
        """Mirrors of a finished dataset, in turn with the baselines."""
        workload = replace(stacks_of(self._plan.alone_shape, self._settings.payload_bytes), bits=DIM_BITS)
        self._tell("a dataset to mirror")
        with self._daemon("source") as daemon:
            self._send(daemon.endpoint, workload, (), None)
            z = min(Z, workload.frames)
            bench = AloneBench(daemon.data / DATASET, self._folder, workload, z, self._plan.alone)
            for turn in range(self._settings.pairs):
                for row in self._plan.alone:
                    bench.measure(row, self._tell, is_first=turn % 2 == 0)
        return bench.table()

    def _live(self, text: str, mirrors: Sequence[Mapping[str, Any]], frames_per_s: float | None = None) -> _Live:
        self._tell(text)
        with self._daemon("live", mirrors) as daemon:
            before_s, views_before_s = cpu_seconds(daemon.pid), children_cpu_seconds(daemon.pid)
            with watched_children(daemon.pid) as watch:
                run = self._send(daemon.endpoint, self._workload, mirrors, frames_per_s)
                views_s = children_cpu_seconds(daemon.pid) - views_before_s
            return _Live(run, cpu_seconds(daemon.pid) - before_s - views_s, views_s, watch.peak_bytes)

    def _send(
        self, endpoint: str, workload: Workload, mirrors: Sequence[Mapping[str, Any]], frames_per_s: float | None
    ) -> MirroredRun:
        with started_child(
            "mirrored producer",
            timeout_s=timeout_for(_MAX_COPIES * workload.payload_bytes),
            endpoint=endpoint,
            name=DATASET,
            workload=workload,
            transport=self._transport,
            z=min(Z, workload.frames),
            mirrors=mirrors,
            frames_per_s=frames_per_s,
        ) as producer:
            return MirroredRun.from_document(producer.result())

    @contextmanager
    def _daemon(self, name: str, mirrors: Sequence[Mapping[str, Any]] = ()) -> Iterator[Served]:
        """A fresh one, configured for these mirrors; what it has written goes with it."""
        with (
            run_folder(self._folder, name) as place,
            serving(self._transport, place, self._settings.daemon_memory_mb, mirrors=mirrors) as daemon,
        ):
            yield daemon

    def _what(self) -> str:
        sides = " x ".join(str(side) for side in self._workload.shape)
        frames, size = self._workload.frames, self._workload.payload_bytes / GIGA
        return f"{frames} frames of {sides} uint16 ({size:.2g} GB), over {self._transport}"

    def _tell(self, text: str) -> None:
        self._observe(text, self._done, self._steps)
        self._done += 1


def stacks_of(shape: tuple[int, int], payload_bytes: int) -> Workload:
    """Whole stacks of Z frames, or less than one."""
    found = workload_of(shape, "uint16", payload_bytes)
    return replace(found, frames=max(found.frames // Z * Z, min(found.frames, Z)), pool_bytes=POOL_BYTES)


def _mirror_costs(runs: Sequence[_Live], size_gb: float) -> Figures:
    return {
        "mirror_cpu_s_per_gb": statistics.median(one.views_cpu_s for one in runs) / size_gb,
        "mirror_peak_mb": math.ceil(max(one.views_peak_bytes for one in runs) / 1e6),
        "computed_mb": math.ceil(max(one.run.memory_bytes for one in runs) / 1e6),
    }
