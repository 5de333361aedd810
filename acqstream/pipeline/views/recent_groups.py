"""Which groups lie in the log's memory, for readers in another process that hold nothing there.

A small table, shared: a header of 64-bit words, then a circular list of the groups written last. The log's side costs
a few stores per group. A reader uses the bytes first and then asks whether they were still what it looked for: they
were if the log had not claimed their place by then. So a reader can neither delay the log nor keep memory from it.

Order of stores: the log claims a place before anybody writes there, and fills a record before it counts it; a reader
looks in the opposite order. Each word is one aligned store, and the processor shows stores in their order (x86;
elsewhere no memory is shared). Between a claim and the bytes that follow the log also gives up a lock.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable
from typing import NamedTuple

from acqstream.pipeline.group import Group
from acqstream.storage.memory import PageMemory

CAPACITY = 4096  # groups
_CLAIMED, _COUNT = 0, 1  # words of the header
_HEADER_WORDS = 8  # a cache line
_RECORD_WORDS = 3  # key, length, position
_NEVER = 2**62  # claimed when the acquisition has ended: nothing is there any more


def _key(stack: int, offset: int) -> int:
    """Of a place in a stack file, in order of writing. Offsets are below 2**32 there."""
    return stack << 32 | offset


class GroupTable:
    """The log's side; `descriptor` is for the readers, None where memory cannot be shared.

    claim is called under the ring's lock, add by the thread that writes, end when the log has ended.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._memory = PageMemory(8 * (_HEADER_WORDS + capacity * _RECORD_WORDS), shared=True)
        self._words = self._memory.view.cast("q")
        self._count = 0

    @property
    def descriptor(self) -> int | None:
        return self._memory.descriptor

    def claim(self, position: int) -> None:
        """Bytes below this virtual position of the ring may be overwritten from now on."""
        self._words[_CLAIMED] = position

    def add(self, stack: int, groups: Iterable[Group]) -> None:
        """These groups are in stack file number `stack` now, and still in memory."""
        words = self._words
        for group in groups:
            if group.span.beside or group.outside is not None:
                continue
            at = _HEADER_WORDS + self._count % self._capacity * _RECORD_WORDS
            words[at] = _key(stack, group.start)
            words[at + 1] = group.end - group.start
            words[at + 2] = group.span.position
            self._count += 1
            words[_COUNT] = self._count

    def end(self) -> None:
        """The log has ended and its memory will be used for other things."""
        self._words[_CLAIMED] = _NEVER


class _Record(NamedTuple):
    """A group: its place in the stack files, its length in bytes, its virtual position in the ring."""

    key: int
    length: int
    position: int


class RecentGroups:
    """A reader's side: where the bytes of a stack file are in memory. Used by one thread.

    table: the shared table; ring: the log's memory, as bytes; both mapped read-only.
    """

    def __init__(self, table: memoryview, ring: memoryview) -> None:
        self._words = table.cast("q")
        self._ring = ring
        self._capacity = (len(self._words) - _HEADER_WORDS) // _RECORD_WORDS
        self._seen = 0
        self._records: list[_Record] = []  # in order of their keys

    def find(self, stack: int, offset: int, length: int) -> tuple[memoryview, int] | None:
        """Bytes offset .. offset + length - 1 of a stack file, and their position, which `is_intact` takes.

        None if they are not in memory.
        """
        self._refresh()
        key = _key(stack, offset)
        at = bisect_right(self._records, (key, _NEVER)) - 1
        if at < 0:
            return None
        record = self._records[at]
        if key + length > record.key + record.length:
            return None
        position = record.position + key - record.key
        if not self.is_intact(position):
            return None
        start = position % len(self._ring)
        return self._ring[start : start + length], position

    def is_intact(self, position: int) -> bool:
        """True if what was read there until now was what `find` was asked for."""
        return bool(self._words[_CLAIMED] <= position + len(self._ring))

    def _refresh(self) -> None:
        count = self._words[_COUNT]
        if count == self._seen:
            return
        first = max(self._seen, count - self._capacity + 1)
        new = [self._read(number) for number in range(first, count)]
        # Records that the log has gone round to meanwhile may have been torn; the one it is at now, too.
        oldest_whole = self._words[_COUNT] - self._capacity + 1
        self._seen = count
        for record in new[max(0, oldest_whole - first) :]:
            if self._records and record.key < self._records[-1].key:
                insort(self._records, record)
            else:
                self._records.append(record)
        if len(self._records) > 2 * self._capacity:
            del self._records[: -self._capacity]

    def _read(self, number: int) -> _Record:
        at = _HEADER_WORDS + number % self._capacity * _RECORD_WORDS
        return _Record(self._words[at], self._words[at + 1], self._words[at + 2])
