"""Asking a daemon how it is."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import zmq

from acqstream.client.default_endpoint import find_endpoint
from acqstream.client.keys import curve_keys
from acqstream.client.link import Link, no_daemon
from acqstream.errors import DaemonUnavailable, ProtocolError
from acqstream.protocol.replies import StatusReply
from acqstream.protocol.request_fields import encode_request

_WIRE_NAMES = {"dataset_id": "ds"}


@dataclass(frozen=True, slots=True, kw_only=True)
class AcquisitionStatus:
    """One acquisition. received, published, durable, skipped and queue_frames count frames.

    bytes_per_s is the rate of the last seconds; seconds_left and frames_left tell how long the free space lasts (None:
    unknown). paused says why no frames are taken for want of space, stall which disk call stands still; both are empty
    while all is well. io says how files are written; transport how frames come ("shm" or "messages"), transport_why why
    not by shared memory. warnings are (code, text, time in ISO 8601). mirrors: how far each
    is, by name, with the fields of docs/protocol.md.
    """

    name: str = ""
    dataset_id: str = ""
    path: str = ""
    state: str = ""
    received: int = 0
    published: int = 0
    durable: int = 0
    skipped: int = 0
    payload_bytes: int = 0
    queue_frames: int = 0
    queue_bytes: int = 0
    bytes_per_s: float = 0.0
    free_bytes: int | None = None
    seconds_left: float | None = None
    frames_left: int | None = None
    paused: str = ""
    stall: str = ""
    io: str = ""
    transport: str = ""
    transport_why: str = ""
    warnings: tuple[tuple[str, str, str], ...] = ()
    mirrors: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonStatus:
    """A whole daemon. data is its data directory; memory_budget_bytes bounds what it takes for pixels.

    space is "enough", "low" or "full": the free space beside what is kept in reserve.
    views is the process that makes mirrors, and all mirrors that are not complete, with the fields of docs/protocol.md.
    left_out counts acquisitions, mirrors and warnings for which there was no room in the answer; empty if there was.
    """

    endpoint: str
    version: str = ""
    boot: str = ""
    data: str = ""
    uptime_s: float = 0.0
    memory_budget_bytes: int = 0
    memory_used_bytes: int = 0
    memory_peak_bytes: int = 0
    free_bytes: int | None = None
    space: str = ""
    acquisitions: tuple[AcquisitionStatus, ...] = ()
    views: Mapping[str, Any] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as for JSON."""
        return asdict(self)


def fetch_status(
    endpoint: str | None = None,
    *,
    timeout_s: float = 3.0,
    server_key: str | os.PathLike[str] | None = None,
    keys: str | os.PathLike[str] | None = None,
) -> DaemonStatus:
    """The state of the daemon at `endpoint`. Raises DaemonUnavailable when none answers within timeout_s.

    endpoint, server_key, keys: as in `acqstream.create`.
    """
    endpoint = endpoint if endpoint is not None else find_endpoint()
    curve = curve_keys(endpoint, server_key, keys)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        return _parse_status(endpoint, _ask(Link(context, endpoint, keys=curve), time.monotonic() + timeout_s).values)
    finally:
        context.destroy(linger=0)


def _ask(link: Link, deadline: float) -> StatusReply:
    try:
        if not link.wait_writable(deadline - time.monotonic()) or not link.send(encode_request("ping")):
            raise no_daemon(link.endpoint)
        while (reply := link.wait_reply(deadline)) is not None:
            if isinstance(reply, StatusReply) and reply.dataset_id is None:
                return reply
    finally:
        link.close()
    raise DaemonUnavailable(
        f"the daemon at {link.endpoint} accepts connections but does not answer; ask again: `acqstream serve` may be "
        "starting or busy there, or another program has the port"
    )


def _parse_status(endpoint: str, values: Mapping[str, Any]) -> DaemonStatus:
    """The status in a decoded message; unknown fields are ignored, missing ones have their defaults."""
    entries = values.get("acquisitions") or ()
    try:
        acquisitions = tuple(AcquisitionStatus(**_known(AcquisitionStatus, entry)) for entry in entries)
        known = {**_known(DaemonStatus, values), "endpoint": endpoint, "acquisitions": acquisitions}
        return DaemonStatus(**known)
    except (TypeError, ValueError, AttributeError) as error:
        raise ProtocolError(f"the status of the daemon at {endpoint} cannot be read: {error}") from error


def _known(kind: type[AcquisitionStatus | DaemonStatus], values: Mapping[str, Any]) -> dict[str, Any]:
    wire_names = {one.name: _WIRE_NAMES.get(one.name, one.name) for one in fields(kind)}
    known = {name: values[wire] for name, wire in wire_names.items() if wire in values}
    if "warnings" in known:
        known["warnings"] = tuple((str(code), str(text), str(when)) for code, text, when, *_ in known["warnings"])
    return known
