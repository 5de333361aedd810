"""Page-aligned memory, which other processes may map read-only where the system can share it.

The system clears each page of fresh memory, which costs as much processor time as filling it. So who uses pieces of one
size takes them in the background, uses them again until it ends, and gives them back to the system then.
"""

from __future__ import annotations

import mmap
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from acqstream.storage.platform import map_private, shared_memory

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_STRONGLY_ORDERED = frozenset({"x86_64", "amd64"})


class PageMemory:
    """A zeroed, page-aligned region, in huge pages where the system has them. is_present: with all of its pages.

    The region lives as long as any view of it does. shared: other processes map the region read-only, with
    `handover.map_memory` through `descriptor` (a HANDLE on Windows), which this object closes. They may map more: whole
    pages. If the system cannot do that, `descriptor` is None and `private_reason` is the reason.
    """

    def __init__(self, length: int, *, shared: bool = False, is_present: bool = True) -> None:
        self.descriptor, self.private_reason = _memory_file(length) if shared else (None, "sharing was not requested")
        if self.descriptor is not None:
            self.view = shared_memory.map_own_memory(self.descriptor, length)
            shared_memory.seal_memory(self.descriptor)
        else:
            self.view = map_private(length)
        if is_present and self.descriptor is not None:
            shared_memory.bring_in(self.view)
        if is_present:
            touch(self.view)

    def bring_in(self, start: int, end: int) -> None:
        """Have the pages of these bytes before they are used. Contents stay, also while other threads write there."""
        shared_memory.bring_in(self.view[start:end])

    def __len__(self) -> int:
        return len(self.view)

    def __del__(self) -> None:
        descriptor = getattr(self, "descriptor", None)
        if descriptor is not None:
            shared_memory.close_handle(descriptor)  # the mapping stays while there are views


class MemoryAhead:
    """Pieces of `length` bytes, which a thread of its own takes from the system in advance. Used by one thread.

    At most `ahead` are taken before they are asked for, and max_pieces in all; None: no limit. Nothing is taken before
    the first `take`.
    """

    def __init__(self, length: int, *, ahead: int, max_pieces: int | None = None) -> None:
        self._length = length
        self._ahead = ahead
        self._remaining = max_pieces
        self._coming: deque[Future[NDArray[np.uint8]]] = deque()
        self._maker = ThreadPoolExecutor(1, thread_name_prefix="memory-ahead")

    @property
    def is_spent(self) -> bool:
        """True once max_pieces were taken."""
        return not self._coming and self._remaining == 0

    def take(self) -> NDArray[np.uint8]:
        """Return the next piece, zeros of shape (length,), on a page boundary; freed with its last view.

        Raises MemoryError or OSError if there is no memory. Not to be called once `is_spent`.
        """
        while len(self._coming) <= self._ahead and self._remaining != 0:
            self._coming.append(self._maker.submit(fresh_bytes, self._length))
            if self._remaining is not None:
                self._remaining -= 1
        return self._coming.popleft().result()

    def close(self) -> None:
        """End the thread and free the pieces that were not taken."""
        self._coming.clear()
        self._maker.shutdown(wait=False, cancel_futures=True)


def fresh_bytes(length: int) -> NDArray[np.uint8]:
    """Take `length` zeros from the system, on a page boundary and touched; they are freed with their last view.

    Raises MemoryError or OSError if there is no memory.
    """
    import numpy as np

    return np.frombuffer(PageMemory(max(1, length)).view, np.uint8)[:length]


def touch(view: memoryview) -> None:
    """Bring in all pages of memory that was not used yet: it is zeroed. numpy lets Python's lock go meanwhile."""
    import numpy as np

    np.frombuffer(view, dtype=np.uint8)[:: mmap.PAGESIZE] = 0  # one byte of each page


def sharing_unavailable_reason() -> str:
    """Why this system shares no memory with a process of ours; empty where it does."""
    if reason := shared_memory.memory_unavailable_reason():
        return reason
    machine = shared_memory.machine()
    # Readers find out without a lock whether bytes were overwritten: stores must be seen in their order.
    return "" if machine in _STRONGLY_ORDERED else f"on {machine} another process may see stores out of order"


def _memory_file(length: int) -> tuple[int | None, str]:
    """A handle and "", or None and the reason."""
    if reason := sharing_unavailable_reason():
        return None, reason
    try:
        return shared_memory.create_memory(length, "acqstream"), ""
    except OSError as error:
        return None, f"cannot create shared memory of {length} bytes: {error}"
