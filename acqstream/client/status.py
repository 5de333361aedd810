"""Asks a daemon for its status."""

from __future__ import annotations

import os
import time
from dataclasses import replace

import zmq

from acqstream.client.default_endpoint import find_endpoint
from acqstream.client.keys import curve_keys
from acqstream.client.link import Link, no_daemon
from acqstream.errors import DaemonUnavailable, ProtocolError
from acqstream.model.status import DaemonStatus
from acqstream.protocol.replies import StatusReply
from acqstream.protocol.request_fields import encode_request


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


def _ask(link: Link, deadline: float) -> DaemonStatus:
    try:
        if not link.wait_writable(deadline - time.monotonic()) or not link.send(encode_request("ping")):
            raise no_daemon(link.endpoint)
        while (reply := link.wait_reply(deadline)) is not None:
            if isinstance(reply, StatusReply) and isinstance(reply.status, DaemonStatus):
                return reply.status
    except ProtocolError as error:
        raise ProtocolError(f"cannot read the status of the daemon at {link.endpoint}: {error}") from error
    finally:
        link.close()
    raise DaemonUnavailable(
        f"the daemon at {link.endpoint} accepts connections but does not answer; ask again: `acqstream serve` may be "
        "starting or busy there, or another program has the port"
    )
