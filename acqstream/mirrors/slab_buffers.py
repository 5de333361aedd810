"""Memory of a mirror's slabs, taken once, layer by layer, and used again by its next slabs.

A mirror that is behind waits for a buffer that is in use (`Assembly`), in place of taking more memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

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
        self._free: list[list[NDArray[np.uint8]]] = [[] for _ in grids]

    def has_free(self, level: int) -> bool:
        """Return True if a layer needs no new memory."""
        return bool(self._free[level])

    def needs_fresh(self, level: int) -> bool:
        """Return True if a layer would have to get memory from the system."""
        return not self._memory.has(self._head_bytes + self._grids[level].layer_bytes)

    def take(self, level: int, plane: int | None = None) -> SlabBuffer:
        """Return a buffer with memory for the layer of a plane, or for all layers. See `complete`."""
        buffer = SlabBuffer(self._grids[level], self._byte_order, is_empty=True)
        self.complete(level, buffer, plane)
        return buffer

    def complete(self, level: int, buffer: SlabBuffer, plane: int | None = None) -> None:
        """Give memory to the layer of a plane, or to all layers: with pixels of earlier slabs, or new and zeroed."""
        for layer in buffer.missing(plane):
            free = self._free[level]
            length = self._head_bytes + self._grids[level].layer_bytes
            buffer.add(layer, free.pop() if free else self._memory.take(length)[self._head_bytes :])

    def give_back(self, level: int, buffer: SlabBuffer) -> None:
        """Have the memory of a buffer used by other slabs of its level; the buffer is not used any more."""
        self._free[level] += buffer.memory

    def close(self) -> None:
        """Drop the free memory. That of a slab is free when its last view is gone."""
        self._free = [[] for _ in self._grids]
        self._memory.collect()
