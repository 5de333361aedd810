"""The one sentence of a run, its rates, its alarm."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from acqstream.model.receipt import MissingFrames
from acqstream.model.run_summary import Alarm, is_silent, run_summary
from acqstream.model.status import AcquisitionStatus

NOW = datetime(2026, 11, 29, 18, 0, tzinfo=timezone(timedelta(hours=2)))
PLANNED = AcquisitionStatus(
    state="RUNNING",
    path="/data/cells",
    sent=600,
    received=600,
    published=590,
    durable=577,
    safe=577,
    expected=699,
    payload_bytes=590 * 10**8,
    bytes_per_s=5 * 10**8,
    running_s=120.0,
    seconds_since_frame=0.1,
    seconds_left=3600.0,
    to_come_bytes=109 * 10**8,
    short_bytes=0,
    seconds_to_end=2400.0,
    memory_bytes=8 * 10**9,
)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({}, "577 of 699 frames safe · ends 18:40 · 10.9 GB to come, fits"),
        ({"short_bytes": 5}, "577 of 699 frames safe · ends 18:40 · 10.9 GB to come, does not fit"),
        ({"short_bytes": None}, "577 of 699 frames safe · ends 18:40 · 10.9 GB to come"),
        ({"seconds_to_end": 6 * 3600.0}, "577 of 699 frames safe · ends 2026-11-30 00:00 · 10.9 GB to come, fits"),
        ({"seconds_to_end": 1e15}, "577 of 699 frames safe · 10.9 GB to come, fits"),
        ({"safe": None, "skipped": 3}, "574 of 699 frames safe · ends 18:40 · 10.9 GB to come, fits"),
        ({"safe": 699, "durable": 699, "to_come_bytes": 0, "seconds_to_end": 0.0}, "all 699 frames safe · ends 18:00"),
        ({"safe": 720, "durable": 720, "to_come_bytes": None, "seconds_to_end": None}, None),
        ({"expected": None, "to_come_bytes": None, "seconds_to_end": None, "durable": 600, "safe": 600}, None),
    ],
)
def test_the_sentence_of_a_run(change: dict[str, Any], sentence: str | None) -> None:
    unplanned = {720: "720 frames safe, 699 planned", 600: "600 frames safe"}
    sentence = sentence or f"{unplanned[change['safe']]} · space for 1 h 0 min"
    assert run_summary(replace(PLANNED, **change)).sentence(NOW) == sentence


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ({}, "no frame yet"),
        ({"expected": 699}, "0 of 699 frames safe"),
        ({"sent": 699, "received": 577, "durable": 577}, "577 frames safe, 122 not yet"),
        ({"received": 577, "durable": 500}, "500 frames safe, 77 not yet"),
        ({"sent": 577, "received": 577, "durable": 577}, "577 frames safe"),
        ({"sent": 570, "received": 577, "durable": 570, "skipped": 3}, "567 frames safe, 7 not yet"),
        ({"sent": 1, "durable": 1}, "1 frame safe"),
        ({"sent": 1, "durable": 1, "expected": 1}, "1 frame safe"),
    ],
)
def test_frames_in_the_memory_of_the_producer_are_not_safe(numbers: dict[str, int], text: str) -> None:
    assert run_summary(AcquisitionStatus(**numbers)).safe_text == text  # type: ignore[arg-type]


def test_the_end_is_told_in_the_zone_of_its_reader() -> None:
    words = run_summary(PLANNED)
    assert words.ends_at(NOW) == datetime(2026, 11, 29, 16, 40, tzinfo=UTC)
    assert "ends 16:40" in words.sentence(NOW.astimezone(UTC))


def test_the_share_for_a_bar_is_of_the_planned_frames() -> None:
    assert run_summary(PLANNED).safe_share == 577 / 699
    assert run_summary(replace(PLANNED, expected=None)).safe_share == 577 / 600
    assert run_summary(replace(PLANNED, expected=100)).safe_share == 1.0
    assert run_summary(AcquisitionStatus(expected=0)).safe_share == 0.0


@pytest.mark.parametrize(
    ("bytes_per_s", "text"),
    [
        (2 * 10**9, "20.0 fps"),
        (10**8, "1.0 fps"),
        (5 * 10**7, "30.0 frames a minute"),
        (10**6, "36.0 frames a hour"),
        (10**3, "0.9 frames a day"),
        (0, ""),
    ],
)
def test_the_rate_of_a_time_lapse_can_be_read(bytes_per_s: float, text: str) -> None:
    assert run_summary(replace(PLANNED, bytes_per_s=bytes_per_s)).frame_rate_text == text
    assert run_summary(replace(PLANNED, payload_bytes=0, bytes_per_s=bytes_per_s)).frame_rate_text == ""


def test_skipped_frames_are_named() -> None:
    gaps = (MissingFrames(12, 1, "camera"), MissingFrames(40, 5, ""))
    words = [run_summary(replace(PLANNED, skipped=count, gaps=gaps)).skipped_text for count in (6, 1000, 5)]
    assert words[0] == "6 frames skipped: 12, 40 to 44"
    assert words[1] == "1,000 frames skipped: last 12, 40 to 44"
    assert words[2] == "6 frames without pixels: 12, 40 to 44", "one of them was refused"
    assert run_summary(replace(PLANNED, skipped=1)).skipped_text == "1 frame skipped"  # of an older daemon
    assert run_summary(PLANNED).skipped_text == ""


@pytest.mark.parametrize(
    ("change", "level", "text", "action"),
    [
        ({"state": "PAUSED", "paused": "0.4 GB left"}, "bad", "PAUSED: disk full", "0.4 GB left. Free space on"),
        ({"stall": "fdatasync of a.tif takes 3.2 s"}, "bad", "STALLED: fdatasync of a.tif takes 3.2 s", "disk"),
        ({"state": "ORPHANED"}, "bad", "the program that sends its frames is silent", "resume=True"),
        (
            {"short_bytes": 3 * 10**9},
            "warn",
            "the disk will be full in 1 h 0 min, before the end",
            "free at least 3 GB on the disk of /data/cells",
        ),
        ({"seconds_since_frame": 40.0}, "warn", "no frame for 40 s", "camera"),
        ({"sent": 650, "bytes_per_s": 10**9}, "warn", "the disk is behind by 60 frames, 6.00 s", "the camera has to"),
    ],
)
def test_an_alarm_says_what_to_do(change: dict[str, Any], level: str, text: str, action: str) -> None:
    alarm = run_summary(replace(PLANNED, **change)).alarm
    assert (alarm.level, alarm.text) == (level, text)
    assert action in alarm.action


def test_the_worst_alarm_is_the_only_one() -> None:
    bad = replace(PLANNED, short_bytes=5, seconds_since_frame=50.0, stall="fdatasync", sent=690)
    assert run_summary(bad).alarm.text == "STALLED: fdatasync"
    assert run_summary(replace(bad, state="PAUSED")).alarm.text == "PAUSED: disk full"
    assert run_summary(replace(bad, stall="")).alarm.text.startswith("the disk will be full")


@pytest.mark.parametrize(
    "change",
    [
        {"sent": 639, "bytes_per_s": 10**9},  # 49 frames, 4.9 s and 4.9 GB of 8 wait: the memory is for this
        {"sent": 625},  # 7 s
        {"sent": 699, "memory_bytes": 0},  # an older daemon
        {"sent": 699, "state": "CLOSING", "short_bytes": 5},
        {
            "received": 699,
            "running_s": 900.0,
            "seconds_since_frame": 500.0,
            "sent": 699,
            "published": 699,
        },
    ],
)
def test_what_is_no_alarm(change: dict[str, Any]) -> None:
    assert run_summary(replace(PLANNED, **change)).alarm == Alarm()


@pytest.mark.parametrize(
    ("received", "running_s", "since_s", "frames_per_s", "silent"),
    [
        (0, 60.0, 60.0, 0.0, False),  # the camera has not begun
        (100, 60.0, 4.9, 20.0, False),
        (100, 60.0, 5.1, 20.0, True),
        (4, 1000.0, 200.0, 0.0, False),  # a time lapse of 200 s
        (4, 2000.0, 1200.0, 0.0, True),
        (5000, 900.0, 200.0, 1 / 200, False),  # resumed: its earlier frames came faster
        (5000, 60.0, 60.0, 0.0, False),  # resumed, before the first frame
        (100, None, None, 20.0, False),
    ],
)
def test_silence_is_five_usual_intervals(
    received: int, running_s: float | None, since_s: float | None, frames_per_s: float, silent: bool
) -> None:
    run = AcquisitionStatus(state="RUNNING", received=received, running_s=running_s, seconds_since_frame=since_s)
    assert is_silent(run, frames_per_s) == silent
    assert not is_silent(replace(run, state="CLOSING"), frames_per_s)


def test_more_frames_than_planned_name_those_that_wait() -> None:
    words = [
        run_summary(
            replace(PLANNED, expected=100, safe=safe, durable=safe, sent=known, received=known, published=safe)
        ).safe_text
        for safe, known in ((100, 100), (100, 150), (120, 5120))
    ]
    assert words == [
        "all 100 frames safe",
        "100 frames safe, 100 planned, 50 not yet",
        "120 frames safe, 100 planned, 5,000 not yet",
    ]
