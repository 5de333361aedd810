"""Messages from daemon to producer. Field names on the wire: docs/protocol.md, "Daemon to producer"."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from acqstream.errors import ProtocolError
from acqstream.model.axes import AxisValue, check_axes
from acqstream.model.cursors import Cursors, Limit
from acqstream.model.fields import Fields
from acqstream.model.frame_header import MAX_NUMBER
from acqstream.model.mirror_result import MirrorResult
from acqstream.model.receipt import MissingFrames, Receipt
from acqstream.model.state import AcquisitionState
from acqstream.model.status import AcquisitionStatus, DaemonStatus
from acqstream.protocol.status_fields import acquisition_fields, daemon_fields, parse_acquisition, parse_daemon

FIRST_MAX_SKIP = 1_000_000  # of daemons whose welcome lacks it
MAX_MISSING_BYTES = 11 * 2**16
"""Limit for the list of missing numbers in `closed`, as the receipt must fit into one header part."""


@dataclass(frozen=True, slots=True)
class Welcome:
    """Answer to hello. boot is the machine's boot id; ipc and events are endpoints, empty where missing.

    memory is the path of the socket that takes shared memory, or empty. sockets identifies the files
    of all local sockets, by path: see `socket_identity`. max_skip is how many numbers one `skip` may declare.
    shutdown is the path of the file with the key of a `shutdown` request; empty in older daemons. max_patch limits the
    second part of a `patch`; 0 in older daemons, which take none.
    """

    version: int
    server: str
    formats: tuple[str, ...]
    dtypes: tuple[str, ...]
    max_header: int
    max_payload: int
    boot: str
    ipc: str
    events: str
    memory: str = ""
    sockets: Mapping[str, str] = field(default_factory=dict)
    max_skip: int = FIRST_MAX_SKIP
    shutdown: str = ""
    max_patch: int = 0

    def fields(self) -> dict[str, Any]:
        return {
            "t": "welcome",
            "v": self.version,
            "server": self.server,
            "formats": list(self.formats),
            "dtypes": list(self.dtypes),
            "max_header": self.max_header,
            "max_payload": self.max_payload,
            "boot": self.boot,
            "ipc": self.ipc,
            "events": self.events,
            "memory": self.memory,
            "sockets": dict(self.sockets),
            "max_skip": self.max_skip,
            "shutdown": self.shutdown,
            "max_patch": self.max_patch,
        }


@dataclass(frozen=True, slots=True)
class Opened:
    """The acquisition is open. next is the first frame number the daemon needs; window_bytes its share of memory.

    received_bytes are the payload bytes of all frames below next: from which limit counts. epoch numbers the
    connections to the acquisition; the ones before are fenced off. memory is the number of the producer's memory that
    frames may lie in, None where they must come as message parts; memory_why is then the reason. stored is the number
    of frames below next that have pixels, whose axes `stored` requests; None from a daemon without that request. views:
    views read frames in shared memory after their publication, too, as long as they lie there.
    """

    dataset_id: str
    name: str
    path: str
    next: int
    limit: Limit
    window_bytes: int
    resumed: bool
    io: str
    received_bytes: int = 0
    epoch: int = 0
    memory: int | None = None
    memory_why: str = ""
    stored: int | None = None
    views: bool = False

    def fields(self) -> dict[str, Any]:
        return {
            "t": "opened",
            "ds": self.dataset_id,
            "name": self.name,
            "path": self.path,
            "next": self.next,
            "limit": _limit(self.limit),
            "window": self.window_bytes,
            "resumed": self.resumed,
            "recovering": False,
            "io": self.io,
            "bytes": self.received_bytes,
            "epoch": self.epoch,
            "memory": self.memory,
            "memory_why": self.memory_why,
            "stored": self.stored,
            "views": self.views,
        }


@dataclass(frozen=True, slots=True)
class Ack:
    dataset_id: str
    cursors: Cursors
    limit: Limit

    def fields(self) -> dict[str, Any]:
        return {
            "t": "ack",
            "ds": self.dataset_id,
            "received": self.cursors.received,
            "published": self.cursors.published,
            "durable": self.cursors.durable,
            "limit": _limit(self.limit),
        }


@dataclass(frozen=True, slots=True)
class StoredPage:
    """Axes of stored frames in order of arrival, and where the next page begins. An empty page is the end."""

    dataset_id: str
    keys: tuple[Mapping[str, AxisValue], ...]
    next: int

    def fields(self) -> dict[str, Any]:
        return {"t": "stored", "ds": self.dataset_id, "keys": list(self.keys), "next": self.next}


@dataclass(frozen=True, slots=True)
class Warn:
    """A problem that does not end the run. time (ISO 8601, or empty) is that of its first report."""

    dataset_id: str
    code: str
    text: str
    time: str = ""

    def fields(self) -> dict[str, Any]:
        return {"t": "warn", "ds": self.dataset_id, "code": self.code, "text": self.text, "time": self.time}


@dataclass(frozen=True, slots=True)
class Error:
    """An error. fatal: the acquisition has ended, `closed` follows. number names the frame, if one.

    Not fatal and with a number: so many frames from it on were refused, the acquisition continues.
    """

    code: str
    text: str
    dataset_id: str | None = None
    number: int | None = None
    errno: int | None = None
    fatal: bool = False
    count: int = 1

    def fields(self) -> dict[str, Any]:
        count = self.count if self.count > 1 else None
        optional = {"ds": self.dataset_id, "n": self.number, "errno": self.errno, "count": count}
        present = {key: value for key, value in optional.items() if value is not None}
        return {"t": "error", "code": self.code, "text": self.text, "fatal": self.fatal, **present}


@dataclass(frozen=True, slots=True)
class Closed:
    receipt: Receipt

    def fields(self) -> dict[str, Any]:
        receipt = dataclasses.replace(self.receipt, missing=_fitting(self.receipt.missing))
        return {"t": "closed", "ds": receipt.dataset_id, "receipt": receipt.as_dict()}


@dataclass(frozen=True, slots=True)
class StatusReply:
    """Status of an acquisition (sent once a second, and as answer to a ping with `ds`) or of the daemon."""

    status: AcquisitionStatus | DaemonStatus

    def fields(self) -> dict[str, Any]:
        if isinstance(self.status, AcquisitionStatus):
            return {"t": "status", **acquisition_fields(self.status)}
        return {"t": "status", **daemon_fields(self.status)}


@dataclass(frozen=True, slots=True)
class MirrorsReply:
    """States of the mirrors of a dataset; state is that of the acquisition."""

    dataset_id: str
    state: AcquisitionState
    mirrors: tuple[MirrorResult, ...]

    def fields(self) -> dict[str, Any]:
        mirrors = [mirror.as_dict() for mirror in self.mirrors]
        return {"t": "mirrors", "ds": self.dataset_id, "state": str(self.state), "mirrors": mirrors}


@dataclass(frozen=True, slots=True)
class ShutdownReply:
    """The daemon ends. n_running acquisitions are finished first; then the connection is closed."""

    n_running: int

    def fields(self) -> dict[str, Any]:
        return {"t": "shutdown", "n": self.n_running}


Reply = Welcome | Opened | Ack | StoredPage | Warn | Error | Closed | StatusReply | MirrorsReply | ShutdownReply


def _fitting(missing: Sequence[MissingFrames]) -> tuple[MissingFrames, ...]:
    """The first ranges, and the last one, which may be that of frames that were sent and never stored."""
    kept: list[MissingFrames] = []
    capacity = MAX_MISSING_BYTES - sum(map(_json_bytes, missing[-1:]))
    for gap in missing[:-1]:
        capacity -= _json_bytes(gap)
        if capacity < 0:
            break
        kept.append(gap)
    return (*kept, *missing[-1:])


def _json_bytes(gap: MissingFrames) -> int:
    return len(f'{{"first":{gap.first},"count":{gap.count},"reason":{json.dumps(gap.reason)}}},')


def _limit(limit: Limit) -> dict[str, int]:
    return {"n": limit.number, "bytes": limit.payload_bytes}


@dataclass(frozen=True, slots=True)
class UnknownReply:
    """A message type of a newer daemon; ignored."""

    fields: Mapping[str, Any] = field(default_factory=dict)


def parse_reply(fields: Mapping[str, Any]) -> Reply | UnknownReply:
    """The daemon's message in a decoded header. Raises ProtocolError if a known one lacks a field."""
    parse = _PARSERS.get(str(fields.get("t")))
    if parse is None:
        return UnknownReply(fields)
    try:
        return parse(Fields(fields))
    except ProtocolError as error:
        raise ProtocolError(f"message {fields.get('t')!r} of the daemon: {error}") from error


def _limit_of(fields: Fields) -> Limit:
    limit = fields.child("limit")
    return Limit(limit.integer("n"), limit.integer("bytes"))


def _parse_welcome(fields: Fields) -> Welcome:
    return Welcome(
        fields.integer("v"),
        fields.text("server"),
        fields.texts("formats"),
        fields.texts("dtypes"),
        fields.integer("max_header"),
        fields.integer("max_payload"),
        fields.text("boot"),
        fields.text("ipc"),
        fields.text("events"),
        fields.text("memory", ""),
        fields.text_map("sockets"),
        fields.integer("max_skip", FIRST_MAX_SKIP),
        fields.text("shutdown", ""),
        fields.integer("max_patch", 0),
    )


def _parse_opened(fields: Fields) -> Opened:
    return Opened(
        fields.text("ds"),
        fields.text("name"),
        fields.text("path"),
        fields.integer("next"),
        _limit_of(fields),
        fields.integer("window"),
        fields.flag("resumed"),
        fields.text("io"),
        fields.integer("bytes", 0),
        fields.integer("epoch", 0),
        fields.optional_integer("memory"),
        fields.text("memory_why", ""),
        fields.optional_integer("stored"),
        fields.flag("views", False),
    )


def _parse_stored(fields: Fields) -> StoredPage:
    return StoredPage(fields.text("ds"), tuple(map(check_axes, fields.items("keys"))), fields.integer("next"))


def _parse_ack(fields: Fields) -> Ack:
    cursors = Cursors(fields.integer("received"), fields.integer("published"), fields.integer("durable"))
    return Ack(fields.text("ds"), cursors, _limit_of(fields))


def _parse_warn(fields: Fields) -> Warn:
    return Warn(fields.text("ds"), fields.text("code"), fields.text("text"), fields.text("time", ""))


def _parse_error(fields: Fields) -> Error:
    return Error(
        fields.text("code"),
        fields.text("text"),
        fields.text("ds") if fields.values.get("ds") is not None else None,
        fields.optional_integer("n"),
        fields.optional_integer("errno"),
        fields.flag("fatal", default=False),
        fields.integer("count", 1, maximum=MAX_NUMBER),
    )


def _parse_closed(fields: Fields) -> Closed:
    return Closed(Receipt.of(fields.child("receipt")))


def _parse_status(fields: Fields) -> StatusReply:
    return StatusReply(parse_daemon(fields) if fields.values.get("ds") is None else parse_acquisition(fields))


def _parse_mirrors(fields: Fields) -> MirrorsReply:
    state = AcquisitionState(fields.choice("state", tuple(AcquisitionState)))
    return MirrorsReply(fields.text("ds"), state, tuple(map(MirrorResult.of, fields.children("mirrors"))))


_PARSERS: Mapping[str, Callable[[Fields], Reply]] = {
    "welcome": _parse_welcome,
    "opened": _parse_opened,
    "ack": _parse_ack,
    "stored": _parse_stored,
    "warn": _parse_warn,
    "error": _parse_error,
    "closed": _parse_closed,
    "status": _parse_status,
    "mirrors": _parse_mirrors,
    "shutdown": lambda fields: ShutdownReply(fields.integer("n")),
}
