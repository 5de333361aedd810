"""Readers of the log's memory that hold nothing there: what they are told is intact, is."""

from __future__ import annotations

import gc
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from acqstream.formats.ndtiff.layout import Placement
from acqstream.log.memory import Ring, Span
from acqstream.log.recent_frames import GroupTable, RecentGroups, address_of
from acqstream.model.frame_header import FrameHeader, FrameRun, PixelType
from acqstream.model.state import CLAIM_BYTES
from acqstream.storage.handover import map_memory
from acqstream.storage.page_memory import PageMemory

BLOCK = 4096
BLOCKS = 16
CAPACITY = 6


@dataclass
class Written:
    """A stand-in for a group: a span, and its place in the file."""

    span: Span
    start: int
    stack: int
    content: bytes = b""
    outside: memoryview | None = None
    placements: list[Placement] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.placements:
            self.placements = [Placement(frames_of(0, 1), self.start, 0, self.start, 0, self.end, packed=True)]

    @property
    def end(self) -> int:
        return self.start + len(self.content)


def frames_of(number: int, payload_bytes: int) -> FrameRun:
    return FrameRun.of([FrameHeader(number, PixelType("|u1", 1, 8), 1, payload_bytes, {}, b"{}")])


def add(table: GroupTable, *groups: Written) -> None:
    for group in groups:
        table.add(group.stack, cast("Any", group))


def reader_of(table: GroupTable, memory: PageMemory) -> RecentGroups:
    """Through mappings of its own, as another process has them."""
    assert table.descriptor is not None
    assert memory.descriptor is not None
    return RecentGroups(map_memory(table.descriptor), map_memory(memory.descriptor))


class LaggingReader(RuleBasedStateMachine):
    """The log allocates, grows, fills, writes and releases; a reader looks at any time, and reads in two halves."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = PageMemory(BLOCKS * BLOCK, shared=True)
        self.table = GroupTable(CAPACITY)
        self.ring = Ring(self.memory.view, self.table.claim)
        self.reader = reader_of(self.table, self.memory)
        self.chance = np.random.default_rng(1)
        self.open: Span | None = None
        self.queue: list[Written] = []
        self.written: list[Written] = []
        self.stack, self.end = 0, 0
        self.lease: tuple[memoryview, int, bytes, bytes] | None = None

    @precondition(lambda self: self.open is None and len(self.queue) < 4)
    @rule(blocks=st.integers(1, 5))
    def allocate(self, blocks: int) -> None:
        self.open = self.ring.allocate(blocks * BLOCK - 100)

    @precondition(lambda self: self.open is not None)
    @rule(blocks=st.integers(1, 8))
    def grow(self, blocks: int) -> None:
        assert self.open is not None
        self.ring.extend(self.open, blocks * BLOCK)

    @precondition(lambda self: self.open is not None)
    @rule()
    def fill_a_part(self) -> None:
        assert self.open is not None
        half = self.open.length // 2
        self.open.memory[:half] = self.chance.bytes(half)

    @precondition(lambda self: self.open is not None)
    @rule()
    def write(self) -> None:
        assert self.open is not None
        content = self.chance.bytes(self.open.length)
        self.open.memory[:] = content
        group = Written(self.open, self.end, self.stack, content)
        add(self.table, group)
        self.queue.append(group)
        self.written.append(group)
        self.end, self.open = group.end, None

    @rule()
    def roll_over(self) -> None:
        self.stack, self.end = self.stack + 1, 0

    @precondition(lambda self: self.queue)
    @rule()
    def publish(self) -> None:
        self.ring.release(self.queue.pop(0).span)

    @precondition(lambda self: self.open is not None)
    @rule()
    def abandon(self) -> None:
        assert self.open is not None
        self.ring.release(self.open)
        self.open = None

    @precondition(lambda self: self.written)
    @rule(data=st.data())
    def read_first_half(self, data: st.DataObject) -> None:
        group = data.draw(st.sampled_from(self.written[-12:]))
        start = data.draw(st.integers(0, len(group.content) - 2))
        length = data.draw(st.integers(2, len(group.content) - start))
        found = self.reader.find(group.stack, group.start + start, length)
        if found is None:
            self.lease = None
            return
        pixels, position = found
        self.lease = (pixels, position, bytes(pixels[: length // 2]), group.content[start : start + length])

    @precondition(lambda self: self.lease is not None)
    @rule()
    def read_second_half(self) -> None:
        assert self.lease is not None
        pixels, position, first, expected = self.lease
        seen = first + bytes(pixels[len(first) :])
        if self.reader.is_intact(position):
            assert seen == expected
        self.lease = None

    @precondition(lambda self: self.written)
    @rule()
    def what_is_not_released_is_found(self) -> None:
        for group in self.queue[-(CAPACITY - 1) :]:
            found = self.reader.find(group.stack, group.start, len(group.content))
            if group.span.beside:
                assert found is None
            else:
                assert found is not None
                assert bytes(found[0]) == group.content
                assert self.reader.is_intact(found[1])


LaggingReader.TestCase.settings = settings(max_examples=80, stateful_step_count=60, deadline=None)
TestLaggingReader = LaggingReader.TestCase


@pytest.fixture
def parts() -> tuple[PageMemory, GroupTable, Ring, RecentGroups]:
    memory, table = PageMemory(BLOCKS * BLOCK, shared=True), GroupTable(CAPACITY)
    return memory, table, Ring(memory.view, table.claim), reader_of(table, memory)


Parts = tuple[PageMemory, GroupTable, Ring, RecentGroups]


def put(ring: Ring, table: GroupTable, number: int, blocks: int = 1) -> Written:
    """One group, filled with its number, written and published at once."""
    group = Written(ring.allocate(blocks * BLOCK), number * BLOCK, 0, bytes([number]) * (blocks * BLOCK))
    group.span.memory[:] = group.content
    add(table, group)
    ring.release(group.span)
    return group


def test_all_released_memory_is_a_cache(parts: Parts) -> None:
    memory, _, _, _ = parts
    table = GroupTable(64)
    ring, reader = Ring(memory.view, table.claim), reader_of(table, memory)
    groups = [put(ring, table, number) for number in range(40)]
    found = [number for number, group in enumerate(groups) if reader.find(0, group.start, BLOCK)]
    assert found == list(range(40 - BLOCKS + 1, 40))  # all but what the log has claimed ahead


def test_a_ring_without_readers_uses_the_same_memory_again() -> None:
    ring = Ring(PageMemory(BLOCKS * BLOCK).view)
    for _ in range(5):
        span = ring.allocate(BLOCK)
        assert span.offset == 0
        ring.release(span)


def test_the_list_goes_round(parts: Parts) -> None:
    _, table, ring, reader = parts
    groups = [put(ring, table, number) for number in range(10)]
    found = [number for number, group in enumerate(groups) if reader.find(0, group.start, BLOCK)]
    assert found == list(range(10 - CAPACITY + 1, 10))  # the oldest one may be being overwritten


def test_what_was_found_before_is_known_after_the_list_went_round(parts: Parts) -> None:
    _, table, ring, reader = parts
    first = put(ring, table, 0)
    assert reader.find(0, first.start, BLOCK)
    for number in range(1, CAPACITY + 2):
        put(ring, table, number)
    assert reader.find(0, first.start, BLOCK)


def test_nothing_is_intact_after_the_end(parts: Parts) -> None:
    _, table, ring, reader = parts
    group = put(ring, table, 3)
    found = reader.find(0, group.start, BLOCK)
    assert found is not None
    table.end()
    assert not reader.is_intact(found[1])
    assert reader.find(0, group.start, BLOCK) is None


def test_only_whole_frames_of_the_right_stack_are_found(parts: Parts) -> None:
    _, table, ring, reader = parts
    group = put(ring, table, 1, blocks=2)
    assert reader.find(0, group.start + 10, 2 * BLOCK - 10)
    assert reader.find(0, group.start + 10, 2 * BLOCK) is None
    assert reader.find(0, group.start - 1, 10) is None
    assert reader.find(1, group.start, 10) is None
    assert reader.find(-1, group.start, 10) is None


def test_a_group_written_again_elsewhere_is_found_there(parts: Parts) -> None:
    _, table, ring, reader = parts
    put(ring, table, 0)
    moved = Written(ring.allocate(BLOCK), 5 * BLOCK, 0, b"m" * BLOCK)
    moved.span.memory[:] = moved.content
    add(table, moved)
    moved.start, moved.stack = BLOCK, 1
    add(table, moved)
    ring.release(moved.span)
    for stack, start in ((1, BLOCK), (0, 5 * BLOCK)):
        found = reader.find(stack, start, BLOCK)
        assert found is not None
        assert bytes(found[0]) == moved.content


def test_an_earlier_place_noted_late_is_found(parts: Parts) -> None:
    _, table, ring, reader = parts
    late, early = put(ring, table, 9), put(ring, table, 4)
    assert reader.find(0, late.start, BLOCK)
    assert reader.find(0, early.start, BLOCK)


def test_a_reader_beside_a_writer_never_takes_a_wrong_frame() -> None:
    memory, table = PageMemory(64 * BLOCK, shared=True), GroupTable(16)
    ring, reader = Ring(memory.view, table.claim), reader_of(table, memory)
    is_over = threading.Event()
    last = [0]

    def write() -> None:
        number = 0
        while not is_over.is_set():
            span = ring.allocate(4 * BLOCK)
            np.frombuffer(span.memory, np.uint64)[:] = number
            add(table, Written(span, number * 4 * BLOCK, 0, bytes(span.length)))
            ring.release(span)
            last[0] = number
            number += 1

    thread = threading.Thread(target=write)
    thread.start()
    intact = overtaken = 0
    try:
        while intact < 3000 or overtaken < 3:
            assert thread.is_alive()
            number = max(0, last[0] - overtaken % 16)
            found = reader.find(0, number * 4 * BLOCK, 4 * BLOCK)
            if found is None:
                overtaken += 1
                continue
            values = np.frombuffer(found[0], np.uint64).copy()
            if reader.is_intact(found[1]):
                assert (values == number).all()
                intact += 1
            else:
                overtaken += 1
    finally:
        is_over.set()
        thread.join()


@pytest.mark.parametrize("grows", [False, True])
def test_a_lease_ends_before_its_bytes_are_handed_out(parts: Parts, grows: bool) -> None:
    memory, _, _, _ = parts
    table = GroupTable(64)
    ring, reader = Ring(memory.view, table.claim), reader_of(table, memory)
    groups = [put(ring, table, number) for number in range(BLOCKS)]
    leases = [(number, *found) for number in range(3, BLOCKS) if (found := reader.find(0, groups[number].start, BLOCK))]
    assert len(leases) == BLOCKS - 3
    span = ring.allocate(BLOCK if grows else 8 * BLOCK)
    if grows:
        assert ring.extend(span, 8 * BLOCK)
    span.memory[:] = b"x" * len(span.memory)
    for number, pixels, position in leases:
        if number != 8:  # a part of it is claimed ahead
            assert reader.is_intact(position) == (bytes(pixels) == groups[number].content) == (number > 8)


class Producer:
    """Memory that the daemon and a reader have mapped, and slots in it."""

    def __init__(self, slots: int = 8) -> None:
        self.memory = PageMemory((slots + 1) * BLOCK, shared=True)
        self.address = address_of(self.memory.view)
        self.claims_at = slots * BLOCK
        self.claims = self.memory.view[self.claims_at :][:CLAIM_BYTES].cast("q")

    def lend_to(self, reader: RecentGroups, *, has_claims: bool = False) -> None:
        assert self.memory.descriptor is not None
        reader.lend(self.address, map_memory(self.memory.descriptor), self.claims_at if has_claims else None)

    def frame(self, number: int, slot: int, offset: int, content: int) -> Written:
        """A frame of a block, its place in the stack file being a block behind that of its group."""
        pixels = self.memory.view[slot * BLOCK : (slot + 1) * BLOCK]
        pixels[:] = bytes([content]) * BLOCK
        place = Placement(frames_of(number, BLOCK), offset, 0, offset + BLOCK, 0, offset + 2 * BLOCK, packed=False)
        return Written(Span(pixels, 0, 0, beside=True), offset, 0, b"", pixels, [place])


def test_frames_in_memory_of_the_producers_are_there_until_they_are_released(parts: Parts) -> None:
    _, table, _, reader = parts
    producer = Producer()
    for number in range(3):
        add(table, producer.frame(number, number, 2 * number * BLOCK, number + 1))
    assert reader.find(0, BLOCK, BLOCK) is None  # nobody has lent that memory
    producer.lend_to(reader)
    for number in range(3):
        found = reader.find(0, (2 * number + 1) * BLOCK, BLOCK)
        assert found is not None
        assert bytes(found[0]) == bytes([number + 1]) * BLOCK
    found = reader.find(0, 3 * BLOCK, BLOCK)
    assert found is not None
    table.release(1)
    assert reader.is_intact(found[1])
    assert reader.find(0, BLOCK, BLOCK) is None
    table.release(2)
    assert not reader.is_intact(found[1])
    assert reader.find(0, 3 * BLOCK, BLOCK) is None
    assert reader.find(0, 5 * BLOCK, BLOCK) is not None
    table.end()
    assert reader.find(0, 5 * BLOCK, BLOCK) is None


@pytest.mark.parametrize("word", [0, 1])
def test_a_producer_that_claims_its_memory_back_leaves_frames_there_until_then(parts: Parts, word: int) -> None:
    _, table, _, reader = parts
    producer, other = Producer(), Producer()
    for number in range(3):
        add(table, producer.frame(number, number, 2 * number * BLOCK, number + 1))
    producer.lend_to(reader, has_claims=True)
    other.lend_to(reader, has_claims=True)
    other.claims[word] = 100  # another memory's
    table.release(3)
    found = [reader.find(0, (2 * number + 1) * BLOCK, BLOCK) for number in range(3)]
    assert [bytes(one[0][:1]) for one in found if one is not None] == [b"\1", b"\2", b"\3"]
    producer.claims[word] = 2
    assert [one is not None and reader.is_intact(one[1]) for one in found] == [False, False, True]
    assert [reader.find(0, (2 * number + 1) * BLOCK, BLOCK) is None for number in range(3)] == [True, True, False]
    table.move()
    assert found[2] is not None
    assert not reader.is_intact(found[2][1])
    assert reader.find(0, 5 * BLOCK, BLOCK) is None


def test_a_memory_that_gave_way_to_others_is_not_asked_any_more(parts: Parts) -> None:
    _, table, _, reader = parts
    producers = Producer(), Producer(), Producer()
    add(table, producers[0].frame(0, 5, 0, 1))
    producers[0].lend_to(reader, has_claims=True)
    found = reader.find(0, BLOCK, BLOCK)
    assert found is not None
    assert reader.is_intact(found[1])
    for later in producers[1:]:
        later.lend_to(reader, has_claims=True)
    assert not reader.is_intact(found[1])


def test_two_memories_of_the_producers_are_told_apart(parts: Parts) -> None:
    _, table, _, reader = parts
    producers = Producer(), Producer(), Producer()
    for number, producer in enumerate(producers):
        add(table, producer.frame(number, 5, 2 * number * BLOCK, number + 1))
        producer.lend_to(reader)
    found = [reader.find(0, (2 * number + 1) * BLOCK, BLOCK) for number in range(3)]
    assert found[0] is None  # two at most are kept
    assert [bytes(one[0][:1]) for one in found[1:] if one is not None] == [b"\2", b"\3"]


def test_frames_behind_a_place_come_in_order(parts: Parts) -> None:
    _, _, ring, reader = parts
    table, producer = parts[1], Producer()
    producer.lend_to(reader)
    inside = producer.frame(1, 1, 4 * BLOCK, 9)
    inside.span, inside.outside = ring.allocate(2 * BLOCK), None
    inside.span.memory[:] = b"p" * BLOCK + b"q" * BLOCK
    packed = Written(ring.allocate(BLOCK), 6 * BLOCK, 0, b"s" * BLOCK)
    other = producer.frame(3, 3, 7 * BLOCK, 3)
    other.placements[0] = other.placements[0]._replace(frames=frames_of(3, BLOCK - 2))
    add(table, producer.frame(0, 0, 2 * BLOCK, 1), inside, packed, other, producer.frame(4, 4, 9 * BLOCK, 4))
    frames = [(key, bytes(pixels[:1]), reader.is_intact(token)) for key, pixels, token in reader.after(-1, BLOCK)]
    assert frames == [(3 * BLOCK, b"\1", True), (5 * BLOCK, b"q", True), (10 * BLOCK, b"\4", True)]
    assert [key for key, _, _ in reader.after(5 * BLOCK, BLOCK)] == [10 * BLOCK]
    table.release(1)
    assert [key for key, _, _ in reader.after(-1, BLOCK)] == [5 * BLOCK, 10 * BLOCK]


def test_nothing_is_true_once_groups_went_elsewhere(parts: Parts) -> None:
    _, table, ring, reader = parts
    producer = Producer()
    producer.lend_to(reader)
    group, frame = put(ring, table, 1), producer.frame(2, 0, 2 * BLOCK, 2)
    add(table, frame)
    found = [reader.find(0, group.start, BLOCK), reader.find(0, 3 * BLOCK, BLOCK)]
    table.move()
    assert reader.is_moved
    for one in found:
        assert one is not None
        assert not reader.is_intact(one[1])
    assert reader.find(0, group.start, BLOCK) is None
    assert not list(reader.after(-1, BLOCK))


def test_a_reader_beside_a_producer_never_takes_a_wrong_frame() -> None:
    memory, table = PageMemory(BLOCK, shared=True), GroupTable(16)
    reader, producer = reader_of(table, memory), Producer(4)
    producer.lend_to(reader)
    is_over = threading.Event()

    def produce() -> None:
        number = 0
        while not is_over.is_set():
            add(table, producer.frame(number, number % 4, 2 * number * BLOCK, number % 251))
            number += 1
            table.release(number - 3)

    thread = threading.Thread(target=produce)
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    thread.start()
    intact = 0
    last = -1
    try:
        while intact < 300:
            assert thread.is_alive()
            for key, pixels, token in reader.after(last, BLOCK):
                seen = bytes(pixels[: BLOCK // 2])
                time.sleep(0)  # the other thread may be quicker here
                seen += bytes(pixels[BLOCK // 2 :])
                if reader.is_intact(token):
                    assert seen == bytes([(key // BLOCK - 1) // 2 % 251]) * BLOCK
                    intact += 1
                last = key
    finally:
        sys.setswitchinterval(interval_s)
        is_over.set()
        thread.join()


@pytest.mark.skipif(sys.platform != "linux", reason="mapped memory files are counted in /proc")
def test_a_reader_unmaps_the_memory_of_a_log_that_has_ended() -> None:
    def mapped() -> int:
        return Path("/proc/self/maps").read_text(encoding="utf-8").count("memfd:acqstream")

    gc.collect()
    before = mapped()
    memory, table = PageMemory(8 * 2**20, shared=True), GroupTable(16)
    recent = reader_of(table, memory)
    del memory
    with_ring = mapped()
    recent.forget_if_ended()
    assert mapped() == with_ring
    table.end()
    recent.forget_if_ended()
    assert mapped() < with_ring
    assert recent.find(0, 0, 16) is None
    del recent, table
    gc.collect()
    assert mapped() == before
