"""One running acquisition, as the program that makes the frames sees it, from its first frame to its end.

Runs that are still open end at interpreter exit.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Self

# Imported for its own exit hook: hooks run in reverse, and zero-copy sending must work until ours has run.
import zmq.utils.garbage  # noqa: F401
from numpy.typing import NDArray

from acqstream.client.connection import Connection
from acqstream.client.daemon_report import RunWarning, describe_missing, end_reason
from acqstream.client.frame_buffer import FrameBuffer, LocalMemory
from acqstream.client.images import FrameRows, as_image, as_stack, frame_rows, no_image, significant_bits
from acqstream.client.plain_values import (
    NO_CHANGES,
    Changes,
    MicroManagerAxes,
    plain_arguments,
    plain_axes,
    sendable_reason,
)
from acqstream.client.run_inquiries import StoredFrames, add_note, add_patch, state_text, state_word, wait_for_mirrors
from acqstream.client.run_state import Progress
from acqstream.errors import (
    AcqStreamError,
    AcquisitionFailed,
    ConfigError,
    DaemonUnavailable,
    ProtocolError,
)
from acqstream.model.frame_header import MAX_NUMBER
from acqstream.model.receipt import Receipt, html_of
from acqstream.model.status import WarningCode
from acqstream.model.units import count_text
from acqstream.model.view_spec import MirrorResult
from acqstream.protocol.requests import CLOSE_STATUSES
from acqstream.storage.platform.capabilities import can_fork

EXIT_PATIENCE_S = 5.0
EXIT_REASON = "interpreter exit"

log = logging.getLogger(__name__)


class Run:
    """Takes frames for one dataset. Made by `create`; used as a context manager, or ended by `close`.

    Its methods may be called from several threads; puts are taken one after the other. In a forked process they raise
    ProtocolError. In a signal handler `put`, `reserve`, `skip` and `close` raise it when the handler came in the middle
    of one of the first three. A run that is neither closed nor left is ended as an error at interpreter exit.
    stored: see `StoredFrames`. daemon_log: path of the log of the daemon that data= found; empty where it is not known.
    """

    def __init__(self, connection: Connection, memory: LocalMemory, micromanager: MicroManagerAxes | None) -> None:
        self._connection = connection
        self._state, self.refused = connection.state, connection.state.refused
        self._buffer = FrameBuffer(connection.state, memory)
        self._closing = RunClosing(connection, self._buffer)
        self.stored = StoredFrames(connection, micromanager)
        self._micromanager = micromanager
        self.name, self.path = connection.state.settings.name, ""
        self.daemon_log = connection.state.settings.log
        self.mirrors: tuple[MirrorResult, ...] = ()  # how they ended, after `wait_for_mirrors`

    def start(self) -> None:
        """Wait until the daemon has opened the acquisition. Called by `create`; raises what that raises."""
        try:
            self._connection.start()
            self._state.wait_until(lambda: self._state.opened is not None or self._state.ended)
            opened, welcome = self._state.opened, self._connection.opener.welcome
            if opened is None or welcome is None:
                self._connection.join()  # the error keeps this run alive, but not its memory
                raise self._state.failure or DaemonUnavailable(f"{self._state.settings.endpoint}: the run was stopped")
            self.name, self.path = opened.name, opened.path
            self._buffer.open(opened, welcome)
            _enter(self._closing)
        except BaseException:  # also Ctrl-C: the caller does not get this run and could not end it
            self._connection.stop()
            self._buffer.close()
            raise

    @property
    def next(self) -> int:
        """The first frame number that `put` has not taken yet."""
        return self._state.outbox.next

    @property
    def progress(self) -> Progress:
        self._buffer.check_process()
        return self._state.progress()

    @property
    def receipt(self) -> Receipt | None:
        """The receipt: stored frames, path, missing frames, and what `wait_for_mirrors` gave; None before the end."""
        receipt = self._state.receipt
        return replace(receipt, results=self.mirrors) if receipt is not None and self.mirrors else receipt

    @property
    def warnings(self) -> tuple[RunWarning, ...]:
        """Warnings of the daemon and the client during the run; they are logged too."""
        self._buffer.check_process()
        return self._state.report.warnings

    @property
    def transport(self) -> str:
        """The way of frames to the daemon now: "shm" (shared memory), "ipc" or "tcp"."""
        opener = self._connection.opener
        return opener.endpoint.partition(":")[0] if opener.transport_why else "shm"

    @property
    def transport_why(self) -> str:
        """The reason why it is not shared memory; empty if it is."""
        return self._connection.opener.transport_why

    def is_stored(self, axes: Mapping[Any, Any] | None = None, /, **axis_values: Any) -> bool:
        """True if a frame with these axes existed when this run was opened with resume=True; see `stored`."""
        return plain_axes(axes, axis_values) in self.stored

    # --- frames ------------------------------------------------------------------------------------------------------

    def put(
        self,
        image: object,
        axes: Mapping[Any, Any] | None = None,
        /,
        *,
        meta: Mapping[str, Any] | None = None,
        bits: int | None = None,
        time_ns: int | None = None,
        **axis_values: Any,
    ) -> None:
        """Send one frame: an array (Y, X) of uint8 or uint16, or (Y, X, 3) of uint8, with its axes and metadata.

        The pixels are copied once; the array may be reused when this returns. Masked pixels are refused, as a stack has
        no mask. bits are the significant bits (10, 11, 12 or 14 of uint16), time_ns the capture time in nanoseconds
        since 1970. Waits while the local buffer is full.

        Raises the run's first error, at once and in every later call. FrameRefused and ProtocolError for arguments that
        cannot be stored, and WriterBehind when nothing moved for the patience, leave the run as it was: the frame was
        not taken. FrameRefused with `earlier` names frames of earlier calls, and this one was taken.
        """
        buffer = self._buffer
        buffer.check_caller()
        plain, metadata, time_ns, replaced = plain_arguments(axes, axis_values, meta, time_ns, self._micromanager)
        try:
            array = as_image(image)
            bits = None if bits is None else significant_bits(bits)
        except ValueError as error:
            raise no_image(self.next, error) from error
        number = buffer.put(array, bits, plain, metadata, time_ns)
        if replaced is not NO_CHANGES:
            self.warn_of_changes(replaced, f"the metadata of frame {number}")
        if self.refused.pending:
            self.refused.raise_pending()

    def put_many(
        self,
        images: object,
        axes: Mapping[Any, Any] | None = None,
        /,
        *,
        meta: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        bits: int | None = None,
        time_ns: int | Sequence[int | None] | None = None,
        **axis_values: Any,
    ) -> None:
        """Send N frames of one kind: an array (N, Y, X) of uint8 or uint16, or (N, Y, X, 3) of uint8.

        As N calls of `put`, with less than half of the processor time where frames are small. Each axis, meta and
        time_ns is one value for all frames, or a sequence with one for each. No frame of another thread comes between.

        Raises as `put` does. The frames before the one that could not be taken were taken: `next` is its number.
        """
        self._buffer.check_caller()
        try:
            stack = as_stack(images)
            bits = None if bits is None else significant_bits(bits)
        except ValueError as error:
            raise no_image(self.next, error) from error
        rows = frame_rows(len(stack), axes, axis_values, meta, time_ns, micromanager=self._micromanager)
        first = self._buffer.put_many(stack, bits, rows)
        self._warn_of_rows(rows, first)
        if rows.error is not None:
            raise _numbered(rows.error, first + len(rows.rows)) from rows.error
        if self.refused.pending:
            self.refused.raise_pending()

    def reserve(
        self,
        shape: Sequence[int],
        dtype: object,
        axes: Mapping[Any, Any] | None = None,
        /,
        *,
        meta: Mapping[str, Any] | None = None,
        bits: int | None = None,
        time_ns: int | None = None,
        **axis_values: Any,
    ) -> AbstractContextManager[NDArray[Any]]:
        """As `put`, for a camera that can write into a given array: `with run.reserve(shape, dtype, time=0) as image`.

        The array, writable, of uint8 or little-endian uint16, lies in the local buffer, without a further copy. Its
        initial values are undefined. The frame is sent when the block is left, and not taken after an exception;
        the array must not be used after. Until then `put` waits in other threads, and is refused in this one.

        Raises as `put` does.
        """
        self._buffer.check_caller()
        plain, metadata, time_ns, replaced = plain_arguments(axes, axis_values, meta, time_ns, self._micromanager)
        row = tuple(plain.values()), metadata, time_ns
        return self._reserve(shape, dtype, bits, FrameRows(tuple(plain), [row], [(0, replaced)]), is_one=True)

    def reserve_many(
        self,
        count: int,
        shape: Sequence[int],
        dtype: object,
        axes: Mapping[Any, Any] | None = None,
        /,
        *,
        meta: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        bits: int | None = None,
        time_ns: int | Sequence[int | None] | None = None,
        **axis_values: Any,
    ) -> AbstractContextManager[NDArray[Any]]:
        """As `reserve`, for `count` frames of this shape together, as for a camera that fills a ring of images.

        The array is (N, Y, X) or (N, Y, X, 3). Frames of 256 KiB and more begin on pages of memory: see its strides.
        The other arguments are as for `put_many`. All frames are taken when the block is left, or none.

        Raises as `put_many` does, and FrameRefused for more frames than the local buffer holds at once.
        """
        self._buffer.check_caller()
        if type(count) is not int or count < 1:
            raise ProtocolError(f"reserve_many: count {count!r:.40} must be a number of frames, 1 or more")
        rows = frame_rows(count, axes, axis_values, meta, time_ns, micromanager=self._micromanager)
        if rows.error is not None:
            raise _numbered(rows.error, self.next + len(rows.rows)) from rows.error
        return self._reserve(shape, dtype, bits, rows)

    def _reserve(
        self, shape: Sequence[int], dtype: object, bits: int | None, rows: FrameRows, *, is_one: bool = False
    ) -> AbstractContextManager[NDArray[Any]]:
        try:
            bits = None if bits is None else significant_bits(bits)
        except ValueError as error:
            raise no_image(self.next, error) from error
        warn = partial(self._warn_of_rows, rows)
        return self._buffer.reserve(shape, dtype, bits=bits, rows=rows, on_taken=warn, is_one=is_one)

    def _warn_of_rows(self, rows: FrameRows, first: int) -> None:
        """As `warn_of_changes`, of frames from number `first` on."""
        for position, changes in rows.changes:
            if changes is not NO_CHANGES:
                self.warn_of_changes(changes, f"the metadata of frame {first + position}")

    def skip(self, count: int = 1, /, *, reason: str) -> None:
        """Declare that the next `count` frames will never come: they get numbers but no pixels.

        reason is for the receipt, at most 1000 characters; a longer one is cut and ends with "...".

        Raises ProtocolError for what is not a count, or where frame numbers would reach 2**48.
        """
        if type(count) is not int or not 0 <= count <= MAX_NUMBER:
            raise ProtocolError(f"skip: count {count!r:.40} must be a number of frames, at most {MAX_NUMBER}")
        self._buffer.check_caller()
        self._buffer.skip(count, sendable_reason(str(reason)))
        self.refused.raise_pending()

    def patch(self, summary: Mapping[str, Any] | None = None, display: Mapping[str, Any] | None = None) -> None:
        """Send late metadata: more summary entries, before the first frame only, or display settings, any time."""
        self._buffer.check_process()
        for kind, values in (("summary", summary), ("display", display)):
            if values is not None:
                self.warn_of_changes(add_patch(self._connection, kind, values), f"the {kind}")

    def note(self, text: str, /, *, time_ns: int | None = None, **values: Any) -> None:
        """Add a note, such as "drug added", and values by name; it is stored with its time and the next frame number.

        text: 1 to 1000 characters. time_ns: nanoseconds since 1970, by default now. Returns at once, and `close` waits:
        one that is not stored becomes the warning `note_refused`, and an error of `close`. Raises the run's first
        error, ProtocolError for what cannot be stored, AcquisitionRefused from a daemon that takes no notes.
        """
        self._buffer.check_process()
        self.warn_of_changes(add_note(self._connection, text, values, time_ns), "a note")

    def warn_of_changes(self, changes: Changes, where: str) -> None:
        """Note that values became null or text; once a run is enough for each."""
        for code, text in changes.warnings(where):
            self._state.add_warning(code, text)

    # --- the end -----------------------------------------------------------------------------------------------------

    def close(self, status: str = "completed", reason: str = "") -> Receipt:
        """End the acquisition, wait until everything is stored, and return the receipt. Repeating it changes nothing.

        status is "completed", "canceled" or "error". Waits as long as the daemon gives signs of life; unless completed
        is asked for, only while frames still become safe. After an interrupt (Ctrl-C) the end continues; call it again.

        Raises the run's first error, after having tried to end the dataset in order; AcquisitionFailed when frames are
        missing without `skip`; with `receipt` set, FrameRefused or AcquisitionRefused for frames or notes not named.
        """
        if not isinstance(status, str) or status not in CLOSE_STATUSES:
            raise ConfigError(f"status={status!r:.60} must be one of {', '.join(CLOSE_STATUSES)}")
        self._buffer.check_closer()
        return self._closing.close(status, reason)

    def wait_for_mirrors(self, timeout_s: float | None = None) -> tuple[MirrorResult, ...]:
        """Wait until the run and all its mirrors, levels of tiles included, have ended; return the result of each.

        `close` does not wait for them. The daemon is asked, and may restart meanwhile. Raises WaitTimeout after
        timeout_s (None: never), DaemonUnavailable when none answers for the patience, ProtocolError when it no longer
        has the dataset.
        """
        self._buffer.check_process()
        self.mirrors = wait_for_mirrors(self._connection, self.name, timeout_s)
        for mirror in self.mirrors:
            if mirror.warning and all(mirror.warning != warning.text for warning in self.warnings):
                self._state.add_warning(str(WarningCode.UNCALIBRATED), mirror.warning, is_once=False)
        return self.mirrors

    def __repr__(self) -> str:
        cursors, state = self._state.cursors, state_word(self._state)
        return f"<Run {self.name!r}, {count_text(self.next, 'frame')} put, {cursors.published} published, {state}>"

    def __str__(self) -> str:
        """The sentence of this run now, with its alarm if it has one; its receipt after the end."""
        return f"{self.name}: {state_text(self._state, self.receipt)}"

    def _repr_html_(self) -> str:
        return html_of(str(self), self.path, self._state.dataset_id)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self._closing.leave(error)


def _numbered(error: AcqStreamError, number: int) -> AcqStreamError:
    """An error of arguments with the number of the frame that they are of."""
    return type(error)(f"frame {number}: {error}")


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
        return self._state.opened.name if self._state.opened is not None else self._state.settings.name

    @property
    def is_abandoned(self) -> bool:
        """True where the connection was stopped before the end, so that the dataset cannot be closed."""
        return self._connection.is_stopped

    def close(self, status: str, reason: str) -> Receipt:
        """As `Run.close`, for checked arguments and callers."""
        if self._connection.inside:
            self._state.request_close(status, reason)
            raise self._state.failure or ConfigError("on_error must not wait for the end of its own run")
        return self._close(status, reason, lambda: self._buffer.wait_for_end(status))

    def leave(self, error: BaseException) -> None:
        """Close as an error, for an exception that goes on; it gets a note where that fails."""
        try:
            self._buffer.check_closer()
            self.close("error", end_reason(error))
        except AcqStreamError as close_error:
            if close_error is not error:
                error.add_note(f"closing the run {self.name!r} failed too: {close_error}")

    def end_at_exit(self, timeout_s: float) -> None:
        """Close as an error within timeout_s, at interpreter exit."""
        deadline = time.monotonic() + timeout_s

        def wait() -> None:
            if not self._state.wait_until(lambda: self._state.ended, deadline - time.monotonic()):
                raise DaemonUnavailable(f"the end of run {self.name!r} was not confirmed in {timeout_s:g} s")

        self._state.request_close("error", EXIT_REASON)  # first of all, as a put that waits has the order
        self._close("error", EXIT_REASON, wait)

    def abandon(self) -> None:
        """Wait for the connection's thread, which is stopped or near its end, and release the memory."""
        self._connection.join()
        self._is_closed = True
        self._buffer.close()
        _leave(self)

    def _close(self, status: str, reason: str, wait: Callable[[], None]) -> Receipt:
        with self._buffer.order:
            if not self._is_closed:
                self.is_closing = True
                self._state.request_close(status, reason)
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
            self._state.refused.raise_notes()
            return receipt

    def _checked_receipt(self) -> Receipt:
        """The receipt. Raises AcquisitionFailed if it is missing, or lacks frames of a completed run."""
        receipt, ending = self._state.receipt, self._state.ending
        if receipt is None or ending is None:
            raise AcquisitionFailed(f"run {self.name!r} ended without a receipt", code="incomplete")
        if ending.status == "completed":
            outbox = self._state.outbox
            missing = describe_missing(receipt, outbox.declared, outbox.next, self._state.refused.n_frames)
            if missing:
                raise AcquisitionFailed(f"run {self.name!r} is not complete: {missing}", code="incomplete")
        return receipt


_open_runs: set[RunClosing] = set()
"""Runs to end at interpreter exit, kept so that a run without any other reference is closed too."""
_registry_lock = threading.RLock()  # a signal handler may close a run while its thread has it
if can_fork():
    os.register_at_fork(after_in_child=_open_runs.clear)  # they are the parent's


def _enter(run: RunClosing) -> None:
    with _registry_lock:
        _open_runs.add(run)


def _leave(run: RunClosing) -> None:
    with _registry_lock:
        _open_runs.discard(run)


@atexit.register
def _end_all() -> None:
    with _registry_lock:
        unfinished = [run for run in _open_runs if not run.is_abandoned]
    for run in unfinished:
        what = "its close was interrupted; waiting for it" if run.is_closing else "never closed; ending it as an error"
        log.warning("run %s: %s", run.name, what)
        try:
            run.end_at_exit(EXIT_PATIENCE_S / len(unfinished))
        except AcqStreamError as error:
            log.error("run %s could not be ended in order: %s", run.name, error)  # noqa: TRY400 - the text is complete
        except Exception:
            log.exception("run %s could not be ended in order", run.name)
