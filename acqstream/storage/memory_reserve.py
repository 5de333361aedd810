"""Memory that is taken from the system once, lent in pieces, and used again.

The system clears each page of fresh memory. That costs as much processor time as filling it, and on a virtual machine,
whose host has to find the page first, ten times as much. So what views have used stays here for the next ones, and a
process may take memory ahead, while no frames are waiting for it.
"""

from __future__ import annotations

import ctypes
import mmap
import threading
import weakref
from bisect import bisect
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from acqstream.storage.page_memory import PageMemory, touch
from acqstream.storage.platform import map_private

MAX_KEPT_BYTES = 2**30
STEP_BYTES = 16 * 2**20  # taken ahead at a time, and lent from then on


class MemoryReserve:
    """Free memory, up to max_kept_bytes beside what was taken ahead, which is lent in pieces. From any thread.

    fresh_count: how often memory was taken from the system because none here was large enough.
    """

    def __init__(self, max_kept_bytes: int = MAX_KEPT_BYTES) -> None:
        self.fresh_count = 0
        self._max_kept_bytes = max_kept_bytes
        self._regions: set[_Region] = set()
        # Those with free bytes, by the length of their longest span: mirrors of small chunks have thousands of regions.
        self._free: dict[int, dict[_Region, None]] = {}
        self._free_bytes = self._kept_for_good = 0  # the second: of these, in regions that never go back
        self._lock = threading.Lock()  # for all of the above
        self._returned: deque[tuple[_Region, int, int]] = deque()  # without the lock: garbage is collected anywhere

    @property
    def kept_bytes(self) -> int:
        """Bytes that could be lent."""
        with self._lock:
            self._collect()
            return self._free_bytes

    def prepare(self, length: int, is_ended: Callable[[], bool] = lambda: False) -> int:
        """Take memory ahead, page by page, and keep it for good. Returns the bytes taken before is_ended was true.

        Raises MemoryError or OSError if the system has too little.
        """
        region = _Region(map_private(length), is_permanent=True)
        with self._lock:
            self._regions.add(region)
        for start in range(0, length, STEP_BYTES):
            if is_ended():
                return start
            end = min(start + STEP_BYTES, length)
            touch(region.view[start:end])
            with self._lock:
                self._add(region, start, end)
        return length

    def has(self, length: int) -> bool:
        """Return True if `take` would lend memory that is here, in place of fresh one."""
        with self._lock:
            self._collect()
            size = _page_bytes(length)
            return any(longest >= size for longest in self._free)

    def take(self, length: int) -> NDArray[np.uint8]:
        """Lend zeros, shape (length,), on a page boundary and touched. They come back with their last view.

        Before fresh memory is taken, as much free memory goes back to the system: the process never holds more than
        was in use at one time, beside what it took ahead. Raises MemoryError or OSError if the system has none.
        """
        size = _page_bytes(length)
        with self._lock:
            self._collect()
            longest = min((one for one in self._free if one >= size), default=None)
            region = None if longest is None else next(reversed(self._free[longest]))
            if region is not None:
                with self._changing(region):
                    start, used_bytes = region.lend(size)
            else:
                self._drop(size)
                self.fresh_count += 1
        if region is None:
            region, start, used_bytes = _Region(PageMemory(size).view, used_bytes=size), 0, 0
            with self._lock:
                self._regions.add(region)
        piece = (ctypes.c_ubyte * size).from_buffer(region.view, start)
        weakref.finalize(piece, self._returned.append, (region, start, start + size)).atexit = False
        found = np.frombuffer(memoryview(piece), np.uint8, length)
        found[:used_bytes] = 0
        return found

    def collect(self) -> None:
        """Have what was returned kept, or go back to the system. `take` does so, too."""
        with self._lock:
            self._collect()

    def _collect(self) -> None:
        while self._returned:
            self._add(*self._returned.popleft())
        self._drop(self._free_bytes - self._kept_for_good - self._max_kept_bytes)

    def _add(self, region: _Region, start: int, end: int) -> None:
        with self._changing(region):
            region.add(start, end)

    @contextmanager
    def _changing(self, region: _Region) -> Iterator[None]:
        """Keep the counts of free bytes while a region gets some, or lends them."""
        self._forget(region)
        yield
        if region.longest:
            self._free.setdefault(region.longest, {})[region] = None
            self._count(region, region.kept_bytes)

    def _forget(self, region: _Region) -> None:
        same = self._free.get(region.longest, {})
        if region in same:
            del same[region]
            self._count(region, -region.kept_bytes)
            if not same:
                del self._free[region.longest]

    def _count(self, region: _Region, change: int) -> None:
        self._free_bytes += change
        if region.is_permanent:
            self._kept_for_good += change

    def _drop(self, length: int) -> None:
        """Give at least this many free bytes back to the system, or all of them."""
        if length <= 0:
            return
        for region in [one for same in self._free.values() for one in same if one.is_unused and not one.is_permanent]:
            self._forget(region)
            self._regions.remove(region)
            length -= len(region.view)
            if length <= 0:
                return


def _page_bytes(length: int) -> int:
    return -(-max(1, length) // mmap.PAGESIZE) * mmap.PAGESIZE


class _Region:
    """A mapping of the system with its free spans, in order. Its first used_bytes may have other values than zero.

    longest: the length of the longest span; kept_bytes: of all spans.
    """

    def __init__(self, view: memoryview, *, is_permanent: bool = False, used_bytes: int = 0) -> None:
        self.view = view
        self.is_permanent = is_permanent
        self.longest = self.kept_bytes = 0
        self._used_bytes = used_bytes
        self._spans: list[tuple[int, int]] = []  # begin and end

    @property
    def is_unused(self) -> bool:
        return self.longest == len(self.view)

    def lend(self, size: int) -> tuple[int, int]:
        """Take a piece of the shortest span that holds it. Returns its begin, and how many bytes were used before."""
        index = min(
            (n for n, (start, end) in enumerate(self._spans) if end - start >= size),
            key=lambda n: self._spans[n][1] - self._spans[n][0],
        )
        start, end = self._spans.pop(index)
        if start + size < end:
            self._spans.insert(index, (start + size, end))
        self.kept_bytes -= size
        self._measure()
        used_bytes = max(0, min(self._used_bytes - start, size))
        self._used_bytes = max(self._used_bytes, start + size)
        return start, used_bytes

    def add(self, start: int, end: int) -> None:
        """Note that these bytes are free."""
        self.kept_bytes += end - start
        at = bisect(self._spans, (start, end))
        if at < len(self._spans) and self._spans[at][0] == end:
            end = self._spans.pop(at)[1]
        if at and self._spans[at - 1][1] == start:
            at -= 1
            start = self._spans.pop(at)[0]
        self._spans.insert(at, (start, end))
        self._measure()

    def _measure(self) -> None:
        self.longest = max((end - start for start, end in self._spans), default=0)


VIEW_MEMORY = MemoryReserve()
"""That of all views which this process makes, at once or one after the other."""
