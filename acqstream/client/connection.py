"""The thread of one run that owns its socket."""

from __future__ import annotations

import logging
import math
import threading
import time

import zmq

from acqstream.client.connect import Connector
from acqstream.client.connection_settings import ConnectionSettings
from acqstream.client.frame_sender import FrameSender
from acqstream.client.link import Link
from acqstream.client.local_memory import LocalMemory
from acqstream.client.run_opening import RunOpener, log_warning
from acqstream.client.run_state import RunState
from acqstream.errors import AcqStreamError, AcquisitionFailed
from acqstream.protocol.frame_batch import encode_request
from acqstream.storage.waker import Waker

log = logging.getLogger(__name__)

_SEND_BURST = 64
"""Messages to send before the next check for replies."""
_MAX_WAIT_S = 1.0
_PAUSE_S = 1.0
"""Delay of a turn of the thread which shows that the program was stopped, or did not let threads run."""
_TELL_S = 0.5
"""How often the daemon is told at most how many frames the program has put, which may still be on their way."""
_LINGER_S = 0.002
"""Small frames wait for one another for so long after a message, which doubles the rate of the smallest ones."""


class Connection:
    """Sends the outbox of `state` and feeds the daemon's messages to `state`, in a daemon thread of its own.

    The thread keeps the pages of `memory`, the pixels, alive until its ZeroMQ context is gone.
    """

    def __init__(self, settings: ConnectionSettings, state: RunState, memory: LocalMemory) -> None:
        self.settings = settings
        self.state = state
        self.is_stopped = False  # by its owner, before the end
        self._memory = memory
        self._sender = FrameSender(memory)
        self.opener = RunOpener(settings, state, self._sender)
        self._waker = Waker()
        self._is_idle = False
        self._is_lingering = False
        self._sent_at = -math.inf  # the clock may have started a moment ago, with the machine
        self._is_blocked = False
        self._pinged_at = 0.0
        self._told_number = 0  # frames that the daemon knows of
        self._failed_at: float | None = None  # the first error was reported then
        self._is_over = False  # the thread does nothing more
        self._thread = threading.Thread(target=self._run, name=f"acqstream-run-{settings.name}", daemon=True)

    def start(self) -> None:
        try:
            self._thread.start()
        except RuntimeError:  # the system has no more threads
            self._waker.close()
            raise

    def stop(self) -> None:
        """Abandon the connection at once."""
        self.is_stopped = True
        with self.state.lock:
            if not self.state.ended:
                self._waker.wake()

    def join(self) -> None:
        """Wait for the thread's end, which is near once the session has ended.

        Not by Thread.join, which hangs when a signal handler calls it in the middle of another.
        """
        if self.inside:
            return
        with self.state.lock:  # a signal handler may close the run while its thread has the lock: waiting gives it back
            while not self._is_over:
                self.state.condition.wait(_MAX_WAIT_S)

    @property
    def dataset_id(self) -> str:
        """Identifier of the acquisition; the daemon's answer may name the one that this run continues."""
        return self.state.opened.dataset_id if self.state.opened is not None else self.settings.dataset_id

    @property
    def inside(self) -> bool:
        """True in the run's own thread, that is in on_error."""
        return threading.current_thread() is self._thread

    def wake(self) -> None:
        """Wake the thread if something is due; the caller holds the lock."""
        if not self._is_idle or (self._is_lingering and self.state.can_wait):
            return
        if not self.state.ended and self.state.has_due():
            self._is_idle = False
            self._waker.wake()

    # --- everything below runs in the thread -------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
            try:
                self._serve(context)
            finally:
                context.destroy(linger=0)
                self.settings.release()
        except AcqStreamError as error:
            self._fail(error)
        except BaseException as error:  # noqa: BLE001 - the owner must get any error
            unexpected = AcquisitionFailed(f"the thread of the run ended with {type(error).__name__}: {error}")
            unexpected.__cause__ = error
            self._fail(unexpected)
        finally:
            with self.state.condition:
                self.state.end()
                self._memory.close()
                self._waker.close()
            try:
                self._report()
            finally:
                with self.state.condition:
                    self._is_over = True
                    self.state.condition.notify_all()

    def _serve(self, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        connector = Connector(
            context=context,
            endpoint=self.settings.endpoint,
            transport=self.settings.transport,
            waker=self._waker,
            stopped=lambda: self.is_stopped,
            memory=self._memory,
            keys=self.settings.keys,
            locate=self.settings.locate,
            relocates=self.settings.relocates,
        )
        link = self.opener.open_first(connector)
        while link is not None:
            try:
                self._converse(link)
            finally:
                link.close()
            if self.is_stopped or self.state.ended or self.state.failure is not None:
                return
            link = self.opener.open_again(connector)

    def _converse(self, link: Link) -> None:
        """Send and receive until the session has ended or contact is lost."""
        self._is_blocked = False
        self._told_number = 0  # it may be another daemon
        turn_at = time.monotonic()
        while not self.is_stopped:
            now = turn_at = self._note_pause(turn_at)  # one time for the turn; the next one notices a stop within it
            self._receive_all(link)
            self._report()
            if self.state.ended or self.state.contact.is_lost or self._is_silent(link, now):
                return
            self._check_space(now)
            linger_s = self._sent_at + _LINGER_S - time.monotonic()
            with self.state.condition:
                can_wait = linger_s > 0 and not self._is_blocked and self.state.can_wait
                self._is_lingering = self._is_idle = can_wait
            if not self._is_lingering:
                self._send_due(link)
                with self.state.condition:
                    if self.state.has_due() and not self._is_blocked:
                        continue
                    self._is_idle = True
            timer_s = min(_MAX_WAIT_S, max(0.001, self.settings.silence_s / 4))
            link.wait(linger_s if self._is_lingering else timer_s, writable=self._is_blocked)
            self._is_idle = False

    def _note_pause(self, turn_at: float) -> float:
        """Return the time now. Time in which this program did not run does not count as the daemon's silence."""
        now = time.monotonic()
        away_s = now - turn_at
        if away_s > _MAX_WAIT_S + _PAUSE_S:
            log.warning("run %s: this program did not run for %.1f s", self.settings.name, away_s)
            with self.state.condition:
                self.state.contact.forgive(away_s, now)
        return now

    def _is_silent(self, link: Link, now: float) -> bool:
        """Ping a quiet daemon, or one that knows of too few frames; True when it is silent for too long."""
        quiet_s = now - self.state.contact.heard_at
        if self._failed_at is not None and now - self._failed_at > self.settings.patience_s:
            return True  # the receipt that follows a fatal error never came
        number = self.state.outbox.next
        is_late = quiet_s > self.settings.silence_s / 2 and now - self._pinged_at > self.settings.silence_s / 2
        if is_late or (number != self._told_number and now - self._pinged_at > _TELL_S):
            self._pinged_at, self._told_number = now, number
            link.send(encode_request("ping", ds=self.dataset_id, n=number))
        return quiet_s > self.settings.silence_s

    def _check_space(self, now: float) -> None:
        with self.state.condition:
            self.state.check_space(self.settings.patience_s, now)
            if self.state.failure is not None:
                self.state.condition.notify_all()

    def _receive_all(self, link: Link) -> None:
        while not self.state.ended and (reply := link.receive()) is not None:
            with self.state.condition:
                warning = self.state.receive(reply, time.monotonic(), time.time())
                self.state.condition.notify_all()
            log_warning(self.settings.name, warning)

    def _send_due(self, link: Link) -> None:
        with self.state.condition:
            patches = self.state.patches.take()
            messages = self.state.take_due(_SEND_BURST)
        for kind, header, part in patches:
            if not link.send(header, part):
                with self.state.condition:
                    self.state.patches.add(kind, header, part)
        refused = self._sender.send(link, messages)
        if messages and refused != messages[0].number:
            self._sent_at = time.monotonic()
        with self.state.condition:
            if refused is not None:
                self.state.outbox.put_back(refused)
            ending = self.state.ending if self.state.close_is_due else None
            number = self.state.outbox.next
        self._is_blocked = refused is not None
        if ending is not None:
            header = encode_request(
                "close", ds=self.dataset_id, n=number, status=ending.wire_status, reason=ending.reason
            )
            self._is_blocked = not link.send(header)
            self.state.ending_sent = not self._is_blocked

    def _fail(self, error: AcqStreamError) -> None:
        with self.state.condition:
            self.state.fail(error)
            self.state.condition.notify_all()

    def _report(self) -> None:
        """Report the first error to the owner, once."""
        error = self.state.failure
        if error is None or self._failed_at is not None:
            return
        self._failed_at = time.monotonic()
        if self.state.opened is None:
            return  # `create` raises it
        log.error("run %s: %s", self.settings.name, error)
        if self.settings.on_error is not None:
            try:
                self.settings.on_error(error)
            except Exception as callback_error:
                log.exception("run %s: on_error raised", self.settings.name)
                error.add_note(f"on_error raised {type(callback_error).__name__}: {callback_error}")
