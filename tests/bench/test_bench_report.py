from __future__ import annotations

import json
from array import array
from dataclasses import asdict

import pytest

from acqstream.bench.child_process import restored
from acqstream.bench.measurement import (
    LIMIT,
    Latency,
    Measurement,
    Pair,
    ProcessCost,
    absent_row,
    latency_of,
    measured_row,
    row_report,
)


def run(gb_per_s: float, cpu_s: float = 0.1, peak: int | None = 100) -> Measurement:
    return Measurement(
        payload_bytes=10**9,
        frames=1000,
        seconds=1 / gb_per_s,
        latency=Latency(1.0, 2.0, 3.0, gb_per_s),
        processes={"producer": ProcessCost(cpu_s, peak)},
    )


def test_median_of_ratios_not_ratio_of_medians() -> None:
    pairs = [Pair(run(2.0), run(1.0)), Pair(run(1.0), run(0.9)), Pair(run(4.0), run(1.2))]
    row = measured_row("ipc", pairs, {})
    assert row.to_limit is not None
    assert (row.to_limit.median, row.to_limit.low, row.to_limit.high) == pytest.approx((0.5, 0.3, 0.9))
    assert row.bytes_per_s is not None
    assert row.bytes_per_s.median == pytest.approx(1e9)
    assert row.to_peers == {}
    assert row.latency == Latency(1.0, 2.0, 3.0, 1.2)


def test_against_the_peer_of_the_same_round() -> None:
    own = [Pair(run(2.0), run(1.5)), Pair(run(2.0), run(1.0))]
    peer = [Pair(run(2.0), run(0.5)), Pair(run(2.0), run(0.25))]
    row = measured_row("tcp", own, {"ndstorage": peer})
    assert row.to_peers["ndstorage"].median == pytest.approx(3.5)


def test_costs() -> None:
    row = measured_row("ipc", [Pair(run(1.0), run(1.0, cpu_s=0.3, peak=7)), Pair(run(1.0), run(1.0, peak=None))], {})
    assert row.cpu_s_per_gb == {"producer": pytest.approx(0.2)}
    assert row.peak_bytes == {"producer": 7}
    assert row_report(LIMIT, [run(3.0)]).frames_per_s is None
    assert absent_row("ndstorage", "not installed").runs == ()


def test_percentiles() -> None:
    latency = latency_of(array("q", [number * 1_000_000 for number in range(101)]))
    assert (latency.p50_ms, latency.p99_ms, latency.p999_ms, latency.max_ms) == (50, 99, 100, 100)
    assert latency_of([5_000_000]).max_ms == 5


def test_measurement_goes_through_json() -> None:
    measurement = run(2.0, peak=None)
    assert restored(Measurement, json.loads(json.dumps(asdict(measurement)))) == measurement
