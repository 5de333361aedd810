"""The queue of closed groups and gaps on their way to the writer, and their memory until they are published."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from acqstream.log.group import Gap, Group, add_gap
from acqstream.log.recent_groups import GroupTable
from acqstream.log.ring import Ring


class WriteQueue:
    """In order of frame numbers. Called under the lock of the intake. table, for followers, gets all groups."""

    def __init__(self, ring: Ring, table: GroupTable | None) -> None:
        self._ring = ring
        self._table = table
        self._entries: deque[Group | Gap] = deque()
        self._outside: deque[Group] = deque()  # with pixels in memory of the producer's, not published yet

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, group: Group) -> None:
        """Append a closed group."""
        if self._table is not None:
            self._table.add(group.stack, group)
        self._entries.append(group)

    def add_gap(self, gap: Gap) -> None:
        """Append skipped numbers."""
        add_gap(self._entries, gap)

    def keep_outside(self, group: Group) -> None:
        """Note that the pixels of a group lie in memory of the producer's until it is published."""
        self._outside.append(group)

    def is_ready(self, *, gaps_wait: bool) -> bool:
        """Return True if entries wait to be written; with gaps_wait gaps alone do not count."""
        if gaps_wait:
            return any(isinstance(entry, Group) for entry in self._entries)
        return bool(self._entries)

    def pop(self, max_bytes: int, *, gaps_wait: bool) -> list[Group | Gap]:
        """Remove entries until they reach max_bytes."""
        entries: list[Group | Gap] = []
        size = 0
        while size < max_bytes and self.is_ready(gaps_wait=gaps_wait):
            entry = self._entries.popleft()
            entries.append(entry)
            size += entry.end - entry.start if isinstance(entry, Group) else 0
        return entries

    def release(self, entries: Sequence[Group | Gap], next_number: int) -> None:
        """Give back the memory of entries that were published."""
        if self._table is not None:
            self._table.release(next_number)
        for entry in entries:
            if isinstance(entry, Group):
                self._ring.release(entry.span)
                entry.release_outside()
        while self._outside and self._outside[0].let_go is None:
            self._outside.popleft()

    def release_outside(self) -> None:
        """Give back all memory of the producer's: the log has ended."""
        while self._outside:
            self._outside.popleft().release_outside()
