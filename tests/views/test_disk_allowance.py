"""The disk time that views may use while a log has a backlog."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from acqstream.views.frame_feed import BURST_S, SHARE, DiskAllowance


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Lets time pass."""
    now_s = [100.0]

    def advance(by_s: float) -> None:
        now_s[0] += by_s

    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    return advance


def used_in(seconds: float, allowance: DiskAllowance, clock: Callable[[float], None], call_s: float) -> float:
    """How long the disk was used by calls of call_s, as often as that is allowed."""
    passed_s = used_s = 0.0
    while passed_s < seconds:
        if allowance.has_some():
            with allowance.using():
                clock(call_s)
            used_s += call_s
            passed_s += call_s
        else:
            clock(0.001)
            passed_s += 0.001
    return used_s


def test_all_of_it_without_a_backlog(clock: Callable[[float], None]) -> None:
    allowance = DiskAllowance(lambda: False)
    assert allowance.is_free()
    assert used_in(100, allowance, clock, 0.01) == pytest.approx(100)


@pytest.mark.parametrize("call_s", [0.001, 0.05, 1.0])
def test_a_little_at_once_and_then_a_twentieth(clock: Callable[[float], None], call_s: float) -> None:
    allowance = DiskAllowance(lambda: True)
    assert not allowance.is_free()
    assert allowance.has_some()
    assert used_in(100, allowance, clock, call_s) == pytest.approx(BURST_S + 100 * SHARE, abs=call_s + 0.01)
    clock(1000)
    assert used_in(0.5, allowance, clock, call_s) <= BURST_S + call_s + 0.05  # nothing is saved up beyond that


def test_nothing_where_none_is_given(clock: Callable[[float], None]) -> None:
    is_busy = True
    allowance = DiskAllowance(lambda: is_busy, burst_s=0.0)
    clock(1000)
    assert not allowance.has_some()
    is_busy = False
    assert allowance.has_some()
