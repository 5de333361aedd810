"""Messages from producer to daemon. Field names on the wire: docs/protocol.md, "Producer to daemon"."""

from __future__ import annotations

import json
import math
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from acqstream.errors import ProtocolError
from acqstream.model.acquisition_spec import (
    DEFAULT_DURABILITY_S,
    AcquisitionSpec,
    AxisSpec,
    DurabilityMode,
    FrameHint,
    TileSpec,
)
from acqstream.model.axes import check_axes
from acqstream.model.dataset_name import normal_name
from acqstream.model.fields import (
    check_choice,
    check_integer,
    check_list,
    check_map,
    check_optional_integer,
    field_error,
)
from acqstream.model.frame_header import MAX_NUMBER, pixel_type_of
from acqstream.model.metadata import check_depth
from acqstream.model.run_note import RUN, RunNote, note_id, note_source, note_text, note_values
from acqstream.model.view_spec import PYRAMID_KIND, ViewSpec, is_view_name
from acqstream.protocol.encoding import take_dataset_id, take_text
from acqstream.protocol.frame_batch import Frame, FrameBatch, are_integers, parse_frame, parse_frames
from acqstream.protocol.shared_memory import MemoryOffer, parse_offer

MAX_MIRRORS = 16
MAX_SETTINGS_BYTES = 4096


def parse_views(value: object) -> tuple[ViewSpec, ...]:
    """The requested views, in order. Raises ProtocolError.

    The name of each is that of its format, or "name" of its settings; a further mirror in the same format gets a
    number. The existence of a format is not checked here.
    """
    if value is None:
        return ()
    if not isinstance(value, list | tuple) or len(value) > MAX_MIRRORS:
        raise ProtocolError(f"field 'mirrors' must be a list of at most {MAX_MIRRORS} names, or maps with 'format'")
    views: dict[str, ViewSpec] = {}
    for entry in value:
        settings = _checked_settings(entry) if isinstance(entry, Mapping) else {}
        kind = settings["format"] if settings else entry
        name = settings.get("name", kind)
        if not isinstance(name, str) or not is_view_name(name):
            raise ProtocolError(
                f"field 'mirrors': {name!r:.60} is not a name of a mirror: up to 32 letters, digits, _ and -"
            )
        if settings and "name" not in settings:
            name = _numbered(name, views)
        elif settings and name in views:
            raise ProtocolError(f"field 'mirrors': two have the name {name!r}")
        views[name] = ViewSpec(kind, settings, name)
    return tuple(views.values())


def _checked_settings(entry: Mapping[Any, Any]) -> dict[str, Any]:
    if not isinstance(entry.get("format"), str):
        raise ProtocolError(f"field 'mirrors': {entry!r:.60} has no 'format'")
    try:
        text = json.dumps(dict(entry), allow_nan=False)
    except (ValueError, TypeError, RecursionError) as error:
        raise ProtocolError(f"field 'mirrors' cannot be stored as JSON: {error}") from error
    if len(text) > MAX_SETTINGS_BYTES:
        raise ProtocolError(f"field 'mirrors': settings of {len(text)} bytes; at most {MAX_SETTINGS_BYTES} are allowed")
    settings: dict[str, Any] = json.loads(text)
    return {"format": settings["format"]} if set(settings) == {"format"} else settings


def _numbered(name: str, views: Mapping[str, ViewSpec]) -> str:
    """A free name: n5, n5-2, n5-3 ..."""
    if name not in views:
        return name
    return next(text for number in range(2, MAX_MIRRORS + 2) if (text := f"{name}-{number}") not in views)


SHUTDOWN_PREFIX = "acqstream-shutdown-"
_SHUTDOWN_KEY = re.compile(re.escape(SHUTDOWN_PREFIX) + r"[0-9a-f]{64}")
MAX_KEY_FILE_BYTES = 200


def new_shutdown_key() -> str:
    """A key of 256 random bits."""
    return SHUTDOWN_PREFIX + secrets.token_hex(32)


def shutdown_key_in(content: bytes) -> str | None:
    """The key in the content of a file; None if the file is not one of ours.

    A client sends no other content: a program that only pretends to be a daemon could name any file of the user.
    """
    text = content.decode("ascii", "replace").strip()
    return text if _SHUTDOWN_KEY.fullmatch(text) else None


PROTOCOL_VERSION = 1
CloseStatus = Literal["completed", "canceled", "error"]
CLOSE_STATUSES: tuple[CloseStatus, ...] = get_args(CloseStatus)
MAX_SHUTDOWN_KEY = 200
_MAX_NAME_LENGTH = 1000  # on the wire; `normal_name` allows fewer characters


@dataclass(frozen=True, slots=True)
class Hello:
    version: int
    client: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Open:
    spec: AcquisitionSpec
    memory: MemoryOffer = field(default_factory=MemoryOffer)


@dataclass(frozen=True, slots=True)
class Skip:
    """Frame numbers number .. number + count - 1 will never come."""

    dataset_id: str
    number: int
    count: int
    reason: str


@dataclass(frozen=True, slots=True)
class Patch:
    """Late metadata: the summary (before frame 0 only) or display settings (any time)."""

    dataset_id: str
    summary: Mapping[str, Any] | None
    display: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Close:
    dataset_id: str
    number: int
    status: CloseStatus
    reason: str


@dataclass(frozen=True, slots=True)
class Ping:
    """Asks for a status. number: how many frame numbers the producer has assigned so far, if it says so."""

    dataset_id: str | None
    number: int | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    """Asks for the axes of the stored frames, a page at a time. at: where the page begins, 0 or `next` of the last."""

    dataset_id: str
    at: int


@dataclass(frozen=True, slots=True)
class Stop:
    """From an operator: end the acquisition called `name` now, of any producer."""

    name: str


@dataclass(frozen=True, slots=True)
class Shutdown:
    """Asks the daemon to end. key is the content of the file that `welcome.shutdown` names."""

    key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Mirrors:
    """Asks for the states of a dataset's mirrors, of a running acquisition or of one that has ended."""

    dataset_id: str
    name: str


@dataclass(frozen=True, slots=True)
class AddNote:
    """A note on a running acquisition: the sender's own `dataset_id`, or the one called `name`, of any producer.

    time_ns, frame: None where the daemon's own clock and count of received frames are to say them.
    """

    dataset_id: str | None
    name: str
    note: RunNote
    time_ns: int | None = None


Request = Hello | Open | Frame | FrameBatch | Skip | Patch | Close | Ping | Stored | Stop | Shutdown | Mirrors | AddNote


def parse_request(fields: Mapping[str, Any]) -> Request:
    """The request in a decoded header.

    Raises ProtocolError naming the field, or FrameRefused for a frame whose number could be read.
    """
    kind = fields.get("t")
    parse = _PARSERS.get(kind) if isinstance(kind, str) else None
    if parse is None:
        raise ProtocolError(f"unknown message type {kind!r:.40}; expected one of {', '.join(_PARSERS)}")
    return parse(fields)


def _parse_hello(fields: Mapping[str, Any]) -> Hello:
    version = check_integer(fields.get("v"), "v")
    if version != PROTOCOL_VERSION:
        raise ProtocolError(f"protocol version {version}; this daemon speaks {PROTOCOL_VERSION}", code="bad_version")
    return Hello(version, check_map(fields.get("client"), "client"))


def _parse_skip(fields: Mapping[str, Any]) -> Skip:
    count = check_integer(fields.get("count", 1), "count", minimum=1, maximum=MAX_NUMBER)
    return Skip(
        take_dataset_id(fields),
        check_integer(fields.get("n"), "n"),
        count,
        take_text(fields, "reason", "", max_length=1000),
    )


def _parse_patch(fields: Mapping[str, Any]) -> Patch:
    summary = _checked_json(check_map(fields.get("summary"), "summary"), "summary") if "summary" in fields else None
    display = _checked_json(check_map(fields.get("display"), "display"), "display") if "display" in fields else None
    if summary is None and display is None:
        raise ProtocolError("patch needs 'summary' or 'display'")
    return Patch(take_dataset_id(fields), summary, display)


def _parse_close(fields: Mapping[str, Any]) -> Close:
    status = check_choice(fields.get("status", "completed"), "status", CLOSE_STATUSES)
    return Close(take_dataset_id(fields), check_integer(fields.get("n"), "n"), status, take_text(fields, "reason", ""))


def _parse_ping(fields: Mapping[str, Any]) -> Ping:
    dataset_id = take_dataset_id(fields) if fields.get("ds") is not None else None
    return Ping(dataset_id, check_optional_integer(fields.get("n"), "n"))


def _parse_open(fields: Mapping[str, Any]) -> Open:
    tiles = _parse_tiles(fields)
    duplicates = ("error", "replace") if tiles is None else ("replace", "error")  # the first is the default
    resume = fields.get("resume", False)
    if resume is not None and type(resume) is not bool:
        raise field_error("resume", "true or false", resume)
    spec = AcquisitionSpec(
        dataset_id=take_dataset_id(fields),
        name=_take_name(fields),
        summary=_checked_json(check_map(fields.get("summary"), "summary"), "summary"),
        frame=_parse_frame_hint(fields.get("frame")),
        axes=_parse_axes(fields.get("axes")),
        expect=check_optional_integer(fields.get("expect"), "expect"),
        durability=_parse_durability(fields.get("durability")),
        replace_duplicates=_parse_choice(fields, "duplicates", duplicates) == "replace",
        number_if_taken=_parse_choice(fields, "on_exists", ("error", "number")) == "number",
        resume=bool(resume),
        epoch=check_optional_integer(fields.get("epoch"), "epoch") or 0,
        views=_with_pyramid(parse_views(fields.get("mirrors")), tiles),
        default_mirrors=fields.get("mirrors") is None,
        tiles=tiles,
        given=frozenset(key for key, value in fields.items() if value not in (None, [], {})),
    )
    return Open(spec, parse_offer(fields))


def _checked_json(value: dict[str, Any], key: str) -> dict[str, Any]:
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False).encode("utf-8")  # refuses half surrogates too
        check_depth(value, text)
    except (ValueError, TypeError, RecursionError) as error:
        raise ProtocolError(f"field {key!r} cannot be stored as JSON: {error}") from error
    return value


def _parse_frame_hint(value: object) -> FrameHint | None:
    if value is None:
        return None
    dtype, shape = (value.get("dt"), value.get("sh")) if isinstance(value, dict) else (None, None)
    if type(dtype) is not str or not isinstance(shape, list) or not are_integers(shape):
        raise ProtocolError('field \'frame\' must be null or {"dt": dtype, "sh": [Y, X]}, two integers')
    try:
        pixel_type = pixel_type_of(dtype, shape)
    except (ValueError, TypeError) as error:
        raise ProtocolError(f"field 'frame': {error}", code="dtype_unsupported") from error
    return FrameHint(pixel_type.dtype, tuple(shape))


def _parse_axes(value: object) -> tuple[AxisSpec, ...]:
    if value is None:
        return ()
    specs = []
    for entry in check_list(value, "axes"):
        axis = check_map(entry, "axes")
        name = axis.get("name")
        if not isinstance(name, str):  # it may be a list, which no map takes as a key
            raise ProtocolError(f"axes: name must be a string, not {type(name).__name__}")
        check_axes({name: 0})
        labels = check_list(axis.get("labels") or [], "labels")
        size = check_optional_integer(axis.get("size"), "size")
        unit = take_text(axis, "unit", "", max_length=100) if axis.get("unit") is not None else None
        scale = axis.get("scale")
        if scale is not None and (type(scale) not in (int, float) or not 0 < scale < math.inf):
            raise field_error("scale", "a number above 0", scale)
        start = axis.get("start", 0)
        if type(start) is not int or not -(2**31) <= start < 2**31:
            raise field_error("start", "an integer of 32 bits", start)
        specs.append(AxisSpec(axis["name"], size, unit, scale, tuple(map(str, labels)), start))
    names = [spec.name for spec in specs]
    check_axes(dict.fromkeys(names, 0))
    if twice := next((name for number, name in enumerate(names) if name in names[:number]), None):
        raise ProtocolError(f"axes: {twice!r} is declared twice")
    return tuple(specs)


def _parse_tiles(fields: Mapping[str, Any]) -> TileSpec | None:
    value = fields.get("tiles")
    if value is None:
        return None
    try:
        tiles = TileSpec.of(value)
    except ValueError as error:
        raise ProtocolError(f"field 'tiles': {error}") from error
    frame = fields.get("frame")
    shape = frame.get("sh") if isinstance(frame, dict) else None
    _parse_frame_hint(frame)
    if shape is not None and (shape[0] <= tiles.overlap[0] or shape[1] <= tiles.overlap[1]):
        raise ProtocolError(f"field 'tiles': frames of shape {shape} must be larger than the overlap {tiles.overlap}")
    return tiles


def _with_pyramid(views: tuple[ViewSpec, ...], tiles: TileSpec | None) -> tuple[ViewSpec, ...]:
    """Add the lower levels to a tiled acquisition that does not request them."""
    is_added = tiles is not None and tiles.levels != 0 and all(view.name != PYRAMID_KIND for view in views)
    return (*views, ViewSpec(PYRAMID_KIND)) if is_added else views


def _parse_durability(value: object) -> DurabilityMode:
    if value is None:
        return DEFAULT_DURABILITY_S
    if value == "close" or value == "batch":
        return "close" if value == "close" else "batch"
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 3600:
        return float(value)
    raise field_error("durability", '"close", "batch" or seconds up to 3600', value)


def _parse_choice(fields: Mapping[str, Any], key: str, choices: tuple[str, ...]) -> str:
    return check_choice(fields.get(key) or choices[0], key, choices)


def _take_name(fields: Mapping[str, Any]) -> str:
    return normal_name(take_text(fields, "name", max_length=_MAX_NAME_LENGTH))


def _parse_note(fields: Mapping[str, Any]) -> AddNote:
    dataset_id = take_dataset_id(fields) if fields.get("ds") is not None else None
    time_ns = check_optional_integer(fields.get("tns"), "tns")
    note = RunNote(
        id=note_id(fields.get("id")),
        text=note_text(fields.get("text")),
        time_ns=time_ns or 0,
        frame=check_optional_integer(fields.get("n"), "n"),
        source=note_source(fields.get("source", RUN)),
        values=note_values(check_map(fields.get("values"), "values")),
    )
    return AddNote(dataset_id, "" if dataset_id is not None else _take_name(fields), note, time_ns)


_PARSERS: Mapping[str, Callable[[Mapping[str, Any]], Request]] = {
    "hello": _parse_hello,
    "open": _parse_open,
    "frame": parse_frame,
    "frames": parse_frames,
    "skip": _parse_skip,
    "patch": _parse_patch,
    "close": _parse_close,
    "ping": _parse_ping,
    "stored": lambda fields: Stored(take_dataset_id(fields), check_integer(fields.get("at", 0), "at")),
    "stop": lambda fields: Stop(_take_name(fields)),
    "shutdown": lambda fields: Shutdown(take_text(fields, "key", max_length=MAX_SHUTDOWN_KEY)),
    "mirrors": lambda fields: Mirrors(take_dataset_id(fields), _take_name(fields)),
    "note": _parse_note,
}
