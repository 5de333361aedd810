"""The ring against a simple model: spans that neither overlap nor cross the end."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from acqstream.log.memory import Ring, Span
from acqstream.storage.page_memory import PageMemory

BLOCK = 4096
BLOCKS = 12
lengths = st.integers(1, 7 * BLOCK)


class RingMachine(RuleBasedStateMachine):
    """Each live span is filled with its own byte: if two shared memory, one would find the other's."""

    def __init__(self) -> None:
        super().__init__()
        self.ring = Ring(PageMemory(BLOCKS * BLOCK).view)
        self.live: list[tuple[Span, int]] = []
        self.mark = 0
        self.newest: Span | None = None

    def fill(self, span: Span) -> None:
        self.mark = self.mark % 250 + 1
        span.memory[:] = bytes([self.mark]) * span.length
        self.live.append((span, self.mark))

    @rule(length=lengths)
    def allocate(self, length: int) -> None:
        free = self.largest_gap()
        span = self.ring.allocate(length)
        assert span.length % BLOCK == 0
        assert length <= span.length < length + BLOCK
        if span.beside:
            assert span.length > free - BLOCK, "there was room in the ring"
        else:
            self.newest = span
        self.fill(span)

    @precondition(lambda self: self.live)
    @rule(data=st.data(), length=lengths)
    def extend(self, data: st.DataObject, length: int) -> None:
        position = data.draw(st.integers(0, len(self.live) - 1))
        span, _ = self.live[position]
        before, end = span.length, span.offset + span.length
        inside = [one for one, _ in self.live if not one.beside]
        room = min([one.offset for one in inside if one.offset >= end], default=BLOCKS * BLOCK) - span.offset
        if self.ring.extend(span, length):
            assert span.length >= max(before, length)
            assert not span.beside or span.length == before
            del self.live[position]
            self.fill(span)
        else:
            assert span.length == before
            assert span is not self.newest or length > room - BLOCK

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        span, _ = self.live.pop(data.draw(st.integers(0, len(self.live) - 1)))
        if span is self.newest:
            self.newest = None
        self.ring.release(span)

    @precondition(lambda self: self.live)
    @rule()
    def release_oldest(self) -> None:
        self.release_at(0)

    def release_at(self, position: int) -> None:
        span, _ = self.live.pop(position)
        if span is self.newest:
            self.newest = None
        self.ring.release(span)

    def largest_gap(self) -> int:
        """The longest span that a ring must still have room for: behind its head, or before its oldest span."""
        if not self.ring._spans:
            return BLOCKS * BLOCK
        head, oldest = self.ring._head, self.ring._spans[0].offset
        return max(BLOCKS * BLOCK - head, oldest) if head > oldest else oldest - head

    @invariant()
    def spans_keep_their_bytes(self) -> None:
        for span, mark in self.live:
            assert bytes(span.memory) == bytes([mark]) * span.length
            assert span.beside or span.offset + span.length <= BLOCKS * BLOCK

    @invariant()
    def counts_are_right(self) -> None:
        inside = sum(span.length for span, _ in self.live if not span.beside)
        assert inside <= self.ring.used_bytes <= self.ring.peak_bytes <= BLOCKS * BLOCK
        assert self.ring.beside_bytes == sum(span.length for span, _ in self.live if span.beside)
        assert self.ring.beside_bytes <= self.ring.beside_peak_bytes
        if not any(not span.beside for span, _ in self.live):
            assert self.ring.used_bytes == 0


RingMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestRing = RingMachine.TestCase


def test_first_in_first_out_never_needs_memory_beside() -> None:
    ring = Ring(PageMemory(BLOCKS * BLOCK).view)
    spans: list[Span] = []
    for number in range(100):
        if len(spans) == 3:
            ring.release(spans.pop(0))
        spans.append(ring.allocate((1 + number % 3) * BLOCK))
        assert not spans[-1].beside


def test_memory_comes_back_when_all_older_spans_are_released() -> None:
    ring = Ring(PageMemory(4 * BLOCK).view)
    first, second, third = (ring.allocate(BLOCK) for _ in range(3))
    ring.release(second)
    ring.release(third)
    assert ring.used_bytes == 3 * BLOCK
    assert ring.allocate(2 * BLOCK).beside
    ring.release(first)
    assert ring.used_bytes == 0
    assert not ring.allocate(4 * BLOCK).beside


def test_what_is_larger_than_the_ring_goes_beside() -> None:
    ring = Ring(PageMemory(2 * BLOCK).view)
    span = ring.allocate(3 * BLOCK)
    assert span.beside
    assert len(span.memory) == 3 * BLOCK
    assert not ring.extend(span, 4 * BLOCK)
    ring.release(span)
    assert (ring.beside_bytes, ring.beside_peak_bytes) == (0, 3 * BLOCK)
