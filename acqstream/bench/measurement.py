"""Measurements of single runs, and the report of a benchmark: statistics, rows, tables, the machine that it ran on."""

from __future__ import annotations

import os
import platform
import statistics
import threading
import time
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

from acqstream.grid.kernels import kernels_name

GIGA = 1e9
Figures = dict[str, str | float | None]
"""A row of a table by its headings, with the unit at the end."""

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

    @staticmethod
    def of(
        payload_bytes: int,
        durations_ns: Sequence[int] | array[int],
        seconds: float,
        processes: dict[str, ProcessCost],
        *,
        frames: int | None = None,
        note: str = "",
    ) -> Measurement:
        """A run of calls of these durations. frames: by default one for each of them."""
        return Measurement(
            payload_bytes=payload_bytes,
            frames=len(durations_ns) if frames is None else frames,
            seconds=seconds,
            latency=latency_of(durations_ns),
            processes=processes,
            note=note,
        )


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

    def tick(self) -> None:
        total = 0
        for child in self._process.children():
            with suppress(psutil.NoSuchProcess):
                found = child.memory_info()
                # all of it where the system does not report the shared part
                total += found.rss - getattr(found, "shared", 0)
        self.peak_bytes = max(self.peak_bytes, total)


@contextmanager
def watched_children(pid: int) -> Iterator[MemoryWatch]:
    """While the block runs."""
    watch, ended = MemoryWatch(pid), threading.Event()

    def watch_on() -> None:
        while not ended.wait(_POLL_S):
            watch.tick()

    thread = threading.Thread(target=watch_on, name="memory of the views", daemon=True)
    thread.start()
    try:
        yield watch
    finally:
        ended.set()
        thread.join()


_PACKAGES = ("numpy", "pyzmq", "xxhash", "ndstorage", "tifffile", "acquire-zarr", "tensorstore")
_CPU_INFO = Path("/proc/cpuinfo")


def machine_of(directory: Path) -> dict[str, Any]:
    """Describe the machine, the file system of `directory`, and which kernels levels and mirrors use."""
    return {
        "system": platform.platform(),
        "python": platform.python_version(),
        "processor": _processor(),
        "processors": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "file_system": file_system_of(directory),
        "kernels": kernels_name(),
    }


def file_system_of(directory: Path) -> str:
    """Type of the file system that holds `directory`, "unknown" where the system does not report it."""
    path = directory.resolve()
    mounts = [part for part in psutil.disk_partitions(all=True) if path.is_relative_to(part.mountpoint)]
    return max(mounts, key=lambda part: len(part.mountpoint)).fstype if mounts else "unknown"


def versions() -> dict[str, str]:
    """Versions of the packages that affect the figures; "not installed" for missing ones."""
    return {name: _version(name) for name in _PACKAGES}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _processor() -> str:
    if _CPU_INFO.exists():
        for line in _CPU_INFO.read_text("utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor()


LIMIT = "limit"


@dataclass(frozen=True, slots=True)
class Pair:
    """A run, and the limit measured right before it."""

    limit: Measurement
    run: Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class RowReport:
    """One line of the table. absent: the reason why it has no numbers.

    to_peers are ratios by the name of another row; the other dictionaries are by role: "daemon", "producer".
    """

    name: str
    absent: str = ""
    bytes_per_s: Spread | None = None
    to_limit: Spread | None = None
    to_peers: dict[str, Spread] = field(default_factory=dict)
    frames_per_s: float | None = None
    latency: Latency | None = None
    cpu_s_per_gb: dict[str, float]
    peak_bytes: dict[str, int | None]
    runs: tuple[Measurement, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SituationReport:
    """All rows for frames of one kind. peers name the rows that `to_peers` divides by."""

    shape: tuple[int, ...]
    dtype: str
    payload_bytes: int
    frames: int
    peers: tuple[str, ...]
    rows: tuple[RowReport, ...]
    title: str = ""  # what is measured, where it is not writing


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Figures without a comparison of rows."""

    title: str
    rows: tuple[Figures, ...]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchReport:
    """Everything a run of the benchmark found, where, and when (date: ISO 8601, UTC)."""

    version: str
    date: str
    machine: dict[str, Any]
    versions: dict[str, str]
    directory: str
    pairs: int
    situations: tuple[SituationReport, ...] = ()
    tables: tuple[Table, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def absent_row(name: str, reason: str) -> RowReport:
    return RowReport(name=name, absent=reason, cpu_s_per_gb={}, peak_bytes={})


def measured_row(name: str, pairs: Sequence[Pair], peers: Mapping[str, Sequence[Pair]]) -> RowReport:
    """The line of one row; `peers` are the pairs of other rows in the same rounds, to compare with."""
    to_limit = spread_of([pair.run.bytes_per_s / pair.limit.bytes_per_s for pair in pairs])
    runs = [pair.run for pair in pairs]
    return row_report(
        name,
        runs,
        to_limit=to_limit,
        to_peers={peer: rate_ratio(runs, [pair.run for pair in others]) for peer, others in peers.items()},
    )


def rate_ratio(runs: Sequence[Measurement], others: Sequence[Measurement]) -> Spread:
    """Ratio of the rates of two runs of the same round, over all rounds."""
    return spread_of([own.bytes_per_s / other.bytes_per_s for own, other in zip(runs, others, strict=True)])


def row_report(
    name: str,
    runs: Sequence[Measurement],
    *,
    to_limit: Spread | None = None,
    to_peers: Mapping[str, Spread] | None = None,
) -> RowReport:
    """The line of any runs, with ratios that are known."""
    roles = runs[0].processes
    return RowReport(
        name=name,
        bytes_per_s=spread_of([run.bytes_per_s for run in runs]),
        to_limit=to_limit,
        to_peers=dict(to_peers or {}),
        frames_per_s=statistics.median(run.frames_per_s for run in runs) if name != LIMIT else None,
        latency=Latency(
            statistics.median(run.latency.p50_ms for run in runs),
            statistics.median(run.latency.p99_ms for run in runs),
            statistics.median(run.latency.p999_ms for run in runs),
            max(run.latency.max_ms for run in runs),
        ),
        cpu_s_per_gb={role: statistics.median(run.cpu_s_per_gb(role) for run in runs) for role in roles},
        peak_bytes={role: _largest([run.processes[role].peak_bytes for run in runs]) for role in roles},
        runs=tuple(runs),
    )


def _largest(sizes: Sequence[int | None]) -> int | None:
    known = [size for size in sizes if size is not None]
    return max(known) if known else None
