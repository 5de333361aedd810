"""Counts the stored rows of each member: the watermark below which readers may read while more is written.

Chunks written in place may be half old and half new while their row is in progress. Rows that were never started are
zeros, so they do not keep the watermark down if planes arrive in another order.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from acqstream.arrays.array_spec import Position
from acqstream.formats.watermark_layout import ChunkPlace, Rows

_MAX_MEMBERS = 1000  # kept in memory, if none of their rows is in progress


@dataclass(slots=True)
class _Progress:
    """Rows of one part at one level. top: one after the last complete row; begun: columns of rows in progress."""

    announced: int
    top: int
    begun: dict[int, set[tuple[int, int]]] = field(default_factory=dict)

    def raise_mark(self) -> bool:
        before = self.announced
        self.announced = max(before, min([self.top, *self.begun]))
        return self.announced > before


class Watermarks:
    """Rows of all members that are being written; from any thread.

    row_chunks: number of chunks in a row, by level. known: the rows of a member that an earlier process announced.
    """

    def __init__(self, row_chunks: Sequence[int], known: Callable[[Position], Rows]) -> None:
        self._row_chunks = row_chunks
        self._known = known
        self._lock = threading.Lock()
        self._members: dict[Position, dict[tuple[int, int], _Progress]] = {}
        self._raised: set[Position] = set()
        self._max_members = _MAX_MEMBERS

    def begin(self, level: int, place: ChunkPlace) -> None:
        """Note that a chunk is about to be written."""
        row = place.row
        with self._lock:
            found = self._progress(level, place)
            if row >= found.announced:
                found.begun.setdefault(row, set()).discard(place.column)

    def end(self, level: int, place: ChunkPlace) -> None:
        """Note that a chunk was written, though not forced."""
        row = place.row
        with self._lock:
            found = self._progress(level, place)
            chunks = found.begun.get(row)
            if chunks is None:
                return
            chunks.add(place.column)
            if len(chunks) >= self._row_chunks[level]:
                del found.begun[row]
                found.top = max(found.top, row + 1)
                if found.raise_mark():
                    self._raised.add(place.member)

    def take_raised(self) -> dict[Position, Rows]:
        """The members with more rows than when they were taken last."""
        with self._lock:
            raised, self._raised = self._raised, set()
            return {member: self._rows(member) for member in raised}

    def put_back(self, members: Mapping[Position, Rows]) -> None:
        """Take them again next time: they could not be announced."""
        with self._lock:
            self._raised |= members.keys()

    def all(self) -> dict[Position, Rows]:
        """The rows of every member that is kept in memory."""
        with self._lock:
            return {member: self._rows(member) for member in self._members}

    def _rows(self, member: Position) -> Rows:
        return {key: progress.announced for key, progress in self._members[member].items()}

    def _progress(self, level: int, place: ChunkPlace) -> _Progress:
        found = self._members.get(place.member)
        if found is None:
            if len(self._members) >= self._max_members:
                self._forget()
            known = self._known(place.member)
            found = {key: _Progress(rows, rows) for key, rows in known.items()}
            self._members[place.member] = found
        return found.setdefault((level, place.part), _Progress(0, 0))

    def _forget(self) -> None:
        """Drop members without a row in progress: their rows are announced, and read from there again."""
        for member, found in list(self._members.items()):
            if member not in self._raised and not any(progress.begun for progress in found.values()):
                del self._members[member]
        self._max_members = max(_MAX_MEMBERS, 2 * len(self._members))
