"""The memory budget: one region taken at the start, shares of it lent to acquisitions."""

from __future__ import annotations

from acqstream.errors import AcquisitionRefused
from acqstream.storage.memory import PageMemory

SHARE_STEP_BYTES = 2 * 2**20
SHARE_OF_FREE = 4  # every acquisition gets a quarter of what is free, so that there is always some left
LEAST_FRAMES = 4  # below this many frames in flight the disk would stand still between two of them


class Share:
    """Part of the budget, lent until `close`."""

    __slots__ = ("_budget", "length", "offset", "view")

    def __init__(self, budget: MemoryBudget, offset: int, length: int, view: memoryview) -> None:
        self._budget = budget
        self.offset = offset
        self.length = length
        self.view = view

    def close(self) -> None:
        """Give it back; nothing may use `view` any more."""
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
        """A share for one acquisition, large enough for LEAST_FRAMES frames where their size is known.

        Raises AcquisitionRefused with the numbers when there is not enough left.
        """
        free = self.budget_bytes - self.used_bytes
        wanted = max(free // SHARE_OF_FREE, 2 * SHARE_STEP_BYTES, LEAST_FRAMES * ((frame_bytes or 0) + 16384) * 2)
        wanted -= wanted % -SHARE_STEP_BYTES
        offset = self._first_fit(wanted)
        if offset is None:
            raise AcquisitionRefused(
                f"not enough memory: {wanted} bytes wanted, {free} of {self.budget_bytes} are free and "
                f"{len(self._shares)} acquisitions run; raise memory_mb or finish one",
                code="denied",
            )
        share = Share(self, offset, wanted, self.memory.view[offset : offset + wanted])
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
