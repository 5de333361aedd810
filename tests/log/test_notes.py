"""Notes of an acquisition: a stall of the disk is one, however many calls waited for it."""

from __future__ import annotations

import pytest

from acqstream.log.receipt_facts import LogNotes
from acqstream.storage.files.disk import SlowCall


@pytest.mark.parametrize(
    ("calls", "stalls"),  # each: name, began at, ended at, in the order in which they return
    [
        ([("a", 0, 2), ("b", 3, 5)], [("a", 2), ("b", 2)]),
        ([("a", 0, 2), ("b", 2, 4)], [("a", 2), ("b", 2)]),  # one thread
        ([("b", 1, 9), ("a", 0, 9), ("c", 2, 10)], [("a", 10)]),
        ([("b", 1, 3), ("c", 5, 7), ("a", 0, 10)], [("a", 10)]),
    ],
)
def test_calls_that_overlap_are_one_stall(calls: list[tuple[str, int, int]], stalls: list[tuple[str, int]]) -> None:
    notes = LogNotes(lambda: None)
    for name, began, ended in calls:
        notes.stall(SlowCall(name, "x", float(began), float(ended - began)))
    assert [(one.call, one.seconds) for one in notes.stalls] == stalls
    assert notes.stall_s == sum(seconds for _, seconds in stalls)
    assert notes.n_stalls == len(notes.warnings) <= len(calls) - (len(stalls) < len(calls))


def test_of_very_many_stalls_the_first_are_kept_and_all_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acqstream.log.receipt_facts.MAX_STALLS", 2)
    notes = LogNotes(lambda: None)
    for began in range(0, 10, 2):
        notes.stall(SlowCall("write", "x", float(began), 1.0))
    assert (len(notes.stalls), notes.n_stalls, notes.stall_s, len(notes.warnings)) == (2, 5, 5.0, 2)
