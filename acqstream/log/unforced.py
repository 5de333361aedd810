"""The part of journal and index that was written and not forced to the disk yet."""

from __future__ import annotations

import time
from collections.abc import Sequence

from acqstream.formats.ndtiff.placement import Pages
from acqstream.log.journal import MAX_UNFORCED_BYTES, MAX_UNFORCED_ENTRIES
from acqstream.model.acquisition_spec import DurabilityMode

_FORCE_AT_ENTRIES = MAX_UNFORCED_ENTRIES // 2  # the remainder is for one batch
_FORCE_AT_BYTES = MAX_UNFORCED_BYTES // 2


class UnforcedTail:
    """Decides when journal and index are forced. Used by the committing thread only.

    has_gap: the journal has a gap that is not forced.
    """

    def __init__(self, durability: DurabilityMode) -> None:
        self._durability = durability
        self.has_gap = False
        self.reset()

    def reset(self) -> None:
        """All was forced now."""
        self._entries = self._pixel_bytes = 0
        self._forced_at_s = time.monotonic()

    def add(self, pages: Sequence[Pages]) -> None:
        """The index entries of these pages were written."""
        self._entries += sum(map(len, pages))
        self._pixel_bytes += sum(group.frames.payload_bytes for group in pages)

    @property
    def must_be_forced(self) -> bool:
        """Return True if the durability demands it, or if recovery could not read more unforced entries."""
        is_large = self._entries >= _FORCE_AT_ENTRIES or self._pixel_bytes >= _FORCE_AT_BYTES
        return self._durability == "batch" or is_large

    def due_in_s(self) -> float | None:
        """Seconds until it has to be forced; None if only a batch or the end forces it."""
        if not isinstance(self._durability, int | float):
            return None
        return max(0.0, self._forced_at_s + self._durability - time.monotonic())
