"""The local buffer of a run: its memory, which a daemon on the same machine may map, and a place for each frame.

Frames are taken one at a time, each with a number, a place and a bounded wait.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

import numpy as np
import xxhash
from numpy.typing import NDArray

from acqstream.client.images import (
    FrameRow,
    FrameRows,
    copy_pixels,
    copy_stack,
    kind_of_buffer,
    kind_of_image,
    no_image,
)
from acqstream.client.outbox import Outbox, distance
from acqstream.client.run_state import RunState
from acqstream.errors import AcquisitionFailed, FrameRefused, ProtocolError, WriterBehind
from acqstream.model.axes import AxisValue
from acqstream.model.frame_header import MAX_NUMBER
from acqstream.model.state import CLAIM_BYTES, WORD_BYTES
from acqstream.protocol import shared_memory as wire
from acqstream.protocol.frame_batch import MAX_METADATA_BYTES, FrameFields, FrameKind, encode_request
from acqstream.protocol.replies import Opened, Welcome
from acqstream.storage.files.boundary import distrust
from acqstream.storage.handover import PAGE_BYTES, close_handle, make_sealed_memory
from acqstream.storage.page_memory import PageMemory
from acqstream.storage.platform import memory_listener
from acqstream.storage.platform.capabilities import can_fork


class FrameBuffer:
    """The local buffer of one run: gives each frame its number and its place, and waits for the place.

    Frames are taken one after the other, under the lock `order`. The lock of `state` is entered for a moment, within
    it: no other object besides `state` itself does that.
    """

    def __init__(self, state: RunState, memory: LocalMemory) -> None:
        self._state = state
        self._outbox = state.outbox
        self._memory = memory.pages
        self._process = THIS_PROCESS.number
        self.order = threading.RLock()  # held by the thread that gives out the next frame number
        self._reserving_thread: int | None = None  # the thread that fills a reserved frame
        self._is_sending = False  # that thread has filled it
        self._active_thread: int | None = None  # the thread that is in the middle of a put; set by owners of the order
        self._largest_frame = 0  # payload in bytes that the daemon takes and the buffer holds
        self._max_skip = 1  # numbers that the daemon takes in one skip

    def open(self, opened: Opened, welcome: Welcome) -> None:
        """The acquisition is open."""
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
                fields = ((tuple(axes.values()), checksum, metadata, time_ns),)
                return self._note(self._outbox.add_frames, kind, fields, start, len(metadata))
            finally:
                self._active_thread = None

    def put_many(self, images: NDArray[Any], bits: int | None, rows: FrameRows) -> int:
        """Copy the pixels of the next frames, as many as rows; the number of the first. Raises as `Run.put_many`."""
        with self.order:
            try:
                self._active_thread = threading.get_ident()
                outbox, largest = self._outbox, min(rows.largest_metadata, MAX_METADATA_BYTES)
                first = outbox.next
                try:
                    kind = kind_of_image(images.dtype, images.shape[1:], rows.names, bits)
                except ValueError as error:
                    raise no_image(outbox.next, error) from error
                # A quarter of the buffer at most: the daemon has the others meanwhile.
                step = min(outbox.frames_at_once(kind.frame_bytes, largest), max(1, self._fitting(kind) // 4))
                count = rows.storable
                for at in range(0, count, step):
                    part = rows.rows[at : min(at + step, count)]
                    start, memory = self._wait_for_space(kind.frame_bytes, largest, len(part))
                    outbox.claim(start, kind.frame_bytes * len(part))
                    checksums = copy_stack(images[at : at + len(part)], kind.pixel_type, memory, start)
                    self._note(outbox.add_frames, kind, *_with_checksums(part, checksums, start))
                if count < len(rows.rows):
                    raise _too_much(outbox.next, len(rows.rows[count][1]))
                return first
            finally:
                self._active_thread = None

    @contextmanager
    def reserve(
        self,
        shape: Sequence[int],
        dtype: object,
        *,
        bits: int | None,
        rows: FrameRows,
        on_taken: Callable[[int], None],
        is_one: bool = False,
    ) -> Iterator[NDArray[Any]]:
        """The places of the next frames as an array (N, Y, X[, 3]), N the rows; with is_one, of one row, without N.

        The frames are taken when the block is left; on_taken is called with the first number. Raises as `Run.put`.
        """
        self.check_caller()
        holder = threading.get_ident()
        try:  # before the place is taken, so that an interrupt on the way to the caller's block frees it
            with self.order:
                try:
                    self._active_thread = holder
                    number = self._outbox.next
                    try:
                        kind = kind_of_buffer(shape, dtype, rows.names, bits)
                    except ValueError as error:
                        raise no_image(number, error) from error
                    count, step = rows.storable, distance(kind.frame_bytes)
                    if count < len(rows.rows):
                        raise _too_much(number + count, len(rows.rows[count][1]))
                    if count > self._fitting(kind):
                        raise _too_large(self._outbox, count * step, self._largest_frame)
                    start, memory = self._wait_for_space(kind.frame_bytes, rows.largest_metadata, count)
                    self._outbox.claim(start, count * step)
                    self._keep_place(holder)
                finally:
                    self._active_thread = None
            images = _stack_in(memory, start, kind, count)
            given = images[0] if is_one else images
            yield given
            given.flags.writeable = False
            checksums = [xxhash.xxh3_64_intdigest(image.data) for image in images]
            self._add_reserved(kind, rows, checksums, start)
        finally:
            if self._reserving_thread == holder:
                self._reserving_thread = None  # first of all, as Ctrl-C may come in any call
                self._note_free_place()
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
                    ds = self._state.dataset_id
                    header = encode_request("skip", ds=ds, n=self._outbox.next, count=part, reason=reason)
                    self._wait_for_space(1, len(header))
                    self._note(self._outbox.add_skip, header, part)
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
            with self._state.lock:
                self._state.condition.notify_all()

    def check_process(self) -> None:
        """Raise ProtocolError in a forked process, which has the memory and locks but no thread that sends."""
        if THIS_PROCESS.number != self._process:
            text = f"run {self._state.settings.name!r} belongs to the process that made it, not to one forked from it"
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
            f"run {self._state.settings.name!r} was called in the middle of a put, reserve or skip of the same thread, "
            "as by a signal handler; nothing was done. Set a flag in the handler, and look at it between two frames"
        )

    def _add_reserved(self, kind: FrameKind, rows: FrameRows, checksums: list[int], start: int) -> None:
        """Append the reserved frames, whose pixels are from `start` on."""
        self.check_process()
        self._is_sending = True
        outbox, step = self._outbox, distance(kind.frame_bytes)
        at_once = outbox.frames_at_once(kind.frame_bytes, rows.largest_metadata)

        def add() -> int:
            number = outbox.next
            for at in range(0, len(checksums), at_once):
                part = rows.rows[at : at + at_once], checksums[at : at + at_once]
                outbox.add_frames(kind, *_with_checksums(*part, start + at * step))
            return number

        self._note(add)

    def _note(self, add: Callable[..., int], *values: Any) -> int:
        """Call `add` of the outbox; return its number. Raises as `raise_if_over` of the state."""
        state = self._state
        with state.lock:
            state.raise_if_over()
            try:
                number = add(*values)
            except BaseException:  # Ctrl-C, or the end of memory
                self._fail_half_noted()
                raise
            state.wake()
            return number

    def _fail_half_noted(self) -> None:
        """Fail the run, as a frame was noted by half and the next one to send is unknown."""
        name, first = self._state.settings.name, self._outbox.first_number
        text = f"run {name!r} was interrupted in the middle of a put; frames from {first} on may be lost"
        self._state.fail(AcquisitionFailed(text, code="interrupted"))

    def _fitting(self, kind: FrameKind) -> int:
        """How many frames fit into the local buffer together, at least 1."""
        return max(1, (self._outbox.ring.capacity - kind.frame_bytes) // distance(kind.frame_bytes) + 1)

    def _wait_for_space(self, payload_bytes: int, header_bytes: int, count: int = 1) -> tuple[int, memoryview]:
        """Offset and memory for the pixels. No other thread takes the place, as the caller has `order`.

        The bytes are those of each of `count` frames.
        """
        self._state.raise_if_over()
        if self._outbox.next + count > MAX_NUMBER:
            raise ProtocolError(f"frame numbers end at {MAX_NUMBER}; close this run and start another one")
        if payload_bytes > self._largest_frame:
            raise _too_large(self._outbox, payload_bytes, self._largest_frame)
        if header_bytes > MAX_METADATA_BYTES:
            raise _too_much(self._outbox.next, header_bytes)
        wanted = payload_bytes, header_bytes, count
        if self._reserving_thread is not None or (start := self._outbox.place(*wanted)) is None:
            start = self._wait_for_place(*wanted)
        assert self._memory is not None  # None only after the run
        return start, self._memory

    def _wait_for_place(self, *wanted: int) -> int:
        since = time.monotonic()
        with self._state.lock:
            while self._reserving_thread is not None or (start := self._outbox.place(*wanted)) is None:
                self._state.raise_if_over()
                is_full = self._reserving_thread is None
                self._wait_for_progress(
                    since, "the local buffer is full" if is_full else "a reserved frame is being filled"
                )
            self._state.raise_if_over()
            return start

    def wait_for_end(self, status: str) -> None:
        """Wait for the end; the run's thread bounds it by the daemon's signs of life.

        Unless completed is asked for, raises WriterBehind as soon as nothing became safe for the patience.
        """
        since, state = time.monotonic(), self._state
        with state.lock:
            while not state.ended:
                if status == "completed" or state.failure is not None:
                    state.condition.wait(state.settings.silence_s)  # a signal handler may have seen the end already
                else:
                    self._wait_for_progress(since, "frames are left")

    def _wait_for_progress(self, since: float, why: str) -> None:
        """Wait for a change. Raises WriterBehind if the daemon is alive and nothing became safe for the patience."""
        now, state, patience_s = time.monotonic(), self._state, self._state.settings.patience_s
        left = max(since, state.contact.released_at) + patience_s - now
        silent = now - state.contact.heard_at > state.settings.silence_s
        is_decided_elsewhere = silent or bool(state.report.pause_reason)
        if left <= 0 and not is_decided_elsewhere:
            raise WriterBehind(self.describe_backlog(f"for {patience_s:g} s and {why}"))
        # If the daemon is silent, or waits for space, the run's thread decides, within the patience.
        state.condition.wait(left if left > 0 else state.settings.silence_s)

    def describe_backlog(self, how_long: str) -> str:
        """Reasons for a wait, for the error of a producer that waited too long."""
        ring, state = self._outbox.ring, self._state
        word = "durable" if state.release_when_durable else "published"
        bound = f"{ring.used_bytes / 1e6:.1f} of {ring.capacity / 1e6:.1f} MB; see buffer_mb"
        phrases = [f"nothing became {word} {how_long} ({bound})"]
        if not self._outbox.all_sent:
            phrases.append(f"the daemon's window is closed at frame {state.limit.number}")
        return "; ".join(phrases + state.report.phrases())


def _too_large(outbox: Outbox, payload_bytes: int, largest: int) -> FrameRefused:
    """The error of the next frame, whose pixels are more than the largest that is taken."""
    capacity, number = outbox.ring.capacity, outbox.next
    if payload_bytes > capacity:
        text = f"more than the local buffer of {capacity} bytes; raise buffer_mb"
    else:
        text = f"more than the daemon takes ({largest}); raise its memory budget or largest payload"
    return FrameRefused(f"frame {number} has {payload_bytes} bytes, {text}", code="payload_size", number=number)


def _too_much(number: int, metadata_bytes: int) -> FrameRefused:
    """The error of a frame with too large metadata."""
    text = (
        f"frame {number}: its metadata take {metadata_bytes} bytes as JSON; at most {MAX_METADATA_BYTES} are stored"
        " with a frame. Pass what all frames share as summary, and large tables as a file of their own"
    )
    return FrameRefused(text, code="bad_header", number=number)


def _with_checksums(rows: Sequence[FrameRow], checksums: list[int], start: int) -> tuple[list[FrameFields], int, int]:
    """The arguments of `Outbox.add_frames` after the kind."""
    frames = [(row[0], checksum, *row[1:]) for row, checksum in zip(rows, checksums, strict=True)]
    return frames, start, sum(len(row[1]) for row in rows)


def _stack_in(memory: memoryview, start: int, kind: FrameKind, count: int) -> NDArray[Any]:
    """The places of `count` frames from `start` on, of shape (N, Y, X) or (N, Y, X, 3)."""
    one: NDArray[Any] = np.ndarray(kind.shape, kind.pixel_type.dtype, memory, start)
    strides = distance(kind.frame_bytes), *one.strides
    return np.ndarray((count, *kind.shape), one.dtype, memory, start, strides)


class LocalMemory:
    """The pixel memory of a run. shared: memory that a daemon can map, if the system supports it.

    private_why is the reason why it cannot be handed over; empty if it can. claim_words lie behind the pixels, for
    FrameClaims; None in private memory.
    """

    def __init__(self, size: int, *, shared: bool, why_not: str = "the endpoint may be on another machine") -> None:
        self._handle = -1
        self._finalizer: weakref.finalize[[int], LocalMemory] | None = None  # also of a run that failed to start
        self.pages: memoryview | None
        self.claim_words: memoryview | None = None
        self._claims_at = -(-size // WORD_BYTES) * WORD_BYTES
        self.private_why = why_not
        if shared:
            try:
                pages, self._handle = make_sealed_memory(-(-(self._claims_at + CLAIM_BYTES) // PAGE_BYTES) * PAGE_BYTES)
                self.pages = pages[:size]
                self.claim_words = pages[self._claims_at :][:CLAIM_BYTES].cast("q")
                self._finalizer = weakref.finalize(self, close_handle, self._handle)
                self.private_why = ""
                return
            except OSError as error:
                self.private_why = f"no memory can be shared here: {error}"
        self.pages = PageMemory(size).view

    def close(self) -> None:
        """End handing over. The pages are freed with their last user."""
        self.pages = self.claim_words = None
        self._handle = -1
        if self._finalizer is not None:
            self._finalizer()

    def hand_over(self, address: str, timeout_s: float) -> Handover:
        """Hand the memory to the daemon that listens at `address`, which has timeout_s to answer."""
        distrusted = distrust(Path(address)) if memory_listener.HAS_NAME else ""
        if reason := self.private_why or distrusted:
            return Handover(why=reason)
        token = secrets.token_hex(16)
        connection: socket.socket | None = None
        try:
            connection = memory_listener.connect_to(address, timeout_s)
            message = wire.encode_handover(token, memory_listener.named_handle(self._handle), self._claims_at)
            memory_listener.send_memory(connection, message, self._handle)
            answer = memory_listener.receive_answer(connection, wire.MAX_HANDOVER_BYTES)
            if not answer:
                raise ConnectionResetError("the daemon has closed the connection")
            wire.parse_handover_answer(answer)
        except (OSError, ProtocolError) as error:
            if connection is not None:
                connection.close()
            return Handover(
                why=f"{address}: {_reason(error)}", is_broken=isinstance(error, ConnectionError | TimeoutError)
            )
        return Handover(connection, token)


def _reason(error: OSError | ProtocolError) -> str:
    if isinstance(error, FileNotFoundError):
        return "the socket is missing; the daemon has another view of the file system (a container, PrivateTmp)"
    if isinstance(error, PermissionError):
        return f"{error}; only the daemon's user and group may share memory"
    return str(error)


@dataclass(frozen=True, slots=True)
class Handover:
    """Memory on its way to the daemon, which keeps it until `open` names it or `connection` is closed.

    why is the reason for a failure. is_broken: the failure is one of a daemon that is just ending.
    """

    connection: socket.socket | None = None
    token: str = ""
    why: str = ""
    is_broken: bool = False

    def field(self) -> dict[str, Any]:
        """Field `memory` of `open`."""
        return {"token": self.token} if self.token else {"why": self.why[: wire.MAX_WHY]}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.connection is not None:
            with suppress(OSError):
                self.connection.close()


class ProcessMark:
    """number is the id of this process, also after a fork (os.register_at_fork)."""

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.note()

    def note(self) -> None:
        """Take the id of this process."""
        self.number = os.getpid()


THIS_PROCESS = ProcessMark()

if can_fork():
    os.register_at_fork(after_in_child=THIS_PROCESS.note)
