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
from bisect import insort
from collections import deque
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from acqstream.storage.memory import PageMemory, touch
from acqstream.storage.platform import map_private

MAX_KEPT_BYTES = 2**30
STEP_BYTES = 16 * 2**20  # taken ahead at a time, and lent from then on


class MemoryReserve:
    """Free memory, up to max_kept_bytes, which is lent in pieces. From any thread.

    fresh_count: how often memory was taken from the system because none here was large enough.
    """

    def __init__(self, max_kept_bytes: int = MAX_KEPT_BYTES) -> None:
        self.fresh_count = 0
        self._max_kept_bytes = max_kept_bytes
        self._regions: list[_Region] = []
        self._lock = threading.Lock()  # for all of the above
        self._returned: deque[tuple[_Region, int, int]] = deque()  # without the lock: garbage is collected anywhere

    @property
    def kept_bytes(self) -> int:
        """Bytes that could be lent."""
        with self._lock:
            self._collect()
            return self._kept_bytes()

    def prepare(self, length: int, is_ended: Callable[[], bool] = lambda: False) -> int:
        """Take memory ahead, page by page, and keep it for good. Returns the bytes taken before is_ended was true.

        Raises MemoryError or OSError if the system has too little.
        """
        region = _Region(map_private(length), is_permanent=True)
        with self._lock:
            self._regions.append(region)
        for start in range(0, length, STEP_BYTES):
            if is_ended():
                return start
            end = min(start + STEP_BYTES, length)
            touch(region.view[start:end])
            with self._lock:
                region.add(start, end)
        return length

    def has(self, length: int) -> bool:
        """Return True if `take` would lend memory that is here, in place of fresh one."""
        with self._lock:
            self._collect()
            size = _page_bytes(length)
            return any(one.fit(size) for one in self._regions)

    def take(self, length: int) -> NDArray[np.uint8]:
        """Lend zeros, shape (length,), on a page boundary and touched. They come back with their last view.

        Before fresh memory is taken, as much free memory goes back to the system: the process never holds more than
        was in use at one time, beside what it took ahead. Raises MemoryError or OSError if the system has none.
        """
        size = _page_bytes(length)
        with self._lock:
            self._collect()
            region = min((one for one in self._regions if one.fit(size)), key=lambda one: one.fit(size), default=None)
            if region is not None:
                start, used_bytes = region.lend(size)
            else:
                self._drop(size)
                self.fresh_count += 1
        if region is None:
            region, start, used_bytes = _Region(PageMemory(size).view, used_bytes=size), 0, 0
            with self._lock:
                self._regions.append(region)
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
            region, start, end = self._returned.popleft()
            region.add(start, end)
        self._drop(self._kept_bytes() - self._max_kept_bytes)

    def _kept_bytes(self) -> int:
        return sum(one.kept_bytes for one in self._regions)

    def _drop(self, length: int) -> None:
        """Give at least this many free bytes back to the system, or all of them."""
        for region in [one for one in self._regions if one.is_unused and not one.is_permanent]:
            if length <= 0:
                return
            self._regions.remove(region)
            length -= len(region.view)


def _page_bytes(length: int) -> int:
    return -(-max(1, length) // mmap.PAGESIZE) * mmap.PAGESIZE


class _Region:
    """A mapping of the system with its free spans, in order. Its first used_bytes may have other values than zero."""

    def __init__(self, view: memoryview, *, is_permanent: bool = False, used_bytes: int = 0) -> None:
        self.view = view
        self.is_permanent = is_permanent
        self._used_bytes = used_bytes
        self._spans: list[tuple[int, int]] = []  # begin and end

    @property
    def kept_bytes(self) -> int:
        return sum(end - start for start, end in self._spans)

    @property
    def is_unused(self) -> bool:
        return self._spans == [(0, len(self.view))]

    def fit(self, size: int) -> int:
        """The length of the shortest span that holds so much; 0 if none does."""
        return min((end - start for start, end in self._spans if end - start >= size), default=0)

    def lend(self, size: int) -> tuple[int, int]:
        """Take a piece of the span that `fit` found. Returns its begin, and how many of its bytes were used before."""
        length = self.fit(size)
        index = next(n for n, (start, end) in enumerate(self._spans) if end - start == length)
        start, end = self._spans.pop(index)
        if start + size < end:
            self._spans.insert(index, (start + size, end))
        used_bytes = max(0, min(self._used_bytes - start, size))
        self._used_bytes = max(self._used_bytes, start + size)
        return start, used_bytes

    def add(self, start: int, end: int) -> None:
        """Note that these bytes are free."""
        insort(self._spans, (start, end))
        joined: list[tuple[int, int]] = []
        for span in self._spans:
            if joined and joined[-1][1] == span[0]:
                joined[-1] = joined[-1][0], span[1]
            else:
                joined.append(span)
        self._spans = joined


VIEW_MEMORY = MemoryReserve()
"""That of all views which this process makes, at once or one after the other."""
