"""Memory of a mirror's slabs, taken once and used again by its next slabs.

A mirror that is behind waits for a buffer that is in use (`Assembly`), in place of taking more memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from acqstream.mirrors.slab import ByteOrder, SlabBuffer
from acqstream.mirrors.slab_grid import SlabGrid
from acqstream.storage.memory_reserve import VIEW_MEMORY, MemoryReserve


class SlabBuffers:
    """The buffers of one mirror's slabs, by level. Used by one thread.

    byte_order, head_bytes: see ChunkFormat. memory: where buffers are taken from.
    """

    def __init__(
        self,
        grids: Sequence[SlabGrid],
        byte_order: ByteOrder,
        *,
        head_bytes: int = 0,
        memory: MemoryReserve = VIEW_MEMORY,
    ) -> None:
        self._grids = grids
        self._byte_order: ByteOrder = byte_order
        self._head_bytes = head_bytes
        self._memory = memory
        self._free: list[list[SlabBuffer]] = [[] for _ in grids]

    def has_free(self, level: int) -> bool:
        return bool(self._free[level])

    def needs_fresh(self, level: int) -> bool:
        """Return True if `take` would have to get memory from the system."""
        return not self._memory.has(self._head_bytes + self._grids[level].slab_bytes)

    def take(self, level: int) -> SlabBuffer:
        """Return a free buffer, with the pixels of its last slab, or else a new one, zeroed."""
        if self._free[level]:
            return self._free[level].pop()
        grid = self._grids[level]
        memory = self._memory.take(self._head_bytes + grid.slab_bytes)
        return SlabBuffer(grid, self._byte_order, memory[self._head_bytes :])

    def give_back(self, level: int, buffer: SlabBuffer) -> None:
        """Make a buffer free for another slab of its level."""
        self._free[level].append(buffer)

    def close(self) -> None:
        """Drop the free buffers. The memory of a slab is free when its last view is gone."""
        self._free = [[] for _ in self._grids]
        self._memory.collect()
