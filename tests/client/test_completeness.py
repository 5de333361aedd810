"""The receipt against what the producer declared."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from acqstream.client.daemon_report import describe_missing
from acqstream.client.outbox import DeclaredGaps
from acqstream.model.receipt import MissingFrames, Receipt


def receipt(*missing: tuple[int, int], stored: int, status: str = "completed", reason: str = "") -> Receipt:
    gaps = tuple(MissingFrames(first, count, "why") for first, count in missing)
    return Receipt(dataset_id="d", path="/d", status=status, reason=reason, stored=stored, missing=gaps)  # type: ignore[arg-type]


def declared(*ranges: tuple[int, int]) -> DeclaredGaps:
    gaps = DeclaredGaps()
    for first, count in ranges:
        gaps.add(first, count)
    return gaps


@pytest.mark.parametrize(
    ("ranges", "first", "end", "expected"),
    [
        ([], 2, 5, [(2, 5)]),
        ([(2, 3)], 2, 5, []),
        ([(2, 1), (3, 2)], 2, 5, []),
        ([(3, 1)], 2, 5, [(2, 3), (4, 5)]),
        ([(0, 3), (4, 9)], 2, 5, [(3, 4)]),
        ([(7, 1)], 2, 5, [(2, 5)]),
    ],
)
def test_declared_numbers_are_taken_out(ranges, first, end, expected):
    assert declared(*ranges).without(first, end) == expected


def test_a_run_with_many_gaps_is_closed_at_once():
    gaps = [(2 * number, 1) for number in range(20_000)]
    began_s = time.thread_time()
    told = replace(receipt(*gaps[:10_000], stored=20_000), skipped=20_000)  # a receipt lists so many
    assert describe_missing(told, declared(*gaps), 40_000) == ""
    assert time.thread_time() - began_s < 2  # each range against each took 10


def test_nothing_is_missing():
    assert describe_missing(receipt(stored=5), declared(), 5) == ""
    assert describe_missing(receipt((2, 3), stored=5), declared((2, 3)), 8) == ""


@pytest.mark.parametrize(
    ("entry", "gaps", "sent", "text"),
    [
        (receipt((2, 1), stored=4), declared(), 5, "1 of 5 frames are missing: 2 (why)"),
        (receipt((2, 3), stored=4), declared((3, 1)), 7, "2 of 7 frames are missing: 2 (why), 4 (why)"),
        (receipt(stored=4), declared(), 5, "1 of 5 frames are missing: 4 are stored, 0 skipped"),
        (receipt(stored=36), declared((0, 20)), 40, "4 of 40 frames are missing: 36 are stored, 0 skipped"),
        (receipt(stored=5, status="failed", reason="disk gone"), declared(), 5, "it ended as 'failed': disk gone"),
        (receipt(*((2 * i, 1) for i in range(7)), stored=7), declared(), 14, "and 2 more gaps"),
    ],
)
def test_describe_missing_is_said(entry, gaps, sent, text):
    assert text in describe_missing(entry, gaps, sent)
