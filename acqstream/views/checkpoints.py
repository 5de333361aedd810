"""The checkpoints of one view: what the last one has, and how the next one is written."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from acqstream.errors import AcqStreamError
from acqstream.formats.ndtiff.reader import NDTiffReader
from acqstream.views.base import View
from acqstream.views.checkpoint import Checkpoint
from acqstream.views.checkpoint_thread import CheckpointThread
from acqstream.views.view_folder import ViewFolder


class SavedPoint(NamedTuple):
    """What view.json has. waiting: pieces that were not written then; a later process writes them."""

    cursor: int
    frames_ahead: int
    is_complete: bool
    waiting: int


class Checkpoints:
    """last: the last checkpoint on the disk, None before the first; took_s: to write it. Used by one thread at a time.

    `point` returns where the view is; it is asked after the view has written, as pieces written meanwhile count.
    """

    def __init__(self, files: ViewFolder) -> None:
        self.last: SavedPoint | None = None
        self.took_s = 0.0
        self._files = files
        self._thread: CheckpointThread[SavedPoint] = CheckpointThread()

    def save(self, reader: NDTiffReader, view: View, point: Callable[[], SavedPoint]) -> None:
        """Have one on the disk of where the view is. Raises StorageError."""
        self.note(waits=True)
        if self.last != point():
            self.write(reader, view, point)

    def write(self, reader: NDTiffReader, view: View, point: Callable[[], SavedPoint]) -> None:
        """As `save`, also where nothing has changed."""
        self.note(waits=True)
        began_s = time.monotonic()
        state = view.save()
        current = point()
        self._files.write(self._checkpoint(reader, current, state))
        self.took_s = time.monotonic() - began_s
        self.last = current

    def begin(self, reader: NDTiffReader, view: View, point: Callable[[], SavedPoint]) -> None:
        """As `save`, in another thread; `note` raises its error. Does nothing while one is being written."""
        if self._thread.is_busy or self.last == point():
            return
        state, force = view.begin_save()
        current = point()
        checkpoint = self._checkpoint(reader, current, state)

        def write() -> None:
            began_s = time.monotonic()
            force()
            self._files.write(checkpoint)
            self.took_s = time.monotonic() - began_s

        self._thread.begin(write, current)

    def note(self, *, waits: bool = False) -> None:
        """Note a checkpoint that another thread has written. Raises its StorageError."""
        self.last = self._thread.take_done(waits=waits) or self.last

    def settle(self, error: Exception) -> None:
        """Wait for one that is being written: it could replace what tells of `error`, which gets a note of its own."""
        try:
            self.note(waits=True)
        except (AcqStreamError, OSError) as other:
            error.add_note(f"and its checkpoint could not be written: {other}")

    def close(self) -> None:
        """Wait for a checkpoint that is being written. The next `begin` has a thread of its own."""
        self._thread.close()
        self._thread = CheckpointThread()

    def _checkpoint(self, reader: NDTiffReader, point: SavedPoint, state: Mapping[str, Any]) -> Checkpoint:
        return self._files.checkpoint(reader, point.cursor, state, is_complete=point.is_complete)
