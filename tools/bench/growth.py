"""Growth of cost with the number of frames, their size, and the number of producers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import psutil

from acqstream.bench.child_process import run_measured, started_child, timeout_for
from acqstream.bench.comparison import Bench, BenchSettings, Observer, started_bench
from acqstream.bench.measurement import BenchReport, Figures, Measurement, Table, UsageMeter
from acqstream.bench.producer import BenchDaemon, send, transport_absent, transports_of
from acqstream.bench.workload import POOL_BYTES, Workload, workload_of
from acqstream.formats.ndtiff.index_entries import INDEX_NAME
from acqstream.log.journal import JOURNAL_NAME

ON_PAPER_FRAMES = 100_000_000
_WARM_FRAMES, _WARM_BYTES = 20_000, 256 * 2**20  # what a daemon loads and allocates once is not counted per frame


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowthPlan:
    """Varied quantities: the number of frames of `small` shape, the shapes (Y, X) of frames, the number of producers.

    All uint16. Each producer has an acquisition of its own, with frames of `usual` shape.
    """

    counts: tuple[int, ...] = (1_000, 10_000, 100_000, 1_000_000)
    small: tuple[int, int] = (64, 64)
    shapes: tuple[tuple[int, int], ...] = (
        (64, 64),
        (128, 256),
        (512, 512),
        (1024, 2048),
        (2048, 4096),
        (4096, 8192),
    )
    producers: tuple[int, ...] = (1, 2, 4, 8, 16)
    usual: tuple[int, int] = (512, 512)


@dataclass(frozen=True, slots=True)
class _Cost:
    """Cost of one run, all its producers together. grown_bytes is the growth of the daemon's resident memory."""

    frames: int
    payload_bytes: int
    seconds: float
    daemon_cpu_s: float
    grown_bytes: int
    index_bytes: int
    journal_bytes: int


def run_growth_benchmark(settings: BenchSettings, observe: Observer, *, plan: GrowthPlan | None = None) -> BenchReport:
    """Over the first transport of settings.rows that there is.

    settings.payload_bytes bounds the run of the most frames; a quarter of it is written for the other tables.

    Raises ConfigError if settings.rows has no transport.
    """
    wanted = transports_of(settings.rows, "growth")
    transport = next((name for name in wanted if not transport_absent(name)), "tcp")
    plan = plan or GrowthPlan()
    small = sorted({workload_of(plan.small, "uint16", settings.payload_bytes, count).frames for count in plan.counts})
    part_bytes = settings.payload_bytes // 4
    with started_bench(settings, observe, len(small) + len(plan.shapes) + len(plan.producers)) as bench:
        run = _Growth(bench, transport)
        tables = [
            run.by_count([Workload(plan.small, "uint16", count) for count in small]),
            run.by_size([workload_of(shape, "uint16", part_bytes, settings.max_frames) for shape in plan.shapes]),
            run.by_producers(plan),
        ]
        return bench.report(tables=tables)


class _Growth:
    """One running benchmark."""

    def __init__(self, bench: Bench, transport: str) -> None:
        self._bench = bench
        self._transport = transport

    def by_count(self, workloads: Sequence[Workload]) -> Table:
        costs = [self._cost(f"{workload.frames:,} frames", workload, 1) for workload in workloads]
        rows = [{"frames": f"{cost.frames:,}", **_per_frame(cost)} for cost in costs]
        fewer = [cost for cost in costs if 2 * cost.frames <= costs[-1].frames]  # close ones differ by chance only
        if fewer:
            rows.append(on_paper(fewer[-1], costs[-1]))
        sides = " x ".join(str(side) for side in workloads[0].shape) if workloads else "no"
        note = "on paper: each further frame as those between the last run and one of half its frames or fewer; "
        note += "memory that grows by itself shows from 100,000 frames on"
        return Table(title=f"{sides} uint16 over {self._transport}: number of frames", rows=tuple(rows), note=note)

    def by_size(self, workloads: Sequence[Workload]) -> Table:
        rows: list[Figures] = []
        for workload in workloads:
            size = f"{workload.frame_bytes / 1024:,.0f} KiB"
            cost = self._cost(size, workload, 1)
            rows.append({"frame": size, "frames": cost.frames, **_per_gb(cost), **_per_frame_cpu(cost)})
        return Table(title=f"over {self._transport}: size of frames", rows=tuple(rows))

    def by_producers(self, plan: GrowthPlan) -> Table:
        rows: list[Figures] = []
        for count in plan.producers:
            workload = workload_of(plan.usual, "uint16", self._bench.settings.payload_bytes // 4 // count)
            cost = self._cost(f"{count} producers", workload, count)
            rows.append({"producers": count, "frames": cost.frames, **_per_gb(cost), **_per_frame_cpu(cost)})
        sides = " x ".join(str(side) for side in plan.usual)
        note = "each producer a process with an acquisition of its own; seconds until the last receipt"
        return Table(title=f"{sides} uint16 over {self._transport}: producers", rows=tuple(rows), note=note)

    def _cost(self, text: str, workload: Workload, producers: int) -> _Cost:
        self._bench.tell(text)
        with self._bench.daemon(self._transport, "growth") as daemon:
            most = min(_WARM_FRAMES, workload.frames)
            warm = workload_of(workload.shape, workload.dtype, _WARM_BYTES, most)
            run_measured("producer", send, warm.payload_bytes, **_arguments(daemon, "warm", warm, self._transport))
            return self._measured(daemon, workload, producers)

    def _measured(self, daemon: BenchDaemon, workload: Workload, producers: int) -> _Cost:
        names = [f"run-{number}" for number in range(producers)]
        process, meter = psutil.Process(daemon.pid), UsageMeter(daemon.pid)
        before_bytes = process.memory_info().rss
        shared_pool = Workload(workload.shape, workload.dtype, workload.frames, POOL_BYTES // producers)
        runs = _at_once([_arguments(daemon, name, shared_pool, self._transport) for name in names], workload)
        grown_bytes = process.memory_info().rss - before_bytes
        sizes = {
            file: sum((daemon.data / name / file).stat().st_size for name in names)
            for file in (INDEX_NAME, JOURNAL_NAME)
        }
        return _Cost(
            frames=sum(run.frames for run in runs),
            payload_bytes=sum(run.payload_bytes for run in runs),
            seconds=max(run.seconds for run in runs),
            daemon_cpu_s=meter.cost().cpu_s,
            grown_bytes=grown_bytes,
            index_bytes=sizes[INDEX_NAME],
            journal_bytes=sizes[JOURNAL_NAME],
        )


def _arguments(daemon: BenchDaemon, name: str, workload: Workload, transport: str) -> dict[str, Any]:
    return {"endpoint": daemon.endpoint, "name": name, "workload": workload, "transport": transport}


def _at_once(arguments: Sequence[dict[str, Any]], workload: Workload) -> list[Measurement]:
    """Producers that begin together when all are prepared."""
    timeout_s = timeout_for(workload.payload_bytes * len(arguments))
    with ExitStack() as stack:
        children = [
            stack.enter_context(started_child("producer", send, timeout_s, is_held=True, **each)) for each in arguments
        ]
        for child in children:
            child.wait_until_ready()
        for child in children:
            child.go()
        return [child.result_as(Measurement) for child in children]


def _per_frame(cost: _Cost) -> Figures:
    return {
        "seconds": cost.seconds,
        "time_us_per_frame": 1e6 * cost.seconds / cost.frames,
        **_per_frame_cpu(cost),
        "index_bytes_per_frame": cost.index_bytes / cost.frames,
        "journal_bytes_per_frame": cost.journal_bytes / cost.frames,
        "daemon_grew_mb": cost.grown_bytes / 1e6,
        "daemon_grew_bytes_per_frame": cost.grown_bytes / cost.frames,
    }


def _per_frame_cpu(cost: _Cost) -> Figures:
    return {"daemon_cpu_us_per_frame": 1e6 * cost.daemon_cpu_s / cost.frames}


def _per_gb(cost: _Cost) -> Figures:
    gigabytes = cost.payload_bytes / 1e9
    return {
        "seconds": cost.seconds,
        "gb_per_s": gigabytes / cost.seconds,
        "frames_per_s": cost.frames / cost.seconds,
        "daemon_cpu_s_per_gb": cost.daemon_cpu_s / gigabytes,
        "daemon_grew_mb": cost.grown_bytes / 1e6,
    }


def on_paper(fewer: _Cost, more: _Cost, frames: int = ON_PAPER_FRAMES) -> Figures:
    """The cost of so many frames, if each further one takes what those between two runs took."""
    scale = (frames - more.frames) / (more.frames - fewer.frames)
    return {"frames": f"{frames:,} (on paper)", **_per_frame(_further(fewer, more, frames, scale))}


def _further(fewer: _Cost, more: _Cost, frames: int, scale: float) -> _Cost:
    def reach(low: float, high: float) -> float:
        return high + max(0.0, high - low) * scale

    return _Cost(
        frames=frames,
        payload_bytes=more.payload_bytes // more.frames * frames,
        seconds=reach(fewer.seconds, more.seconds),
        daemon_cpu_s=reach(fewer.daemon_cpu_s, more.daemon_cpu_s),
        grown_bytes=int(reach(fewer.grown_bytes, more.grown_bytes)),
        index_bytes=int(reach(fewer.index_bytes, more.index_bytes)),
        journal_bytes=int(reach(fewer.journal_bytes, more.journal_bytes)),
    )
