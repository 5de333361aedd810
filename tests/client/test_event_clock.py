"""Start times of what is left of an acquisition."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from acqstream.client.hook_frames import EventClock

HOUR_S = 3600.0


def times(events: str, starts: list[float | None], resets: Collection[int] = ()) -> list[tuple[float | None, bool]]:
    """The times of those that are acquired ("x"); the others are skipped."""
    clock = EventClock()
    acquired = []
    for number, (kind, start_s) in enumerate(zip(events, starts, strict=True)):
        if kind == "x":
            acquired.append(clock.start(start_s, resets=number in resets))
        else:
            clock.skip(start_s, resets=number in resets)
    return acquired


@pytest.mark.parametrize(
    ("events", "starts", "expected"),
    [
        ("xxx", [0, 10, 20], [0, 10, 20]),
        ("..xx", [0, HOUR_S, 2 * HOUR_S, 3 * HOUR_S], [0, HOUR_S]),
        ("....xx", [0, 0, 10, 10, 10, 20], [0, 10]),  # in the middle of a time point
        (".x..xx", [0, 10, 20, 30, 40, 50], [0, 10, 20]),  # 20 and 30 take no time
        ("..x", [None, None, None], [None]),
        (".xx", [None, None, 5], [None, 5]),
        ("...xx", [0, 5, 0, 0, 5], [0, 5]),  # times begin anew at the next position
        ("...xx", [5, 10, 0, 0, 5], [0, 5]),
    ],
)
def test_skipped_events_take_no_time(events: str, starts: list[float | None], expected: list[float | None]) -> None:
    assert [start_s for start_s, _ in times(events, starts)] == expected
    assert not any(resets for _, resets in times(events, starts))


def test_a_timer_that_a_skipped_event_would_have_reset_is_reset_by_the_next() -> None:
    assert times("...xx", [0, 10, 0, 10, 20], {2}) == [(0, True), (10, False)]
    assert times(".xxx", [0, 10, 0, 10], {2}) == [(0, False), (0, True), (10, False)]
