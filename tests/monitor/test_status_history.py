"""Rates of the last hour, from views whose totals are known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from acqstream.model.status import LATENCY_BOUNDS_S, DaemonTotals, LatencyHistogram
from acqstream.monitor.daemon_watch import STEP_S, STEPS, DaemonView, RateStep, StatusHistory, upper_quantile
from tests.monitor.views_of_daemons import daemon_status, run_status


def view_at(second: float, *, waiting: int = 0, boot: str = "a", uptime_s: float | None = None) -> DaemonView:
    """A daemon that publishes 20 frames of 1000 bytes each second; half of them within 5 ms, the others 50 ms."""
    frames = int(20 * second)
    counts = [0] * (len(LATENCY_BOUNDS_S) + 1)
    counts[LATENCY_BOUNDS_S.index(0.005)] = counts[LATENCY_BOUNDS_S.index(0.05)] = frames // 2
    totals = DaemonTotals(
        frames_published=frames, payload_bytes=1000 * frames, publish_latency=LatencyHistogram(counts=tuple(counts))
    )
    run = run_status(queue_frames=waiting, received=frames)
    up = second if uptime_s is None else uptime_s
    status = daemon_status(run, totals=totals, boot=boot, uptime_s=up)
    return DaemonView(status=status, at_s=second, running=(run,))


def test_a_step_has_the_rates_between_its_ends() -> None:
    history = StatusHistory()
    for second in range(21):
        history.add(view_at(second, waiting=7 if second == 4 else 1))
    first, last = history.steps
    assert first == RateStep(10.0, 20_000.0, 20.0, 7, 0.05)
    assert last == RateStep(20.0, 20_000.0, 20.0, 1, 0.05)


def test_an_hour_is_kept() -> None:
    history = StatusHistory()
    for step in range(STEPS + 10):
        history.add(view_at(step * STEP_S))
    assert len(history.steps) == STEPS
    assert history.steps[-1].at_s == (STEPS + 9) * STEP_S


@pytest.mark.parametrize(
    "later",
    [
        DaemonView(at_s=10.0),
        view_at(10.0, boot="b"),
        view_at(10.0, uptime_s=0.5),
    ],
    ids=["away", "another boot", "started again"],
)
def test_rates_that_are_not_known(later: DaemonView) -> None:
    history = StatusHistory()
    history.add(view_at(0.5, uptime_s=0.6))
    history.add(replace(later, at_s=10.5))
    assert history.steps == (RateStep(10.5, None, None, None, None),)


def test_no_frames_have_no_latency() -> None:
    assert upper_quantile([0, 0], [1.0], 0.99) is None
    assert upper_quantile([99, 1, 0], [1.0, 2.0], 0.99) == 1.0
    assert upper_quantile([98, 2, 0], [1.0, 2.0], 0.99) == 2.0
    assert upper_quantile([0, 0, 5], [1.0, 2.0], 0.99) == 2.0  # above all bounds
