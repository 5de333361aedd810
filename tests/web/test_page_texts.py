"""The words of the page: alarms, forecasts, receipts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from acqstream.model.status import AcquisitionStatus, ViewStatus
from acqstream.monitor.daemon_watch import DaemonView, EndedRun
from acqstream.web.page.page_texts import (
    clock_text,
    ended_texts,
    forecast_text,
    is_silent,
    mirror_texts,
    page_texts,
    receipt_texts,
    rounded,
    run_texts,
    time_text,
)
from tests.monitor.views_of_daemons import missing, paused, receipt_of, run_status, view_of


def test_all_is_well() -> None:
    texts = page_texts(view_of(run_status(running_s=2467.9)), {"id-of-cells": 20.04}, "scope-3")
    assert (texts["alarm"], texts["title"]) == ("", "● recording 1 run · scope-3")
    assert (texts["disk"], texts["forecast"], texts["uptime"]) == ("1 TB free", "full in 2 h 10 min", "up 5.00 s")
    (run,) = texts["runs"]
    assert (run["received"], run["published"], run["durable"]) == ("120", "110", "100")
    assert run["sent"] == ""  # its program does not say
    assert run_texts(run_status(sent=1234), None, is_known=True)["sent"] == "1,234"
    assert (run["safe_text"], run["last_safe"]) == ("100 of 120 frames safe", "last safe frame 99")
    assert (run["age"], run["rate"], run["frame_rate"]) == ("00:41:07", "2.5 MB/s", "20.0 fps")
    assert run["queue"] == "queue 10 frames, 81.9 kB"
    assert run["to_come_text"] == "full in 2 h 10 min, about 156,000 more frames"
    assert run["folder"] == "cells"
    assert [one["behind"] for one in run["mirrors"]] == ["20 frames behind"]


@pytest.mark.parametrize(
    ("run", "title"),
    [
        (paused(run_status()), "⚠ PAUSED: disk full (cells) · scope"),
        (
            run_status(stall="fdatasync of a.tif takes 3.2 s"),
            "⚠ STALLED: fdatasync of a.tif takes 3.2 s (cells) · scope",
        ),
        (run_status(state="ORPHANED"), "⚠ the program that sends cells is silent · scope"),
        (run_status(running_s=100.0, seconds_since_frame=40.0), "⚠ no frame for 40 s (cells) · scope"),
    ],
)
def test_an_alarm_comes_first(run: AcquisitionStatus, title: str) -> None:
    texts = page_texts(view_of(run), {}, "scope")
    assert texts["title"] == title
    assert texts["alarm"] in title
    assert texts["alarm_level"] in ("bad", "warn")


def test_the_worst_alarm_comes_first() -> None:
    view = view_of(run_status("a", running_s=100.0, seconds_since_frame=40.0), paused(run_status("b")), space="low")
    texts = page_texts(view, {}, "scope")
    assert texts["title"].startswith("⚠ PAUSED: disk full (b)")
    assert texts["alarm"].count("·") == 2
    assert texts["alarm_level"] == "bad"


def test_without_a_daemon() -> None:
    texts = page_texts(DaemonView(why="no answer", running=(run_status(stall="old"),)), {}, "scope", 12.7)
    assert texts["title"] == "⚠ no word from the daemon for 12 s: these numbers are old · scope"
    assert (texts["summary"], texts["alarm_why"]) == ("no word from the daemon", "no answer")
    assert (texts["is_away"], texts["is_recording"]) == (True, False)
    (run,) = texts["runs"]
    assert (run["received"], run["alarm"], run["is_stale"]) == ("120", "", True)
    assert run["since_frame"] == "age of the last frame not known"
    assert page_texts(DaemonView(), {}, "scope")["title"] == "⚠ no daemon answers · scope"


@pytest.mark.parametrize(
    ("silence_s", "text"),
    [
        (None, ""),
        (0.2, ""),
        (2.9, ""),
        (3.0, "no word from the daemon for 3 s: these numbers are old"),
        (61.0, "no word from the daemon for 1 min 1 s: these numbers are old"),
    ],
)
def test_an_answer_that_takes_long(silence_s: float | None, text: str) -> None:
    """The last status is old before the question ends without an answer."""
    texts = page_texts(view_of(run_status()), {}, "scope", silence_s)
    assert (texts["alarm"], texts["is_away"], texts["is_recording"]) == (text, bool(text), not text)
    assert texts["alarm_why"] == ""


def test_planned_frames() -> None:
    planned = [page_texts(view_of(run_status(expected=count)), {}, "")["runs"][0]["planned"] for count in (None, 5000)]
    assert planned == [None, 5000]


@pytest.mark.parametrize(
    ("values", "rate", "silent"),
    [
        ({"received": 0, "running_s": 60.0, "seconds_since_frame": 60.0}, None, False),  # the camera has not begun
        ({"received": 100, "running_s": 60.0, "seconds_since_frame": 4.9}, 20.0, False),
        ({"received": 100, "running_s": 60.0, "seconds_since_frame": 5.1}, 20.0, True),
        ({"received": 4, "running_s": 1000.0, "seconds_since_frame": 200.0}, 0.0, False),  # a time lapse of 200 s
        ({"received": 4, "running_s": 2000.0, "seconds_since_frame": 1200.0}, 0.0, True),
        ({"received": 100, "running_s": 60.0, "seconds_since_frame": 20.0, "state": "CLOSING"}, 20.0, False),
        ({"received": 100, "running_s": None, "seconds_since_frame": None}, 20.0, False),
    ],
)
def test_silence_is_five_usual_intervals(values: dict[str, Any], rate: float | None, silent: bool) -> None:
    assert is_silent(run_status(**values), rate) == silent


@pytest.mark.parametrize(
    ("seconds", "frames", "text"),
    [
        (7800.0, 156_432, "full in 2 h 10 min, about 156,000 more frames"),
        (0.0, 0, "full in 0.00 s, about 0 more frames"),
        (None, 156_432, "space for about 156,000 more frames"),
        (90.0, None, "full in 1 min 30 s"),
        (None, None, "space lasts: not known yet"),
    ],
)
def test_forecasts(seconds: float | None, frames: int | None, text: str) -> None:
    assert forecast_text(seconds, frames) == text


def test_three_digits_of_a_forecast() -> None:
    assert [rounded(count) for count in (0, 7, 999, 1234, 156_432, 10**12 + 5)] == [0, 7, 999, 1230, 156_000, 10**12]


def test_a_receipt_is_good_only_if_it_is_complete() -> None:
    run = run_status(received=200)
    good = receipt_texts(receipt_of(run, finished_at="2026-11-25T14:02:03.123+00:00"))
    assert (good["is_good"], good["stored"]) == (True, "200 frames stored of 200 sent")
    assert (good["root"], good["finished_at"]) == (("4f1c" * 4), "2026-11-25T14:02:03.123+00:00")
    assert good["verify"] == "acqstream verify /data/cells"
    gaps = (missing(12, 3), missing(20, 1, ""), *(missing(30 + 2 * number, 1) for number in range(9)))
    bad = receipt_texts(receipt_of(run, "interrupted", stored=186, missing=gaps, reason="the daemon was stopped"))
    assert not bad["is_good"]
    assert bad["verdict"] == "interrupted: the daemon was stopped; 14 frames missing: camera timeout"
    assert [one["text"] for one in bad["gaps"][:2]] == ["frames 12 to 14 missing: camera timeout", "frame 20 missing"]
    assert bad["gaps"][-1]["text"] == "and 6 more gaps"
    undeclared = receipt_texts(receipt_of(run, stored=100))
    assert (undeclared["is_good"], undeclared["verdict"]) == (False, "incomplete; 100 frames missing")


def test_a_run_without_a_receipt_is_not_good() -> None:
    texts = ended_texts(EndedRun(last=run_status(), receipt=None, at_s=0.0))
    assert (texts["is_good"], texts["verdict"], texts["folder"]) == (False, "ended without a receipt", "cells")
    assert texts.keys() == ended_texts(EndedRun(last=run_status(), receipt=receipt_of(run_status()), at_s=0.0)).keys()


def test_progress_of_mirrors() -> None:
    assert mirror_texts("n5", ViewStatus(behind=0, state="running"), 10)["behind"] == "up to date"
    assert mirror_texts("n5", ViewStatus(behind=5, state="held", reason="the disk is full"), 10) == {
        "name": "n5",
        "state": "held",
        "behind": "5 frames behind: the disk is full",
        "share": 0.5,
        "is_failed": False,
    }
    assert mirror_texts("n5", ViewStatus(state="failed", reason="no space"), 0)["behind"] == "failed: no space"


def test_times() -> None:
    assert [clock_text(one) for one in (None, 0.9, 3599.9, 360_000)] == ["", "00:00:00", "00:59:59", "100:00:00"]
    assert [time_text(one) for one in ("2026-11-25T14:02:03+01:00", "", "x")] == ["14:02:03", "", ""]


def test_an_idle_daemon() -> None:
    texts = page_texts(replace(view_of(), running=()), {}, "scope")
    assert (texts["is_idle"], texts["title"], texts["data"]) == (True, "idle · scope", "/data")
