"""Memory that is lent in pieces: no byte to two users, zeros each time, and no more kept than was allowed."""

from __future__ import annotations

import gc
import mmap
import sys
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acqstream.storage import memory_reserve
from acqstream.storage.memory_reserve import MemoryReserve

PAGE = mmap.PAGESIZE


def test_what_was_taken_ahead_is_lent_first() -> None:
    memory = MemoryReserve()
    assert memory.prepare(10 * PAGE) == 10 * PAGE
    first, second = memory.take(5 * PAGE), memory.take(PAGE)
    assert (len(first), len(second)) == (5 * PAGE, PAGE)
    assert first.ctypes.data % PAGE == 0
    assert (memory.fresh_count, memory.kept_bytes) == (0, 4 * PAGE)
    memory.take(5 * PAGE)  # is larger than the rest
    assert memory.fresh_count == 1


def test_a_piece_comes_back_with_its_last_view() -> None:
    memory = MemoryReserve()
    memory.prepare(4 * PAGE)
    piece = memory.take(4 * PAGE)
    image = np.frombuffer(piece.data[16:32], np.uint16).reshape(2, 4)
    del piece
    assert memory.kept_bytes == 0
    image[:] = 7
    del image
    assert memory.kept_bytes == 4 * PAGE


def test_memory_that_comes_back_is_zeros() -> None:
    memory = MemoryReserve()
    piece = memory.take(5000)
    assert len(piece) == 5000
    assert not piece.any()
    piece[...] = 7
    place = piece.ctypes.data
    del piece
    again = memory.take(4000)
    assert again.ctypes.data == place
    assert not again.any()
    assert memory.fresh_count == 1


def test_only_what_was_used_before_is_cleared_again() -> None:
    """Bytes that nobody had are zeros already: they are left as they are."""
    memory = MemoryReserve()
    memory.prepare(3 * PAGE)
    (region,) = memory._regions
    region.view[:] = b"\1" * (3 * PAGE)  # shows which bytes are cleared
    assert not memory.take(0).any()  # a page
    piece = memory.take(2 * PAGE)
    assert [bool(piece[n * PAGE]) for n in range(2)] == [False, True]


def test_neighbours_are_one_piece_again() -> None:
    memory = MemoryReserve()
    memory.prepare(6 * PAGE)
    pieces = [memory.take(2 * PAGE) for _ in range(3)]
    del pieces[1]
    del pieces[0]
    del pieces[0]
    assert len(memory.take(6 * PAGE)) == 6 * PAGE
    assert memory.fresh_count == 0


def test_memory_goes_back_to_the_system_before_more_is_taken() -> None:
    memory = MemoryReserve()
    memory.prepare(PAGE)
    pieces = [memory.take(size) for size in (PAGE, 2 * PAGE, 4 * PAGE)]
    pieces.clear()
    assert (memory.fresh_count, memory.kept_bytes) == (2, 7 * PAGE)
    piece = memory.take(5 * PAGE)
    assert memory.kept_bytes == PAGE  # what was taken ahead stays
    del piece
    assert len(memory.take(5 * PAGE)) == 5 * PAGE
    assert memory.fresh_count == 3


def test_no_more_is_kept_than_was_allowed() -> None:
    memory = MemoryReserve(max_kept_bytes=10_000)
    pieces = [memory.take(6000) for _ in range(3)]
    pieces.clear()
    assert memory.kept_bytes == 8192
    assert len(memory._regions) == 1


@pytest.mark.parametrize("ahead", [1, 4, 9])
def test_what_was_taken_ahead_does_not_count(ahead: int) -> None:
    """A run that needs a little more than is ready finds it in the next run, too."""
    memory = MemoryReserve(max_kept_bytes=2 * PAGE)
    memory.prepare(ahead * PAGE)
    for _ in range(3):
        pieces = [memory.take(PAGE) for _ in range(ahead + 3)]
        pieces.clear()
        memory.collect()
        assert memory.kept_bytes == (ahead + 2) * PAGE
    assert memory.fresh_count == 5  # three in the first run, and one in each of the others


def test_it_is_lent_while_more_is_being_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_reserve, "STEP_BYTES", PAGE)
    memory, kept = MemoryReserve(), []

    def is_ended() -> bool:
        kept.append(memory.kept_bytes)
        return len(kept) == 4

    assert memory.prepare(8 * PAGE, is_ended) == 3 * PAGE
    assert kept == [0, PAGE, 2 * PAGE, 3 * PAGE]
    assert len(memory.take(3 * PAGE)) == 3 * PAGE
    assert memory.fresh_count == 0


def test_no_memory_is_told() -> None:
    memory = MemoryReserve()
    with pytest.raises((MemoryError, OSError, OverflowError)):
        memory.prepare(2**62)
    with pytest.raises((MemoryError, OSError, OverflowError)):
        memory.take(2**62)
    assert len(memory.take(PAGE)) == PAGE


@settings(deadline=None, max_examples=50)
@given(
    st.integers(0, 8),
    st.lists(
        st.one_of(st.tuples(st.just("take"), st.integers(1, 3 * PAGE)), st.tuples(st.just("drop"), st.integers(0, 9)))
    ),
)
def test_no_byte_has_two_users(ahead: int, steps: list[tuple[str, int]]) -> None:
    memory, pieces = MemoryReserve(8 * PAGE), []
    if ahead:
        memory.prepare(ahead * PAGE)
    for number, (what, value) in enumerate(steps):
        if what == "take":
            pieces.append((number % 255 + 1, memory.take(value)))
            assert not pieces[-1][1].any()
            pieces[-1][1][:] = pieces[-1][0]
        elif pieces:
            del pieces[value % len(pieces)]
    for mark, piece in pieces:
        assert (piece == mark).all()
    assert memory.kept_bytes <= (ahead + 8) * PAGE


@pytest.mark.parametrize("count", [1, 4])
def test_threads_never_have_the_same_bytes(count: int) -> None:
    memory, errors = MemoryReserve(), []
    memory.prepare(4 * PAGE)

    def use(mark: int) -> None:
        for step in range(200):
            piece = memory.take((1 + step % 3) * PAGE)
            if piece.any():
                errors.append((mark, step, "not zeros"))
            piece[:] = mark
            if step % 50 == 0:
                gc.collect()
            if not (piece == mark).all():
                errors.append((mark, step, "of another thread"))

    threads = [threading.Thread(target=use, args=(number + 1,), name=f"user-{number}") for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert memory.kept_bytes == sum(len(one.view) for one in memory._regions)


def test_the_work_of_a_piece_does_not_grow_with_the_number_of_pieces() -> None:
    """Eight mirrors of small chunks have thousands: each took milliseconds, and a killed process took minutes."""
    memory = MemoryReserve()

    def steps() -> int:
        """Python's calls for a new piece, for its end, and for one in its memory."""
        count = 0

        def note(*_: object) -> None:
            nonlocal count
            count += 1

        sys.setprofile(note)
        try:
            memory.take(PAGE)
            memory.has(2 * PAGE)
            memory.take(PAGE)
        finally:
            sys.setprofile(None)
        return count

    few = steps()
    pieces = [memory.take(PAGE) for _ in range(2000)]
    many_lent = steps()
    del pieces
    memory.collect()
    many_free = steps()
    assert max(many_lent, many_free) < few + 50
