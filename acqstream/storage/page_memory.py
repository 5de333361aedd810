"""Pre-faulted, page-aligned memory, which other processes may map read-only where the system can share it."""

from __future__ import annotations

import mmap

import numpy as np

from acqstream.storage.platform import map_private, shared_memory

_STRONGLY_ORDERED = frozenset({"x86_64", "amd64"})


class PageMemory:
    """A zeroed, page-aligned, prefaulted region, in huge pages where the system has them.

    The region lives as long as any view of it does. shared: other processes map the region read-only, with
    `handover.map_memory` through `descriptor` (a HANDLE on Windows), which this object closes. They may map more: whole
    pages. If the system cannot do that, `descriptor` is None and `private_reason` is the reason.
    """

    def __init__(self, length: int, *, shared: bool = False) -> None:
        self.descriptor, self.private_reason = _memory_file(length) if shared else (None, "sharing was not requested")
        if self.descriptor is not None:
            self.view = shared_memory.map_own_memory(self.descriptor, length)
            shared_memory.seal_memory(self.descriptor)
        else:
            self.view = map_private(length)
        touch(self.view)

    def __len__(self) -> int:
        return len(self.view)

    def __del__(self) -> None:
        descriptor = getattr(self, "descriptor", None)
        if descriptor is not None:
            shared_memory.close_handle(descriptor)  # the mapping stays while there are views


def touch(view: memoryview) -> None:
    """Bring in all pages of memory that was not used yet: it is zeroed. numpy lets Python's lock go meanwhile."""
    np.frombuffer(view, dtype=np.uint8)[:: mmap.PAGESIZE] = 0  # one byte of each page


def _memory_file(length: int) -> tuple[int | None, str]:
    """A handle and "", or None and the reason."""
    if reason := shared_memory.memory_unavailable_reason():
        return None, reason
    machine = shared_memory.machine()
    if machine not in _STRONGLY_ORDERED:
        # Readers find out without a lock whether bytes were overwritten: stores must be seen in their order.
        return None, f"on {machine} another process may see stores out of order"
    try:
        return shared_memory.create_memory(length, "acqstream"), ""
    except OSError as error:
        return None, f"cannot create shared memory of {length} bytes: {error}"
