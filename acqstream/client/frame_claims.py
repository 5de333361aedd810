"""Tells readers which published frames still lie in shared memory. Pure, except for two integers in that memory.

The daemon's views read frames where their producer has put them. A published frame stays there until the ring comes
round to its place. Before a place is used again, its frames are taken back here; readers look, and drop what they have
read of such a frame.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from acqstream.client.frame_ring import LARGE_FRAME_BYTES


class _Released(NamedTuple):
    """A frame that still lies at start .. end - 1. number_end is one more than its number."""

    number_end: int
    start: int
    end: int


class FrameClaims:
    """The large frames that were released and not overwritten, oldest first.

    words: see `model.memory_claims`; None in memory that is not shared. `claim` is called by the thread that puts a
    frame, `release` by the one that receives the daemon's messages.
    """

    def __init__(self, words: memoryview | None = None) -> None:
        self._words = words
        self.released: deque[_Released] = deque()

    def close(self) -> None:
        """Let the memory go: the run has ended, and no frame is put after this."""
        self._words = None

    def release(self, number_end: int, start: int, frame_bytes: int, count: int) -> None:
        """Note frames up to number_end - 1, which lie back to back, before the ring may give out their place."""
        words = self._words
        if words is None:
            return
        if frame_bytes >= LARGE_FRAME_BYTES:
            self.released.append(_Released(number_end, start, start + count * frame_bytes))
        else:
            words[1] = number_end  # the daemon has copied these, and views read the copy

    def claim(self, start: int, end: int, head: int) -> None:
        """Take back what lies at start .. end - 1, before it is overwritten. head: the end of the youngest frame."""
        taken = 0
        is_round = start < head
        while self.released:
            oldest = self.released[0]
            is_passed = is_round and oldest.start >= head  # at the end of the buffer, where the new frame had no room
            if not is_passed and (oldest.start >= end or oldest.end <= start):
                break
            taken = self.released.popleft().number_end
        if taken and self._words is not None:
            self._words[0] = taken
