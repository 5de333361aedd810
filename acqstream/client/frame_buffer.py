"""Takes frames into the local buffer of a run, one at a time, each with a number, a place and a bounded wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np
import xxhash
from numpy.typing import NDArray

from acqstream.client.completeness import DeclaredGaps
from acqstream.client.connection import Connection
from acqstream.client.images import copy_pixels, kind_of_buffer, kind_of_image, no_image
from acqstream.client.local_memory import LocalMemory
from acqstream.client.process_mark import THIS_PROCESS
from acqstream.errors import AcquisitionFailed, FrameRefused, ProtocolError, WriterBehind
from acqstream.model.axes import AxisValue
from acqstream.model.frame_header import MAX_NUMBER
from acqstream.protocol.frame_batch import MAX_METADATA_BYTES, FrameFields, FrameKind, encode_request
from acqstream.protocol.replies import Opened, Welcome


class FrameBuffer:
    """The local buffer of one run: gives each frame its number and its place, and waits for the place.

    Frames are taken one after the other, under the lock `order`. largest_frame is the largest payload in
    bytes that the daemon takes and the buffer holds; max_skip is how many numbers the daemon takes in one skip. Both
    are set by `open`.
    """

    def __init__(self, connection: Connection, memory: LocalMemory) -> None:
        self._connection = connection
        self._settings = connection.settings
        self._state = connection.state
        self._lock = connection.state.lock  # entered instead of the condition, see RunState
        self._outbox = connection.state.outbox
        self._memory = memory.pages
        self._process = THIS_PROCESS.number
        self.order = threading.RLock()  # held by the thread that gives out the next frame number
        self.declared = DeclaredGaps()
        self._reserving_thread: int | None = None  # the thread that fills a reserved frame
        self._is_sending = False  # that thread has filled it
        self._active_thread: int | None = None  # the thread that is in the middle of a put; set by owners of the order
        self._largest_frame = 0
        self._max_skip = 1

    def open(self, opened: Opened, welcome: Welcome) -> None:
        """The acquisition is open. Frames below `opened.next` are in the receipt of an earlier run."""
        self.declared.add(0, opened.next)
        self._largest_frame = min(opened.window_bytes, welcome.max_payload, self._outbox.ring.capacity)
        self._max_skip = welcome.max_skip

    def close(self) -> None:
        """Refuse further frames and release the memory."""
        self._memory = None
        self._outbox.claims.close()

    def put(
        self,
        array: NDArray[Any],
        bits: int | None,
        axes: Mapping[str, AxisValue],
        metadata: bytes,
        time_ns: int | None,
    ) -> int:
        """Copy the pixels of the next frame into the buffer; its number. Raises as `Run.put`."""
        with self.order:
            try:
                self._active_thread = threading.get_ident()
                try:
                    kind = kind_of_image(array.dtype, array.shape, tuple(axes), bits)
                except ValueError as error:
                    raise no_image(self._outbox.next, error) from error
                start, memory = self._wait_for_space(kind.frame_bytes, len(metadata))
                self._outbox.claim(start, kind.frame_bytes)
                checksum = copy_pixels(array, kind.pixel_type, memory, start)
                fields = (tuple(axes.values()), checksum, metadata, time_ns)
                return self._add(kind, fields, start, len(metadata))
            finally:
                self._active_thread = None

    @contextmanager
    def reserve(
        self,
        shape: Sequence[int],
        dtype: object,
        *,
        bits: int | None,
        axes: Mapping[str, AxisValue],
        metadata: bytes,
        time_ns: int | None,
        on_taken: Callable[[int], None] | None,
    ) -> Iterator[NDArray[Any]]:
        """The place of the next frame as an array; the frame is taken when the block is left. Raises as `Run.put`.

        on_taken is called with the frame's number then.
        """
        self.check_caller()
        holder = threading.get_ident()
        try:  # before the place is taken, so that an interrupt on the way to the caller's block frees it
            with self.order:
                try:
                    self._active_thread = holder
                    number = self._outbox.next
                    try:
                        kind = kind_of_buffer(shape, dtype, tuple(axes), bits)
                    except ValueError as error:
                        raise no_image(number, error) from error
                    start, memory = self._wait_for_space(kind.frame_bytes, len(metadata))
                    self._outbox.claim(start, kind.frame_bytes)
                    self._keep_place(holder)
                finally:
                    self._active_thread = None
            image: NDArray[Any] = np.ndarray(kind.shape, kind.pixel_type.dtype, memory, start)
            yield image
            image.flags.writeable = False
            checksum = xxhash.xxh3_64_intdigest(image.data)
            self._add_reserved(kind, (tuple(axes.values()), checksum, metadata, time_ns), start, len(metadata))
        finally:
            if self._reserving_thread == holder:
                self._reserving_thread = None  # first of all, as Ctrl-C may come in any call
                self._note_free_place()
        if on_taken is not None:
            on_taken(number)
        self._state.refused.raise_pending()

    def skip(self, count: int, reason: str) -> None:
        """Use up the next `count` numbers for frames that will never come. Raises as `Run.skip`."""
        with self.order:
            first = self._outbox.next
            if first + count > MAX_NUMBER:
                raise ProtocolError(f"skip: {count} numbers from {first} on; frame numbers end at {MAX_NUMBER}")
            try:
                self._active_thread = threading.get_ident()
                while count > 0:
                    part = min(count, self._max_skip)
                    dataset_id = self._connection.dataset_id
                    header = encode_request("skip", ds=dataset_id, n=self._outbox.next, count=part, reason=reason)
                    self._wait_for_space(1, len(header))
                    self._declare(header, part)
                    count -= part
            finally:
                self._active_thread = None

    def _keep_place(self, thread: int) -> None:
        """Keep the place for this thread; other threads wait until `_reserving_thread` is None again."""
        self._is_sending = False
        self._reserving_thread = thread

    def _note_free_place(self) -> None:
        """Wake the threads that wait for `_reserving_thread` to be None."""
        if THIS_PROCESS.number == self._process:  # the lock of a forked process may be locked for ever
            with self._lock:
                self._state.condition.notify_all()

    def check_process(self) -> None:
        """Raise ProtocolError in a forked process, which has the memory and locks but no thread that sends."""
        if THIS_PROCESS.number != self._process:
            text = f"run {self._settings.name!r} belongs to the process that made it, not to one forked from it"
            raise ProtocolError(text)

    def check_caller(self) -> None:
        """As `check_process`; also in a thread that is in a put or has a place, as it would wait for itself."""
        if THIS_PROCESS.number != self._process:  # for every frame: no call in the usual case
            self.check_process()
        if self._reserving_thread is not None and self._reserving_thread == threading.get_ident():
            raise ProtocolError("a frame is being filled by this thread: leave its `reserve` block first")
        if self._active_thread is not None and self._active_thread == threading.get_ident():
            self._refuse_nested()

    def check_closer(self) -> None:
        """As `check_process`; also in a thread in the middle of a put, as the end would wait for that."""
        self.check_process()
        thread = threading.get_ident()
        if self._active_thread == thread or (self._is_sending and self._reserving_thread == thread):
            self._refuse_nested()

    def _refuse_nested(self) -> NoReturn:
        raise ProtocolError(
            f"run {self._settings.name!r} was called in the middle of a put, reserve or skip of the same thread, as "
            "by a signal handler; nothing was done. Set a flag in the handler, and look at it between two frames"
        )

    def _add_reserved(self, kind: FrameKind, frame: FrameFields, start: int, metadata_bytes: int) -> int:
        """Append the reserved frame, whose pixels are at `start`; return its number."""
        self.check_process()
        self._is_sending = True
        return self._add(kind, frame, start, metadata_bytes)

    def _declare(self, header: bytes, count: int) -> None:
        with self._lock:
            self.raise_if_over()
            try:
                self.declared.add(self._outbox.next, count)
                self._outbox.add_skip(header, count)
            except BaseException:  # Ctrl-C, or the end of memory
                self._fail_half_noted()
                raise
            self._connection.wake()

    def _add(self, kind: FrameKind, frame: FrameFields, start: int, metadata_bytes: int) -> int:
        """Append the frame whose pixels are at `start`; return its number."""
        with self._lock:
            self.raise_if_over()
            try:
                number = self._outbox.add_frame(kind, frame, start, metadata_bytes)
            except BaseException:  # Ctrl-C, or the end of memory
                self._fail_half_noted()
                raise
            self._connection.wake()
            return number

    def _fail_half_noted(self) -> None:
        """Fail the run, as a frame was noted by half and the next one to send is unknown."""
        first = self._outbox.first_number
        text = f"run {self._settings.name!r} was interrupted in the middle of a put; frames from {first} on may be lost"
        self._state.fail(AcquisitionFailed(text, code="interrupted"))

    def _wait_for_space(self, payload_bytes: int, header_bytes: int) -> tuple[int, memoryview]:
        """Offset and memory for the pixels. No other thread takes the place, as the caller has `order`."""
        self.raise_if_over()
        if self._outbox.next >= MAX_NUMBER:
            raise ProtocolError(f"frame numbers end at {MAX_NUMBER}; close this run and start another one")
        if payload_bytes > self._largest_frame:
            self._refuse_size(payload_bytes)
        if header_bytes > MAX_METADATA_BYTES:
            self._refuse_metadata(header_bytes)
        if self._reserving_thread is not None or (start := self._outbox.place(payload_bytes, header_bytes)) is None:
            start = self._wait_for_place(payload_bytes, header_bytes)
        assert self._memory is not None  # None only after the run
        return start, self._memory

    def _wait_for_place(self, payload_bytes: int, header_bytes: int) -> int:
        since = time.monotonic()
        with self._lock:
            while (
                self._reserving_thread is not None or (start := self._outbox.place(payload_bytes, header_bytes)) is None
            ):
                self.raise_if_over()
                why = (
                    "the local buffer is full" if self._reserving_thread is None else "a reserved frame is being filled"
                )
                self.wait_for_progress(since, why)
            self.raise_if_over()
            return start

    def wait_for_progress(self, since: float, why: str) -> None:
        """Wait for a change. Raises WriterBehind if the daemon is alive and nothing became safe for the patience."""
        now = time.monotonic()
        left = max(since, self._state.contact.released_at) + self._settings.patience_s - now
        silent = now - self._state.contact.heard_at > self._settings.silence_s
        is_decided_elsewhere = silent or bool(self._state.report.pause_reason)
        if left <= 0 and not is_decided_elsewhere:
            raise WriterBehind(self._state.describe_backlog(f"for {self._settings.patience_s:g} s and {why}"))
        # If the daemon is silent, or waits for space, the connection's thread decides, within the patience.
        self._state.condition.wait(left if left > 0 else self._settings.silence_s)

    def _refuse_size(self, payload_bytes: int) -> NoReturn:
        capacity = self._outbox.ring.capacity
        number = self._outbox.next
        if payload_bytes > capacity:
            text = f"more than the local buffer of {capacity} bytes; raise buffer_mb"
        else:
            text = f"more than the daemon takes ({self._largest_frame}); raise its memory budget or largest payload"
        raise FrameRefused(f"frame {number} has {payload_bytes} bytes, {text}", code="payload_size", number=number)

    def _refuse_metadata(self, metadata_bytes: int) -> NoReturn:
        number = self._outbox.next
        text = (
            f"frame {number}: its metadata take {metadata_bytes} bytes as JSON; at most {MAX_METADATA_BYTES} are stored"
            " with a frame. Pass what all frames share as summary, and large tables as a file of their own"
        )
        raise FrameRefused(text, code="bad_header", number=number)

    def raise_if_over(self) -> None:
        """Raise the run's first error, or AcquisitionFailed for a closed run."""
        if self._state.failure is not None:
            raise self._state.failure.with_traceback(None)  # the trace would grow with every raise
        if self._memory is None or self._state.ending is not None or self._state.ended:
            raise AcquisitionFailed(f"run {self._settings.name!r} is closed", code="closed")
