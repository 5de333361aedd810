"""Memory of logs: the budget of all of them, and the ring in the share of one.

The memory budget is a bound: an acquisition takes its share from the system when it is opened, and gives it back at its
end. The ring is block-aligned memory for groups of frames, released in the order of allocation.

File offset and memory address of a group are congruent modulo the block size because both start on a block. A span
never crosses the ring's end. The ring itself takes no lock: the log calls it under its own.

Every byte of a span has a virtual position: where it would lie if the ring never wrapped, lost ends included. Modulo
the ring's size it is the offset; a byte keeps its content until its position plus the ring's size is claimed.
"""

from __future__ import annotations

import gc
import threading
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from acqstream.errors import AcquisitionRefused, ConfigError
from acqstream.formats.ndtiff.layout import align_up
from acqstream.storage.memory_limit import check_memory
from acqstream.storage.page_memory import PageMemory

SHARE_STEP_BYTES = 2 * 2**20
SHARE_OF_FREE = 4  # every acquisition gets a quarter of what is free, so that some always remains
ALONE_BYTES = 128 * 2**20  # of a run of known frames that no view follows: more makes it no faster
FIRST_BYTES = 64 * 2**20  # present from the start where frames are not known: more than a slow camera ever uses
BUSY_BYTES = 8 * 2**20  # in use at once: the camera is not slow
PRESENT_STEP_BYTES = 16 * 2**20
_COLLECTIONS = 10  # for one share: what is in use longer goes with its last view
MIN_FRAMES = 4  # with fewer frames in flight the disk would idle between two of them


class Share:
    """Memory of one acquisition, until `close`. Its pages come with `bring_in`, or at their first use."""

    __slots__ = ("_asked", "_budget", "length", "memory")

    def __init__(self, budget: MemoryBudget, memory: PageMemory) -> None:
        self._budget = budget
        self._asked = 0
        self.memory: PageMemory | None = memory  # None once it was given back
        self.length = len(memory)

    @property
    def view(self) -> memoryview:
        """Its bytes, writable; empty once it was given back."""
        return self.memory.view if self.memory is not None else memoryview(b"")

    def bring_in(self, length: int) -> None:
        """Have the pages of its first bytes, up to this length, before frames need them: by a thread of its own."""
        start, end = self._asked, min(length, self.length)
        if start < end:
            self._asked = end
            with suppress(RuntimeError):  # no thread can be started: pages come at their first use
                threading.Thread(target=self._bring_in, args=(start, end), name="frame-memory", daemon=True).start()

    def close(self) -> None:
        """Give it back: the system has its pages again once nothing uses `view`."""
        self._budget.give_back(self)
        self.memory = None

    def _bring_in(self, start: int, end: int) -> None:
        for at in range(start, end, PRESENT_STEP_BYTES):
            memory = self.memory
            if memory is None:
                return
            memory.bring_in(at, min(at + PRESENT_STEP_BYTES, end))


class MemoryBudget:
    """Bounds the memory of all acquisitions, which each takes from the system while it runs. Used from one thread."""

    def __init__(self, budget_bytes: int) -> None:
        self.budget_bytes = budget_bytes - budget_bytes % SHARE_STEP_BYTES
        self.peak_bytes = 0
        self._shares: list[Share] = []
        self._ended: list[tuple[weakref.ref[object], int]] = []  # memory of shares given back; collections it outlived

    @property
    def used_bytes(self) -> int:
        return sum(share.length for share in self._shares)

    def lend(self, frame_bytes: int | None = None, *, is_followed: bool = False) -> Share:
        """A share for one acquisition, large enough for MIN_FRAMES frames where their size is known.

        is_followed: views read frames in it, so more of them stay longer. Frames of unknown size may be large.

        Raises AcquisitionRefused with the numbers when too little is free, or the system has too little.
        """
        self.collect()
        free = self.budget_bytes - self.used_bytes
        wanted = free // SHARE_OF_FREE
        if frame_bytes is not None and not is_followed:
            wanted = min(wanted, ALONE_BYTES)
        share_bytes = max(wanted, 2 * SHARE_STEP_BYTES, MIN_FRAMES * ((frame_bytes or 0) + 16384) * 2)
        share_bytes -= share_bytes % -SHARE_STEP_BYTES
        if share_bytes > free:
            raise AcquisitionRefused(
                f"not enough memory: {share_bytes} bytes needed, {free} of {self.budget_bytes} are free and "
                f"{len(self._shares)} acquisitions run; raise memory_mb or finish one",
                code="denied",
            )
        try:
            check_memory("memory_mb", share_bytes)
            share = Share(self, PageMemory(share_bytes, shared=True, is_present=False))  # with the process of the views
        except (ConfigError, MemoryError, OSError) as error:
            raise AcquisitionRefused(f"no memory for this run: {error}", code="denied") from error
        self._shares.append(share)
        self.peak_bytes = max(self.peak_bytes, self.used_bytes)
        return share

    def give_back(self, share: Share) -> None:
        """See `Share.close`."""
        self._shares.remove(share)
        self._ended.append((weakref.ref(share.view.obj), 0))

    def collect(self) -> None:
        """Free memory of ended acquisitions that is not free yet: after a failure their parts may refer to it."""
        left = [(memory, tries + 1) for memory, tries in self._ended if memory() is not None and tries < _COLLECTIONS]
        if left:
            gc.collect()
        self._ended = left


_CLAIM_SHARE = 64  # of the ring: claimed ahead, so that a group growing frame by frame seldom claims


class Span:
    """A run of bytes in the ring (or beside it), used by one group until released.

    position is the virtual position of its first byte; without meaning beside the ring.
    """

    __slots__ = ("_view", "beside", "length", "offset", "position")

    def __init__(self, view: memoryview, offset: int, length: int, *, beside: bool, position: int = -1) -> None:
        self._view = view
        self.offset = offset
        self.length = length
        self.beside = beside
        self.position = position

    @property
    def memory(self) -> memoryview:
        """The bytes, writable; valid until the span is released."""
        return self._view[self.offset : self.offset + self.length]


class Ring:
    """First-in, first-out allocator over one region.

    A span that does not fit gets memory of its own, beside the ring. The window keeps that rare (metadata far larger
    than before); `beside_peak_bytes` counts it.

    on_claim is for readers that look at the ring without holding anything in it: it gets the virtual position up to
    which bytes may be overwritten, before they are. With it all of the ring is used in turn, so that released
    bytes last long. Without it the same, cache-warm memory is used again as soon as all spans are released.
    """

    def __init__(self, region: memoryview, on_claim: Callable[[int], None] | None = None) -> None:
        self._region = region
        self._spans: deque[Span] = deque()
        self._head = 0  # where the next span starts
        self._position = 0  # of the head, virtual
        self._on_claim = on_claim
        self._claimed = 0
        self.size_bytes = len(region)
        self.peak_bytes = 0
        self.beside_bytes = 0
        self.beside_peak_bytes = 0

    def close(self) -> None:
        """Let the region go, as nothing is allocated any more; spans keep theirs."""
        self._region = memoryview(b"")

    @property
    def used_bytes(self) -> int:
        """Bytes between the oldest span and the newest, lost ends included."""
        oldest = self._oldest()
        if oldest is None:
            return 0
        used = self._head - oldest.offset
        return used if used > 0 else used + self.size_bytes

    def allocate(self, length: int) -> Span:
        """A span of at least `length` bytes (rounded up to blocks)."""
        length = align_up(length)
        offset = self._free_offset(length)
        if offset is None:
            return self._allocate_beside(length)
        if offset != self._head:
            self._position += self.size_bytes - self._head  # a lost end
        span = Span(self._region, offset, length, beside=False, position=self._position)
        self._head = offset + length
        self._position += length
        self._spans.append(span)
        try:
            self._claim()
        except BaseException:
            self.release(span)
            raise
        self.peak_bytes = max(self.peak_bytes, self.used_bytes)
        return span

    def fits_at_head(self, length: int) -> bool:
        """Return True if `allocate` would lose nothing at the ring's end."""
        offset = self._free_offset(align_up(length))
        return offset == self._head or (offset == 0 and self._head == self.size_bytes)

    def free_at_head(self) -> int:
        """Bytes in a row from the head on, up to the oldest span or the ring's end."""
        oldest = self._oldest()
        end = oldest.offset if oldest is not None and oldest.offset >= self._head else self.size_bytes
        return max(0, end - self._head - 1)

    def extend(self, span: Span, length: int) -> bool:
        """Make the newest span longer in place; False without free space after it."""
        length = align_up(length)
        if length <= span.length:
            return True
        if span.beside or self._spans[-1] is not span:
            return False
        oldest = self._spans[0]
        end = span.offset + length
        bound = oldest.offset if oldest.offset > span.offset else self.size_bytes
        if end > bound or (oldest.offset > span.offset and end == bound):
            return False
        self._position += length - span.length
        span.length = length
        self._head = end
        self._claim()
        self.peak_bytes = max(self.peak_bytes, self.used_bytes)
        return True

    def release(self, span: Span) -> None:
        """Release a span; memory returns to the ring when all older spans are released too."""
        if span.beside:
            self.beside_bytes -= span.length
            return
        span.length = -span.length  # released, in place
        while self._spans and self._spans[0].length < 0:
            self._spans.popleft()
        if not self._spans and self._on_claim is None:
            self._head = self._position = 0

    def _claim(self) -> None:
        """Announce that bytes up to the head, and a few free ones after it, may be overwritten."""
        if self._on_claim is not None and self._position > self._claimed:
            free_end = self._spans[0].position + self.size_bytes
            self._claimed = min(self._position + self.size_bytes // _CLAIM_SHARE, free_end)
            self._on_claim(self._claimed)

    def _oldest(self) -> Span | None:
        return self._spans[0] if self._spans else None

    def _free_offset(self, length: int) -> int | None:
        oldest = self._oldest()
        if oldest is None:
            if self._head + length <= self.size_bytes:
                return self._head
            return 0 if length <= self.size_bytes else None
        if self._head > oldest.offset:  # free: after the head, and before the oldest
            if self._head + length <= self.size_bytes:
                return self._head
            return 0 if length < oldest.offset else None
        # Kept one byte apart, so that head == oldest never means both full and empty.
        return self._head if self._head + length < oldest.offset else None

    def _allocate_beside(self, length: int) -> Span:
        span = Span(PageMemory(length).view, 0, length, beside=True)
        self.beside_bytes += length
        self.beside_peak_bytes = max(self.beside_peak_bytes, self.beside_bytes)
        return span
