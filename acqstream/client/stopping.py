"""Asks a daemon to end an acquisition, of any producer."""

from __future__ import annotations

import time

import zmq

from acqstream.client.default_endpoint import find_endpoint
from acqstream.client.keys import curve_keys
from acqstream.client.link import Link, no_daemon
from acqstream.errors import AcquisitionRefused, DaemonUnavailable
from acqstream.model.receipt import Receipt
from acqstream.protocol.frame_batch import encode_request
from acqstream.protocol.replies import Closed, Error

CONTACT_S = 3.0  # for the connection


def stop_acquisition(name: str, endpoint: str | None = None, *, timeout_s: float = 60.0) -> Receipt:
    """End the acquisition called `name` and wait until its files are finished.

    Raises AcquisitionRefused if none of that name runs, DaemonUnavailable when no daemon answers, or it has not
    finished within timeout_s (it continues to finish). endpoint: as in `acqstream.create`.
    """
    endpoint = endpoint if endpoint is not None else find_endpoint()
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        link = Link(context, endpoint, keys=curve_keys(endpoint, None, None))
        try:
            return _ask(link, name, time.monotonic() + timeout_s)
        finally:
            link.close()
    finally:
        context.destroy(linger=0)


def _ask(link: Link, name: str, deadline: float) -> Receipt:
    contact_s = min(CONTACT_S, deadline - time.monotonic())
    if not link.wait_writable(contact_s) or not link.send(encode_request("stop", name=name)):
        raise no_daemon(link.endpoint)
    while (reply := link.wait_reply(deadline)) is not None:
        if isinstance(reply, Closed):
            return reply.receipt
        if isinstance(reply, Error):
            raise AcquisitionRefused(reply.text, code=reply.code)
    raise DaemonUnavailable(f"the daemon at {link.endpoint} did not finish {name} in time")
