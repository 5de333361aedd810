"""The state of one acquisition: its phase, its first error, the requested end and the receipt."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from acqstream.errors import AcqStreamError, AcquisitionFailed, DiskFull
from acqstream.log.close_outcome import CloseRequest
from acqstream.model.receipt import Receipt, Status
from acqstream.model.state import AcquisitionState


class LogState:
    """Thread-safe; its methods are the only writers of its attributes.

    `changed` is notified, and on_change called without any lock, whenever a cursor or the state of the log moved.
    no_space is the error for which received frames were left out, after waiting for space was abandoned.
    """

    def __init__(self, on_change: Callable[[], None]) -> None:
        self.changed = threading.Condition()
        self.phase = AcquisitionState.OPENING
        self.error: AcqStreamError | None = None
        self.no_space: DiskFull | None = None
        self.request = CloseRequest()
        self.receipt: Receipt | None = None
        self._is_ending = False
        self._on_change = on_change

    def notify(self) -> None:
        """Wake all threads that wait for a change."""
        with self.changed:
            self.changed.notify_all()
        self._on_change()

    def set_open(self) -> None:
        """The files exist: frames are written, unless the end was requested meanwhile."""
        with self.changed:
            self.phase = AcquisitionState.CLOSING if self._is_ending else AcquisitionState.RUNNING
        self.notify()

    def request_close(self, request: CloseRequest) -> bool:
        """Note the end that is requested first; False if the acquisition is ending already."""
        with self.changed:
            if self._is_ending:
                return False
            self._is_ending = True
            self.request = replace(request, abandoned=self.request.abandoned)
            if self.phase is AcquisitionState.RUNNING:
                self.phase = AcquisitionState.CLOSING
            return True

    def abandon(self, status: Status, reason: str) -> None:
        """Note the status in which a full disk ends the acquisition; the first one counts."""
        with self.changed:
            if self.request.abandoned is None:
                self.request = replace(self.request, abandoned=(status, reason))

    def fail(self, error: BaseException, *, published: int, is_abandoned: bool) -> None:
        """Keep the first error. is_abandoned: a full disk then leaves frames out, as was requested.

        published is the first frame number that is not stored.
        """
        with self.changed:
            self._is_ending = True
            if isinstance(error, DiskFull) and is_abandoned:
                self.no_space = self.no_space or error
            elif self.error is None:
                if not isinstance(error, AcqStreamError):
                    wrapped = AcquisitionFailed(f"unexpected {type(error).__name__}: {error}", number=published)
                    wrapped.__cause__ = error
                    error = wrapped
                self.error = error

    def resolve(self) -> tuple[Status, str]:
        """Status and reason of the receipt."""
        return self.request.resolve(self.error, self.no_space)

    def finish(self, receipt: Receipt, phase: AcquisitionState) -> None:
        """All files are closed."""
        self.phase = phase
        self.receipt = receipt
        self.notify()
