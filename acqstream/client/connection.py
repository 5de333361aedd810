"""The thread of one run that owns its socket."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable

import zmq

from acqstream.client.connect import Joined, Joiner, no_daemon
from acqstream.client.connection_settings import ConnectionSettings
from acqstream.client.daemon_errors import failure, refusal
from acqstream.client.frame_sender import FrameSender
from acqstream.client.link import Link
from acqstream.client.local_memory import LocalMemory
from acqstream.client.outbox import BATCH_BYTES
from acqstream.client.run_state import RunState, RunWarning
from acqstream.errors import AcqStreamError, AcquisitionFailed, ConfigError, DaemonUnavailable
from acqstream.protocol.replies import Closed, Error, Opened, Welcome
from acqstream.protocol.request_fields import encode_request
from acqstream.storage.waker import Waker

log = logging.getLogger(__name__)

_SEND_BURST = 64
"""Messages between two looks at what the daemon says."""
_LONGEST_WAIT_S = 1.0
_PAUSE_S = 1.0
"""A turn of the thread that takes so much longer than it may: the program was stopped, or did not let threads run."""
_LINGER_S = 0.002
"""Small frames that follow a message so soon wait for one another: that doubles the rate of the smallest ones."""


class Connection:
    """Sends what the outbox of `state` holds and feeds the daemon's messages to `state`, in a daemon thread of its own.

    The thread keeps the pages of `memory`, the pixels, alive until its ZeroMQ context is gone.
    """

    def __init__(self, settings: ConnectionSettings, state: RunState, memory: LocalMemory) -> None:
        self.settings = settings
        self.state = state
        self.welcome: Welcome | None = None
        self.endpoint = settings.endpoint  # the one in use: tcp may have become ipc
        self.daemon_endpoint = settings.endpoint  # the one to ask at first: where the daemon was found
        self.transport_why = ""  # why frames go as messages; empty where they lie in shared memory
        self._memory = memory
        self._sender = FrameSender(memory)
        self._waker = Waker()
        self._idle = False
        self._lingers = False
        self._sent_at = -math.inf  # the clock may have begun a moment ago, with the machine
        self._stopped = False
        self._blocked = False
        self._pinged_at = 0.0
        self._failed_at: float | None = None
        self._reported = False
        self._is_over = False  # the thread does nothing more
        self._thread = threading.Thread(target=self._run, name=f"acqstream-run-{settings.name}", daemon=True)

    def start(self) -> None:
        try:
            self._thread.start()
        except RuntimeError:  # the system has no more threads
            self._waker.close()
            raise

    def stop(self) -> None:
        """Give the connection up, at once."""
        self._stopped = True
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
                self.state.condition.wait(_LONGEST_WAIT_S)

    @property
    def stopped(self) -> bool:
        """The connection was given up by its owner."""
        return self._stopped

    @property
    def dataset_id(self) -> str:
        """Of the acquisition: the daemon's answer may name the one that is gone on with."""
        return self.state.opened.dataset_id if self.state.opened is not None else self.settings.dataset_id

    @property
    def inside(self) -> bool:
        """True in the run's own thread, that is in on_error."""
        return threading.current_thread() is self._thread

    def wake(self) -> None:
        """Tell the thread that something is due; the caller holds the condition."""
        if not self._idle or (self._lingers and self.state.can_wait):
            return
        if not self.state.ended and self.state.has_due():
            self._idle = False
            self._waker.wake()

    # --- everything below runs in the thread -------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
            try:
                self._serve(context)
            finally:
                context.destroy(linger=0)
        except AcqStreamError as error:
            self._fail(error)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the owner must learn of it
            surprise = AcquisitionFailed(f"the thread of the run ended with {type(error).__name__}: {error}")
            surprise.__cause__ = error
            self._fail(surprise)
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
        joiner = Joiner(
            context=context,
            endpoint=self.settings.endpoint,
            transport=self.settings.transport,
            waker=self._waker,
            stopped=lambda: self._stopped,
            memory=self._memory,
            keys=self.settings.keys,
            locate=self.settings.locate,
        )
        link = self._open_first(joiner)
        self.daemon_endpoint = joiner.endpoint
        while link is not None:
            try:
                self._converse(link)
            finally:
                link.close()
            if self._stopped or self.state.ended or self.state.failure is not None:
                return
            link = self._open_again(joiner)

    def _open_first(self, joiner: Joiner) -> Link | None:
        patience_s = self.settings.patience_s
        request = {"ds": self.settings.dataset_id, **self.settings.request}
        deadline = time.monotonic() + patience_s
        joined = joiner.join_patiently(request, deadline=deadline, answer_s=patience_s)
        if joined is None:
            if self._stopped:
                return None
            if joiner.last_refusal is not None:
                raise refusal(joiner.last_refusal, self.settings.name)
            raise self._not_opened() if joiner.asked else no_daemon(joiner.endpoint)
        if joined.memory_why and self.settings.transport == "shm":
            joined.link.close()
            raise ConfigError(f"transport='shm': {joined.memory_why}; use transport='auto'")
        return self._admit(joined, lambda error: refusal(error, self.settings.name))

    def _open_again(self, joiner: Joiner) -> Link | None:
        log.warning("run %s: contact with %s is lost; connecting again", self.settings.name, self.settings.endpoint)
        deadline = self.state.last_word + self.settings.patience_s
        again = {"ds": self.dataset_id, "resume": True, "on_exists": "error", "epoch": self.state.epoch + 1}
        answer_s = max(self.settings.silence_s, 0.1)
        joined = joiner.join_patiently({**self.settings.request, **again}, deadline=deadline, answer_s=answer_s)
        if joined is None:
            if not self._stopped:
                raise self._out_of_contact()
            return None
        path = self.state.opened.path if self.state.opened else ""
        return self._admit(joined, lambda error: failure(error, path))

    def _admit(self, joined: Joined, error_of: Callable[[Error], AcqStreamError]) -> Link | None:
        answer, warning = joined.answer, None
        try:
            if isinstance(answer, Error):
                raise error_of(answer)
            with self.state.condition:
                if isinstance(answer, Opened):
                    if self.settings.transport == "shm" and joined.memory_why and not self.transport_why:
                        text = f"frames are sent as messages from now on: {joined.memory_why}"
                        warning = self.state.warn("no_shared_memory", text, time.time())
                    self.welcome, self.endpoint = joined.welcome, joined.link.endpoint
                    self.transport_why = joined.memory_why
                    self.state.outbox.message_bytes = min(BATCH_BYTES, joined.welcome.max_payload)
                    self.state.open(answer, same_machine=joined.same_machine, now=time.monotonic())
                    self._sender.begin(self.dataset_id, answer.memory)
                else:
                    self.state.receive(answer, time.monotonic(), time.time())
                self.state.condition.notify_all()
        except AcqStreamError:
            joined.link.close()
            raise
        self._log(warning)
        if isinstance(answer, Closed):
            joined.link.close()
            return None
        return joined.link

    def _converse(self, link: Link) -> None:
        """Send and receive until the session has ended or contact is lost."""
        self._blocked = False
        turn_at = time.monotonic()
        while not self._stopped:
            now = turn_at = self._note_pause(turn_at)  # one clock for the turn: a stop within it is noted in the next
            self._receive_all(link)
            self._report()
            if self.state.ended or self.state.contact_lost:
                return
            if self._silent(link, now):
                return
            self._check_space(now)
            linger_s = self._sent_at + _LINGER_S - time.monotonic()
            with self.state.condition:
                can_wait = linger_s > 0 and not self._blocked and self.state.can_wait
                self._lingers = self._idle = can_wait
            if not self._lingers:
                self._send_due(link)
                with self.state.condition:
                    if self.state.has_due() and not self._blocked:
                        continue
                    self._idle = True
            link.wait(linger_s if self._lingers else self._next_timer(), writable=self._blocked)
            self._idle = False

    def _note_pause(self, turn_at: float) -> float:
        """Time in which this program did not run does not count as the daemon's silence. Returns the time now."""
        now = time.monotonic()
        away_s = now - turn_at
        if away_s > _LONGEST_WAIT_S + _PAUSE_S:
            log.warning("run %s: this program did not run for %.1f s", self.settings.name, away_s)
            with self.state.condition:
                self.state.forgive(away_s, now)
        return now

    def _silent(self, link: Link, now: float) -> bool:
        """Ask for a sign of life in time; True when none came."""
        quiet_s = now - self.state.last_word
        if self._failed_at is not None and now - self._failed_at > self.settings.patience_s:
            return True  # the receipt that follows a fatal error never came
        if quiet_s > self.settings.silence_s / 2 and now - self._pinged_at > self.settings.silence_s / 2:
            self._pinged_at = now
            link.send(encode_request("ping", ds=self.dataset_id))
        return quiet_s > self.settings.silence_s

    def _check_space(self, now: float) -> None:
        with self.state.condition:
            self.state.check_space(self.settings.patience_s, now)
            if self.state.failure is not None:
                self.state.condition.notify_all()

    def _next_timer(self) -> float:
        return min(_LONGEST_WAIT_S, max(0.001, self.settings.silence_s / 4))

    def _receive_all(self, link: Link) -> None:
        while not self.state.ended and (reply := link.receive()) is not None:
            with self.state.condition:
                warning = self.state.receive(reply, time.monotonic(), time.time())
                self.state.condition.notify_all()
            self._log(warning)

    def _log(self, warning: RunWarning | None) -> None:
        if warning is not None:
            log.warning("run %s: %s (%s)", self.settings.name, warning.text, warning.code)

    def _send_due(self, link: Link) -> None:
        with self.state.condition:
            patches = self.state.take_patches()
            messages = self.state.take_due(_SEND_BURST)
        for kind, header in patches:
            if not link.send(header):
                with self.state.condition:
                    self.state.add_patch(kind, header)
        left = self._sender.send(link, messages)
        if messages and left != messages[0].number:
            self._sent_at = time.monotonic()
        with self.state.condition:
            if left is not None:
                self.state.outbox.put_back(left)
            ending = self.state.ending if self.state.close_is_due else None
            number = self.state.outbox.next
        self._blocked = left is not None
        if ending is not None:
            header = encode_request(
                "close", ds=self.dataset_id, n=number, status=ending.wire_status, reason=ending.reason
            )
            self._blocked = not link.send(header)
            self.state.note_close_sent(is_sent=not self._blocked)

    def _not_opened(self) -> DaemonUnavailable:
        name, seconds = self.settings.name, self.settings.patience_s
        return DaemonUnavailable(
            f"the daemon at {self.settings.endpoint} has not opened {name!r} within {seconds:g} s: its disk may stand "
            f"still. {name!r} may be there later, without frames; resume=True goes on with it"
        )

    def _out_of_contact(self) -> DaemonUnavailable:
        first = self.state.outbox.first_held
        unsafe = f"; frames from {first} on may not be stored" if first < self.state.outbox.next else ""
        return DaemonUnavailable(
            f"no word from the daemon at {self.settings.endpoint} for {self.settings.patience_s:g} s{unsafe}"
            f"{self.state.why_lost}"
        )

    def _fail(self, error: AcqStreamError) -> None:
        with self.state.condition:
            self.state.fail(error)
            self.state.condition.notify_all()

    def _report(self) -> None:
        """Tell the owner of the first error, once."""
        error = self.state.failure
        if error is None or self._reported:
            return
        self._reported = True
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
