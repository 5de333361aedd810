"""One running acquisition, as the program that makes the frames sees it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

import numpy as np
import xxhash
from numpy.typing import NDArray

from acqstream.client import open_runs
from acqstream.client.admission import Admission
from acqstream.client.completeness import DeclaredGaps, what_is_missing
from acqstream.client.connection import Connection
from acqstream.client.frame_axes import MicroManagerAxes, plain_axes
from acqstream.client.frame_words import words_of
from acqstream.client.images import as_image, copy_pixels, kind_of_buffer, kind_of_image, no_image, significant_bits
from acqstream.client.local_memory import LocalMemory
from acqstream.client.mirror_wait import wait_for_mirrors
from acqstream.client.plain_metadata import plain_metadata
from acqstream.client.plain_values import sendable_reason
from acqstream.client.session import Ending, Progress, RunWarning
from acqstream.client.stored_frames import StoredFrames
from acqstream.errors import AcqStreamError, AcquisitionFailed, ConfigError, DaemonUnavailable, ProtocolError
from acqstream.model.frame_header import MAX_NUMBER
from acqstream.model.mirror_result import MirrorResult
from acqstream.model.receipt import Receipt
from acqstream.protocol.request_fields import encode_request, metadata_bytes
from acqstream.protocol.requests import CLOSE_STATUSES


class Run:
    """Takes frames for one dataset. Made by `create`; used as a context manager, or ended by `close`.

    Its methods may be called from several threads; puts are taken one after the other. In a forked process they raise
    ProtocolError. In a signal handler `put`, `reserve`, `skip` and `close` raise it when the handler came in the middle
    of one of the first three. A run that is neither closed nor left is ended as an error at interpreter exit.
    stored: see `StoredFrames`.
    """

    def __init__(self, connection: Connection, memory: LocalMemory, micromanager: MicroManagerAxes | None) -> None:
        self._connection = connection
        self._session = connection.session
        self._condition = connection.condition
        self._lock = connection.lock  # entered instead of the condition: Ctrl-C may come in Condition.__enter__
        self._settings = connection.settings
        self._admission = Admission(connection, memory)
        self.stored = StoredFrames(connection, micromanager)
        self._micromanager = micromanager
        self._order = threading.RLock()  # held by whoever gives out the next frame number
        self._declared = DeclaredGaps()
        self._nan_reported = False
        self._close_error: AcqStreamError | None = None
        self.is_closing = False  # somebody has waited for the end
        self.name = connection.settings.name
        self.path = ""
        self.mirrors: tuple[MirrorResult, ...] = ()  # how they ended, after `wait_for_mirrors`

    def start(self) -> None:
        """Wait until the daemon has opened the acquisition. Called by `create`; raises what that raises."""
        try:
            self._connection.start()
            with self._lock:
                self._condition.wait_for(lambda: self._session.opened is not None or self._session.ended)
            opened, welcome = self._session.opened, self._connection.welcome
            if opened is None or welcome is None:
                self._connection.join()  # whoever keeps the error keeps this run, but not its memory
                raise self._session.failure or DaemonUnavailable(f"{self._settings.endpoint}: the run was stopped")
            self.name, self.path = opened.name, opened.path
            self._declared.add(0, opened.next)  # of an earlier run that is gone on with: its own receipt tells of them
            capacity = self._session.outbox.ring.capacity
            self._admission.largest_frame = min(opened.window_bytes, welcome.max_payload, capacity)
            self._admission.max_skip = welcome.max_skip
            open_runs.enter(self)
        except BaseException:  # also an impatient user: nobody gets this run, and nobody else would end it
            self._connection.stop()
            self._admission.close()
            raise

    @property
    def next(self) -> int:
        """The first frame number that `put` has not taken yet."""
        return self._session.outbox.next

    @property
    def progress(self) -> Progress:
        self._admission.check_process()
        with self._lock:
            return self._session.progress()

    @property
    def receipt(self) -> Receipt | None:
        """What was stored, where, and what is missing; None before the end."""
        return self._session.receipt

    @property
    def warnings(self) -> tuple[RunWarning, ...]:
        """What the daemon and the client reported while going on; they are logged too."""
        self._admission.check_process()
        with self._lock:
            return tuple(self._session.warnings)

    @property
    def transport(self) -> str:
        """How frames get to the daemon now: "shm" (memory that it shares), "ipc" or "tcp"."""
        if not self._connection.transport_why:
            return "shm"
        return self._connection.endpoint.partition(":")[0]

    @property
    def transport_why(self) -> str:
        """Why it is not shared memory; empty if it is."""
        return self._connection.transport_why

    def is_stored(self, axes: Mapping[Any, Any] | None = None, /, **axis_values: Any) -> bool:
        """Whether a frame with these axes was there when this run was opened with resume=True; see `stored`."""
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

        The pixels are copied once; the array may be reused when this returns. Masked pixels are refused: no stack holds
        a mask. bits are the significant bits (10, 11, 12 or 14 of uint16), time_ns the capture time in nanoseconds
        since 1970. Waits while the local buffer is full.

        Raises the run's first error, at once and for ever after. FrameRefused and ProtocolError for arguments that
        cannot be stored, and WriterBehind when nothing moved for the patience, leave the run as it was: the frame was
        not taken.
        """
        admission = self._admission
        admission.check_caller()
        plain, metadata, time_ns, replaced = words_of(axes, axis_values, meta, time_ns, self._micromanager)
        try:
            array = as_image(image)
            bits = None if bits is None else significant_bits(bits)
        except ValueError as error:
            raise no_image(self.next, error) from error
        with self._order:
            try:
                admission.active_thread = threading.get_ident()
                try:
                    kind = kind_of_image(array.dtype, array.shape, tuple(plain), bits)
                except ValueError as error:
                    raise no_image(self.next, error) from error
                size = metadata_bytes(self.next, metadata) if metadata else 0
                start, memory = admission.wait_for_room(kind.frame_bytes, size)
                checksum = copy_pixels(array, kind.pixel_type, memory, start)
                number = admission.add(kind, (tuple(plain.values()), checksum, metadata, time_ns), start, size)
            finally:
                admission.active_thread = None
        if replaced:
            self.warn_of_replaced_numbers(replaced, f"the metadata of frame {number}")

    @contextmanager
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
    ) -> Iterator[NDArray[Any]]:
        """As `put`, for a camera that can write into a given array: `with run.reserve(shape, dtype, time=0) as image`.

        The array, writable, of uint8 or little-endian uint16, lies in the local buffer: there is no further copy. What
        it held before is undefined. The frame is sent when the block is left, and not taken if that is by an exception;
        the array must not be used after. Until then `put` waits in other threads, and is refused in this one.

        Raises as `put` does.
        """
        self._admission.check_caller()
        plain, metadata, time_ns, replaced = words_of(axes, axis_values, meta, time_ns, self._micromanager)
        holder = threading.get_ident()
        try:  # before the place is held: also what interrupts the way to the caller's block lets it go
            with self._order:
                try:
                    self._admission.active_thread = holder
                    number = self.next
                    try:
                        bits = None if bits is None else significant_bits(bits)
                        kind = kind_of_buffer(shape, dtype, tuple(plain), bits)
                    except ValueError as error:
                        raise no_image(self.next, error) from error
                    size = metadata_bytes(number, metadata) if metadata else 0
                    start, memory = self._admission.wait_for_room(kind.frame_bytes, size)
                    self._admission.hold(holder)
                finally:
                    self._admission.active_thread = None
            image: NDArray[Any] = np.ndarray(kind.shape, kind.pixel_type.dtype, memory, start)
            yield image
            image.flags.writeable = False
            checksum = xxhash.xxh3_64_intdigest(image.data)
            self._admission.add_held(kind, (tuple(plain.values()), checksum, metadata, time_ns), start, size)
        finally:
            if self._admission.held_by == holder:
                self._admission.held_by = None  # first of all: Ctrl-C may come in any call
                self._admission.note_free_place()
        if replaced:
            self.warn_of_replaced_numbers(replaced, f"the metadata of frame {number}")

    def skip(self, count: int = 1, /, *, reason: str) -> None:
        """Declare that the next `count` frames will never come: they get numbers but no pixels.

        Raises ProtocolError for what is not a count, or where frame numbers would reach 2**48.
        """
        if type(count) is not int or not 0 <= count <= MAX_NUMBER:
            raise ProtocolError(f"skip: count {count!r:.40} must be a number of frames, at most {MAX_NUMBER}")
        self._admission.check_caller()
        text = sendable_reason(str(reason))
        with self._order:
            if self.next + count > MAX_NUMBER:
                raise ProtocolError(f"skip: {count} numbers from {self.next} on; frame numbers end at {MAX_NUMBER}")
            try:
                self._admission.active_thread = threading.get_ident()
                while count > 0:
                    part = min(count, self._admission.max_skip)
                    dataset_id = self._connection.dataset_id
                    header = encode_request("skip", ds=dataset_id, n=self.next, count=part, reason=text)
                    self._admission.wait_for_room(1, len(header))
                    self._admission.add_skip(header, part, self._declared)
                    count -= part
            finally:
                self._admission.active_thread = None

    def patch(self, summary: Mapping[str, Any] | None = None, display: Mapping[str, Any] | None = None) -> None:
        """Send late metadata: more summary entries, before the first frame only, or display settings, any time."""
        self._admission.check_process()
        for kind, values in (("summary", summary), ("display", display)):
            if values is not None:
                self._patch(kind, values)

    def _patch(self, kind: str, values: Mapping[str, Any]) -> None:
        plain, replaced = plain_metadata(values)
        header = encode_request("patch", ds=self._connection.dataset_id, **{kind: plain})
        with self._lock:
            if kind == "summary" and self.next > 0:
                raise ProtocolError(f"the summary can be patched before frame 0 only; {self.next} frames were put")
            self._admission.raise_if_over()
            self._session.add_patch(kind, header)
            self._connection.wake()
        if replaced:
            self.warn_of_replaced_numbers(replaced, f"the {kind}")

    def warn_of_replaced_numbers(self, count: int, where: str) -> None:
        """Note that NaN or infinite numbers became null; once a run is enough."""
        if self._nan_reported:
            return
        self._nan_reported = True
        text = f"{count} NaN or infinite numbers in {where} became null; further ones are not reported"
        with self._lock:
            self._session.warn("nan_in_metadata", text, time.time())

    # --- the end -----------------------------------------------------------------------------------------------------

    def close(self, status: str = "completed", reason: str = "") -> Receipt:
        """End the acquisition, wait until everything is stored, and return the receipt. Repeating it changes nothing.

        status is "completed", "canceled" or "error". Waits as long as the daemon gives signs of life; unless completed
        is asked for, only while frames still become safe. Interrupted (Ctrl-C), it goes on by itself; call it again.

        Raises the run's first error, after having tried to end the dataset in order; AcquisitionFailed when frames are
        missing that were not declared by `skip`. `receipt` is set wherever it arrived.
        """
        if not isinstance(status, str) or status not in CLOSE_STATUSES:
            raise ConfigError(f"status={status!r:.60} must be one of {', '.join(CLOSE_STATUSES)}")
        self._admission.check_closer()
        if self._connection.inside:
            self._ask_for_end(status, reason)
            raise self._session.failure or ConfigError("on_error must not wait for the end of its own run")
        return self._close(status, reason, lambda: self._end_in_time(status))

    def wait_for_mirrors(self, timeout_s: float | None = None) -> tuple[MirrorResult, ...]:
        """Wait until the run and all its mirrors, levels of tiles included, have ended; how each did.

        `close` does not wait for them. The daemon is asked, and may restart meanwhile. Raises WaitTimeout after
        timeout_s (None: never), DaemonUnavailable when none answers for the patience, ProtocolError when it is too old
        to know the question, or has the dataset no longer.
        """
        self._admission.check_process()
        self.mirrors = wait_for_mirrors(self._connection, self.name, timeout_s)
        return self.mirrors

    def _close(self, status: str, reason: str, wait: Callable[[], None]) -> Receipt:
        with self._order:
            if not self._admission.closed:
                self.is_closing = True
                self._ask_for_end(status, reason)
                try:
                    wait()
                except AcqStreamError as error:
                    self._close_error = error
                # Not after Ctrl-C: what is not sent yet would be lost. The thread goes on; `close` may be called again.
                self._connection.stop()
                self._leave()
            first_error = self._session.failure or self._close_error
            if first_error is not None:
                raise first_error.with_traceback(None)
            return self._checked_receipt()

    def _ask_for_end(self, status: str, reason: str) -> None:
        with self._lock:
            if self._session.ending is None:
                drops_unsent = status != "completed" and bool(self._session.paused_why)
                self._session.ending = Ending(status, sendable_reason(str(reason)), drops_unsent)
            self._connection.wake()
            self._condition.notify_all()  # a waiting put

    def _end_in_time(self, status: str) -> None:
        """Wait for the end of the session; the connection's thread bounds it by the daemon's signs of life."""
        began = time.monotonic()
        with self._lock:
            while not self._session.ended:
                if status == "completed" or self._session.failure is not None:
                    self._condition.wait(self._settings.silence_s)  # a signal handler may have seen the end already
                else:
                    self._admission.wait_for_progress(began, "frames are left")

    def _leave(self) -> None:
        self._connection.join()
        self._admission.close()
        open_runs.leave(self)

    def _checked_receipt(self) -> Receipt:
        """The receipt, if it says what was asked for. Raises AcquisitionFailed otherwise."""
        receipt, ending = self._session.receipt, self._session.ending
        if receipt is None or ending is None:
            raise AcquisitionFailed(f"run {self.name!r} ended without a receipt", code="incomplete")
        if ending.status == "completed":
            missing = what_is_missing(receipt, self._declared, self.next)
            if missing:
                raise AcquisitionFailed(f"run {self.name!r} is not complete: {missing}", code="incomplete")
        return receipt

    @property
    def is_given_up(self) -> bool:
        """The connection was stopped before the end; nothing can be done for the dataset."""
        return self._connection.stopped

    def end_at_exit(self, timeout_s: float) -> None:
        """Close as an error within timeout_s, whatever happens; for `open_runs`."""
        deadline = time.monotonic() + timeout_s

        def wait() -> None:
            with self._lock:
                if not self._condition.wait_for(lambda: self._session.ended, deadline - time.monotonic()):
                    raise DaemonUnavailable(f"the end of run {self.name!r} was not confirmed in {timeout_s:g} s")

        self._ask_for_end("error", open_runs.EXIT_REASON)  # first of all: a put that waits holds the order
        self._close("error", open_runs.EXIT_REASON, wait)

    def __repr__(self) -> str:
        session = self._session  # without its lock: a debugger may ask while that is held
        state = "at work" if not session.ended else "ended"
        if session.receipt is not None:
            state = session.receipt.status
        if session.failure is not None:
            state = f"failed: {type(session.failure).__name__}"
        return f"<Run {self.name!r}, {self.next} frames put, {session.cursors.published} published, {state}>"

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
            self.close("error", reason=f"{type(error).__name__}: {error}")
        except AcqStreamError as close_error:
            if close_error is not error:
                error.add_note(f"closing the run {self.name!r} failed too: {close_error}")
