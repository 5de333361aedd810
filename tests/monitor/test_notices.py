"""What is worth a notice: each change once, from views that follow each other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from acqstream.model.receipt import CTRL_C, Receipt
from acqstream.model.run_summary import run_summary
from acqstream.monitor.daemon_watch import DaemonView
from acqstream.monitor.notifier import Notice, NoticeFinder, NoticeKind
from acqstream.web.page.page_texts import daemon_trouble
from tests.monitor.views_of_daemons import daemon_status, missing, paused, receipt_of, run_status, view_of


def kinds(notices: list[Notice]) -> list[str]:
    return [notice.kind.value for notice in notices]


@pytest.fixture
def finder() -> NoticeFinder:
    return NoticeFinder("scope-3", 60.0)


def test_a_pause_is_reported_once_and_again_after_it_ended(finder: NoticeFinder) -> None:
    run = run_status()
    assert finder.find(view_of(run)) == []
    (notice,) = finder.find(view_of(paused(run)))
    assert (notice.kind, notice.acquisition, notice.path) == (NoticeKind.PAUSED, "cells", "/data/cells")
    assert notice.text == f"scope-3: cells: {run_summary(paused(run)).alarm.sentence}"
    assert "PAUSED: disk full: 0.4 GB left" in notice.text
    assert finder.find(view_of(paused(run))) == []
    assert finder.find(view_of(run)) == []
    assert kinds(finder.find(view_of(paused(run)))) == ["paused"]


def test_silence_is_reported_after_its_time(finder: NoticeFinder) -> None:
    assert finder.find(view_of(run_status(seconds_since_frame=59.9))) == []
    words = "no frame for 1 min 1 s: look at the camera and at the program that sends its frames"  # as on the page
    (notice,) = finder.find(view_of(run_status(seconds_since_frame=61.0, state="ORPHANED")))
    assert (notice.kind, notice.text) == (NoticeKind.NO_FRAMES, f"scope-3: cells: {words}")
    assert finder.find(view_of(run_status(seconds_since_frame=62.0))) == []
    assert finder.find(view_of(run_status(seconds_since_frame=0.1))) == []
    assert kinds(finder.find(view_of(run_status(seconds_since_frame=60.0)))) == ["no_frames"]


@pytest.mark.parametrize("values", [{"state": "CLOSING"}, {"seconds_since_frame": None}, {"state": "PAUSED"}])
def test_runs_that_wait_for_no_frame(finder: NoticeFinder, values: dict[str, Any]) -> None:
    found = finder.find(view_of(run_status(**{"seconds_since_frame": 99.0, **values})))
    assert "no_frames" not in kinds(found)


def test_silence_can_be_left_out() -> None:
    assert NoticeFinder("scope", 0.0).find(view_of(run_status(seconds_since_frame=1e6))) == []


def test_a_low_disk_is_reported_once(finder: NoticeFinder) -> None:
    run = run_status(seconds_left=540.0)
    low = view_of(run, space="low", free_bytes=4_200_000_000)
    (notice,) = finder.find(low)
    assert notice.kind is NoticeKind.DISK_LOW
    words = "disk space is low: 4.2 GB left for 9 min 0 s: free space on the disk of /data"
    assert notice.text == f"scope-3: {words}" == f"scope-3: {next(daemon_trouble(low)).sentence}"
    assert notice.acquisition == ""
    assert finder.find(view_of(run, space="full")) == []
    assert finder.find(view_of(run, space="enough")) == []
    assert kinds(finder.find(view_of(run, space="full"))) == ["disk_low"]


@pytest.mark.parametrize(
    ("status", "values", "kind"),
    [
        ("completed", {}, "finished"),
        ("canceled", {"stored": 3}, "finished"),
        ("completed", {"stored": 100, "missing": (missing(100, 20),)}, "failed"),
        ("interrupted", {}, "failed"),
        ("failed", {}, "failed"),
        ("error", {}, "failed"),
        ("error", {"reason": CTRL_C}, "finished"),
    ],
)
def test_the_end_of_a_run(finder: NoticeFinder, status: str, values: dict[str, Any], kind: str) -> None:
    view = view_of(run_status())
    assert finder.find(view) == []
    ended = view.following(daemon_status(), 10.0, lambda run: receipt_of(run, status, **values))
    (notice,) = finder.find(ended)
    assert notice.kind.value == kind
    assert notice.details["status"] == status
    assert finder.find(ended) == []
    assert finder.find(ended.following(None, 11.0, no_receipt)) == []


def no_receipt(_run: object) -> Receipt | None:
    return None


def test_the_end_of_the_daemon_is_a_failure(finder: NoticeFinder) -> None:
    view = view_of(run_status("a"), run_status("b"))
    finder.find(view)
    notices = finder.find(view.following(None, 10.0, no_receipt, has_daemon_ended=True))
    assert kinds(notices) == ["failed", "failed"]
    assert notices[0].text == "scope-3: a ended without a receipt; 100 frames were durable"


def test_a_daemon_that_is_away_is_no_news(finder: NoticeFinder) -> None:
    run = paused(run_status())
    finder.find(view_of(run))
    assert finder.find(DaemonView(running=(run,))) == []
    assert finder.find(view_of(run)) == []


def test_a_notice_as_json(finder: NoticeFinder) -> None:
    (notice,) = finder.find(replace(view_of(paused(run_status()))))
    plain = notice.as_dict()
    assert (plain["kind"], plain["acquisition"], plain["host"]) == ("paused", "cells", "scope-3")
    assert plain["time"].endswith("+00:00")
