"""Getting into contact with a daemon: connect, `hello`, `open`; for the first time, and after a lost contact."""

from __future__ import annotations

import ipaddress
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args
from urllib.parse import urlsplit

import zmq

import acqstream
from acqstream.client import outgoing
from acqstream.client.link import Link, no_daemon
from acqstream.client.local_memory import Handover, LocalMemory
from acqstream.client.waker import Waker
from acqstream.errors import AcquisitionRefused, ConfigError
from acqstream.protocol.replies import Closed, Error, Opened, Reply, UnknownReply, Welcome
from acqstream.protocol.request_fields import encode_request
from acqstream.protocol.requests import PROTOCOL_VERSION

if TYPE_CHECKING:
    from acqstream.client.keys import CurveKeys

Transport = Literal["auto", "tcp", "ipc", "shm"]
TRANSPORTS: tuple[Transport, ...] = get_args(Transport)
SHARING = ("auto", "shm")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_FIRST_ATTEMPT_S = 0.1
_LONGEST_ATTEMPT_S = 1.0
_IPC_ATTEMPT_S = 0.5
_HANDOVER_S = 2.0
_RETRY_S = 0.1


def boot_id() -> str:
    """What identifies this machine until it starts again; empty where the platform does not tell."""
    try:
        return _BOOT_ID.read_text("ascii").strip()
    except OSError:
        return ""


@dataclass(frozen=True, slots=True)
class Joined:
    """A standing connection, and what the daemon said to `hello` and to `open`."""

    link: Link
    welcome: Welcome
    answer: Opened | Error | Closed

    @property
    def memory_why(self) -> str:
        """Why the frames come as messages; empty where they lie in shared memory."""
        if not isinstance(self.answer, Opened) or self.answer.memory is not None:
            return ""
        return self.answer.memory_why or "the daemon takes no shared memory"

    @property
    def same_machine(self) -> bool:
        return bool(self.welcome.boot) and self.welcome.boot == boot_id()


@dataclass(slots=True, kw_only=True)
class Joiner:
    """Makes connections for one run.

    transport is "tcp" for exactly the endpoint given, "auto" to change to the daemon's ipc endpoint where both are on
    this machine, "ipc" to insist on that. With "auto" and "shm" memory is handed over where that is possible. stopped
    tells that the run needs no connection any more.
    """

    context: zmq.Context[zmq.Socket[bytes]]
    endpoint: str
    transport: str
    waker: Waker
    stopped: Callable[[], bool]
    memory: LocalMemory
    keys: CurveKeys | None = None
    asked: bool = False  # a daemon was found, and sent `open`
    broken: str = ""  # why this attempt found a daemon, and not the way asked for

    def join(self, request: Mapping[str, Any], *, deadline: float, answer_s: float) -> Joined | None:
        """Connect and open, with the fields of `request`.

        None if `deadline` passes, or the run is stopped, before there is an answer.

        A daemon that takes `hello` and `open` but is silent for answer_s is tried anew.
        Raises AcquisitionRefused where daemon and client speak different versions, ConfigError where the way asked for
        is none.
        """
        attempt_s, before, last = _FIRST_ATTEMPT_S, "", ""
        while (left := deadline - time.monotonic()) > 0 and not self.stopped():
            link = Link(self.context, self.endpoint, self.waker, self.keys)
            joined, self.broken = None, ""
            try:
                if link.wait_writable(min(attempt_s, left)):
                    joined = self._greet(link, request, deadline, answer_s)
            finally:
                if joined is None or joined.link is not link:
                    link.close()
            if joined is not None:
                return joined
            if self.broken or left >= attempt_s:  # one that had no time to find anybody says nothing
                before, last = last, self.broken
            attempt_s = min(2 * attempt_s, _LONGEST_ATTEMPT_S)
        if last and before and not request.get("epoch") and not self.stopped():
            raise ConfigError(last)  # again and again: no daemon that was just ending
        return None

    def _greet(self, link: Link, request: Mapping[str, Any], deadline: float, answer_s: float) -> Joined | None:
        welcome = _welcome(link, _sooner(deadline, answer_s))
        if welcome is None:
            return None
        local = self._local_link(welcome)
        if local is None and self.transport == "ipc" and not self.endpoint.startswith("ipc:"):
            why = f"the daemon at {self.endpoint} offers {welcome.ipc or 'no ipc endpoint'!r}, which cannot be reached"
            self._give_up_way(f"{why} from here", is_broken=bool(request.get("epoch")) or _is_left(welcome.ipc))
            return None
        used = local or link
        answer = None
        try:
            with self._hand_over(welcome, deadline) as handover:
                if handover.why and self.transport == "shm" and not request.get("epoch"):
                    self._give_up_way(handover.why, is_broken=handover.is_broken)
                    return None
                if used.send(encode_request("open", **request, memory=handover.field())):
                    self.asked = True
                    answer = _answer(used, _sooner(deadline, answer_s))
        finally:
            if answer is None and local is not None:
                local.close()
        return Joined(used, welcome, answer) if answer is not None else None

    def _give_up_way(self, why: str, *, is_broken: bool) -> None:
        """The daemon cannot be reached in the way asked for: by another attempt, if it is just ending or beginning."""
        self.broken = f"transport={self.transport!r}: {why}; use transport='auto'"
        if not is_broken:
            raise ConfigError(self.broken)
        self.waker.wait(_RETRY_S)

    def _hand_over(self, welcome: Welcome, deadline: float) -> Handover:
        """The memory, to a daemon on this machine."""
        if self.transport not in SHARING:
            return Handover(why=f"transport={self.transport!r} was asked for")
        if not welcome.boot or welcome.boot != boot_id():
            return Handover(why="the daemon is on another machine")
        if not welcome.memory:
            return Handover(why="the daemon takes no shared memory")
        return self.memory.hand_over(welcome.memory, max(0.1, _sooner(deadline, _HANDOVER_S) - time.monotonic()))

    def _local_link(self, welcome: Welcome) -> Link | None:
        """A connection to the daemon's ipc endpoint, where that is wanted and possible."""
        if self.transport == "tcp" or not (self.transport == "ipc" or is_loopback(self.endpoint)):
            return None
        here = welcome.ipc.startswith("ipc://") and welcome.boot == boot_id()
        if here and (welcome.ipc[6:].startswith("@") or os.path.exists(welcome.ipc[6:])):
            link = _connected(self.context, welcome.ipc, self.waker)
            if link is not None:
                return link
        return None


def _is_left(ipc: str) -> bool:
    """Whether the name of a local socket is there: that of a daemon that was just killed is."""
    return ipc.startswith("ipc:///") and os.path.exists(ipc[6:])


def is_loopback(endpoint: str) -> bool:
    """True for a tcp endpoint on this machine."""
    parts = urlsplit(endpoint)
    if parts.scheme != "tcp" or not parts.hostname:
        return False
    if parts.hostname == "localhost":
        return True
    try:
        return ipaddress.ip_address(parts.hostname).is_loopback
    except ValueError:
        return False  # a name


def is_local(endpoint: str) -> bool:
    """True for an endpoint that only a daemon on this machine can have; a forwarded port may deceive."""
    return endpoint.startswith("ipc:") or is_loopback(endpoint)


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
    if not link.send(outgoing.hello(acqstream.__version__)):
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


def _answer(link: Link, deadline: float) -> Opened | Error | Closed | None:
    reply: Reply | UnknownReply | None
    while (reply := link.wait_reply(deadline)) is not None:
        if isinstance(reply, Opened | Error | Closed):
            return reply
    return None


def _sooner(deadline: float, seconds: float) -> float:
    return min(deadline, time.monotonic() + seconds)


__all__ = ["SHARING", "TRANSPORTS", "Joined", "Joiner", "Transport", "boot_id", "is_local", "no_daemon"]
