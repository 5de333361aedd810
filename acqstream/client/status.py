"""Asks a daemon for its status."""

from __future__ import annotations

import os
import time
from dataclasses import replace

import zmq

from acqstream.client.default_endpoint import find_endpoint, starting
from acqstream.client.keys import curve_keys
from acqstream.client.link import Link, no_daemon
from acqstream.errors import DaemonUnavailable, ProtocolError
from acqstream.model.status import DaemonStatus
from acqstream.protocol.frame_batch import encode_request
from acqstream.protocol.replies import StatusReply


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
    endpoint = endpoint if endpoint is not None else find_endpoint()
    curve = curve_keys(endpoint, server_key, keys)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        status = _ask(Link(context, endpoint, keys=curve), time.monotonic() + timeout_s)
    finally:
        context.destroy(linger=0)
    return replace(status, endpoint=endpoint)


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
            status = _exchange(self._link, deadline)
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


def _ask(link: Link, deadline: float) -> DaemonStatus:
    try:
        return _exchange(link, deadline)
    finally:
        link.close()


def _exchange(link: Link, deadline: float) -> DaemonStatus:
    try:
        if not link.wait_writable(deadline - time.monotonic()) or not link.send(encode_request("ping")):
            raise no_daemon(link.endpoint)
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
