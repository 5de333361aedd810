"""Bounds of waiting: on a busy machine they are wider, and they still end a wait that is in vain."""

from __future__ import annotations

import threading

import pytest

from tests import waiting


class Machine:
    """A clock that moves on by one second at each look, and the load beside it."""

    def __init__(self, load: float) -> None:
        self.now_s, self.load = 0.0, load

    def look(self) -> float:
        self.now_s += 1.0
        return self.now_s


@pytest.mark.parametrize(("load", "expected_s"), [(0.5, 10.0), (1.0, 10.0), (4.0, 2.5)])
def test_seconds_of_a_busy_machine_count_as_the_share_that_a_task_gets(load, expected_s):
    machine = Machine(load)
    seconds = waiting.FreeSeconds(machine.look, lambda: machine.load)
    passed = [seconds.passed() for _ in range(10)]
    assert passed == sorted(passed)
    assert passed[-1] == pytest.approx(expected_s)


def test_each_interval_counts_by_its_own_load():
    machine = Machine(1.0)
    seconds = waiting.FreeSeconds(machine.look, lambda: machine.load)
    assert seconds.passed() == pytest.approx(1.0)
    machine.load = 10.0
    assert seconds.passed() == pytest.approx(1.1)


def test_the_load_is_that_of_the_whole_machine():
    assert waiting.tasks_per_processor() > 0


def test_a_wait_in_vain_ends_and_names_what_it_waited_for():
    with pytest.raises(AssertionError, match="a miracle"):
        waiting.until(lambda: False, "a miracle", 0.01)
    changed = threading.Condition()
    with changed, pytest.raises(AssertionError, match="a miracle"):
        waiting.until_notified(changed, lambda: False, "a miracle", 0.01)


def test_a_wait_returns_what_came():
    values = iter([None, 0, "found"])
    assert waiting.until(lambda: next(values), "something true") == "found"
    changed = threading.Condition()
    with changed:
        waiting.until_notified(changed, lambda: True, "what holds already")
