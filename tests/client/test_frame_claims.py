"""Frames that stay readable in shared memory after their release, and are taken back before they change."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acqstream.client.outbox import LARGE_FRAME_BYTES, PAGE_BYTES, FrameClaims, Outbox
from acqstream.model.frame_header import pixel_type_of
from acqstream.model.state import Limit
from acqstream.protocol.frame_batch import FrameKind

LARGE = LARGE_FRAME_BYTES
SIZES = (64, LARGE // 2, LARGE, LARGE + PAGE_BYTES, LARGE + 100, 3 * LARGE)


class Memory:
    """A buffer whose frames are put and released, and what a reader may still read of it."""

    def __init__(self, capacity: int, *, goes_round: bool) -> None:
        self.words = memoryview(array("q", [0, 0]))
        self.box = Outbox(capacity, FrameClaims(self.words))
        self.box.ring.goes_round = goes_round
        self.places: dict[int, range] = {}  # of large frames, by number

    def put(self, size: int) -> bool:
        start = self.box.place(size, 0)
        if start is None:
            return False
        self.box.claim(start, size)
        kept = range(start, start + size)
        for number in self.readable:
            assert self.places[number].stop <= kept.start or kept.stop <= self.places[number].start, number
        kind = FrameKind(pixel_type_of("|u1", (1, size)), (1, size), ("time",), size)
        number = self.box.add_frames(kind, [((self.box.next,), 0, b"", None)], start)
        if size >= LARGE:
            self.places[number] = kept
        return True

    def release(self, number: int) -> None:
        """As the daemon does, of frames that were sent."""
        while self.box.take_due(Limit(2**40, 2**40), 100):
            pass
        self.box.release(min(number, self.box.next))

    @property
    def readable(self) -> list[int]:
        return [number for number in self.places if number >= max(self.words)]


steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from(SIZES)),
        st.tuples(st.just("release"), st.integers(0, 4)),  # all frames except the last ones, of this number
    ),
    max_size=80,
)


@settings(max_examples=300, deadline=None)
@given(steps=steps, pages=st.integers(3 * LARGE // PAGE_BYTES, 9 * LARGE // PAGE_BYTES), goes_round=st.booleans())
def test_no_frame_changes_that_a_reader_may_read(steps: list[tuple[str, int]], pages: int, goes_round: bool) -> None:
    memory = Memory(pages * PAGE_BYTES, goes_round=goes_round)
    for step, value in steps:
        if step == "put":
            memory.put(value)
        else:
            memory.release(memory.box.next - value)


def test_a_ring_that_goes_round_keeps_what_it_holds_although_each_frame_is_released_at_once() -> None:
    memory = Memory(8 * LARGE, goes_round=True)
    for number in range(30):
        assert memory.put(LARGE)
        memory.release(number + 1)
        assert memory.readable == list(range(max(0, number - 7), number + 1))


def test_a_ring_that_does_not_go_round_uses_the_same_place_again() -> None:
    memory = Memory(8 * LARGE, goes_round=False)
    for number in range(5):
        assert memory.put(LARGE)
        memory.release(number + 1)
        assert memory.readable == [number]
    assert len({place.start for place in memory.places.values()}) == 1


def test_what_lies_behind_the_place_that_was_too_short_is_taken_back() -> None:
    """Frames of three parts in a ring of eight: the last two parts stay unused, and older frames lie there."""
    memory = Memory(8 * LARGE, goes_round=True)
    for _ in range(8):
        memory.put(LARGE)
    memory.release(8)
    for count in range(1, 4):
        assert memory.put(3 * LARGE)
        memory.release(8 + count)
    assert memory.readable == [9, 10]


@pytest.mark.parametrize("size", [64, LARGE // 2])
def test_small_frames_are_never_read_in_this_memory(size: int) -> None:
    memory = Memory(8 * LARGE, goes_round=True)
    memory.put(LARGE)
    memory.put(size)
    memory.release(1)
    assert memory.readable == [0]
    memory.release(2)
    assert memory.readable == []
    assert list(memory.words) == [0, 2]


def test_without_words_nothing_is_remembered() -> None:
    box = Outbox(8 * LARGE)
    claims = box.claims
    claims.release(1, 0, LARGE, 1)
    assert not claims.released
    box.claim(0, LARGE)


def test_once_closed_nothing_is_written_any_more() -> None:
    memory = Memory(8 * LARGE, goes_round=True)
    memory.put(LARGE)
    memory.box.claims.close()
    memory.release(1)
    memory.put(LARGE)
    assert list(memory.words) == [0, 0]
