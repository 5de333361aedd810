"""Put to readable, for real, a moment long: that it works and measures what it says."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from acqstream.bench.comparison import BenchSettings
from bench.delay import DelayPlan, run_delay_benchmark

PLAN = DelayPlan(shape=(32, 32), frames_per_s=200, seconds=0.2)


def settings(directory: Path, *rows: str) -> BenchSettings:
    return BenchSettings(directory=directory, payload_bytes=1, pairs=1, rows=rows, daemon_memory_mb=64)


@pytest.mark.deep
@pytest.mark.slow
@pytest.mark.timeout_s(120)
@pytest.mark.skipif(sys.platform == "win32", reason="needs ipc")
def test_every_frame_is_timed(tmp_path: Path) -> None:
    report = run_delay_benchmark(settings(tmp_path, "ndstorage", "ipc"), lambda *news: None, plan=PLAN)
    (table,) = report.tables
    (row,) = table.rows
    assert (row["row"], row["frames"]) == ("ipc", 40)
    p50, p99, longest = (row[name] for name in ("p50_ms", "p99_ms", "max_ms"))
    assert isinstance(p50, float)
    assert isinstance(p99, float)
    assert isinstance(longest, float)
    assert 0 < p50 <= p99 <= longest < 60_000
    assert list(tmp_path.iterdir()) == []


def test_a_transport_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.delay.transport_absent", lambda transport: "not on this platform")
    report = run_delay_benchmark(settings(tmp_path, "shm"), lambda *news: None, plan=PLAN)
    assert report.tables[0].rows == ({"row": "shm", "note": "not on this platform"},)
