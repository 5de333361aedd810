"""Slots never overlap, stay inside the buffer, and an empty ring takes whatever fits."""

from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from acqstream.client.outbox import ALIGNMENT, LARGE_FRAME_BYTES, PAGE_BYTES, FrameRing, distance

CAPACITY = 16 * ALIGNMENT
LARGE_CAPACITY = 3 * LARGE_FRAME_BYTES


@given(st.lists(st.one_of(st.integers(1, CAPACITY + 1), st.none()), max_size=60))
def test_slots_lie_apart_and_inside(steps):
    ring, held = FrameRing(CAPACITY), deque()
    for size in steps:
        if size is None:
            if held:
                ring.free(sum(held.popleft()))
            continue
        start = ring.place(size)
        if start is None:
            assert held or size > CAPACITY
            continue
        ring.take(start, size)
        assert start % ALIGNMENT == 0 or (held and (start - size, size) == held[-1])
        assert start + size <= CAPACITY
        assert all(start + size <= other or other + length <= start for other, length in held)
        held.append((start, size))
    assert (ring.used_bytes == 0) == (not held)
    assert sum(size for _, size in held) <= ring.used_bytes <= CAPACITY


@given(st.lists(st.one_of(st.integers(1, 2 * LARGE_FRAME_BYTES), st.none()), max_size=40))
def test_large_frames_start_on_a_page(steps):
    ring, held = FrameRing(LARGE_CAPACITY), deque()
    for size in steps:
        if size is None:
            if held:
                ring.free(sum(held.popleft()))
            continue
        start = ring.place(size)
        if start is None:
            assert held
            continue
        ring.take(start, size)
        assert size < LARGE_FRAME_BYTES or start % PAGE_BYTES == 0
        assert start + size <= LARGE_CAPACITY
        assert all(start + size <= other or other + length <= start for other, length in held)
        held.append((start, size))


@given(st.lists(st.one_of(st.tuples(st.integers(1, 2 * LARGE_FRAME_BYTES), st.integers(1, 5)), st.none()), max_size=40))
def test_frames_placed_together_lie_in_order_and_inside(steps):
    ring, held = FrameRing(LARGE_CAPACITY), deque()
    for step in steps:
        if step is None:
            if held:
                ring.free(sum(held.popleft()))
            continue
        size, count = step
        start = ring.place(size, count)
        if start is None:
            assert held or (count - 1) * distance(size) + size > LARGE_CAPACITY
            continue
        for at in range(start, start + count * distance(size), distance(size)):
            ring.take(at, size)
            assert size < LARGE_FRAME_BYTES or at % PAGE_BYTES == 0
            assert at + size <= LARGE_CAPACITY
            assert all(at + size <= other or other + length <= at for other, length in held)
            held.append((at, size))


def test_place_takes_nothing():
    ring = FrameRing(CAPACITY)
    assert ring.place(CAPACITY) == ring.place(CAPACITY) == 0
    assert ring.used_bytes == 0


def test_a_full_ring_has_room_again_for_what_was_given_back():
    ring = FrameRing(CAPACITY)
    for start in (0, CAPACITY // 2):
        assert ring.place(CAPACITY // 2) == start
        ring.take(start, CAPACITY // 2)
    assert ring.place(1) is None
    ring.free(CAPACITY // 2)
    assert ring.place(CAPACITY // 2) == 0
    assert ring.place(CAPACITY // 2 + 1) is None


def test_frames_of_one_size_lie_back_to_back():
    ring = FrameRing(CAPACITY)
    starts = []
    for size in (100, 100, 100, 30, 30):
        start = ring.place(size)
        assert start is not None
        ring.take(start, size)
        starts.append(start)
    assert starts == [0, 100, 200, 320, 350]
