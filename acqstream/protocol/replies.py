"""Messages from daemon to producer. Field names on the wire: docs/protocol.md, "Daemon to producer"."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, NamedTuple, Self, get_type_hints

from acqstream.errors import ProtocolError
from acqstream.model.axes import AxisValue, check_axes
from acqstream.model.fields import Fields
from acqstream.model.frame_header import MAX_NUMBER
from acqstream.model.receipt import MissingFrames, Receipt
from acqstream.model.state import AcquisitionState, Cursors, Limit
from acqstream.model.status import AcquisitionStatus, DaemonStatus
from acqstream.model.view_spec import MirrorResult
from acqstream.protocol.status_fields import acquisition_fields, daemon_fields, parse_acquisition, parse_daemon

MAX_MISSING_BYTES = 11 * 2**16
"""Limit for the list of missing numbers in `closed`, as the receipt must fit into one header part."""


class Wire(NamedTuple):
    """How an attribute of a reply is written into, and read from, the field `key` of its message."""

    key: str
    read: Callable[[Fields, str], Any]
    write: Callable[[Any], Any] = lambda value: value


_TEXT, _INTEGER, _FLAG = Fields.text, Fields.integer, Fields.flag


@dataclass(frozen=True, slots=True)
class DaemonMessage:
    """A message of the daemon: `kind` is its type. Each attribute names its field, in the order of the wire."""

    kind: ClassVar[str]

    def fields(self) -> dict[str, Any]:
        """The header of the message."""
        return {
            "t": self.kind,
            **{wire.key: wire.write(getattr(self, name)) for name, wire in _wires(type(self)).items()},
        }

    @classmethod
    def parse(cls, fields: Fields) -> Self:
        """The inverse of `fields`. Raises ProtocolError."""
        return cls(**{name: wire.read(fields, wire.key) for name, wire in _wires(cls).items()})


_WIRES: dict[type, Mapping[str, Wire]] = {}


def _wires(message: type[DaemonMessage]) -> Mapping[str, Wire]:
    if message in _WIRES:
        return _WIRES[message]
    hints = get_type_hints(message, include_extras=True)
    _WIRES[message] = {name: hint.__metadata__[0] for name, hint in hints.items() if hasattr(hint, "__metadata__")}
    return _WIRES[message]


def _read_limit(fields: Fields, key: str) -> Limit:
    limit = fields.child(key)
    return Limit(limit.integer("n"), limit.integer("bytes"))


def _write_limit(limit: Limit) -> dict[str, int]:
    return {"n": limit.number, "bytes": limit.payload_bytes}


def _read_keys(fields: Fields, key: str) -> tuple[Mapping[str, AxisValue], ...]:
    return tuple(map(check_axes, fields.items(key)))


def _read_state(fields: Fields, key: str) -> AcquisitionState:
    return AcquisitionState(fields.choice(key, tuple(AcquisitionState)))


def _read_mirrors(fields: Fields, key: str) -> tuple[MirrorResult, ...]:
    return tuple(map(MirrorResult.of, fields.children(key)))


def _write_mirrors(mirrors: Sequence[MirrorResult]) -> list[dict[str, Any]]:
    return [mirror.as_dict() for mirror in mirrors]


@dataclass(frozen=True, slots=True)
class Welcome(DaemonMessage):
    """Answer to hello. boot is the machine's boot id; ipc and events are endpoints, empty where missing.

    memory is the path of the socket that takes shared memory, or empty. sockets identifies the files
    of all local sockets, by path: see `socket_identity`. max_skip is how many numbers one `skip` may declare.
    shutdown is the path of the file with the key of a `shutdown` request. max_patch limits the second part of a
    `patch`. has_notes: it takes `note`, as each daemon does; for senders that look.
    """

    kind = "welcome"
    version: Annotated[int, Wire("v", _INTEGER)]
    server: Annotated[str, Wire("server", _TEXT)]
    formats: Annotated[tuple[str, ...], Wire("formats", Fields.texts)]
    dtypes: Annotated[tuple[str, ...], Wire("dtypes", Fields.texts)]
    max_header: Annotated[int, Wire("max_header", _INTEGER)]
    max_payload: Annotated[int, Wire("max_payload", _INTEGER)]
    boot: Annotated[str, Wire("boot", _TEXT)]
    ipc: Annotated[str, Wire("ipc", _TEXT)]
    events: Annotated[str, Wire("events", _TEXT)]
    memory: Annotated[str, Wire("memory", _TEXT)] = ""
    sockets: Annotated[Mapping[str, str], Wire("sockets", Fields.text_map, dict)] = field(default_factory=dict)
    max_skip: Annotated[int, Wire("max_skip", _INTEGER)] = MAX_NUMBER
    shutdown: Annotated[str, Wire("shutdown", _TEXT)] = ""
    max_patch: Annotated[int, Wire("max_patch", _INTEGER)] = 0
    has_notes: Annotated[bool, Wire("notes", lambda _fields, _key: True)] = True


@dataclass(frozen=True, slots=True)
class Opened(DaemonMessage):
    """The acquisition is open. next is the first frame number the daemon needs; window_bytes its share of memory.

    received_bytes are the payload bytes of all frames below next: from which limit counts. epoch numbers the
    connections to the acquisition; the ones before are fenced off. memory is the number of the producer's memory that
    frames may lie in, None where they must come as message parts; memory_why is then the reason. stored is the number
    of frames below next that have pixels, whose axes `stored` requests. views: views read frames in shared memory after
    their publication, too, as long as they lie there.
    """

    kind = "opened"
    dataset_id: Annotated[str, Wire("ds", _TEXT)]
    name: Annotated[str, Wire("name", _TEXT)]
    path: Annotated[str, Wire("path", _TEXT)]
    next: Annotated[int, Wire("next", _INTEGER)]
    limit: Annotated[Limit, Wire("limit", _read_limit, _write_limit)]
    window_bytes: Annotated[int, Wire("window", _INTEGER)]
    resumed: Annotated[bool, Wire("resumed", _FLAG)]
    io: Annotated[str, Wire("io", _TEXT)]
    received_bytes: Annotated[int, Wire("bytes", _INTEGER)] = 0
    epoch: Annotated[int, Wire("epoch", _INTEGER)] = 0
    memory: Annotated[int | None, Wire("memory", Fields.optional_integer)] = None
    memory_why: Annotated[str, Wire("memory_why", _TEXT)] = ""
    stored: Annotated[int, Wire("stored", _INTEGER)] = 0
    views: Annotated[bool, Wire("views", _FLAG)] = False

    def fields(self) -> dict[str, Any]:
        """`recovering` is always false: a daemon answers when it has recovered."""
        fields = DaemonMessage.fields(self)
        at = list(fields).index("io")
        return dict([*list(fields.items())[:at], ("recovering", False), *list(fields.items())[at:]])


@dataclass(frozen=True, slots=True)
class Ack(DaemonMessage):
    """How far the frames are."""

    kind = "ack"
    dataset_id: str
    cursors: Cursors
    limit: Limit

    def fields(self) -> dict[str, Any]:
        """The counts are fields of the message itself."""
        return {
            "t": self.kind,
            "ds": self.dataset_id,
            "received": self.cursors.received,
            "published": self.cursors.published,
            "durable": self.cursors.durable,
            "limit": _write_limit(self.limit),
        }

    @classmethod
    def parse(cls, fields: Fields) -> Self:
        """The inverse of `fields`. Raises ProtocolError."""
        cursors = Cursors(fields.integer("received"), fields.integer("published"), fields.integer("durable"))
        return cls(fields.text("ds"), cursors, _read_limit(fields, "limit"))


@dataclass(frozen=True, slots=True)
class StoredPage(DaemonMessage):
    """Axes of stored frames in order of arrival, and where the next page begins. An empty page is the end."""

    kind = "stored"
    dataset_id: Annotated[str, Wire("ds", _TEXT)]
    keys: Annotated[tuple[Mapping[str, AxisValue], ...], Wire("keys", _read_keys, list)]
    next: Annotated[int, Wire("next", _INTEGER)]


@dataclass(frozen=True, slots=True)
class Warn(DaemonMessage):
    """A problem that does not end the run. time (ISO 8601, or empty) is that of its first report."""

    kind = "warn"
    dataset_id: Annotated[str, Wire("ds", _TEXT)]
    code: Annotated[str, Wire("code", _TEXT)]
    text: Annotated[str, Wire("text", _TEXT)]
    time: Annotated[str, Wire("time", _TEXT)] = ""


@dataclass(frozen=True, slots=True)
class Error(DaemonMessage):
    """An error. fatal: the acquisition has ended, `closed` follows. number names the frame, note_id the note, if one.

    Not fatal and with a number: so many frames from it on were refused, the acquisition continues.
    """

    kind = "error"
    code: str
    text: str
    dataset_id: str | None = None
    number: int | None = None
    errno: int | None = None
    fatal: bool = False
    count: int = 1
    note_id: str | None = None

    def fields(self) -> dict[str, Any]:
        """Only fields that have a value."""
        count = self.count if self.count > 1 else None
        optional = {"ds": self.dataset_id, "n": self.number, "errno": self.errno, "count": count, "id": self.note_id}
        present = {key: value for key, value in optional.items() if value is not None}
        return {"t": self.kind, "code": self.code, "text": self.text, "fatal": self.fatal, **present}

    @classmethod
    def parse(cls, fields: Fields) -> Self:
        """The inverse of `fields`. Raises ProtocolError."""
        return cls(
            fields.text("code"),
            fields.text("text"),
            fields.text("ds") if fields.values.get("ds") is not None else None,
            fields.optional_integer("n"),
            fields.optional_integer("errno"),
            fields.flag("fatal", default=False),
            fields.integer("count", 1, maximum=MAX_NUMBER),
            fields.text("id") if fields.values.get("id") is not None else None,
        )


@dataclass(frozen=True, slots=True)
class Closed(DaemonMessage):
    """The acquisition has ended, with its receipt."""

    kind = "closed"
    receipt: Receipt

    def fields(self) -> dict[str, Any]:
        """The list of missing frames is cut where it does not fit."""
        receipt = dataclasses.replace(self.receipt, missing=_fitting(self.receipt.missing))
        return {"t": self.kind, "ds": receipt.dataset_id, "receipt": receipt.as_dict()}

    @classmethod
    def parse(cls, fields: Fields) -> Self:
        """The inverse of `fields`. Raises ProtocolError."""
        return cls(Receipt.of(fields.child("receipt")))


@dataclass(frozen=True, slots=True)
class StatusReply(DaemonMessage):
    """Status of an acquisition (sent once a second, and as answer to a ping with `ds`) or of the daemon."""

    kind = "status"
    status: AcquisitionStatus | DaemonStatus

    def fields(self) -> dict[str, Any]:
        """The fields of the status are those of the message."""
        if isinstance(self.status, AcquisitionStatus):
            return {"t": self.kind, **acquisition_fields(self.status)}
        return {"t": self.kind, **daemon_fields(self.status)}

    @classmethod
    def parse(cls, fields: Fields) -> Self:
        """The inverse of `fields`. Raises ProtocolError."""
        return cls(parse_daemon(fields) if fields.values.get("ds") is None else parse_acquisition(fields))


@dataclass(frozen=True, slots=True)
class MirrorsReply(DaemonMessage):
    """States of the mirrors of a dataset; state is that of the acquisition."""

    kind = "mirrors"
    dataset_id: Annotated[str, Wire("ds", _TEXT)]
    state: Annotated[AcquisitionState, Wire("state", _read_state, str)]
    mirrors: Annotated[tuple[MirrorResult, ...], Wire("mirrors", _read_mirrors, _write_mirrors)]


@dataclass(frozen=True, slots=True)
class ShutdownReply(DaemonMessage):
    """The daemon ends. n_running acquisitions are finished first; then the connection is closed."""

    kind = "shutdown"
    n_running: Annotated[int, Wire("n", _INTEGER)]


@dataclass(frozen=True, slots=True)
class Noted(DaemonMessage):
    """A note is stored, and survives a power cut. frame: as it is stored."""

    kind = "noted"
    note_id: Annotated[str, Wire("id", _TEXT)]
    dataset_id: Annotated[str, Wire("ds", _TEXT)]
    path: Annotated[str, Wire("path", _TEXT)]
    frame: Annotated[int | None, Wire("n", Fields.optional_integer)] = None


_KINDS = (Welcome, Opened, Ack, StoredPage, Warn, Error, Closed, StatusReply, MirrorsReply, ShutdownReply, Noted)
Reply = Welcome | Opened | Ack | StoredPage | Warn | Error | Closed | StatusReply | MirrorsReply | ShutdownReply | Noted
_REPLIES: Mapping[str, type[Reply]] = {reply.kind: reply for reply in _KINDS}


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


@dataclass(frozen=True, slots=True)
class UnknownReply:
    """A message type of a newer daemon; ignored."""

    fields: Mapping[str, Any] = field(default_factory=dict)


def parse_reply(fields: Mapping[str, Any]) -> Reply | UnknownReply:
    """The daemon's message in a decoded header. Raises ProtocolError if a known one lacks a field."""
    reply = _REPLIES.get(str(fields.get("t")))
    if reply is None:
        return UnknownReply(fields)
    try:
        return reply.parse(Fields(fields))
    except ProtocolError as error:
        raise ProtocolError(f"message {fields.get('t')!r} of the daemon: {error}") from error
