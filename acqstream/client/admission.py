"""The way into the local buffer of a run: who may put a frame there, where, and how long that is waited for."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import NoReturn, TypeVar, TypeVarTuple

from acqstream.client.completeness import DeclaredGaps
from acqstream.client.connection import Connection
from acqstream.client.local_memory import LocalMemory
from acqstream.errors import AcquisitionFailed, FrameRefused, ProtocolError, WriterBehind
from acqstream.protocol.request_fields import FrameFields, FrameKind

_Arguments = TypeVarTuple("_Arguments")
_Noted = TypeVar("_Noted")


class Admission:
    """Of one run. Room is given to one thread at a time: the run holds its order meanwhile.

    largest_frame: bytes of a payload that the daemon takes and the buffer holds; max_skip: how many numbers it takes in
    one skip. Both are set when the acquisition is open.
    """

    def __init__(self, connection: Connection, memory: LocalMemory) -> None:
        self._connection = connection
        self._session = connection.session
        self._condition = connection.condition
        self._lock = connection.lock
        self._settings = connection.settings
        self._memory = memory.pages
        self._process = os.getpid()
        self.held_by: int | None = None  # the thread that fills a reserved frame
        self._is_sending = False  # that thread has filled it
        self.active_thread: int | None = None  # the thread that is in the middle of a put; set by owners of the order
        self.largest_frame = 0
        self.max_skip = 1
        self.closed = False

    def close(self) -> None:
        """The run is over: no more frames, and its memory goes."""
        self._memory = None
        self.closed = True

    def hold(self, thread: int) -> None:
        """Keep the place that this thread was just given: nobody else gets one until `held_by` is None again."""
        self._is_sending = False
        self.held_by = thread

    def note_free_place(self) -> None:
        """Tell those who wait that `held_by` is None."""
        if os.getpid() == self._process:  # the lock of a forked process may be locked for ever
            with self._lock:
                self._condition.notify_all()

    def check_process(self) -> None:
        """Raise ProtocolError in a forked process: it has the memory, and locks, but nobody who sends."""
        if os.getpid() != self._process:
            text = f"run {self._settings.name!r} belongs to the process that made it, not to one forked from it"
            raise ProtocolError(text)

    def check_caller(self) -> None:
        """As `check_process`; also in a thread that is in the middle of a put, or has a place: it waits for itself."""
        if os.getpid() != self._process:  # asked for with every frame: no call where it is the same
            self.check_process()
        if self.held_by is not None and self.held_by == threading.get_ident():
            raise ProtocolError("a frame is being filled by this thread: leave its `reserve` block first")
        if self.active_thread is not None and self.active_thread == threading.get_ident():
            self._refuse_nested()

    def check_closer(self) -> None:
        """As `check_process`; also in a thread that is in the middle of a put: the end would wait for it."""
        self.check_process()
        thread = threading.get_ident()
        if self.active_thread == thread or (self._is_sending and self.held_by == thread):
            self._refuse_nested()

    def _refuse_nested(self) -> NoReturn:
        raise ProtocolError(
            f"run {self._settings.name!r} was called in the middle of a put, reserve or skip of the same thread, as "
            "by a signal handler; nothing was done. Set a flag in the handler, and look at it between two frames"
        )

    def add_held(self, kind: FrameKind, frame: FrameFields, start: int, metadata_bytes: int) -> int:
        """As `add`, for the thread that holds the place."""
        self.check_process()
        self._is_sending = True
        return self.add(kind, frame, start, metadata_bytes)

    def add(self, kind: FrameKind, frame: FrameFields, start: int, metadata_bytes: int) -> int:
        """The next frame, whose pixels are at `start`, where room was; its number."""
        return self._note(self._session.outbox.add_frame, kind, frame, start, metadata_bytes)

    def add_skip(self, header: bytes, count: int, declared: DeclaredGaps) -> None:
        """The next `count` numbers, which get no pixels; they go into `declared` too."""
        self._note(self._declare, header, count, declared)

    def _declare(self, header: bytes, count: int, declared: DeclaredGaps) -> None:
        outbox = self._session.outbox
        declared.add(outbox.next, count)
        outbox.add_skip(header, count)

    def _note(self, add: Callable[[*_Arguments], _Noted], *arguments: *_Arguments) -> _Noted:
        with self._lock:
            self.raise_if_over()
            try:
                noted = add(*arguments)
            except BaseException:  # Ctrl-C, or the end of memory
                self._give_up()
                raise
            self._connection.wake()
            return noted

    def _give_up(self) -> None:
        """A frame was noted by half: what is to be sent next cannot be told."""
        first = self._session.outbox.first_held
        text = f"run {self._settings.name!r} was interrupted in the middle of a put; frames from {first} on may be lost"
        self._session.fail(AcquisitionFailed(text, code="interrupted"))

    def wait_for_room(self, payload_bytes: int, header_bytes: int) -> tuple[int, memoryview]:
        """Where the pixels may be copied to. Nobody else takes the place: the caller holds the order."""
        outbox = self._session.outbox
        self.raise_if_over()
        if payload_bytes > self.largest_frame:
            self._refuse_size(payload_bytes)
        if self.held_by is not None or (start := outbox.place(payload_bytes, header_bytes)) is None:
            start = self._wait_for_place(payload_bytes, header_bytes)
        assert self._memory is not None  # it goes when the run is over
        return start, self._memory

    def _wait_for_place(self, payload_bytes: int, header_bytes: int) -> int:
        outbox = self._session.outbox
        since = time.monotonic()
        with self._lock:
            while self.held_by is not None or (start := outbox.place(payload_bytes, header_bytes)) is None:
                self.raise_if_over()
                why = "the local buffer is full" if self.held_by is None else "a reserved frame is being filled"
                self.wait_for_progress(since, why)
            self.raise_if_over()
            return start

    def wait_for_progress(self, since: float, why: str) -> None:
        """Wait for a change. Raises WriterBehind when nothing became safe for the patience, the daemon being there."""
        now = time.monotonic()
        left = max(since, self._session.released_at) + self._settings.patience_s - now
        silent = now - self._session.last_word > self._settings.silence_s
        is_decided_elsewhere = silent or bool(self._session.paused_why)
        if left <= 0 and not is_decided_elsewhere:
            raise WriterBehind(self._session.what_is_behind(f"for {self._settings.patience_s:g} s and {why}"))
        # Where the daemon is silent, or waits for space, the connection's thread decides, within the patience.
        self._condition.wait(left if left > 0 else self._settings.silence_s)

    def _refuse_size(self, payload_bytes: int) -> NoReturn:
        capacity = self._session.outbox.ring.capacity
        number = self._session.outbox.next
        if payload_bytes > capacity:
            text = f"more than the local buffer of {capacity} bytes; raise buffer_mb"
        else:
            text = f"more than the daemon takes ({self.largest_frame}); raise its memory budget or largest payload"
        raise FrameRefused(f"frame {number} has {payload_bytes} bytes, {text}", code="payload_size", number=number)

    def raise_if_over(self) -> None:
        """Raise the run's first error, or that it is closed."""
        if self._session.failure is not None:
            raise self._session.failure.with_traceback(None)  # else it would grow with every raise
        if self.closed or self._session.ending is not None or self._session.ended:
            raise AcquisitionFailed(f"run {self._settings.name!r} is closed", code="closed")
