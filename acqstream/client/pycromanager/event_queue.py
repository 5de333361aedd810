"""Pycro-Manager's queue of events without those whose frames are stored."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pycromanager.acquisition.acquisition_superclass import EventQueue

from acqstream.client.pycromanager.pending_events import PendingEvents


class PendingEventQueue(EventQueue):  # type: ignore[misc]
    """Takes events from `acquire`, which filters them first (`unfiltered`), and from hooks."""

    def __init__(self, pending: PendingEvents) -> None:
        super().__init__()
        self._pending = pending
        self._of_thread = threading.local()  # is_filtered: events of this thread were filtered before

    @contextmanager
    def unfiltered(self) -> Iterator[None]:
        """Events that this thread puts inside the block are not filtered."""
        self._of_thread.is_filtered = True
        try:
            yield
        finally:
            self._of_thread.is_filtered = False

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """Add events; None marks their end."""
        if item is not None and not getattr(self._of_thread, "is_filtered", False):
            item = self._pending(item)
            if isinstance(item, list) and not item:
                return
        super().put(item, block, timeout)
