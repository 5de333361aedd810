"""The frames that lie in memory, the log's or their producer's, for followers: readers in other processes.

A small table, shared: a header of 64-bit words, then a circular list of the groups that the log took last, written or
not. The log's side costs a few stores per group. A reader uses the bytes first and then asks whether they were still
what it looked for: they were if their place had not been given to others by then. So a reader can neither delay the log
nor keep memory from it.

Order of stores: the log claims a place, and releases a producer's, before anybody writes there, and fills a record
before it counts it; a reader looks in the opposite order. Each word is one aligned store, and the processor shows
stores in their order (x86; elsewhere no memory is shared). Between a claim and the bytes that follow the log also gives
up a lock.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right, insort
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from acqstream.log.group import Group
from acqstream.model.state import CLAIM_BYTES
from acqstream.storage.page_memory import PageMemory

CAPACITY = 4096  # groups
_CLAIMED, _COUNT, _RELEASED, _IS_MOVED, _CAPACITY = 0, 1, 2, 3, 4  # words of the header
_HEADER_WORDS = 8  # a cache line
_RECORD_WORDS = 4  # see _Record
_NEVER = 2**62  # claimed after the end of the acquisition, so that no reader takes anything
_MAX_SERIALS = 2**16  # of memories; more than two are never there at a time
_MAX_LENT = 2  # memories of producers: the one before may still have frames that are not published


def place_key(stack: int, offset: int) -> int:
    """The key of a place in a stack file; keys grow in order of writing. Offsets are below 2**32."""
    return stack << 32 | offset


def address_of(memory: memoryview) -> int:
    """The address of its first byte, in this process."""
    address: int = np.frombuffer(memory, np.uint8).__array_interface__["data"][0]
    return address


class GroupTable:
    """The log's side; `descriptor` is for the readers, None where memory cannot be shared.

    claim, add and release are called under the lock of the intake; move by the thread that writes, before anything is
    published in another place than announced; end when the log has ended.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._memory = PageMemory(8 * (_HEADER_WORDS + capacity * _RECORD_WORDS), shared=True)
        self._words = self._memory.view.cast("q")
        self._words[_CAPACITY] = capacity
        self._count = 0

    @property
    def descriptor(self) -> int | None:
        return self._memory.descriptor

    def claim(self, position: int) -> None:
        """Bytes below this virtual position of the ring may be overwritten from now on."""
        self._words[_CLAIMED] = position

    def add(self, stack: int, group: Group) -> None:
        """The pixels of this closed group are in memory, and will be in stack file number `stack`."""
        first = group.placements[0]
        is_single = not first.packed
        start = first.pixels if is_single else group.start
        if group.outside is not None:
            place = -address_of(group.outside)
        elif group.span.beside:
            return
        else:
            place = group.span.position + start - group.start
        words, at = self._words, _HEADER_WORDS + self._count % self._capacity * _RECORD_WORDS
        words[at] = place_key(stack, start)
        words[at + 1] = first.frames.frame_bytes if is_single else group.end - start
        words[at + 2] = place
        words[at + 3] = first.frames.number if is_single else -1
        self._count += 1
        words[_COUNT] = self._count

    def release(self, next_number: int) -> None:
        """The producer may overwrite frames below this number where they lie in its memory."""
        self._words[_RELEASED] = next_number

    def move(self) -> None:
        """Invalidate the table: groups go to other places than announced."""
        self._words[_IS_MOVED] = 1

    def end(self) -> None:
        """The log has ended: its memory is freed once no reader maps it."""
        self._words[_CLAIMED] = _NEVER


class _Record(NamedTuple):
    """A group: key of its place in the stack files, length in bytes, place in memory, frame number.

    place is the virtual position in the ring; or, negative, the address in the daemon of a producer's memory. number is
    -1 for groups of packed frames; of others key, length and place are of the one frame's pixels.
    """

    key: int
    length: int
    place: int
    number: int


class _ProducerMemory(NamedTuple):
    """A producer's memory, at an address in the daemon. claims are the words with the numbers that it takes back."""

    serial: int
    address: int
    memory: memoryview
    claims: memoryview | None


class RecentGroups:
    """A reader's side: where the bytes of a stack file are in memory. Used by one thread, `lend` by any.

    table: the shared table; ring: the log's memory, as bytes; both mapped read-only.
    """

    def __init__(self, table: memoryview, ring: memoryview) -> None:
        self._words = table.cast("q")
        self._ring = ring
        self._capacity = self._words[_CAPACITY]  # the mapping may be longer
        self._seen = 0
        self._records: list[_Record] = []  # in order of their keys
        self._lent: list[_ProducerMemory] = []
        self._serials = itertools.count()

    def lend(self, address: int, memory: memoryview, claims: int | None = None) -> None:
        """A producer's memory, which the daemon has at this address; claims: where it has `memory_claims`."""
        words = None if claims is None else memory[claims : claims + CLAIM_BYTES].cast("q")
        lent = _ProducerMemory(next(self._serials) % _MAX_SERIALS, address, memory, words)
        self._lent = [*self._lent[1 - _MAX_LENT :], lent]

    def forget_if_ended(self) -> None:
        """Unmap the memory of a log that has ended, and that of its producer; frames that are in use keep it mapped."""
        if self._words[_CLAIMED] == _NEVER:
            self._ring = memoryview(b"")  # an empty slice would keep it mapped
            self._lent = []

    @property
    def has_news(self) -> bool:
        """There are groups that were not looked at."""
        return bool(self._words[_COUNT] != self._seen)

    @property
    def is_moved(self) -> bool:
        """The table is not true any more: what was learned from it is to be forgotten."""
        return bool(self._words[_IS_MOVED])

    def find(self, stack: int, offset: int, length: int) -> tuple[memoryview, int] | None:
        """Bytes offset .. offset + length - 1 of a stack file, and a token, which `is_intact` takes.

        None if they are not in memory.
        """
        self._refresh()
        key = place_key(stack, offset)
        at = bisect_right(self._records, (key, _NEVER)) - 1
        if at < 0:
            return None
        record = self._records[at]
        if key + length > record.key + record.length:
            return None
        return self._bytes(record, key - record.key, length)

    def after(self, key: int, length: int) -> Iterator[tuple[int, memoryview, int]]:
        """Frames of `length` bytes, not packed, whose places come after this one, published or not.

        In order: key of the place, pixels, and a token for `is_intact`.
        """
        self._refresh()
        for record in self._records[bisect_right(self._records, (key, _NEVER)) :]:
            if record.number >= 0 and record.length == length and (found := self._bytes(record, 0, length)) is not None:
                yield record.key, *found

    def is_intact(self, token: int) -> bool:
        """True if what was read there until now was what was asked for."""
        if self._words[_IS_MOVED]:
            return False
        if token < 0:
            number, serial = divmod(~token, _MAX_SERIALS)
            return any(lent.serial == serial and self._is_kept(lent, number) for lent in self._lent)
        return bool(self._words[_CLAIMED] <= token + len(self._ring))

    def _bytes(self, record: _Record, start: int, length: int) -> tuple[memoryview, int] | None:
        if record.place < 0:
            return self._lent_bytes(record, start, length)
        position = record.place + start
        if not self.is_intact(position):
            return None
        offset = position % len(self._ring)
        return self._ring[offset : offset + length], position

    def _lent_bytes(self, record: _Record, start: int, length: int) -> tuple[memoryview, int] | None:
        self.forget_if_ended()
        for lent in self._lent:
            offset = start - record.place - lent.address
            token = ~(record.number * _MAX_SERIALS + lent.serial)
            if offset >= 0 and offset + length <= len(lent.memory) and self.is_intact(token):
                return lent.memory[offset : offset + length], token
        return None

    def _is_kept(self, lent: _ProducerMemory, number: int) -> bool:
        """Return whether a frame of a producer's memory lies there still."""
        if lent.claims is None:
            return bool(self._words[_RELEASED] <= number)
        return max(lent.claims) <= number

    def _refresh(self) -> None:
        self.forget_if_ended()
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
        return _Record(*(self._words[at + word] for word in range(_RECORD_WORDS)))


@dataclass(frozen=True, slots=True)
class Followers:
    """table gets the groups that are in memory; followers read it as `recent_groups.RecentGroups`. texts returns, for
    the receipt, how far each follower is, by name, given the number of frames stored. begin is called with the folder
    once its files exist. Both are called in the log's own threads.
    """

    table: GroupTable | None = None
    texts: Callable[[int], Mapping[str, str]] = lambda _stored: {}
    begin: Callable[[Path], None] = lambda _folder: None


NO_FOLLOWERS = Followers()
