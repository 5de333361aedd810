"""Connects to a daemon with `hello` and `open`, for the first time and after a lost contact."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import zmq

import acqstream
from acqstream.client.arguments import hello
from acqstream.client.default_endpoint import (
    IPC,
    has_equal_boot,
    is_loopback,
    is_same_machine,
    is_socket_of,
)
from acqstream.client.frame_buffer import Handover, LocalMemory
from acqstream.client.link import Link, distrust_endpoint
from acqstream.client.run_state import is_interrupted
from acqstream.errors import AcquisitionRefused, ConfigError
from acqstream.protocol.frame_batch import encode_request
from acqstream.protocol.replies import Closed, Error, Opened, Reply, UnknownReply, Welcome
from acqstream.protocol.requests import PROTOCOL_VERSION
from acqstream.storage.waker import Waker

if TYPE_CHECKING:
    from acqstream.client.keys import CurveKeys

Transport = Literal["auto", "tcp", "ipc", "shm"]
TRANSPORTS: tuple[Transport, ...] = get_args(Transport)
SHARING = ("auto", "shm")
_FIRST_ATTEMPT_S = 0.1
_MAX_ATTEMPT_S = 1.0
_IPC_ATTEMPT_S = 0.5
_HANDOVER_S = 2.0
_HELLO_S = 3.0
"""Wait for the first answer; the next connection may wait twice as long."""
_MAX_PAUSE_S = 0.5
_RETRY_S = 0.1


@dataclass(frozen=True, slots=True)
class OpenConnection:
    """A connection, and the daemon's answers to `hello` and to `open`."""

    link: Link
    welcome: Welcome
    answer: Opened | Error | Closed

    @property
    def memory_why(self) -> str:
        """The reason why frames go as messages; empty where they lie in shared memory."""
        if not isinstance(self.answer, Opened) or self.answer.memory is not None:
            return ""
        return self.answer.memory_why or "the daemon takes no shared memory"

    @property
    def same_machine(self) -> bool:
        """See `is_same_machine`; decides when the run may forget its frames."""
        has_memory = isinstance(self.answer, Opened) and self.answer.memory is not None
        return is_same_machine(self.welcome, self.link.endpoint, has_memory=has_memory)


@dataclass(slots=True, kw_only=True)
class Connector:
    """Makes connections for one run.

    transport is "tcp" for exactly the endpoint given, "auto" to change to the daemon's ipc endpoint where both are on
    this machine, "ipc" to require that. With "auto" and "shm" memory is handed over where that is possible. stopped
    is True once the run needs no connection. locate finds the endpoint again for each attempt, until one is answered,
    as the daemon that the caller did not name may be starting; with relocates also after that, as the daemon of a
    directory may be followed by one at another endpoint.
    """

    context: zmq.Context[zmq.Socket[bytes]]
    endpoint: str
    transport: str
    waker: Waker
    stopped: Callable[[], bool]
    memory: LocalMemory
    keys: CurveKeys | None = None
    n_opens: int = 0  # how often `open` was sent
    n_unanswered: int = 0  # those that may have opened the acquisition
    locate: Callable[[], str] | None = None
    relocates: bool = False
    last_refusal: Error | None = None  # by a daemon that may soon answer differently
    link: Link | None = None  # of the present attempt
    is_turned_away: bool = False  # the last attempt with enough time was accepted, and closed before an answer
    way_error: str = ""  # this attempt found a daemon, but not the required transport

    def connect_patiently(
        self, request: Mapping[str, Any], *, deadline: float, answer_s: float
    ) -> OpenConnection | None:
        """As `connect`; waits for a daemon that is shutting down, as it may be started again."""
        while not self.stopped():
            connection = self.connect(request, deadline=deadline, answer_s=answer_s)
            if connection is None:
                return None
            answer = connection.answer
            # A second request to take over may find the first one's connection, whose loss the daemon has not noticed.
            is_own = (
                self.n_opens > 1 and isinstance(answer, Error) and answer.code == "denied" and not request.get("epoch")
            )
            if not is_interrupted(answer) and not is_own:
                return connection
            self.last_refusal = answer if isinstance(answer, Error) else None
            connection.link.close()
            self.waker.wait(_RETRY_S)
        return None

    def connect(self, request: Mapping[str, Any], *, deadline: float, answer_s: float) -> OpenConnection | None:
        """Connect and open, with the fields of `request`.

        None if `deadline` passes, or the run is stopped, before there is an answer.

        A daemon that takes `hello` and `open` but is silent for answer_s is tried again; at once if the connection is
        lost. An `open` that is repeated gets the acquisition that an earlier one has opened.
        Raises AcquisitionRefused where daemon and client speak different versions, ConfigError where the required
        transport is unusable.
        """
        attempt_s, previous_error, last_error = _FIRST_ATTEMPT_S, "", ""
        hello_s = min(answer_s, _HELLO_S)
        while (remaining_s := deadline - time.monotonic()) > 0 and not self.stopped():
            if self.locate is not None:
                self.endpoint = self.locate()
            link = self.link = Link(self.context, self.endpoint, self.waker, self.keys)
            connection, self.way_error, is_connected, is_lost = None, "", False, False
            try:
                is_connected = link.wait_writable(min(attempt_s, remaining_s))
                if is_connected:
                    connection = self._greet(link, request, deadline, answer_s=answer_s, hello_s=hello_s)
                is_lost = link.is_lost
                if link.was_connected or remaining_s >= attempt_s:
                    self.is_turned_away = is_lost and link.was_connected and not self.n_opens
            finally:
                if connection is None or connection.link is not link:
                    link.close()
            if connection is not None:
                if not self.relocates:
                    self.locate = None
                connection.link.settle()
                return connection
            if self.way_error or remaining_s >= attempt_s:  # an attempt that was too short proves nothing
                previous_error, last_error = last_error, self.way_error
            if is_connected:
                self.waker.wait(_RETRY_S)
                attempt_s, hello_s = _FIRST_ATTEMPT_S, hello_s if is_lost else min(answer_s, 2 * hello_s)
                continue
            if is_lost:  # refused at once
                self.waker.wait(min(attempt_s, _MAX_PAUSE_S, remaining_s))
            attempt_s = min(2 * attempt_s, _MAX_ATTEMPT_S)
        if last_error and previous_error and not request.get("epoch") and not self.stopped():
            raise ConfigError(last_error)  # twice in a row: not a daemon that was just ending
        return None

    def _greet(
        self, link: Link, request: Mapping[str, Any], deadline: float, *, answer_s: float, hello_s: float
    ) -> OpenConnection | None:
        welcome = _welcome(link, _sooner(deadline, hello_s))
        if welcome is None:
            return None
        local = self._local_link(welcome)
        if local is None and self.transport == "ipc" and not self.endpoint.startswith("ipc:"):
            why = distrust_endpoint(welcome.ipc) or "it cannot be reached from here"
            why = f"the daemon at {self.endpoint} offers {welcome.ipc or 'no ipc endpoint'!r}: {why}"
            self._refuse_way(why, is_broken=bool(request.get("epoch")) or _socket_exists(welcome.ipc))
            return None
        used = local or link
        answer = None
        try:
            with self._hand_over(welcome, deadline) as handover:
                if handover.why and self.transport == "shm" and not request.get("epoch"):
                    self._refuse_way(handover.why, is_broken=handover.is_broken)
                    return None
                fields = {**request, "memory": handover.field()}
                if not request.get("resume"):
                    fields["epoch"] = self.n_unanswered  # above 0 it asks for what an earlier one may have opened
                self.n_opens += 1
                answer = _ask(used, fields, _sooner(deadline, answer_s))
                self.n_unanswered += not isinstance(answer, Error)
        finally:
            if answer is None and local is not None:
                local.close()
        return OpenConnection(used, welcome, answer) if answer is not None else None

    def _refuse_way(self, why: str, *, is_broken: bool) -> None:
        """The required transport is unusable; retry if the daemon may be restarting."""
        self.way_error = f"transport={self.transport!r}: {why}; use transport='auto'"
        if not is_broken and not (self.link is not None and self.link.is_lost):
            raise ConfigError(self.way_error)
        self.waker.wait(_RETRY_S)

    def _hand_over(self, welcome: Welcome, deadline: float) -> Handover:
        """The memory, to a daemon on this machine."""
        if self.transport not in SHARING:
            return Handover(why=f"transport={self.transport!r} was requested")
        if not welcome.memory:
            return Handover(why="the daemon takes no shared memory")
        # A socket with a name is looked up; an address on loopback proves itself, as the daemon then knows the token.
        is_near = is_loopback(self.endpoint) if is_loopback(welcome.memory) else is_socket_of(welcome, welcome.memory)
        if not is_near:
            return _no_way_to(welcome)
        return self.memory.hand_over(welcome.memory, max(0.1, _sooner(deadline, _HANDOVER_S) - time.monotonic()))

    def _local_link(self, welcome: Welcome) -> Link | None:
        """A connection to the daemon's ipc endpoint, where that is requested and possible."""
        if self.transport == "tcp" or self.endpoint.startswith(IPC):
            return None
        if self.transport != "ipc" and not is_loopback(self.endpoint):
            return None
        if welcome.ipc.startswith(IPC) and is_socket_of(welcome, welcome.ipc.removeprefix(IPC)):
            link = _connected(self.context, welcome.ipc, self.waker)
            if link is not None:
                return link
        return None


def _no_way_to(welcome: Welcome) -> Handover:
    """The reason why this program does not see the daemon's socket for memory at its path."""
    if is_loopback(welcome.memory) or not has_equal_boot(welcome):
        return Handover(why="the daemon is on another machine")
    is_other = os.path.exists(welcome.memory)  # or the daemon is being replaced
    problem = "the socket there is of another daemon" if is_other else "the socket is missing"
    why = f"{welcome.memory}: {problem}; the daemon has another view of the file system (a container, PrivateTmp)"
    return Handover(why=why, is_broken=is_other)


def _socket_exists(ipc: str) -> bool:
    """True if the name of a local socket exists, as that of a daemon that was just killed does."""
    return ipc.startswith("ipc:///") and os.path.exists(ipc[6:])


def _connected(context: zmq.Context[zmq.Socket[bytes]], endpoint: str, waker: Waker) -> Link | None:
    try:
        link = Link(context, endpoint, waker)
    except ConfigError:
        return None  # for example a path too long for a socket: tcp serves as well
    if link.wait_writable(_IPC_ATTEMPT_S) and _welcome(link, time.monotonic() + _IPC_ATTEMPT_S) is not None:
        return link
    link.close()
    return None


def _welcome(link: Link, deadline: float) -> Welcome | None:
    if not link.send(hello(acqstream.__version__)):
        return None
    while (reply := link.wait_reply(deadline)) is not None:
        if isinstance(reply, Welcome):
            if reply.version != PROTOCOL_VERSION:
                raise AcquisitionRefused(
                    f"the daemon at {link.endpoint} ({reply.server}) speaks protocol version {reply.version}, "
                    f"this client {PROTOCOL_VERSION}",
                    code="bad_version",
                )
            return reply
        if isinstance(reply, Error):
            raise AcquisitionRefused(f"the daemon at {link.endpoint}: {reply.text} ({reply.code})", code=reply.code)
    return None


def _ask(link: Link, fields: Mapping[str, Any], deadline: float) -> Opened | Error | Closed | None:
    reply: Reply | UnknownReply | None
    if not link.send(encode_request("open", **fields)):
        return None
    while (reply := link.wait_reply(deadline)) is not None:
        if isinstance(reply, Opened | Error | Closed):
            return reply
    return None


def _sooner(deadline: float, seconds: float) -> float:
    return min(deadline, time.monotonic() + seconds)
