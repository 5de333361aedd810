"""Progress over time: latencies against a model that knows the time of each frame, and totals of one log."""

from __future__ import annotations

from bisect import bisect_left
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acqstream.daemon.frame_progress import MARK_SPACING_S, MAX_MARKS, FrameProgress, FrameRhythm, LatencyMeter
from acqstream.model.status import LATENCY_BOUNDS_S, DaemonTotals

# (frames received in this turn, frames that the cursor passes, seconds until the turn)
TURNS = st.lists(
    st.tuples(st.integers(0, 50), st.integers(0, 80), st.floats(0.001, 3.0, allow_nan=False)), min_size=1, max_size=60
)


@given(turns=TURNS, earlier=st.integers(0, 1000))
def test_latencies_are_those_of_each_frame(turns: list[tuple[int, int, float]], earlier: int) -> None:
    meter = LatencyMeter(earlier)
    now, reached, times, expected = 50.0, 0, [], [0] * (len(LATENCY_BOUNDS_S) + 1)
    sum_s = 0.0
    for came, passed, wait in turns:
        now += wait
        if came:
            times += [now] * came
            meter.note_received(earlier + len(times), now)
        end = min(len(times), reached + passed)
        for since in times[reached:end]:
            expected[bisect_left(LATENCY_BOUNDS_S, now - since)] += 1
            sum_s += now - since
        reached = end
        meter.note_reached(earlier + reached, now)
    assert list(meter.histogram().counts) == expected
    assert meter.histogram().sum_s == pytest.approx(sum_s)


def test_frames_within_the_spacing_share_the_earlier_time() -> None:
    meter = LatencyMeter()
    meter.note_received(1, 1.0)
    meter.note_received(2, 1.0 + MARK_SPACING_S / 2)
    meter.note_reached(2, 2.0)
    assert meter.histogram().sum_s == pytest.approx(2.0)


def test_a_cursor_that_waits_for_the_end_costs_bounded_memory() -> None:
    """Frame n comes at n milliseconds; all become durable at once, after 100,000 of them."""
    count = 100_000
    meter = LatencyMeter()
    for number in range(count):
        meter.note_received(number + 1, number / 1000)
        assert len(meter._marks) <= MAX_MARKS
    meter.note_reached(count, count / 1000)
    histogram = meter.histogram()
    assert sum(histogram.counts) == count
    exact = sum((count - number) / 1000 for number in range(count))
    assert histogram.sum_s == pytest.approx(exact, rel=0.01)
    assert histogram.sum_s >= exact


class FakeLog(SimpleNamespace):
    """Counts of a log, as the test sets them."""

    def __init__(self, stored: int = 0) -> None:
        forced = SimpleNamespace(stored=stored)
        counts = SimpleNamespace(stored=stored, forced=forced, skipped=0, payload_bytes=10 * stored)
        notes = SimpleNamespace(warning_counts={}, n_stalls=0, stall_s=0.0)
        super().__init__(received_frames=stored, counts=counts, notes=notes)


def progress_of(log: Any) -> FrameProgress:
    return FrameProgress(log)


def test_frames_of_an_earlier_run_are_not_counted() -> None:
    log = FakeLog(stored=700)
    progress = progress_of(log)
    assert progress.totals() == DaemonTotals()
    progress.begin(100.0)
    progress.tick(100.0)
    assert progress.totals() == DaemonTotals()
    log.received_frames, log.counts.payload_bytes = 705, 7030
    progress.tick(101.0)
    log.counts.stored = 703
    progress.tick(101.02)
    log.counts.forced.stored = 702
    progress.tick(104.0)
    totals = progress.totals()
    assert (totals.frames_received, totals.frames_published, totals.frames_durable) == (5, 3, 2)
    assert totals.payload_bytes == 30
    assert dict(zip(LATENCY_BOUNDS_S, totals.publish_latency.counts, strict=False))[0.025] == 3
    assert dict(zip(LATENCY_BOUNDS_S, totals.durable_latency.counts, strict=False))[5.0] == 2


def test_unknown_codes_of_warnings_are_counted_together() -> None:
    log = FakeLog()
    log.notes.warning_counts = {"disk_low": 2, "one": 1, "two": 3}
    log.notes.n_stalls, log.notes.stall_s = 2, 3.5
    totals = progress_of(log).totals()
    assert totals.warnings == {"disk_low": 2, "other": 4}
    assert (totals.stalls, totals.stall_s) == (2, 3.5)


def test_the_time_of_the_last_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [10.0]
    monkeypatch.setattr("acqstream.daemon.frame_progress.time", SimpleNamespace(monotonic=lambda: now[0]))
    log = FakeLog()
    progress = progress_of(log)
    progress.begin(10.0)
    now[0] = 13.0
    assert (progress.running_s, progress.seconds_since_frame) == (3.0, 3.0)
    log.received_frames = 1
    progress.tick(13.0)
    now[0] = 15.0
    progress.tick(15.0)
    assert (progress.running_s, progress.seconds_since_frame) == (5.0, 2.0)


@pytest.mark.parametrize("n_burst", [1, 50])
def test_the_end_of_a_time_lapse_is_known_between_its_frames(n_burst: int) -> None:
    """A burst of up to 50 s every 300 s, of 100 in all, begins at 600 s."""
    rhythm, received, end_s = FrameRhythm(), 700, 600 + 99 * 300
    assert rhythm.seconds_until(100, 700, 600.0) is None
    for second in range(600, 600 + 20 * 300):
        burst, place = divmod(second - 600, 300)
        if place < n_burst:
            rhythm.note(received, float(second))
            received += 1
        left = rhythm.seconds_until(100 * n_burst + 700 - received, received, float(second))
        if burst >= 1:
            assert left is not None
            assert second + left == pytest.approx(end_s + n_burst - 1, abs=0.001), second
    late = rhythm.seconds_until(80 * n_burst, received, 600 + 20 * 300 + 1000.0)
    assert late is not None
    assert 900 < 7600 + late - end_s < 1400, "moved by the delay"
    assert (rhythm.seconds_until(-1, received, 0.0), rhythm.seconds_until(0, received, 0.0)) == (None, 0.0)


def test_the_end_of_a_stream_with_a_hiccup() -> None:
    rhythm = FrameRhythm()
    for number in range(10_000):  # 100 a second, 5 s without any before frame 5000
        now_s = number / 100 + (5.0 if number >= 5000 else 0.0)
        rhythm.note(number, now_s)
        left = rhythm.seconds_until(20_000 - number - 1, number + 1, now_s)
        if number:
            assert left == pytest.approx((20_000 - number - 1) / 100, rel=0.12)


def test_the_progress_of_a_log_has_its_rhythm(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("acqstream.daemon.frame_progress.time", SimpleNamespace(monotonic=lambda: now[0]))
    log = FakeLog(stored=700)
    progress = progress_of(log)
    progress.begin(0.0)
    assert progress.seconds_until(99) is None
    for second in range(1, 11):
        now[0] = float(second)
        log.received_frames = 700 + 2 * second
        progress.tick(now[0])
    assert progress.seconds_until(40) == pytest.approx(20.0)


def test_the_end_is_not_known_in_the_first_long_pause() -> None:
    rhythm = FrameRhythm()
    for number in range(10):
        rhythm.note(number, number * 0.1)
    assert rhythm.seconds_until(90, 10, 1.0) == pytest.approx(8.9, abs=0.5)
    assert rhythm.seconds_until(90, 10, 30.0) is None
    for number in range(10, 20):
        rhythm.note(number, 60 + number * 0.1)
    assert rhythm.seconds_until(80, 20, 90.0) is not None
