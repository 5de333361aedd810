"""The time of day."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from acqstream.storage.platform import wall_clock_ns, windows_api

STEP_NS = 1_000_000  # a camera with 1000 frames in a second; Windows' coarse clock has steps of 15.6 ms


def test_it_is_the_time_of_other_programs() -> None:
    assert abs(wall_clock_ns() - time.time_ns()) < 10**9


def test_its_steps_are_shorter_than_an_exposure() -> None:
    started_ns = wall_clock_ns()
    until = time.perf_counter() + 20.0
    steps: list[int] = []
    last_ns = started_ns
    while len(steps) < 200 and time.perf_counter() < until:
        now_ns = wall_clock_ns()
        if now_ns != last_ns:
            steps.append(now_ns - last_ns)
            last_ns = now_ns
    assert min(steps) < STEP_NS


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has its own")
def test_other_systems_call_python_itself() -> None:
    assert wall_clock_ns is time.time_ns


def test_windows_counts_from_1601() -> None:
    days = (datetime(1970, 1, 1, tzinfo=UTC) - datetime(1601, 1, 1, tzinfo=UTC)).days
    epoch = days * 86_400 * 10_000_000
    assert windows_api.nanoseconds_of(epoch) == 0
    assert windows_api.nanoseconds_of(epoch + 10_000_001) == 1_000_000_100


def test_windows_is_asked_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([116_444_736_000_000_000, 116_444_736_000_000_005])

    def fill(place: Any) -> None:
        place._obj.value = next(times)

    monkeypatch.setattr(windows_api, "kernel32", lambda: SimpleNamespace(GetSystemTimePreciseAsFileTime=fill))
    assert [windows_api.wall_clock_ns(), windows_api.wall_clock_ns()] == [0, 500]
