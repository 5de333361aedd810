"""Asks a daemon, outside of any run: for its status, to end an acquisition, to keep a note, or to end itself."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import zmq

from acqstream.client.default_endpoint import find_endpoint, starting
from acqstream.client.keys import curve_keys
from acqstream.client.link import Link, no_daemon
from acqstream.errors import AcqStreamError, AcquisitionRefused, DaemonUnavailable, ProtocolError, WaitTimeout
from acqstream.model.receipt import Receipt
from acqstream.model.run_note import RunNote
from acqstream.model.status import DaemonStatus
from acqstream.protocol.frame_batch import encode_request
from acqstream.protocol.replies import Closed, Error, Noted, ShutdownReply, StatusReply, Welcome
from acqstream.storage.files.small_file import MAX_FILE_BYTES, read_small_file

CONTACT_S = 3.0  # for the connection
_Answer = TypeVar("_Answer", Closed, Noted)


def fetch_status(
    endpoint: str | None = None,
    *,
    timeout_s: float = 3.0,
    server_key: str | os.PathLike[str] | None = None,
    keys: str | os.PathLike[str] | None = None,
) -> DaemonStatus:
    """Return the status of the daemon at `endpoint`. Raises DaemonUnavailable if none answers within timeout_s.

    endpoint, server_key, keys: as in `acqstream.create`.
    """
    with _linked(endpoint, server_key, keys) as link:
        return replace(_ask_status(link, time.monotonic() + timeout_s), endpoint=link.endpoint)


class StatusClient:
    """Asks the daemon at `endpoint` again and again, over one connection as long as that lasts. Used by one thread.

    endpoint None is looked up for each new connection, as in `acqstream.create`.
    """

    def __init__(self, endpoint: str | None = None) -> None:
        self._endpoint = endpoint
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._link: Link | None = None

    def fetch(self, timeout_s: float = 3.0) -> DaemonStatus:
        """Return the status. Raises DaemonUnavailable if the daemon does not answer within timeout_s, ProtocolError."""
        deadline = time.monotonic() + timeout_s
        if self._link is not None and self._link.is_lost:
            self._drop()
        if self._link is None:
            endpoint = self._endpoint if self._endpoint is not None else find_endpoint()
            self._link = Link(self._context, endpoint)
        try:
            status = _ask_status(self._link, deadline)
        except BaseException:
            self._drop()  # a late answer would be taken for that of the next question
            raise
        return replace(status, endpoint=self._link.endpoint)

    def close(self) -> None:
        self._drop()
        self._context.destroy(linger=0)

    def _drop(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None


def stop_acquisition(name: str, endpoint: str | None = None, *, timeout_s: float = 60.0) -> Receipt:
    """End the acquisition called `name` and wait until its files are finished.

    Raises AcquisitionRefused if none of that name runs, DaemonUnavailable when no daemon answers, or it has not
    finished within timeout_s (it continues to finish). endpoint: as in `acqstream.create`.
    """
    with _linked(endpoint) as link:
        closed = _ask(link, encode_request("stop", name=name), Closed, timeout_s)
        if closed is None:
            raise DaemonUnavailable(f"the daemon at {link.endpoint} did not finish {name} in time")
        return closed.receipt


def send_note(name: str, note: RunNote, endpoint: str | None = None, *, timeout_s: float = 20.0) -> Noted:
    """Add a note to the running acquisition called `name`; return where it is stored, and before which frame.

    The daemon says the frame, not the note. Raises AcquisitionRefused if none of that name runs, or the daemon cannot
    store it, as on a full disk; DaemonUnavailable when none answers. endpoint: as in `acqstream.create`.
    """
    with _linked(endpoint) as link:
        message = encode_request("note", name=name, **replace(note, frame=None).request())
        noted = _ask(link, message, Noted, timeout_s)
        if noted is None:
            text = "has not stored the note in time; it may be stored later"
            raise DaemonUnavailable(f"the daemon at {link.endpoint} {text}")
        return noted


def shut_down(endpoint: str | None = None, *, timeout_s: float = 330.0) -> int:
    """Let the daemon finish its acquisitions, so that they can be resumed, and end. Return how many were running.

    Returns when the daemon has closed its sockets. Needs the daemon's machine, and its user or an administrator, who
    can read the file with the daemon's key. endpoint: as in `acqstream.create`.

    Raises DaemonUnavailable when no daemon answers, AcquisitionRefused (denied) if the key cannot be read, and
    WaitTimeout if the daemon has not ended within timeout_s; it continues to end.
    """
    with _linked(endpoint) as link:
        return _ask_shutdown(link, time.monotonic() + timeout_s)


@contextmanager
def _linked(
    endpoint: str | None, server_key: str | os.PathLike[str] | None = None, keys: str | os.PathLike[str] | None = None
) -> Iterator[Link]:
    """A connection to the daemon at `endpoint`, for the block; None: found as in `acqstream.create`."""
    endpoint = endpoint if endpoint is not None else find_endpoint()
    curve = curve_keys(endpoint, server_key, keys)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        link = Link(context, endpoint, keys=curve)
        try:
            yield link
        finally:
            link.close()
    finally:
        context.destroy(linger=0)


def _send(link: Link, message: bytes, contact_s: float) -> None:
    """Send once there is a connection. Raises DaemonUnavailable if there is none within contact_s."""
    if not link.wait_writable(contact_s) or not link.send(message):
        raise no_daemon(link.endpoint)


def _ask_status(link: Link, deadline: float) -> DaemonStatus:
    try:
        _send(link, encode_request("ping"), deadline - time.monotonic())
        while (reply := link.wait_reply(deadline)) is not None:
            if isinstance(reply, StatusReply) and isinstance(reply.status, DaemonStatus):
                return reply.status
    except ProtocolError as error:
        raise ProtocolError(f"cannot read the status of the daemon at {link.endpoint}: {error}") from error
    raise DaemonUnavailable(
        starting(link.endpoint)
        or f"the daemon at {link.endpoint} accepts connections but does not answer; ask again: it may be busy, or "
        "another program has the port"
    )


def _ask(link: Link, message: bytes, kind: type[_Answer], timeout_s: float) -> _Answer | None:
    """The answer to a message; None without one. Raises AcquisitionRefused, and DaemonUnavailable without contact."""
    deadline = time.monotonic() + timeout_s
    _send(link, message, min(CONTACT_S, timeout_s))
    while (reply := link.wait_reply(deadline)) is not None:
        if isinstance(reply, kind):
            return reply
        if isinstance(reply, Error):
            raise AcquisitionRefused(reply.text, code=reply.code)
    return None


def _ask_shutdown(link: Link, deadline: float) -> int:
    from acqstream.protocol.requests import PROTOCOL_VERSION  # not for a status: it takes longer to load than to ask

    hello = encode_request("hello", v=PROTOCOL_VERSION, client={})
    _send(link, hello, min(CONTACT_S, deadline - time.monotonic()))
    n_running: int | None = None
    while (reply := link.wait_reply(deadline)) is not None:
        match reply:
            case Welcome():
                link.send(encode_request("shutdown", key=_read_key(link.endpoint, reply.shutdown)))
            case ShutdownReply():
                n_running = reply.n_running
            case Error():
                raise AcquisitionRefused(reply.text, code=reply.code)
    if n_running is not None and link.is_lost:
        return n_running
    if n_running is None:
        raise no_daemon(link.endpoint)
    raise WaitTimeout(f"the daemon at {link.endpoint} has not ended yet; it finishes what was received")


def _read_key(endpoint: str, path: str) -> str:
    from acqstream.protocol.requests import shutdown_key_in

    advice = f"cannot shut down the daemon at {endpoint}"
    try:
        key = shutdown_key_in(read_small_file(Path(path), MAX_FILE_BYTES))
    except AcqStreamError as error:
        reason = "run this on its machine, as its user or as administrator"
        raise AcquisitionRefused(f"{advice}: {error}; {reason}", code="denied") from error
    if key is None:
        raise AcquisitionRefused(f"{advice}: {path} is not a file with the key of a daemon", code="denied")
    return key
