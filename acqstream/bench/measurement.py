"""Measurements of single runs, and their statistics."""

from __future__ import annotations

import statistics
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

GIGA = 1e9


@dataclass(frozen=True, slots=True)
class Latency:
    """How long single calls took: `put` of a writer, or one write of the limit. Milliseconds."""

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
