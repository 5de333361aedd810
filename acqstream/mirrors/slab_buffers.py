"""Memory of slabs, taken once and used again: by the next slabs of a mirror, and by those of the next mirror.

The system clears each page of fresh memory. That costs as much processor time as filling it, and more where the system
has to find the page first. So a mirror that is behind waits for a buffer that is in use (`Assembly`), and memory of a
mirror that has ended stays here for the next one.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from acqstream.mirrors.slab import ByteOrder, SlabBuffer
from acqstream.mirrors.slab_grid import SlabGrid
from acqstream.storage.memory import PageMemory

MAX_KEPT_BYTES = 2**30  # of free memory; the view process ends when it has had no view for some seconds


class SlabMemory:
    """Free memory of mirrors that have ended, by size in bytes. From any thread.

    fresh_count: how often memory was taken from the system.
    """

    def __init__(self, max_bytes: int = MAX_KEPT_BYTES) -> None:
        self.fresh_count = 0
        self.kept_bytes = 0
        self._max_bytes = max_bytes
        self._kept: dict[int, list[NDArray[np.uint8]]] = {}
        self._lock = threading.Lock()  # for all of the above

    def take(self, length: int) -> NDArray[np.uint8]:
        """Return zeroed memory of this many bytes, page-aligned and touched.

        Before fresh memory is taken as much free memory goes back to the system: the process never holds more than
        its mirrors had in use at one time.
        """
        with self._lock:
            kept = self._kept.get(length)
            memory = kept.pop() if kept else None
            if memory is None:
                self._drop(length)
                self.fresh_count += 1
            else:
                self.kept_bytes -= length
        if memory is None:
            return np.frombuffer(PageMemory(max(1, length)).view, np.uint8)[:length]
        memory[...] = 0
        return memory

    def give_back(self, memory: NDArray[np.uint8]) -> None:
        """Keep memory that `take` returned, up to max_bytes in all. The caller must not use it again."""
        with self._lock:
            if self.kept_bytes + len(memory) <= self._max_bytes:
                self._kept.setdefault(len(memory), []).append(memory)
                self.kept_bytes += len(memory)

    def _drop(self, length: int) -> None:
        """Drop at least this many bytes of free memory, or all of it."""
        while length > 0 and self._kept:
            size, pieces = next(iter(self._kept.items()))
            if pieces:
                pieces.pop()
                self.kept_bytes -= size
                length -= size
            if not pieces:
                del self._kept[size]


SHARED_MEMORY = SlabMemory()
"""That of all mirrors which this process makes, at once or one after the other."""


class SlabBuffers:
    """The buffers of one mirror's slabs, by level. Used by one thread."""

    def __init__(self, grids: Sequence[SlabGrid], byte_order: ByteOrder, memory: SlabMemory) -> None:
        self._grids = grids
        self._byte_order: ByteOrder = byte_order
        self._memory = memory
        self._free: list[list[SlabBuffer]] = [[] for _ in grids]
        self._pieces: list[NDArray[np.uint8]] = []  # of all buffers

    def has_free(self, level: int) -> bool:
        return bool(self._free[level])

    def take(self, level: int) -> SlabBuffer:
        """Return a free buffer, with the pixels of its last slab, or else a new one, zeroed."""
        if self._free[level]:
            return self._free[level].pop()
        grid = self._grids[level]
        self._pieces.append(self._memory.take(grid.slab_bytes))
        return SlabBuffer(grid, self._byte_order, self._pieces[-1])

    def give_back(self, level: int, buffer: SlabBuffer) -> None:
        """Make a buffer free for another slab of its level."""
        self._free[level].append(buffer)

    def close(self) -> None:
        """Return the memory of all buffers. No slab, and no task of one, may use its buffer from now on."""
        self._free = [[] for _ in self._grids]
        while self._pieces:
            self._memory.give_back(self._pieces.pop())
