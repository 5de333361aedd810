"""Ends a run: requests the end, waits for the receipt and checks it."""

from __future__ import annotations

import time
from collections.abc import Callable

from acqstream.client import open_runs
from acqstream.client.completeness import describe_missing
from acqstream.client.connection import Connection
from acqstream.client.frame_buffer import FrameBuffer
from acqstream.client.plain_metadata import sendable_reason
from acqstream.errors import AcqStreamError, AcquisitionFailed, ConfigError, DaemonUnavailable
from acqstream.model.receipt import Receipt


class RunClosing:
    """Closes one run, also at interpreter exit. Closing again changes nothing."""

    def __init__(self, connection: Connection, buffer: FrameBuffer) -> None:
        self._connection = connection
        self._state = connection.state
        self._buffer = buffer
        self._is_closed = False
        self._error: AcqStreamError | None = None
        self.is_closing = False  # a caller has waited for the end

    @property
    def name(self) -> str:
        """The name of the dataset, which the daemon may have numbered."""
        opened = self._state.opened
        return opened.name if opened is not None else self._connection.settings.name

    @property
    def is_abandoned(self) -> bool:
        """True where the connection was stopped before the end, so that the dataset cannot be closed."""
        return self._connection.is_stopped

    def close(self, status: str, reason: str) -> Receipt:
        """As `Run.close`, for checked arguments and callers."""
        if self._connection.inside:
            self._ask_for_end(status, reason)
            raise self._state.failure or ConfigError("on_error must not wait for the end of its own run")
        return self._close(status, reason, lambda: self._wait_for_end(status))

    def end_at_exit(self, timeout_s: float) -> None:
        """Close as an error within timeout_s, for `open_runs`."""
        deadline = time.monotonic() + timeout_s

        def wait() -> None:
            with self._state.lock:
                if not self._state.condition.wait_for(lambda: self._state.ended, deadline - time.monotonic()):
                    raise DaemonUnavailable(f"the end of run {self.name!r} was not confirmed in {timeout_s:g} s")

        self._ask_for_end("error", open_runs.EXIT_REASON)  # first of all, as a put that waits has the order
        self._close("error", open_runs.EXIT_REASON, wait)

    def abandon(self) -> None:
        """Wait for the connection's thread, which is stopped or near its end, and release the memory."""
        self._connection.join()
        self._is_closed = True
        self._buffer.close()
        open_runs.leave(self)

    def _close(self, status: str, reason: str, wait: Callable[[], None]) -> Receipt:
        with self._buffer.order:
            if not self._is_closed:
                self.is_closing = True
                self._ask_for_end(status, reason)
                try:
                    wait()
                except AcqStreamError as error:
                    self._error = error
                # Not after Ctrl-C, which would lose unsent frames. The thread continues; `close` may be called again.
                self._connection.stop()
                self.abandon()
            first_error = self._state.failure or self._error
            if first_error is not None:
                raise first_error.with_traceback(None)
            receipt = self._checked_receipt()
            self._state.refused.raise_pending()
            return receipt

    def _ask_for_end(self, status: str, reason: str) -> None:
        with self._state.lock:
            self._state.request_close(status, sendable_reason(str(reason)))
            self._connection.wake()
            self._state.condition.notify_all()  # a waiting put

    def _wait_for_end(self, status: str) -> None:
        """Wait for the end; the connection's thread bounds it by the daemon's signs of life."""
        start_s = time.monotonic()
        state = self._state
        with state.lock:
            while not state.ended:
                if status == "completed" or state.failure is not None:
                    # A signal handler may have seen the end already.
                    state.condition.wait(self._connection.settings.silence_s)
                else:
                    self._buffer.wait_for_progress(start_s, "frames are left")

    def _checked_receipt(self) -> Receipt:
        """The receipt. Raises AcquisitionFailed if it is missing, or lacks frames of a completed run."""
        receipt, ending = self._state.receipt, self._state.ending
        if receipt is None or ending is None:
            raise AcquisitionFailed(f"run {self.name!r} ended without a receipt", code="incomplete")
        if ending.status == "completed":
            missing = describe_missing(
                receipt, self._buffer.declared, self._state.outbox.next, self._state.refused.n_frames
            )
            if missing:
                raise AcquisitionFailed(f"run {self.name!r} is not complete: {missing}", code="incomplete")
        return receipt
