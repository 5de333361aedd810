"""Totals of a daemon since its start: counts that only grow, and histograms of latency. No acquisition is named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

LATENCY_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyHistogram:
    """Numbers of frames by latency.

    bounds_s are upper bounds in seconds, in ascending order. counts has one number for each bound, of frames with at
    most this latency and more than the bound before, then one for the frames above all bounds. sum_s adds up the
    latencies of all frames.
    """

    bounds_s: tuple[float, ...] = LATENCY_BOUNDS_S
    counts: tuple[int, ...] = (0,) * (len(LATENCY_BOUNDS_S) + 1)
    sum_s: float = 0.0

    def plus(self, other: LatencyHistogram) -> LatencyHistogram:
        """Return both together; their bounds are equal."""
        counts = tuple(mine + its for mine, its in zip(self.counts, other.counts, strict=True))
        return LatencyHistogram(bounds_s=self.bounds_s, counts=counts, sum_s=self.sum_s + other.sum_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonTotals:
    """Counts since the daemon started. None of them ever falls.

    frames_received, frames_published and frames_durable count frames with pixels, frames_skipped the numbers that
    producers declared as never coming. frames_missing counts numbers that had no frame when an acquisition ended and
    were not declared. payload_bytes are pixel bytes published. stalls counts times when disk calls took over a second,
    and stall_s adds up their seconds. warnings counts by `WarningCode`, ended counts acquisitions by the status of
    their receipt. publish_latency and durable_latency are from received to published, and to durable.
    """

    frames_received: int = 0
    frames_published: int = 0
    frames_durable: int = 0
    frames_skipped: int = 0
    frames_missing: int = 0
    payload_bytes: int = 0
    stalls: int = 0
    stall_s: float = 0.0
    warnings: Mapping[str, int] = field(default_factory=dict)
    ended: Mapping[str, int] = field(default_factory=dict)
    publish_latency: LatencyHistogram = LatencyHistogram()
    durable_latency: LatencyHistogram = LatencyHistogram()

    def plus(self, other: DaemonTotals) -> DaemonTotals:
        """Return both together."""
        return DaemonTotals(
            frames_received=self.frames_received + other.frames_received,
            frames_published=self.frames_published + other.frames_published,
            frames_durable=self.frames_durable + other.frames_durable,
            frames_skipped=self.frames_skipped + other.frames_skipped,
            frames_missing=self.frames_missing + other.frames_missing,
            payload_bytes=self.payload_bytes + other.payload_bytes,
            stalls=self.stalls + other.stalls,
            stall_s=self.stall_s + other.stall_s,
            warnings=_sums(self.warnings, other.warnings),
            ended=_sums(self.ended, other.ended),
            publish_latency=self.publish_latency.plus(other.publish_latency),
            durable_latency=self.durable_latency.plus(other.durable_latency),
        )


def _sums(first: Mapping[str, int], second: Mapping[str, int]) -> dict[str, int]:
    return {name: first.get(name, 0) + second.get(name, 0) for name in (*first, *(set(second) - set(first)))}
