"""The thread of one run, which owns its socket: opens the acquisition, sends frames, receives what the daemon says."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

import zmq

from acqstream.client.connector import Connector, OpenConnection
from acqstream.client.daemon_report import RunWarning, failure, refusal
from acqstream.client.frame_buffer import LocalMemory
from acqstream.client.link import Link, no_daemon
from acqstream.client.outbox import OutboxMessage
from acqstream.client.run_state import RunState
from acqstream.errors import AcqStreamError, AcquisitionFailed, ConfigError, DaemonUnavailable
from acqstream.protocol.encoding import MAX_HEADER_BYTES
from acqstream.protocol.frame_batch import FrameEncoder, FrameKind, MemoryPlace, encode_request
from acqstream.protocol.replies import Closed, Error, Welcome
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

    def __init__(self, state: RunState, memory: LocalMemory, waker: Waker) -> None:
        self.state = state
        self.is_stopped = False  # by its owner, before the end
        self._memory = memory
        self._sender = FrameSender(memory)
        self.opener = RunOpener(state, self._sender)
        self._waker = waker
        self._sent_at = -math.inf  # the clock may have started a moment ago, with the machine
        self._is_blocked = False
        self._pinged_at = 0.0
        self._told_number = 0  # frames that the daemon knows of
        self._failed_at: float | None = None  # the first error was reported then
        self._thread = threading.Thread(target=self._run, name=f"acqstream-run-{state.settings.name}", daemon=True)

    def start(self) -> None:
        try:
            self._thread.start()
        except RuntimeError:  # the system has no more threads
            self._waker.close()
            raise

    def stop(self) -> None:
        """Abandon the connection at once."""
        self.is_stopped = True
        self._waker.wake()

    def join(self) -> None:
        """Wait for the thread's end, which is near once the session has ended.

        Not by Thread.join, which hangs when a signal handler calls it in the middle of another.
        """
        if not self.inside:
            self.state.wait_until(lambda: self.state.thread.is_over)

    @property
    def inside(self) -> bool:
        """True in the run's own thread, that is in on_error."""
        return threading.current_thread() is self._thread

    # --- everything below runs in the thread -------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
            try:
                self._serve(context)
            finally:
                context.destroy(linger=0)
                self.state.settings.release()
        except AcqStreamError as error:
            self.state.fail(error)
        except BaseException as error:  # noqa: BLE001 - the owner must get any error
            unexpected = AcquisitionFailed(f"the thread of the run ended with {type(error).__name__}: {error}")
            unexpected.__cause__ = error
            self.state.fail(unexpected)
        finally:
            self.state.end()
            self._refuse_notes(math.inf, "the run ended before the daemon answered; it may be stored")
            self._memory.close()
            self._waker.close()
            try:
                self._report()
            finally:
                self.state.end(is_thread_over=True)

    def _serve(self, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        settings = self.state.settings
        connector = Connector(
            context=context,
            endpoint=settings.endpoint,
            transport=settings.transport,
            waker=self._waker,
            stopped=lambda: self.is_stopped,
            memory=self._memory,
            keys=settings.keys,
            locate=settings.locate,
            relocates=settings.relocates,
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
        state = self.state
        turn_at = time.monotonic()
        while not self.is_stopped:
            now = turn_at = self._note_pause(turn_at)  # one time for the turn; the next one notices a stop within it
            self._receive_all(link)
            self._report()
            if state.ended or state.contact.is_lost or self._is_silent(link, now):
                return
            state.check_space(state.settings.patience_s, now)
            self._refuse_notes(now, "the daemon has not answered; it may be stored")
            linger_s = self._sent_at + _LINGER_S - time.monotonic()
            lingers = linger_s > 0 and not self._is_blocked and state.linger()
            if not lingers:
                self._send_due(link)
                if not state.rest(is_blocked=self._is_blocked):
                    continue
            timer_s = min(_MAX_WAIT_S, max(0.001, state.settings.silence_s / 4))
            link.wait(linger_s if lingers else timer_s, writable=self._is_blocked)
            state.thread.is_idle = False

    def _note_pause(self, turn_at: float) -> float:
        """Return the time now. Time in which this program did not run does not count as the daemon's silence."""
        now = time.monotonic()
        away_s = now - turn_at
        if away_s > _MAX_WAIT_S + _PAUSE_S:
            log.warning("run %s: this program did not run for %.1f s", self.state.settings.name, away_s)
            self.state.contact.forgive(away_s, now)
        return now

    def _is_silent(self, link: Link, now: float) -> bool:
        """Ping a quiet daemon, or one that knows of too few frames; True when it is silent for too long."""
        quiet_s, settings = now - self.state.contact.heard_at, self.state.settings
        if self._failed_at is not None and now - self._failed_at > settings.patience_s:
            return True  # the receipt that follows a fatal error never came
        number = self.state.outbox.next
        is_late = quiet_s > settings.silence_s / 2 and now - self._pinged_at > settings.silence_s / 2
        if is_late or (number != self._told_number and now - self._pinged_at > _TELL_S):
            self._pinged_at, self._told_number = now, number
            link.send(encode_request("ping", ds=self.state.dataset_id, n=number))
        return quiet_s > settings.silence_s

    def _receive_all(self, link: Link) -> None:
        while not self.state.ended and (reply := link.receive()) is not None:
            log_warning(self.state.settings.name, self.state.receive(reply, time.monotonic(), time.time()))

    def _send_due(self, link: Link) -> None:
        state = self.state
        messages, patches = state.take_due(_SEND_BURST), state.take_patches()  # in this order: see below
        # The patches first: one of the summary comes before frame 0, and those after it may come before it too.
        unsent = [patch for patch in patches if not link.send(*patch[1:])]
        refused = self._sender.send(link, messages)
        if messages and refused != messages[0].number:
            self._sent_at = time.monotonic()
        ending = state.note_sent(refused, unsent)
        self._is_blocked = refused is not None
        if ending is not None:
            fields = {"n": state.outbox.next, "status": ending.wire_status, "reason": ending.reason}
            self._is_blocked = not link.send(encode_request("close", ds=state.dataset_id, **fields))
            if not self._is_blocked:
                state.ending = replace(ending, is_sent=True)

    def _refuse_notes(self, now: float, reason: str) -> None:
        """Wait no longer for the daemon's answer to notes: to overdue ones, at the end (math.inf) to all."""
        state = self.state
        is_over = False
        while not is_over:
            with state.lock:
                is_last = state.ending is not None and state.outbox.all_sent
                text = state.patches.lose_overdue(now, reason, is_last=is_last)
                warning, is_over = state.report.add_lost_note(text, state.refused), not text
            log_warning(state.settings.name, warning)

    def _report(self) -> None:
        """Report the first error to the owner, once."""
        error = self.state.failure
        if error is None or self._failed_at is not None:
            return
        self._failed_at = time.monotonic()
        if self.state.opened is None:
            return  # `create` raises it
        name, on_error = self.state.settings.name, self.state.settings.on_error
        log.error("run %s: %s", name, error)
        if on_error is not None:
            try:
                on_error(error)
            except Exception as callback_error:
                log.exception("run %s: on_error raised", name)
                error.add_note(f"on_error raised {type(callback_error).__name__}: {callback_error}")


class RunOpener:
    """Opens the acquisition and remembers the way to the daemon. Used by the connection's thread.

    Any thread may read endpoint, daemon_endpoint, welcome and transport_why.
    """

    def __init__(self, state: RunState, sender: FrameSender) -> None:
        self.welcome: Welcome | None = None
        self.endpoint = state.settings.endpoint  # the one in use: tcp may have become ipc
        self.daemon_endpoint = state.settings.endpoint  # the one to ask at first, where the daemon was reached
        self.transport_why = ""  # why frames go as messages; empty where they lie in shared memory
        self._state = state
        self._sender = sender

    def open_first(self, connector: Connector) -> Link | None:
        """Create the acquisition; None if the run was stopped or the daemon ended it. Raises as `create`."""
        settings = self._state.settings
        name, patience_s = settings.name, settings.patience_s
        request = {"ds": settings.dataset_id, **settings.request}
        connection = connector.connect_patiently(request, deadline=time.monotonic() + patience_s, answer_s=patience_s)
        if connection is None:
            if connector.stopped():
                return None
            if connector.last_refusal is not None:
                raise refusal(connector.last_refusal, name)
            if connector.is_turned_away:
                raise DaemonUnavailable(
                    f"the daemon at {connector.endpoint} closes each connection at once: it has as many as it may "
                    "(max_connections, or the limit of open files that its log names), or is no daemon; end other runs"
                )
            raise self._not_opened() if connector.n_opens else no_daemon(connector.endpoint)
        if connection.memory_why and settings.transport == "shm":
            connection.link.close()
            raise ConfigError(f"transport='shm': {connection.memory_why}; use transport='auto'")
        self.daemon_endpoint = connector.endpoint  # before the run counts as open: its owner may ask there at once
        return self._admit(connection, lambda error: refusal(error, name))

    def open_again(self, connector: Connector) -> Link | None:
        """Resume the acquisition; None if the run was stopped or has ended. Raises DaemonUnavailable."""
        settings, opened = self._state.settings, self._state.opened
        assert opened is not None  # there was a link
        log.warning("run %s: contact with %s is lost; connecting again", settings.name, settings.endpoint)
        deadline = self._state.contact.heard_at + settings.patience_s
        epoch = self._state.contact.epoch + 1
        request = {**settings.request, "ds": opened.dataset_id, "resume": True, "on_exists": "error", "epoch": epoch}
        connection = connector.connect_patiently(request, deadline=deadline, answer_s=max(settings.silence_s, 0.1))
        if connection is not None:
            self.daemon_endpoint = connector.endpoint
            return self._admit(connection, lambda error: failure(error, opened.path))
        if connector.stopped():
            return None
        raise self._out_of_contact()

    def _admit(self, connection: OpenConnection, error_of: Callable[[Error], AcqStreamError]) -> Link | None:
        """Take in the answer to `open`; the link for frames, None if the acquisition has ended."""
        answer, state, link = connection.answer, self._state, connection.link
        try:
            if isinstance(answer, Error):
                raise error_of(answer)
            if isinstance(answer, Closed):
                state.receive(answer, time.monotonic(), time.time())
                link.close()
                return None
            if state.settings.transport == "shm" and connection.memory_why and not self.transport_why:
                text = f"frames are sent as messages from now on: {connection.memory_why}"
                log_warning(state.settings.name, state.add_warning("no_shared_memory", text, is_once=False))
            self.welcome, self.endpoint, self.transport_why = connection.welcome, link.endpoint, connection.memory_why
            state.open(answer, connection.welcome, same_machine=connection.same_machine, now=time.monotonic())
            self._sender.begin(state.dataset_id, answer.memory)  # not that of a later answer
        except AcqStreamError:
            link.close()
            raise
        return link

    def _not_opened(self) -> DaemonUnavailable:
        settings = self._state.settings
        name, seconds = settings.name, settings.patience_s
        return DaemonUnavailable(
            f"the daemon at {settings.endpoint} has not opened {name!r} within {seconds:g} s: its disk may stall. "
            f"{name!r} may exist later, without frames; resume=True continues it{settings.log_advice()}"
        )

    def _out_of_contact(self) -> DaemonUnavailable:
        state, settings = self._state, self._state.settings
        return DaemonUnavailable(
            f"no message from the daemon at {settings.endpoint} for {settings.patience_s:g} s{state.describe_unsafe()}"
            f"{state.contact.loss_reason}{settings.log_advice()}"
        )


class FrameSender:
    """Used by the connection's thread only. `begin` comes before `send`."""

    def __init__(self, memory: LocalMemory) -> None:
        self._memory = memory
        self._encoder: FrameEncoder | None = None
        self._generation: int | None = None

    def begin(self, dataset_id: str, generation: int | None) -> None:
        """The daemon has opened this dataset. generation: its number for the memory, None where it mapped none."""
        self._encoder = FrameEncoder(dataset_id)
        self._generation = generation

    def send(self, link: Link, messages: Iterable[OutboxMessage]) -> int | None:
        """The number of the first frame or skip that the socket did not take; None if it took all."""
        for message in messages:
            if message.kind is None:
                refused = None if link.send(message.header) else message.number
            else:
                refused = self._send_frames(link, message, message.kind)
            if refused is not None:
                return refused
        return None

    def _send_frames(self, link: Link, message: OutboxMessage, kind: FrameKind) -> int | None:
        pages, generation, start = self._memory.pages, self._generation, message.start
        assert pages is not None
        assert self._encoder is not None
        place = MemoryPlace(generation, start) if generation is not None else None
        header = self._encoder.header(message.number, kind, message.frames, place)
        if len(header) > MAX_HEADER_BYTES and message.numbers > 1:  # axes and metadata need two messages
            half = message.numbers // 2
            return self.send(link, (message.part(0, half), message.part(half, message.numbers)))
        size = message.payload_bytes
        is_taken = link.send(header) if place is not None else link.send_frame(header, pages, start, size)
        return None if is_taken else message.number


def log_warning(name: str, warning: RunWarning | None) -> None:
    """Log a warning, if there is one, of the run called `name`."""
    if warning is not None:
        log.warning("run %s: %s (%s)", name, warning.text, warning.code)
