"""Report of a benchmark: rows, tables, and the machine that it ran on."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

from acqstream.bench.measurement import Latency, Measurement, Spread, spread_of
from acqstream.grid.kernels import kernels_name

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
    place = directory.resolve()
    mounts = [part for part in psutil.disk_partitions(all=True) if place.is_relative_to(part.mountpoint)]
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
    """Figures without a comparison of rows. The keys of a row are its headings, with the unit at the end."""

    title: str
    rows: tuple[dict[str, str | float | None], ...]
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


def limit_row(pairs: Sequence[Pair]) -> RowReport:
    """The line of the limit, over the pairs of all rows."""
    return row_report(LIMIT, [pair.limit for pair in pairs])


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
