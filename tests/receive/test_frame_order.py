"""The order of messages whose numbers are late, repeated, or begin again."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acqstream.receive.frame_order import FrameOrder


def ordered(numbers: list[int | None], window: int = 4) -> tuple[list[int | None], int]:
    """What comes out, in order, and the number of repeats; each message is its number."""
    order: FrameOrder[int | None] = FrameOrder(window)
    found = [message for number in numbers for message in order.add(number, number)]
    found += order.settle()
    assert not order.is_waiting
    return found, order.repeats


@pytest.mark.parametrize(
    ("numbers", "expected", "repeats"),
    [
        ([0, 1, 3, 2, 4, 5], [0, 1, 2, 3, 4, 5], 0),
        ([1, 0, 2], [0, 1, 2], 0),  # the first two changed places
        ([7, 8, 10, 11], [7, 8, 10, 11], 0),  # 9 is lost
        ([0, 1, 2, 2, 3], [0, 1, 2, 3], 1),
        ([0, 1, 2, 1, 3], [0, 1, 2, 3], 1),
        ([0, 1, 3, 3, 2], [0, 1, 2, 3], 1),
        ([0, 1, 2, 0, 1, 2], [0, 1, 2, 0, 1, 2], 0),  # the counter restarted
        ([0, 0, 0], [0, 0, 0], 0),  # so it does for series of one frame
        ([0, 1, 3, 0, 1], [0, 1, 3, 0, 1], 0),
        ([5, 6, 5_000_000, 5_000_001], [5, 6, 5_000_000, 5_000_001], 0),  # another counter
        ([None, None], [None, None], 0),
        ([0, 1, 9, 8, 7, 6, 5, 2], [0, 1, 5, 6, 7, 8, 9, 2], 0),  # 2 is later than the window, and the last one
        ([0, 1, 9, 8, 7, 6, 5, 2, 10], [0, 1, 5, 6, 7, 8, 9, 10], 1),
    ],
)
def test_order(numbers: list[int | None], expected: list[int | None], repeats: int) -> None:
    assert ordered(numbers) == (expected, repeats)


def test_without_a_window_nothing_waits() -> None:
    assert ordered([0, 2, 1, 1], window=0) == ([0, 2, 1, 1], 0)


@given(swaps=st.lists(st.integers(0, 30), max_size=20), window=st.integers(1, 8))
def test_swapped_neighbours_come_in_order(swaps: list[int], window: int) -> None:
    numbers: list[int | None] = [*range(32)]
    taken: set[int] = set()
    for at in swaps:
        if not taken & {at, at + 1}:
            taken |= {at, at + 1}
            numbers[at], numbers[at + 1] = numbers[at + 1], numbers[at]
    assert ordered(numbers, window) == ([*range(32)], 0)


@given(st.lists(st.integers(0, 12), max_size=40), st.integers(1, 6))
def test_no_message_is_lost_or_made_up(numbers: list[int], window: int) -> None:
    order: FrameOrder[int] = FrameOrder(window)
    arrivals = itertools.count()
    found = [message for number in numbers for message in order.add(number, next(arrivals))]
    found += order.settle()
    assert len({*found}) == len(found) == len(numbers) - order.repeats
