"""One running acquisition, as the program that makes the frames sees it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Self

from numpy.typing import NDArray

from acqstream.client import open_runs
from acqstream.client.connection import Connection
from acqstream.client.daemon_contact import RunWarning
from acqstream.client.daemon_errors import end_reason
from acqstream.client.frame_axes import MicroManagerAxes, plain_axes
from acqstream.client.frame_buffer import FrameBuffer
from acqstream.client.frame_words import plain_arguments
from acqstream.client.images import as_image, no_image, significant_bits
from acqstream.client.late_patches import LatePatches
from acqstream.client.local_memory import LocalMemory
from acqstream.client.mirror_wait import wait_for_mirrors
from acqstream.client.plain_metadata import NO_CHANGES, Changes, sendable_reason
from acqstream.client.run_closing import RunClosing
from acqstream.client.run_state import Progress
from acqstream.client.stored_frames import StoredFrames
from acqstream.errors import AcqStreamError, ConfigError, DaemonUnavailable, ProtocolError
from acqstream.model.frame_header import MAX_NUMBER
from acqstream.model.receipt import Receipt
from acqstream.model.status import WarningCode
from acqstream.model.units import count_text
from acqstream.model.view_spec import MirrorResult
from acqstream.protocol.requests import CLOSE_STATUSES


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
        self._buffer = FrameBuffer(connection, memory)
        self._closing = RunClosing(connection, self._buffer)
        self.late = LatePatches(connection, self._buffer)
        self.stored = StoredFrames(connection, micromanager)
        self._micromanager = micromanager
        self.name = connection.settings.name
        self.path = ""
        self.daemon_log = connection.settings.log
        self.mirrors: tuple[MirrorResult, ...] = ()  # how they ended, after `wait_for_mirrors`

    def start(self) -> None:
        """Wait until the daemon has opened the acquisition. Called by `create`; raises what that raises."""
        try:
            self._connection.start()
            with self._state.lock:
                self._state.condition.wait_for(lambda: self._state.opened is not None or self._state.ended)
            opened, welcome = self._state.opened, self._connection.opener.welcome
            if opened is None or welcome is None:
                self._connection.join()  # the error keeps this run alive, but not its memory
                raise self._state.failure or DaemonUnavailable(
                    f"{self._connection.settings.endpoint}: the run was stopped"
                )
            self.name, self.path = opened.name, opened.path
            self._buffer.open(opened, welcome)
            open_runs.enter(self._closing)
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
        with self._state.lock:
            return self._state.progress()

    @property
    def receipt(self) -> Receipt | None:
        """The receipt: stored frames, path and missing frames; None before the end."""
        return self._state.receipt

    @property
    def warnings(self) -> tuple[RunWarning, ...]:
        """Warnings of the daemon and the client during the run; they are logged too."""
        self._buffer.check_process()
        with self._state.lock:
            return tuple(self._state.report.warnings)

    @property
    def transport(self) -> str:
        """The way of frames to the daemon now: "shm" (shared memory), "ipc" or "tcp"."""
        if not self._connection.opener.transport_why:
            return "shm"
        return self._connection.opener.endpoint.partition(":")[0]

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
        try:
            bits = None if bits is None else significant_bits(bits)
        except ValueError as error:
            raise no_image(self.next, error) from error

        def warn(number: int) -> None:
            self.warn_of_changes(replaced, f"the metadata of frame {number}")

        return self._buffer.reserve(
            shape,
            dtype,
            bits=bits,
            axes=plain,
            metadata=metadata,
            time_ns=time_ns,
            on_taken=warn if replaced else None,
        )

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
                self.warn_of_changes(self.late.patch(kind, values), f"the {kind}")

    def warn_of_changes(self, changes: Changes, where: str) -> None:
        """Note that values became null or text; once a run is enough for each."""
        for code, text in changes.warnings(where):
            with self._state.lock:
                if all(warning.code != code for warning in self._state.report.warnings):
                    self._state.report.add_warning(code, text, time.time())

    # --- the end -----------------------------------------------------------------------------------------------------

    def close(self, status: str = "completed", reason: str = "") -> Receipt:
        """End the acquisition, wait until everything is stored, and return the receipt. Repeating it changes nothing.

        status is "completed", "canceled" or "error". Waits as long as the daemon gives signs of life; unless completed
        is asked for, only while frames still become safe. After an interrupt (Ctrl-C) the end continues; call it again.

        Raises the run's first error, after having tried to end the dataset in order; AcquisitionFailed when frames are
        missing without `skip`; FrameRefused, after the end, for those that no call has named. `receipt` is set then.
        """
        if not isinstance(status, str) or status not in CLOSE_STATUSES:
            raise ConfigError(f"status={status!r:.60} must be one of {', '.join(CLOSE_STATUSES)}")
        self._buffer.check_closer()
        return self._closing.close(status, reason)

    def wait_for_mirrors(self, timeout_s: float | None = None) -> tuple[MirrorResult, ...]:
        """Wait until the run and all its mirrors, levels of tiles included, have ended; return the result of each.

        `close` does not wait for them. The daemon is asked, and may restart meanwhile. Raises WaitTimeout after
        timeout_s (None: never), DaemonUnavailable when none answers for the patience, ProtocolError when it is too old
        for the question, or no longer has the dataset.
        """
        self._buffer.check_process()
        self.mirrors = wait_for_mirrors(self._connection, self.name, timeout_s)
        for mirror in self.mirrors:
            if mirror.warning and all(mirror.warning != warning.text for warning in self.warnings):
                with self._state.lock:
                    self._state.report.add_warning(str(WarningCode.UNCALIBRATED), mirror.warning, time.time())
        return self.mirrors

    def __repr__(self) -> str:
        session = self._state  # without its lock, as a debugger may ask while another thread has it
        state = "running" if not session.ended else "ended"
        if session.receipt is not None:
            state = session.receipt.status
        if session.failure is not None:
            state = f"failed: {type(session.failure).__name__}"
        return (
            f"<Run {self.name!r}, {count_text(self.next, 'frame')} put, {session.cursors.published} published, {state}>"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
            return
        try:
            self.close("error", reason=end_reason(error))
        except AcqStreamError as close_error:
            if close_error is not error:
                error.add_note(f"closing the run {self.name!r} failed too: {close_error}")
