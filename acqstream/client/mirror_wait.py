"""Waits for the mirrors of a run by asking the daemon repeatedly until all have ended."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import zmq

from acqstream.client.link import Link, no_daemon
from acqstream.errors import AcqStreamError, DaemonUnavailable, ProtocolError, WaitTimeout
from acqstream.model.view_spec import MirrorResult
from acqstream.protocol.frame_batch import encode_request
from acqstream.protocol.replies import Error, MirrorsReply

if TYPE_CHECKING:
    from acqstream.client.connection import Connection

POLL_S, MAX_POLL_S = 0.05, 1.0
FIRST_CONTACT_S = 0.25  # for a connection; doubled each time, as a refused one is not tried again
ANSWER_S = 3.0  # a daemon that is silent for this time is contacted again
_PASSING_CODES = frozenset({"shutting_down", "internal"})


def wait_for_mirrors(connection: Connection, name: str, timeout_s: float | None) -> tuple[MirrorResult, ...]:
    """As `Run.wait_for_mirrors`, of the run with this connection, whose dataset is in the folder `name`."""
    return _MirrorWait(connection, name).wait(timeout_s)


class _MirrorWait:
    """Asks for the mirrors of one dataset.

    A daemon that does not answer has the patience of the settings to come back, counted from its last answer.
    """

    def __init__(self, connection: Connection, name: str) -> None:
        settings = connection.settings
        self.endpoint = connection.opener.daemon_endpoint
        self._name = name
        self._question = encode_request("mirrors", ds=connection.dataset_id, name=name)
        self._patience_s = settings.patience_s
        self._keys = settings.keys
        self._locate = settings.locate if settings.relocates else None
        self._release = settings.release
        self._answered_s = time.monotonic()
        self._contact_s = FIRST_CONTACT_S

    def wait(self, timeout_s: float | None) -> tuple[MirrorResult, ...]:
        """Results of all mirrors, once the run and they have ended. Raises as `Run.wait_for_mirrors`."""
        deadline = float("inf") if timeout_s is None else time.monotonic() + timeout_s
        self._answered_s = time.monotonic()
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        try:
            while True:
                reply = self._ask_until(context, deadline)
                if reply is not None:
                    return reply.mirrors
                if time.monotonic() >= deadline:
                    raise WaitTimeout(f"the mirrors of {self._name} have not ended within {timeout_s:g} s")
                if time.monotonic() - self._answered_s >= self._patience_s:
                    raise self._unavailable()
                time.sleep(min(POLL_S, max(0.0, deadline - time.monotonic())))
        finally:
            context.destroy(linger=0)
            self._release()

    def _ask_until(self, context: zmq.Context[zmq.Socket[bytes]], deadline: float) -> MirrorsReply | None:
        """Ask over one connection until all have ended; None when the connection fails, or the time is over."""
        if self._locate is not None:
            self.endpoint = self._locate()  # the daemon of a directory may have ended when it was idle
        link = Link(context, self.endpoint, keys=self._keys)
        pause_s = POLL_S
        try:
            if not link.wait_writable(max(0.0, min(self._contact_s, self._remaining_s(), deadline - time.monotonic()))):
                self._contact_s = min(ANSWER_S, 2 * self._contact_s)
                return None
            while time.monotonic() < deadline:
                reply = self._ask(link, deadline)
                if reply is None:
                    return None
                self._answered_s, self._contact_s = time.monotonic(), FIRST_CONTACT_S
                if not reply.state.writing and all(mirror.ended for mirror in reply.mirrors):
                    return reply
                time.sleep(max(0.0, min(pause_s, deadline - time.monotonic())))
                pause_s = min(MAX_POLL_S, 1.5 * pause_s)
            return None
        finally:
            link.close()

    def _ask(self, link: Link, deadline: float) -> MirrorsReply | None:
        if not link.send(self._question):
            return None
        until = min(deadline, time.monotonic() + min(ANSWER_S, self._remaining_s()))
        while (reply := link.wait_reply(until)) is not None:
            if isinstance(reply, MirrorsReply):
                return reply
            if isinstance(reply, Error) and reply.code in _PASSING_CODES:
                return None
            if isinstance(reply, Error):
                text = f"the daemon at {self.endpoint} cannot report the mirrors of {self._name}: {reply.text}"
                raise ProtocolError(text, code=reply.code)
        return None

    def _remaining_s(self) -> float:
        return max(0.0, self._answered_s + self._patience_s - time.monotonic())

    def _unavailable(self) -> AcqStreamError:
        error = no_daemon(self.endpoint)
        return DaemonUnavailable(f"{error}; the mirrors of {self._name} had not ended")
