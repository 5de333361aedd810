"""Asks a daemon to finish what runs, and to end."""

from __future__ import annotations

import time
from pathlib import Path

import zmq

from acqstream.client.default_endpoint import find_endpoint
from acqstream.client.keys import curve_keys
from acqstream.client.link import Link, no_daemon
from acqstream.errors import AcqStreamError, AcquisitionRefused, WaitTimeout
from acqstream.protocol.frame_batch import encode_request
from acqstream.protocol.replies import Error, ShutdownReply, Welcome
from acqstream.protocol.requests import MAX_KEY_FILE_BYTES, PROTOCOL_VERSION, shutdown_key_in
from acqstream.storage.files.small_file import read_small_file

CONTACT_S = 3.0  # for the connection


def shut_down(endpoint: str | None = None, *, timeout_s: float = 330.0) -> int:
    """Let the daemon finish its acquisitions, so that they can be resumed, and end. Return how many were running.

    Returns when the daemon has closed its sockets. Needs the daemon's machine, and its user or an administrator, who
    can read the file with the daemon's key. endpoint: as in `acqstream.create`.

    Raises DaemonUnavailable when no daemon answers, AcquisitionRefused (denied) if the key cannot be read, and
    WaitTimeout if the daemon has not ended within timeout_s; it continues to end.
    """
    endpoint = endpoint if endpoint is not None else find_endpoint()
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        link = Link(context, endpoint, keys=curve_keys(endpoint, None, None))
        try:
            return _ask(link, time.monotonic() + timeout_s)
        finally:
            link.close()
    finally:
        context.destroy(linger=0)


def _ask(link: Link, deadline: float) -> int:
    contact_s = min(CONTACT_S, deadline - time.monotonic())
    if not link.wait_writable(contact_s) or not link.send(encode_request("hello", v=PROTOCOL_VERSION, client={})):
        raise no_daemon(link.endpoint)
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
    advice = f"cannot shut down the daemon at {endpoint}"
    if not path:
        raise AcquisitionRefused(f"{advice}: it is of an earlier version; end its process instead", code="denied")
    try:
        key = shutdown_key_in(read_small_file(Path(path), MAX_KEY_FILE_BYTES))
    except AcqStreamError as error:
        reason = "run this on its machine, as its user or as administrator"
        raise AcquisitionRefused(f"{advice}: {error}; {reason}", code="denied") from error
    if key is None:
        raise AcquisitionRefused(f"{advice}: {path} is not a file with the key of a daemon", code="denied")
    return key
