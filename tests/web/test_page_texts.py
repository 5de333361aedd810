"""The words of the page: alarms, forecasts, receipts."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from acqstream.model.status import AcquisitionStatus, ViewStatus
from acqstream.model.units import shell_word
from acqstream.monitor.daemon_watch import DaemonView, EndedRun
from acqstream.web.page.page_texts import (
    clock_text,
    ended_texts,
    mirror_texts,
    name_below,
    page_texts,
    receipt_texts,
    run_texts,
    time_text,
)
from tests.monitor.views_of_daemons import missing, paused, receipt_of, run_status, view_of

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=timezone(timedelta(hours=2)))


def test_all_is_well() -> None:
    texts = page_texts(view_of(run_status(running_s=2467.9)), "scope-3", NOW)
    assert (texts["alarm"], texts["title"]) == ("", "● recording 1 run · scope-3")
    assert (texts["disk"], texts["forecast"], texts["uptime"]) == ("1 TB free", "full in 2 h 10 min", "up 5.00 s")
    (run,) = texts["runs"]
    assert (run["received"], run["published"], run["durable"]) == ("120", "110", "100")
    assert run["sent"] == ""  # its program does not say
    assert run_texts(run_status(sent=1234), NOW, is_known=True)["sent"] == "1,234"
    assert run["sentence"] == "100 frames safe, 20 not yet · space for 2 h 10 min"
    assert run["last_safe"] == "last safe frame 99"
    assert (run["age"], run["rate"], run["frame_rate"]) == ("00:41:07", "2.5 MB/s", "20.0 fps")
    assert run["queue"] == "queue 10 frames, 81.9 kB"
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
        (run_status(state="ORPHANED"), "⚠ the program that sends its frames is silent (cells) · scope"),
        (run_status(running_s=100.0, seconds_since_frame=40.0), "⚠ no frame for 40 s (cells) · scope"),
    ],
)
def test_an_alarm_comes_first(run: AcquisitionStatus, title: str) -> None:
    texts = page_texts(view_of(run), "scope", NOW)
    assert texts["title"] == title
    assert texts["alarm"] in title
    assert texts["alarm_level"] in ("bad", "warn")


def test_the_worst_alarm_comes_first() -> None:
    view = view_of(run_status("a", running_s=100.0, seconds_since_frame=40.0), paused(run_status("b")), space="low")
    texts = page_texts(view, "scope", NOW)
    assert texts["title"].startswith("⚠ PAUSED: disk full (b)")
    assert texts["alarm"].count("·") == 2
    assert texts["alarm_level"] == "bad"


def test_without_a_daemon() -> None:
    texts = page_texts(DaemonView(why="no answer", running=(run_status(stall="old"),)), "scope", NOW, 12.7)
    assert texts["title"] == "⚠ no word from the daemon for 12 s: these numbers are old · scope"
    assert (texts["summary"], texts["alarm_why"]) == ("no word from the daemon", "no answer")
    assert (texts["is_away"], texts["is_recording"]) == (True, False)
    (run,) = texts["runs"]
    assert (run["received"], run["alarm"], run["is_stale"]) == ("120", "", True)
    assert run["since_frame"] == "age of the last frame not known"
    assert page_texts(DaemonView(), "scope", NOW)["title"] == "⚠ no daemon answers · scope"


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
    texts = page_texts(view_of(run_status()), "scope", NOW, silence_s)
    assert (texts["alarm"], texts["is_away"], texts["is_recording"]) == (text, bool(text), not text)
    assert texts["alarm_why"] == ""


def test_the_sentence_comes_with_its_parts() -> None:
    run = run_status(expected=5000, safe=100, to_come_bytes=10**9, short_bytes=0, seconds_to_end=600.0, skipped=2)
    texts = run_texts(run, NOW, is_known=True)
    assert texts["sentence"] == "100 of 5,000 frames safe · ends 12:10 · 1 GB to come, fits"
    assert (texts["safe_text"], texts["to_come_text"]) == ("100 of 5,000 frames safe", "1 GB to come, fits")
    assert texts["ends_at"] == "2026-11-29T10:10:00+00:00"  # in UTC
    assert (texts["planned"], texts["safe"], texts["safe_share"]) == (5000, 100, 0.02)
    assert (texts["to_come_bytes"], texts["fits"], texts["skipped"]) == (10**9, True, "2 frames skipped")
    old = run_texts(run, NOW, is_known=False)
    assert (old["ends_at"], old["sentence"]) == ("", "100 of 5,000 frames safe · 1 GB to come, fits")
    json.dumps(texts)


def test_an_alarm_stands_once_with_what_to_do() -> None:
    short = run_status(short_bytes=3 * 10**9, to_come_bytes=10**10)
    texts = page_texts(view_of(short, space="low"), "scope", NOW)
    assert texts["alarm"] == "the disk will be full in 2 h 10 min, before the end (cells)"
    assert texts["alarm_why"] == texts["runs"][0]["alarm_do"] == "free at least 3 GB on the disk of /data/cells"
    texts = page_texts(view_of(run_status(), space="low"), "scope", NOW)
    assert texts["alarm"] == "disk space is low: 1 TB left for 2 h 10 min"
    assert texts["alarm_why"] == "free space on the disk of /data"


def test_a_receipt_is_good_only_if_it_is_complete() -> None:
    run = run_status(received=200)
    good = receipt_texts(receipt_of(run, finished_at="2026-11-25T14:02:03.123+00:00"), "/moved/cells 2")
    assert (good["is_good"], good["stored"]) == (True, "200 frames stored of 200 sent")
    assert (good["root"], good["finished_at"]) == (("4f1c" * 4), "2026-11-25T14:02:03.123+00:00")
    assert good["verify"] == f"acqstream verify {shell_word('/moved/cells 2')}"
    gaps = (missing(12, 3), missing(20, 1, ""), *(missing(30 + 2 * number, 1) for number in range(9)))
    ended = receipt_of(run, "interrupted", stored=186, missing=gaps, reason="the daemon was stopped")
    bad = receipt_texts(ended, run.path)
    assert not bad["is_good"]
    assert bad["verdict"] == "interrupted: the daemon was stopped; 14 frames missing: camera timeout"
    assert [one["text"] for one in bad["gaps"][:2]] == ["frames 12 to 14 missing: camera timeout", "frame 20 missing"]
    assert bad["gaps"][-1]["text"] == "and 6 more gaps"
    undeclared = receipt_texts(receipt_of(run, stored=100), run.path)
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
    texts = page_texts(replace(view_of(), running=()), "scope", NOW)
    assert (texts["is_idle"], texts["title"], texts["data"]) == (True, "idle · scope", "/data")


@pytest.mark.parametrize(
    ("data", "path", "name", "found"),
    [
        ("/data", "/data/cells", "cells", "cells"),
        ("/data/", "/data/anna/2026-11-29/embryo", "anna/2026-11-29/embryo", "anna/2026-11-29/embryo"),
        ("/data", "/data/moved/embryo", "anna/2026-11-29/embryo", "moved/embryo"),
        ("C:\\data", "C:\\data\\anna\\embryo", "anna/embryo", "anna/embryo"),
        ("", "/data/anna/embryo", "anna/embryo", "anna/embryo"),
        ("/data", "/elsewhere/cells", "cells", "cells"),
        ("/dat", "/data/cells", "cells", "cells"),
    ],
)
def test_the_folder_of_a_run_is_its_name_below_the_data_directory(data: str, path: str, name: str, found: str) -> None:
    assert name_below(data, path, name) == found
