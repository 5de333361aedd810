"""A camera at a steady rate, a little below what can be sustained."""

from __future__ import annotations

import math
import time
from array import array
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.bench.child_process import started_child, timeout_for
from acqstream.bench.comparison import (
    DATASET,
    ROWS,
    Bench,
    BenchSettings,
    Observer,
    check_space,
    started_bench,
)
from acqstream.bench.limit import WRITE_BYTES, fresh_file, prefaulted_memory
from acqstream.bench.measurement import BenchReport, Figures, Measurement, ProcessCost, Table, latency_of
from acqstream.bench.producer import transport_absent, transports_of
from acqstream.bench.workload import Workload, workload_of
from acqstream.formats.ndtiff.layout import STACK_LIMIT_BYTES
from acqstream.log.journal import JOURNAL_NAME
from acqstream.log.journal_file import read_journal
from acqstream.storage.platform import FILES
from bench.paced_producer import PacedTimes, send_paced

_USED_SHARE = 0.85  # of the free space: below, the daemon begins to warn
_WINDOW_NS = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadyPlan:
    """Frames of `shape` (Y, X) uint16 at `share` of the sustainable rate for so many seconds."""

    shape: tuple[int, ...] = (2048, 2048)
    seconds: float = 60.0
    share: float = 0.9


def run_steady_benchmark(settings: BenchSettings, observe: Observer, *, plan: SteadyPlan | None = None) -> BenchReport:
    """Over each transport of settings.rows: the sustainable rate, the paced run, and the limit paced alike.

    settings.payload_bytes is for the sustainable rate. The paced run is shorter where the disk has no room for it.
    """
    plan = plan or SteadyPlan()
    transports = transports_of(settings.rows, "steady")
    rows: list[Figures] = []
    with started_bench(settings, observe, 3 * len(transports)) as bench:
        run = _Steady(bench, plan)
        for transport in transports:
            reason = transport_absent(transport)
            rows.append({"row": transport, **({"note": reason} if reason else run.figures(transport))})
        sides = " x ".join(str(side) for side in plan.shape)
        title = f"{sides} uint16 for {plan.seconds:g} s at {plan.share:g} of the sustainable rate, buffer of 256 MB"
        note = (
            "roll-over: from the first frame of a new stack file on, for one second; extra: the slowest way from `put` "
            "to published in that second less that of other seconds, medians; limit: its slowest write of 8 MiB, paced "
            "alike, and how late one began at most"
        )
        return bench.report(tables=[Table(title=title, rows=tuple(rows), note=note)])


class _Steady:
    """One running benchmark."""

    def __init__(self, bench: Bench, plan: SteadyPlan) -> None:
        self._bench = bench
        self._plan = plan

    def figures(self, transport: str) -> Figures:
        self._bench.tell(f"{transport}: sustainable rate")
        settings = self._bench.settings
        with self._bench.run_folder(transport) as folder:
            workload = workload_of(self._plan.shape, "uint16", settings.payload_bytes)
            sustained = ROWS[transport].run(folder, workload, settings.daemon_memory_mb)
        frames_per_s = self._plan.share * sustained.frames_per_s
        paced = self.paced_workload(frames_per_s)
        check_space(self._bench.folder, paced.payload_bytes)
        self._bench.tell(f"{transport}: {paced.frames / frames_per_s:.0f} s at {frames_per_s:,.0f} frames/s")
        times, stacks = self._paced_run(transport, paced, frames_per_s)
        self._bench.tell(f"{transport}: limit, paced alike")
        rate = paced.frame_bytes * frames_per_s
        limit, limit_behind_s = measure_paced_limit(self._bench.folder, paced.payload_bytes, rate, STACK_LIMIT_BYTES)
        return {
            "sustainable_gb_per_s": sustained.bytes_per_s / 1e9,
            "paced_gb_per_s": rate / 1e9,
            "frames": paced.frames,
            "seconds": paced.frames / frames_per_s,
            **put_figures(times),
            **roll_over_figures(times, stacks),
            "limit_slowest_ms": limit.latency.max_ms,
            "limit_behind_ms": 1e3 * limit_behind_s,
        }

    def paced_workload(self, frames_per_s: float) -> Workload:
        """For so many seconds, or as many as fit on the disk.

        Nothing is deleted meanwhile: freeing gigabytes can hold up a file system for a second.
        """
        one = Workload(self._plan.shape, "uint16", 1).frame_bytes
        capacity = int(FILES.free_bytes(str(self._bench.folder)) * _USED_SHARE) // one
        return Workload(self._plan.shape, "uint16", max(2, min(math.ceil(frames_per_s * self._plan.seconds), capacity)))

    def _paced_run(
        self, transport: str, workload: Workload, frames_per_s: float
    ) -> tuple[PacedTimes, NDArray[np.int64]]:
        """The times of all frames, and the number of the stack file of each."""
        timeout_s = timeout_for(workload.payload_bytes) + self._plan.seconds
        with self._bench.daemon(transport, transport) as daemon:
            how = {"endpoint": daemon.endpoint, "name": DATASET, "transport": transport, "frames_per_s": frames_per_s}
            with started_child("paced producer", send_paced, timeout_s, workload=workload, **how) as producer:
                producer.wait_until_ready()
                producer.go()
                times = producer.result_as(PacedTimes)
            return times, stack_numbers(daemon.data / DATASET)


def measure_paced_limit(
    directory: Path, payload_bytes: int, bytes_per_s: float, file_bytes: int
) -> tuple[Measurement, float]:
    """The same writes, one in flight, each when it is due at this rate; a new file after `file_bytes`.

    Beside the measurement: by how many seconds a write began too late, at most. Files are created, reserved and forced
    between the writes, and deleted at the end.
    """
    memory = prefaulted_memory()
    durations_ns = array("q")
    max_behind_s = 0.0
    cpu_started_s, started = time.process_time(), time.perf_counter()
    with ExitStack() as files:
        for first in range(0, payload_bytes, file_bytes):
            length = min(file_bytes, payload_bytes - first)
            target, how = files.enter_context(fresh_file(directory / f"limit-{first}", length, memory))
            for offset in range(0, target.length, WRITE_BYTES):
                # Due by the clock, not by the last write: a late write is caught up with, as a camera demands.
                early_s = started + (first + offset) / bytes_per_s - time.perf_counter()
                max_behind_s = max(max_behind_s, -early_s)
                if early_s > 0:
                    time.sleep(early_s)
                before_ns = time.perf_counter_ns()
                target.write(offset)
                durations_ns.append(time.perf_counter_ns() - before_ns)
            target.force()
        seconds = time.perf_counter() - started
    measurement = Measurement(
        payload_bytes=payload_bytes,
        frames=len(durations_ns),
        seconds=seconds,
        latency=latency_of(durations_ns),
        processes={"producer": ProcessCost(time.process_time() - cpu_started_s, None)},
        note=f"{how}, paced",
    )
    return measurement, max_behind_s


def put_figures(times: PacedTimes) -> dict[str, float]:
    """Percentiles of `put`, how many frames came more than an interval late because of others before them, and how late
    at most."""
    began, due = np.array(times.began_ns), np.array(times.due_ns)
    put = latency_of((np.array(times.ended_ns) - began).tolist())
    interval_ns = (due[-1] - due[0]) / (len(due) - 1)
    return {
        "late_frames": int(np.count_nonzero(began - due > interval_ns)),
        "behind_ms": float((began - due).max()) / 1e6,
        "put_p50_ms": put.p50_ms,
        "put_p99_ms": put.p99_ms,
        "put_p99.9_ms": put.p999_ms,
        "put_max_ms": put.max_ms,
    }


def roll_over_figures(times: PacedTimes, stacks: NDArray[Any]) -> dict[str, float | None]:
    """Figures of the second after each new stack file, and of other seconds. stacks: the file of each frame."""
    began = np.array(times.began_ns)
    put = np.array(times.ended_ns) - began
    published = np.array([np.nan if seen_ns is None else seen_ns for seen_ns in times.published_ns])
    way = published - began
    new_files = began[1:][np.diff(stacks) != 0]
    others = [
        start
        for start in range(int(began[0]), int(began[-1]), _WINDOW_NS)
        if not np.any((new_files > start - _WINDOW_NS) & (new_files < start + _WINDOW_NS))
    ]
    return {
        "roll_overs": len(new_files),
        "put_max_at_roll_over_ms": max(_slowest_ms(put, began, new_files), default=None),
        "published_p50_ms": float(np.nanmedian(way)) / 1e6 if not np.isnan(way).all() else None,
        "published_max_ms": float(np.nanmax(way)) / 1e6 if not np.isnan(way).all() else None,
        "roll_over_extra_ms": _difference(_slowest_ms(way, began, new_files), _slowest_ms(way, began, others)),
    }


def _slowest_ms(durations_ns: NDArray[Any], began: NDArray[Any], starts: Any) -> list[float]:
    """The longest call that began within a second after each start; starts without a call are left out."""
    windows = (durations_ns[(began >= start) & (began < start + _WINDOW_NS)] for start in starts)
    return [float(np.nanmax(window)) / 1e6 for window in windows if not np.isnan(window).all()]


def _difference(some: list[float], others: list[float]) -> float | None:
    return float(np.median(some) - np.median(others)) if some and others else None


def stack_numbers(dataset: Path) -> NDArray[np.int64]:
    """The stack file of each frame, from the journal."""
    return read_journal(dataset / JOURNAL_NAME).prefix["stack"].astype(np.int64)
