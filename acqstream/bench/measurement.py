"""Measurements of single runs, their statistics, and the processor time and memory of processes."""

from __future__ import annotations

import os
import platform
import statistics
import threading
import time
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

GIGA = 1e9
_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Latency:
    """Durations in ms of single calls: `put` of a writer, or one write of the limit."""

    p50_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float


@dataclass(frozen=True, slots=True)
class ProcessCost:
    """Cost of a process in a run; peak_bytes is its largest resident size, None where the system does not report it."""

    cpu_s: float
    peak_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One run: payload_bytes of pixels from the first put until durable. processes are by role."""

    payload_bytes: int
    frames: int
    seconds: float
    latency: Latency
    processes: dict[str, ProcessCost]
    note: str = ""

    @property
    def bytes_per_s(self) -> float:
        return self.payload_bytes / self.seconds

    @property
    def frames_per_s(self) -> float:
        return self.frames / self.seconds

    def cpu_s_per_gb(self, role: str) -> float:
        return self.processes[role].cpu_s / (self.payload_bytes / GIGA)


def latency_of(durations_ns: Sequence[int] | array[int]) -> Latency:
    """Percentiles (nearest rank) of at least one duration in nanoseconds."""
    ordered = sorted(durations_ns)
    last = len(ordered) - 1

    def rank_ms(fraction: float) -> float:
        return ordered[round(fraction * last)] / 1e6

    return Latency(rank_ms(0.5), rank_ms(0.99), rank_ms(0.999), rank_ms(1.0))


@dataclass(frozen=True, slots=True)
class Spread:
    """Median of several runs, with the smallest and the largest."""

    median: float
    low: float
    high: float


def spread_of(values: Sequence[float]) -> Spread:
    return Spread(statistics.median(values), min(values), max(values))


def measurement_from(document: dict[str, Any]) -> Measurement:
    """The inverse of `dataclasses.asdict`: what a child process printed as JSON."""
    return Measurement(
        payload_bytes=document["payload_bytes"],
        frames=document["frames"],
        seconds=document["seconds"],
        latency=Latency(**document["latency"]),
        processes={role: ProcessCost(**cost) for role, cost in document["processes"].items()},
        note=document["note"],
    )


def cpu_seconds(pid: int) -> float:
    """User and system time so far: of this process exactly, of another one in ticks and with its children."""
    return time.process_time() if pid == os.getpid() else sum(_spent(psutil.Process(pid)))


def children_cpu_seconds(pid: int) -> float:
    """User and system time so far of the running children of a process, and of those that it waited for.

    Windows does not report the latter.
    """
    return _spent(psutil.Process(pid))[1]


def _spent(process: psutil.Process) -> tuple[float, float]:
    """User and system time of the process itself, and of its children."""
    while True:
        times = process.cpu_times()
        ended_s = children_s = _ended_children(times)
        for child in process.children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                found = child.cpu_times()
                children_s += found.user + found.system + _ended_children(found)
        if _ended_children(process.cpu_times()) == ended_s:  # else one has ended meanwhile, and is counted in part
            return times.user + times.system, children_s


def _ended_children(times: Any) -> float:
    return float(getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0))


def peak_memory_bytes(pid: int) -> int | None:
    """The largest resident size a process ever had (VmHWM on Linux, the peak working set on Windows)."""
    if platform.system() == "Linux":
        for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        return None
    peak = getattr(psutil.Process(pid).memory_info(), "peak_wset", None)
    return None if peak is None else int(peak)


def reset_peak_memory() -> None:
    """Reset the peak of this process where the system can (Linux)."""
    counter = Path("/proc/self/clear_refs")
    if counter.exists():
        with suppress(PermissionError):  # inside some containers; the peak is then that since its start
            counter.write_text("5", encoding="ascii")


class UsageMeter:
    """Processor time and peak memory of a process from here on."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._start_s = cpu_seconds(pid)

    def cost(self) -> ProcessCost:
        """CPU since the start, and the peak memory since the last reset."""
        return ProcessCost(cpu_seconds(self._pid) - self._start_s, peak_memory_bytes(self._pid))


class MemoryWatch:
    """peak_bytes: resident memory that is not shared with others, all children of a process together."""

    def __init__(self, pid: int) -> None:
        self.peak_bytes = 0
        self._process = psutil.Process(pid)

    def look(self) -> None:
        total = 0
        for child in self._process.children():
            with suppress(psutil.NoSuchProcess):
                found = child.memory_info()
                total += found.rss - getattr(
                    found, "shared", 0
                )  # all of it where the system does not report the shared part
        self.peak_bytes = max(self.peak_bytes, total)


@contextmanager
def watched_children(pid: int) -> Iterator[MemoryWatch]:
    """While the block runs."""
    watch, ended = MemoryWatch(pid), threading.Event()

    def look() -> None:
        while not ended.wait(_POLL_S):
            watch.look()

    thread = threading.Thread(target=look, name="memory of the views", daemon=True)
    thread.start()
    try:
        yield watch
    finally:
        ended.set()
        thread.join()
