"""Reports of a view to the daemon: when one is built, and when it is sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from acqstream.mirrors.view_worker import REPORT_INTERVAL_S, WorkerJob
from acqstream.views.null_view import NullView
from acqstream.views.view_run import ViewRun, ViewState


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now_s = [1000.0]
    monkeypatch.setattr("acqstream.mirrors.view_worker.time.monotonic", lambda: now_s[0])
    return now_s


def looks(job: WorkerJob, clock: list[float], steps: int) -> tuple[int, int]:
    """How many reports were built, and how many of them sent. 20 steps make an interval."""
    built = sent = 0
    for _ in range(steps):
        clock[0] += REPORT_INTERVAL_S / 20
        if job.is_report_due():
            built += 1
            sent += job.report(job.run.progress(), job.run.reason) is not None
    return built, sent


def test_a_view_without_news_builds_one_report_an_interval(tmp_path: Path, clock: list[float]) -> None:
    job = WorkerJob(1, ViewRun(tmp_path / "cells", "null", NullView), is_live=True)
    job.run.state = ViewState.WAITING
    assert looks(job, clock, 1) == (1, 1)  # the first one
    built, sent = looks(job, clock, 200)
    assert (sent, built in range(8, 13)) == (0, True), built


def test_what_is_urgent_is_due_at_once(tmp_path: Path, clock: list[float]) -> None:
    job = WorkerJob(1, ViewRun(tmp_path / "cells", "null", NullView), is_live=True)
    job.run.state = ViewState.RUNNING
    assert looks(job, clock, 2) == (1, 1)
    job.run.reason = "restarted: why"
    assert looks(job, clock, 1) == (1, 1)
    job.run.state = ViewState.LOCKED
    assert looks(job, clock, 1) == (1, 1)
    job.run.state = ViewState.RUNNING  # the daemon is told within two intervals
    assert looks(job, clock, 41)[1] == 1
