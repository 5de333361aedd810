"""What a benchmark found: medians of pairs, ready for a table and for JSON."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from acqstream.bench.measurement import Latency, Measurement, Spread, spread_of

LIMIT = "limit"


@dataclass(frozen=True, slots=True)
class Pair:
    """A run, and the limit measured right before it."""

    limit: Measurement
    run: Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class RowReport:
    """One line of the table. Dictionaries are by role: "daemon", "producer". absent: why there are no numbers."""

    name: str
    absent: str = ""
    bytes_per_s: Spread | None = None
    to_limit: Spread | None = None
    to_peer: Spread | None = None
    frames_per_s: float | None = None
    latency: Latency | None = None
    cpu_s_per_gb: dict[str, float]
    peak_bytes: dict[str, int | None]
    runs: tuple[Measurement, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SituationReport:
    """All rows for frames of one kind. peer names the row that `to_peer` divides by."""

    shape: tuple[int, ...]
    dtype: str
    payload_bytes: int
    frames: int
    peer: str
    rows: tuple[RowReport, ...]
    title: str = ""  # what is measured, where it is not writing


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchReport:
    """Everything a run of the benchmark found, and where."""

    version: str
    machine: dict[str, Any]
    directory: str
    pairs: int
    situations: tuple[SituationReport, ...]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def absent_row(name: str, reason: str) -> RowReport:
    return RowReport(name=name, absent=reason, cpu_s_per_gb={}, peak_bytes={})


def limit_row(pairs: Sequence[Pair]) -> RowReport:
    """The line of the limit, over the pairs of all rows."""
    return row_report(LIMIT, [pair.limit for pair in pairs])


def measured_row(name: str, pairs: Sequence[Pair], peer: Sequence[Pair]) -> RowReport:
    """The line of one row; `peer` are the peer's pairs in the same rounds, empty if it is absent or the row itself."""
    to_limit = spread_of([pair.run.bytes_per_s / pair.limit.bytes_per_s for pair in pairs])
    against = [own.run.bytes_per_s / other.run.bytes_per_s for own, other in zip(pairs, peer, strict=False)]
    return row_report(
        name, [pair.run for pair in pairs], to_limit=to_limit, to_peer=spread_of(against) if against else None
    )


def row_report(
    name: str, runs: Sequence[Measurement], *, to_limit: Spread | None = None, to_peer: Spread | None = None
) -> RowReport:
    """The line of any runs, with ratios that are known."""
    roles = runs[0].processes
    return RowReport(
        name=name,
        bytes_per_s=spread_of([run.bytes_per_s for run in runs]),
        to_limit=to_limit,
        to_peer=to_peer,
        frames_per_s=statistics.median(run.frames_per_s for run in runs) if name != LIMIT else None,
        latency=Latency(
            statistics.median(run.latency.p50_ms for run in runs),
            statistics.median(run.latency.p99_ms for run in runs),
            max(run.latency.max_ms for run in runs),
        ),
        cpu_s_per_gb={role: statistics.median(run.cpu_s_per_gb(role) for run in runs) for role in roles},
        peak_bytes={role: _largest([run.processes[role].peak_bytes for run in runs]) for role in roles},
        runs=tuple(runs),
    )


def _largest(sizes: Sequence[int | None]) -> int | None:
    known = [size for size in sizes if size is not None]
    return max(known) if known else None
