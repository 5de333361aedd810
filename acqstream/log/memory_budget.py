"""The memory budget: one region allocated at the start, shares of it lent to acquisitions."""

from __future__ import annotations

from acqstream.errors import AcquisitionRefused
from acqstream.storage.page_memory import PageMemory

SHARE_STEP_BYTES = 2 * 2**20
SHARE_OF_FREE = 4  # every acquisition gets a quarter of what is free, so that some always remains
MIN_FRAMES = 4  # with fewer frames in flight the disk would idle between two of them


class Share:
    """Part of the budget, lent until `close`."""

    __slots__ = ("_budget", "length", "offset", "view")

    def __init__(self, budget: MemoryBudget, offset: int, length: int, view: memoryview) -> None:
        self._budget = budget
        self.offset = offset
        self.length = length
        self.view = view

    def close(self) -> None:
        """Return it to the budget; nothing may use `view` afterwards."""
        self._budget.give_back(self)


class MemoryBudget:
    """Lends shares of one prefaulted region, first fit. Used from one thread."""

    def __init__(self, budget_bytes: int) -> None:
        self.budget_bytes = budget_bytes - budget_bytes % SHARE_STEP_BYTES
        self.peak_bytes = 0
        self.memory = PageMemory(self.budget_bytes, shared=True)  # with the process of the views
        self._shares: list[Share] = []

    @property
    def used_bytes(self) -> int:
        return sum(share.length for share in self._shares)

    def lend(self, frame_bytes: int | None = None) -> Share:
        """A share for one acquisition, large enough for MIN_FRAMES frames where their size is known.

        Raises AcquisitionRefused with the numbers when too little is free.
        """
        free = self.budget_bytes - self.used_bytes
        share_bytes = max(free // SHARE_OF_FREE, 2 * SHARE_STEP_BYTES, MIN_FRAMES * ((frame_bytes or 0) + 16384) * 2)
        share_bytes -= share_bytes % -SHARE_STEP_BYTES
        offset = self._first_fit(share_bytes)
        if offset is None:
            raise AcquisitionRefused(
                f"not enough memory: {share_bytes} bytes needed, {free} of {self.budget_bytes} are free and "
                f"{len(self._shares)} acquisitions run; raise memory_mb or finish one",
                code="denied",
            )
        share = Share(self, offset, share_bytes, self.memory.view[offset : offset + share_bytes])
        self._shares.append(share)
        self._shares.sort(key=lambda one: one.offset)
        self.peak_bytes = max(self.peak_bytes, self.used_bytes)
        return share

    def give_back(self, share: Share) -> None:
        """See `Share.close`."""
        self._shares.remove(share)

    def _first_fit(self, length: int) -> int | None:
        start = 0
        for share in self._shares:
            if share.offset - start >= length:
                return start
            start = share.offset + share.length
        return start if self.budget_bytes - start >= length else None
