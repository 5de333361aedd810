from __future__ import annotations

import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from acqstream.bench import limit
from acqstream.bench.comparison import Bench, BenchSettings
from acqstream.storage.files.disk import write_all
from bench import steady
from bench.paced_producer import PacedTimes
from bench.steady import SteadyPlan, _Steady, measure_paced_limit, put_figures, roll_over_figures, run_steady_benchmark

SECOND = 10**9
FRAMES = 60  # ten a second


def times() -> PacedTimes:
    """Puts of 2 ms, one of 30 ms; 5 ms until published, 25 ms after the new files of frames 20 and 40."""
    due = [number * SECOND // 10 for number in range(FRAMES)]
    took = [30 if number == 21 else 2 for number in range(FRAMES)]
    way = [25 if number in {20, 41} else 5 for number in range(FRAMES)]
    published: list[int | None] = [start + 10**6 * delay for start, delay in zip(due, way, strict=True)]
    published[-1] = None
    return PacedTimes(due, due, [start + 10**6 * delay for start, delay in zip(due, took, strict=True)], published)


def test_roll_overs_are_told_from_other_seconds() -> None:
    figures = roll_over_figures(times(), np.repeat([0, 1, 2], 20))
    assert figures == pytest.approx(
        {
            "roll_overs": 2,
            "put_max_at_roll_over_ms": 30,
            "published_p50_ms": 5,
            "published_max_ms": 25,
            "roll_over_extra_ms": 20,
        }
    )


def test_without_roll_overs_there_is_no_extra() -> None:
    figures = roll_over_figures(times(), np.zeros(FRAMES, int))
    assert (figures["roll_overs"], figures["roll_over_extra_ms"]) == (0, None)


def test_late_frames_are_those_that_began_an_interval_late() -> None:
    on_time = times()
    assert put_figures(on_time)["late_frames"] == 0
    assert put_figures(on_time)["put_max_ms"] == 30
    began = list(on_time.began_ns)
    began[7] += SECOND // 5
    late = put_figures(PacedTimes(on_time.due_ns, began, began, on_time.published_ns))
    assert (late["late_frames"], late["behind_ms"]) == (1, 200)


def test_a_run_is_as_long_as_the_disk_has_room_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = BenchSettings(directory=tmp_path, payload_bytes=3_000_000, pairs=1, rows=("ipc",))
    bench = Bench(settings, tmp_path, lambda *news: None, 1)
    run = _Steady(bench, SteadyPlan(shape=(256, 256), seconds=10))
    assert run.paced_workload(100.0).frames == 1000
    monkeypatch.setattr(steady, "FILES", SimpleNamespace(free_bytes=lambda path: 500 * 131072))
    assert run.paced_workload(100.0).frames == 425


@pytest.mark.deep
@pytest.mark.slow
@pytest.mark.timeout_s(120)
@pytest.mark.skipif(sys.platform == "win32", reason="needs ipc")
def test_a_run_for_real(tmp_path: Path) -> None:
    settings = BenchSettings(directory=tmp_path, payload_bytes=3_000_000, pairs=1, rows=("ipc",), daemon_memory_mb=64)
    plan = SteadyPlan(shape=(256, 256), seconds=0.3)
    (table,) = run_steady_benchmark(settings, lambda *news: None, plan=plan).tables
    (row,) = table.rows
    assert row["roll_overs"] == 0
    assert all(row[name] for name in ("sustainable_gb_per_s", "frames", "put_max_ms", "limit_slowest_ms"))
    assert list(tmp_path.iterdir()) == []


class Clock:
    """Time that passes in writes, as given, and while the benchmark waits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, writes_s: list[float]) -> None:
        self.now_s = 0.0
        self.began_s: list[float] = []
        self._writes_s = iter(writes_s)
        seconds = SimpleNamespace(
            perf_counter=lambda: self.now_s,
            perf_counter_ns=lambda: round(self.now_s * 1e9),
            process_time=time.process_time,
            sleep=self.pass_by,
        )
        monkeypatch.setattr(steady, "time", seconds)
        monkeypatch.setattr(limit, "write_all", self.write)

    def pass_by(self, seconds: float) -> None:
        self.now_s += seconds

    def write(self, *arguments: Any, **how: Any) -> None:
        self.began_s.append(self.now_s)
        write_all(*arguments, **how)
        self.pass_by(next(self._writes_s))


def test_paced_writes_come_when_they_are_due(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limit, "WRITE_BYTES", 64 * 1024)
    monkeypatch.setattr(steady, "WRITE_BYTES", 64 * 1024)
    clock = Clock(monkeypatch, writes_s=[0.01, 0.08, 0.01, 0.01, 0.01])  # one is due every 0.05 s
    measured, behind_s = measure_paced_limit(tmp_path, 5 * 65536, 20 * 65536.0, 2 * 65536)
    assert measured.frames == 5
    assert clock.began_s == pytest.approx([0, 0.05, 0.13, 0.15, 0.2])
    assert measured.seconds == pytest.approx(0.21)
    assert behind_s == pytest.approx(0.03)
    assert measured.latency.max_ms == pytest.approx(80)
    assert measured.note.endswith("paced")
    assert list(tmp_path.iterdir()) == []
