"""Reports of a view to the daemon: when one is built, and when it is sent."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import NoReturn

import pytest

from acqstream.mirrors.view_worker import MAX_CATCHING_UP, REPORT_INTERVAL_S, ViewWorker, WorkerJob
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


class Unlisted(dict[int, WorkerJob]):
    """Jobs that are never gone through: there may be tens of thousands."""

    def values(self) -> NoReturn:
        raise AssertionError("all jobs are gone through for one")


def test_finished_datasets_are_begun_one_after_the_other_without_a_look_at_all(tmp_path: Path) -> None:
    here, there = socket.socketpair()
    with here, there:
        worker = ViewWorker(here)
        worker._jobs = jobs = Unlisted()
        view = {"kind": "null", "settings": {}, "name": "null"}
        for number in range(3 * MAX_CATCHING_UP):
            order = {"t": "view", "id": number, "path": str(tmp_path / f"{number}"), "view": view}
            worker._obey({**order, "live": False, "options": {}, "deaths": 0}, [])
        assert (len(worker._due.left()), len(worker._queued)) == (MAX_CATCHING_UP, 2 * MAX_CATCHING_UP)
        for left in range(3 * MAX_CATCHING_UP - 1, -1, -1):
            assert worker._serve_next()  # it fails: its dataset is missing
            assert len(jobs) == left
            assert len(worker._due.left()) == min(left, MAX_CATCHING_UP)
