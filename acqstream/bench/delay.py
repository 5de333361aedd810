"""Delay from `put` until another process can read the frame: `acqstream bench --latency`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from acqstream.bench.child_process import started_child, timeout_for
from acqstream.bench.comparison import DATASET, BenchSettings, Observer, bench_folder, bench_report, run_folder
from acqstream.bench.daemon import serving, transport_absent, transports_of
from acqstream.bench.measurement import latency_of
from acqstream.bench.producers import PacedTimes
from acqstream.bench.report import BenchReport, Table
from acqstream.bench.workload import Workload

TARGET_MS = 80.0  # for 99 of 100 frames


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayPlan:
    """The frames of one run: of `shape` (Y, X) uint16, so many a second, so long."""

    shape: tuple[int, ...] = (512, 512)
    frames_per_s: float = 100.0
    seconds: float = 20.0


def run_delay_benchmark(settings: BenchSettings, observe: Observer, *, plan: DelayPlan | None = None) -> BenchReport:
    """Once over each transport of settings.rows: a paced producer, and a follower that reads every frame."""
    plan = plan or DelayPlan()
    workload = Workload(plan.shape, "uint16", math.ceil(plan.frames_per_s * plan.seconds))
    transports = transports_of(settings.rows, "--latency")
    rows: list[dict[str, str | float | None]] = []
    with bench_folder(settings, workload.payload_bytes) as folder:
        for done, transport in enumerate(transports):
            observe(f"put to readable: {transport}", done, len(transports))
            if reason := transport_absent(transport):
                rows.append({"row": transport, "note": reason})
                continue
            with run_folder(folder, transport) as place:
                delays_ns = _delays_ns(place, transport, workload, plan, settings.daemon_memory_mb)
            rows.append({"row": transport, **_figures(delays_ns)})
    sides = " x ".join(str(side) for side in plan.shape)
    title = f"put to readable in another process: {sides} uint16, {plan.frames_per_s:g} frames/s, {plan.seconds:g} s"
    note = "from the begin of `put` until the follower has the pixels"
    return bench_report(settings, tables=[Table(title=title, rows=tuple(rows), note=note)])


def _delays_ns(
    place: Path, transport: str, workload: Workload, plan: DelayPlan, memory_mb: int | None
) -> Sequence[int]:
    timeout_s = timeout_for(workload.payload_bytes) + plan.seconds
    with serving(transport, place, memory_mb) as daemon:
        how = {"endpoint": daemon.endpoint, "name": DATASET, "transport": transport, "frames_per_s": plan.frames_per_s}
        reading = {"dataset": daemon.data / DATASET, "frames": workload.frames}
        with started_child("paced producer", timeout_s=timeout_s, workload=workload, **how) as producer:
            producer.wait_until_ready()
            with started_child("follower", timeout_s=timeout_s, **reading) as follower:
                follower.wait_until_ready()
                producer.go()
                follower.go()
                times = PacedTimes.from_document(producer.result())
                read_ns = follower.result()
    return [read - began for read, began in zip(read_ns, times.began_ns, strict=True)]


def _figures(delays_ns: Sequence[int]) -> dict[str, str | float | None]:
    latency = latency_of(delays_ns)
    in_time = sum(delay_ns <= TARGET_MS * 1e6 for delay_ns in delays_ns)
    return {
        "frames": len(delays_ns),
        "p50_ms": latency.p50_ms,
        "p99_ms": latency.p99_ms,
        "p99.9_ms": latency.p999_ms,
        "max_ms": latency.max_ms,
        f"within_{TARGET_MS:.0f}_ms_percent": 100 * in_time / len(delays_ns),
    }
