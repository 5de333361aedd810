"""Pre-faulted, page-aligned memory; other processes may map it read-only where the system has memory files (Linux)."""

from __future__ import annotations

import mmap
import os
import platform

import numpy as np

from acqstream.storage.handover import seal_memory
from acqstream.storage.huge_pages import map_file
from acqstream.storage.platform import map_private
from acqstream.storage.platform.capabilities import has_memory_files

_STRONGLY_ORDERED = frozenset({"x86_64", "amd64"})


class PageMemory:
    """A zeroed, page-aligned, prefaulted region, in huge pages where the system has them.

    The region lives as long as any view of it does. shared: the region is a sealed memory file, which other processes
    map with `handover.map_memory` through `descriptor`. If the system cannot do that, `descriptor` is None and
    `private_reason` is the reason.
    """

    def __init__(self, length: int, *, shared: bool = False) -> None:
        self.descriptor, self.private_reason = _memory_file(length) if shared else (None, "sharing was not requested")
        if self.descriptor is not None:
            self.view = map_file(self.descriptor, length, is_ours=True)
            seal_memory(self.descriptor)
        else:
            self.view = map_private(length)
        # One byte a page brings the page in; assigning through numpy releases no lock but takes 0.1 s per GiB.
        np.frombuffer(self.view, dtype=np.uint8)[:: mmap.PAGESIZE] = 0

    def __len__(self) -> int:
        return len(self.view)

    def __del__(self) -> None:
        descriptor = getattr(self, "descriptor", None)
        if descriptor is not None:
            os.close(descriptor)  # the mapping stays while there are views


def _memory_file(length: int) -> tuple[int | None, str]:
    """A descriptor and "", or None and the reason."""
    machine = platform.machine().lower()
    if not has_memory_files():
        return None, "this system has no memory files that can be sealed (memfd)"
    if machine not in _STRONGLY_ORDERED:
        # Readers find out without a lock whether bytes were overwritten: stores must be seen in their order.
        return None, f"on {machine} another process may see stores out of order"
    descriptor = -1
    try:
        descriptor = os.memfd_create("acqstream", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(descriptor, length)
    except OSError as error:
        if descriptor >= 0:
            os.close(descriptor)
        return None, f"cannot create a memory file of {length} bytes: {error}"
    return descriptor, ""
