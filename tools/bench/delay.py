"""Delay from `put` until another process can read the frame."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from acqstream.bench.child_process import started_child, timeout_for
from acqstream.bench.comparison import DATASET, Bench, BenchSettings, Observer, started_bench
from acqstream.bench.measurement import BenchReport, Figures, Table, latency_of
from acqstream.bench.producer import transport_absent, transports_of
from acqstream.bench.workload import Workload
from bench.paced_producer import PacedTimes, follow, send_paced

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
    transports = transports_of(settings.rows, "latency")
    rows: list[Figures] = []
    with started_bench(settings, observe, len(transports), workload.payload_bytes) as bench:
        for transport in transports:
            bench.tell(f"put to readable: {transport}")
            if reason := transport_absent(transport):
                rows.append({"row": transport, "note": reason})
                continue
            rows.append({"row": transport, **_figures(_delays_ns(bench, transport, workload, plan))})
        sides = " x ".join(str(side) for side in plan.shape)
        title = (
            f"put to readable in another process: {sides} uint16, {plan.frames_per_s:g} frames/s, {plan.seconds:g} s"
        )
        note = "from the begin of `put` until the follower has the pixels"
        return bench.report(tables=[Table(title=title, rows=tuple(rows), note=note)])


def _delays_ns(bench: Bench, transport: str, workload: Workload, plan: DelayPlan) -> Sequence[int]:
    timeout_s = timeout_for(workload.payload_bytes) + plan.seconds
    with bench.daemon(transport, transport) as daemon:
        how = {"endpoint": daemon.endpoint, "name": DATASET, "transport": transport, "frames_per_s": plan.frames_per_s}
        reading = {"dataset": daemon.data / DATASET, "frames": workload.frames}
        with started_child("paced producer", send_paced, timeout_s, workload=workload, **how) as producer:
            producer.wait_until_ready()
            with started_child("follower", follow, timeout_s, **reading) as follower:
                follower.wait_until_ready()
                producer.go()
                follower.go()
                times = producer.result_as(PacedTimes)
                read_ns = follower.result()
    return [read - began for read, began in zip(read_ns, times.began_ns, strict=True)]


def _figures(delays_ns: Sequence[int]) -> Figures:
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
