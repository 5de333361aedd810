"""`frame` and `frames`, encoded, and parsed: many equally shaped frames in one message.

Field names on the wire: docs/protocol.md, "frame" and "frames".
"""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgpack
import xxhash

from acqstream.errors import ConfigError, FieldError, FrameRefused, ProtocolError
from acqstream.model.axes import AxisValue, are_good_columns, axes_json, axes_json_rows, check_axes
from acqstream.model.fields import check_integer, check_map, check_optional_integer
from acqstream.model.frame_header import FrameHeader, FrameRun, PixelType, pixel_type_of
from acqstream.model.metadata import check_given, encode_given, frame_text
from acqstream.protocol.encoding import MAX_HEADER_BYTES, Encoding, encode_header, take_dataset_id

MAX_METADATA_BYTES = MAX_HEADER_BYTES - 8192
"""Upper limit of a frame's encoded metadata; the rest of its header is bounded."""


class MemoryPlace(NamedTuple):
    """Place of a payload: the number of the memory, and the byte offset in it."""

    generation: int
    offset: int


class FrameKind(NamedTuple):
    """Common fields of all frames of one message. axes are the names, frame_bytes the payload of each frame."""

    pixel_type: PixelType
    shape: tuple[int, ...]
    axes: tuple[str, ...]
    frame_bytes: int


FrameFields = tuple[tuple[AxisValue, ...], int, bytes, int | None]
"""Header fields of one frame besides its number and kind: a value for each axis, the XXH3-64 of the pixels, metadata as
`encode_given` makes them, capture time. A bare tuple, as one is made for every frame and a class would be slower."""


class FrameEncoder:
    """Makes the header parts of one acquisition's frames. Not for several threads at a time."""

    def __init__(self, dataset_id: str) -> None:
        self._dataset_id = dataset_id
        self._packer = msgpack.Packer(use_bin_type=True)

    def header(
        self, number: int, kind: FrameKind, frames: Sequence[FrameFields], place: MemoryPlace | None = None
    ) -> bytes:
        """The header of these frames, from `number` on. place is that of their pixels in shared memory, if any."""
        fields: dict[str, Any] = {
            "t": "frame" if len(frames) == 1 else "frames",
            "ds": self._dataset_id,
            "n": number,
            "dt": kind.pixel_type.dtype,
            "sh": kind.shape,
        }
        if kind.pixel_type.bits != 8 * kind.pixel_type.sample_bytes:
            fields["bits"] = kind.pixel_type.bits
        if place is not None:
            fields["mem"] = place
        fields.update(_of_one(kind, frames[0]) if len(frames) == 1 else _of_many(kind, frames))
        header: bytes = self._packer.pack(fields)
        return header


def _of_one(kind: FrameKind, frame: FrameFields) -> dict[str, Any]:
    values, checksum, metadata, time_ns = frame
    axes = dict(zip(kind.axes, values, strict=True))
    text = frame_text(metadata, axes_json(axes), time_ns)
    fields: dict[str, Any] = {
        "ax": axes,
        "sum": {"xxh3": f"{checksum:016x}"},
        "msum": {"xxh3": f"{xxhash.xxh3_64_intdigest(text):016x}"},
    }
    if time_ns is not None:
        fields["tns"] = time_ns
    if metadata:
        fields["meta"] = metadata
    return fields


def _of_many(kind: FrameKind, frames: Sequence[FrameFields]) -> dict[str, Any]:
    values, checksums, metadata, times_ns = zip(*frames, strict=True)
    axes = dict(zip(kind.axes, zip(*values, strict=True), strict=True))
    if are_good_columns(axes):
        axes_texts: Iterable[bytes] = axes_json_rows(axes, len(frames))
    else:  # an axis with integers and texts: the daemon refuses frames of one kind, and stores the others
        axes_texts = (axes_json(dict(zip(kind.axes, row, strict=True))) for row in values)
    texts = map(frame_text, metadata, axes_texts, times_ns)
    fields: dict[str, Any] = {
        "count": len(frames),
        "ax": {name: _packed_column(column) for name, column in axes.items()},
        "sums": _digits(checksums),
        "msums": _digits(map(xxhash.xxh3_64_intdigest, texts)),
    }
    if times_ns.count(None) < len(frames):
        fields["tns"] = times_ns
    if any(metadata):
        fields["meta"] = metadata
    return fields


def _digits(checksums: Iterable[int]) -> str:
    numbers = tuple(checksums)
    return struct.pack(f">{len(numbers)}Q", *numbers).hex()


def _packed_column(values: tuple[AxisValue, ...]) -> tuple[AxisValue, ...] | dict[str, int]:
    """The values of an axis; evenly spaced ones as the first value and the step."""
    first, second = values[:2]
    if not isinstance(first, int) or not isinstance(second, int):
        return values
    step = second - first
    if not -(2**31) <= step < 2**31:
        return values
    even = range(first, first + len(values) * step, step) if step else [first] * len(values)
    return {"start": first, "step": step} if values == tuple(even) else values


def encode_request(kind: str, **fields: Any) -> bytes:
    """The header of any other request. Raises ConfigError if it is too large or cannot be encoded."""
    try:
        header = encode_header({"t": kind, **fields}, Encoding.MSGPACK)
    except (ValueError, TypeError, OverflowError) as error:
        raise ConfigError(f"{kind!r} cannot be sent: {error}") from error
    if len(header) > MAX_HEADER_BYTES:
        raise ConfigError(f"{kind!r} takes {len(header)} bytes; at most {MAX_HEADER_BYTES} fit into a message")
    return header


MAX_BATCH_FRAMES = 4096
SUM_DIGITS = 16  # of a checksum, hexadecimal
_CHECKSUM = re.compile(r"[0-9a-fA-F]{16}")
_INVALID = (ProtocolError, ValueError, TypeError, RecursionError)


@dataclass(frozen=True, slots=True)
class Frame:
    """place is None where the pixels are a part of the message."""

    dataset_id: str
    header: FrameHeader
    place: MemoryPlace | None = None

    @property
    def first(self) -> int:
        return self.header.number

    @property
    def count(self) -> int:
        return 1

    @property
    def payload_bytes(self) -> int:
        return self.header.payload_bytes


@dataclass(frozen=True, slots=True)
class FrameBatch:
    """Frames number first .. first + count - 1, their pixels back to back, in one payload or at one place.

    headers has an item for each frame: its header, or the error of one that is not valid. frame_bytes is the payload of
    one frame.
    """

    dataset_id: str
    first: int
    count: int
    frame_bytes: int
    headers: FrameRun | Sequence[FrameHeader | FrameRefused]
    place: MemoryPlace | None = None

    @property
    def run(self) -> FrameRun | None:
        """The headers as a run; None if one is not valid."""
        return self.headers if isinstance(self.headers, FrameRun) else None

    @property
    def payload_bytes(self) -> int:
        return self.count * self.frame_bytes


def parse_frame(fields: Mapping[str, Any]) -> Frame:
    """The frame in a decoded header. Raises ProtocolError, or FrameRefused once its number could be read."""
    dataset_id = take_dataset_id(fields)
    number = check_integer(fields.get("n"), "n")
    pixel_type, height, width = _parse_kind(fields, number)
    try:
        axes = check_axes(fields.get("ax"))
        axes_text = axes_json(axes)
        checksum, metadata_checksum = _parse_checksum(fields.get("sum")), _parse_checksum(fields.get("msum"), "msum")
        metadata, time_ns = take_metadata(fields.get("meta"), axes_text, fields.get("tns"))
    except _INVALID as error:
        raise FrameRefused(f"frame {number}: {error}", code="bad_header", number=number) from error
    kind = (pixel_type, height, width)
    header = FrameHeader(number, *kind, axes, metadata, checksum, time_ns, axes_text, metadata_checksum)
    return Frame(dataset_id, header, parse_place(fields, number))


def _parse_kind(fields: Mapping[str, Any], number: int) -> tuple[PixelType, int, int]:
    """Pixel type, height and width. Raises FrameRefused for frame `number`."""
    dtype, shape = fields.get("dt"), fields.get("sh")
    if type(dtype) is not str or not isinstance(shape, list | tuple) or len(shape) > 4 or not are_integers(shape):
        raise FrameRefused("'dt' must be a dtype string and 'sh' a list of integers", code="bad_header", number=number)
    try:
        pixel_type = _pixel_type(dtype, tuple(shape), check_optional_integer(fields.get("bits"), "bits"))
    except ProtocolError as error:
        raise FrameRefused(f"frame {number}: {error}", code="bad_header", number=number) from error
    except (ValueError, TypeError) as error:
        raise FrameRefused(f"frame {number}: {error}", code="dtype_unsupported", number=number) from error
    return pixel_type, shape[0], shape[1]


def are_integers(values: Sequence[object]) -> bool:
    """False if one is 64.0 or True, which hash like integers and so would pass every cache after this check."""
    return set(map(type, values)) <= {int}


@functools.lru_cache(maxsize=256)
def _pixel_type(dtype: str, shape: tuple[int, ...], bits: int | None) -> PixelType:
    return pixel_type_of(dtype, shape, bits)


def _parse_checksum(value: object, key: str = "sum") -> int | None:
    if value is None:
        return None
    digits = value.get("xxh3") if isinstance(value, dict) else None
    if type(digits) is not str or _CHECKSUM.fullmatch(digits) is None:  # `int` takes signs and blanks too
        raise ProtocolError(f'field {key!r} must be {{"xxh3": 16 hex digits}}')
    return int(digits, 16)


def parse_frames(fields: Mapping[str, Any]) -> FrameBatch:
    """The batch in a decoded header. Raises ProtocolError, FrameRefused where not even the first frame can be read."""
    dataset_id = take_dataset_id(fields)
    first = check_integer(fields.get("n"), "n")
    count = check_integer(fields.get("count"), "count", minimum=1, maximum=MAX_BATCH_FRAMES)
    pixel_type, height, width = _parse_kind(fields, first)
    try:
        columns = _Columns(
            _axis_columns(fields.get("ax"), count),
            _sums(fields, "sums", count),
            _sums(fields, "msums", count),
            _column(fields, "meta", count),
            _column(fields, "tns", count),
        )
    except ProtocolError as error:
        raise FrameRefused(f"frames from {first} on: {error}", code="bad_header", number=first) from error
    kind = (pixel_type, height, width)
    headers: FrameRun | Sequence[FrameHeader | FrameRefused] | None = _run_at_once(first, count, kind, columns)
    if headers is None:
        headers = _headers_one_by_one(first, count, kind, columns)
        good = [header for header in headers if isinstance(header, FrameHeader)]
        headers = FrameRun.of(good) if len(good) == count else headers
    frame_bytes = height * width * pixel_type.pixel_bytes
    return FrameBatch(dataset_id, first, count, frame_bytes, headers, parse_place(fields, first))


def parse_place(fields: Mapping[str, Any], number: int) -> MemoryPlace | None:
    """Field `mem` of a frame, None where the payload comes as a message part. Raises FrameRefused."""
    value = fields.get("mem")
    if value is None:
        return None
    if isinstance(value, list | tuple) and len(value) == 2:
        try:
            return MemoryPlace(check_integer(value[0], "mem[0]", 1), check_integer(value[1], "mem[1]"))
        except FieldError as error:
            raise FrameRefused(f"frame {number}: {error}", code="bad_header", number=number) from error
    text = f"frame {number}: 'mem' must be [generation, offset], two integers, not {value!r:.60}"
    raise FrameRefused(text, code="bad_header", number=number)


class _Columns(NamedTuple):
    """An item per frame; all but axes may be missing. sums and metadata_sums may be one text with all of them."""

    axes: Mapping[str, Sequence[Any]]
    sums: Sequence[Any] | None
    metadata_sums: Sequence[Any] | None
    metadata: Sequence[Any] | None
    times: Sequence[Any] | None


def _run_at_once(first: int, count: int, kind: tuple[PixelType, int, int], columns: _Columns) -> FrameRun | None:
    """Column by column, without an object for each frame. None where that is impossible or a value is invalid."""
    axes = columns.axes
    if not are_good_columns(axes):
        return None
    checksums = _checksums_at_once(columns.sums, count)
    metadata_checksums = _checksums_at_once(columns.metadata_sums, count)
    if checksums is None or metadata_checksums is None:
        return None
    texts, absent = axes_json_rows(axes, count), [None] * count
    times: list[int | None] = list(columns.times or absent)
    if columns.metadata is None and columns.times is None:
        metadata = [b'{"Axes":' + text + b"}" for text in texts]
    else:
        try:
            rows = map(take_metadata, columns.metadata or absent, texts, times)
            metadata, times = map(list, zip(*rows, strict=True))
        except _INVALID:
            return None
    return FrameRun(first, *kind, axes, texts, metadata, checksums, times, metadata_checksums)


def take_metadata(value: object, axes_text: bytes, time_ns: object) -> tuple[bytes, int | None]:
    """Stored metadata and capture time of a frame; value: a map, or its JSON text as `encode_given` makes it.

    Raises ProtocolError, ValueError, TypeError or RecursionError.
    """
    time_ns = check_optional_integer(time_ns, "tns", -(2**63), 2**63 - 1)
    if isinstance(value, str):
        value = value.encode("ascii")
    if isinstance(value, bytes):
        if value:
            check_given(value, time_ns)
        given = value
    else:
        given, time_ns = encode_given(check_map(value, "meta"), time_ns)
    return frame_text(given, axes_text, time_ns), time_ns


def _checksums_at_once(sums: Sequence[Any] | None, count: int) -> list[int | None] | None:
    if sums is None:
        return [None] * count
    try:
        text = sums if type(sums) is str else "".join(sums)
        if type(sums) is not str and set(map(len, sums)) != {SUM_DIGITS}:
            return None
        return list(struct.unpack(f">{count}Q", bytes.fromhex(text)))
    except (ValueError, TypeError, struct.error):  # not all of them are hex digits
        return None


def _headers_one_by_one(
    first: int,
    count: int,
    kind: tuple[PixelType, int, int],
    columns: _Columns,
) -> list[FrameHeader | FrameRefused]:
    """The header of each frame, or its error."""
    headers: list[FrameHeader | FrameRefused] = []
    absent = [None] * count
    axes = zip(*columns.axes.values(), strict=True) if columns.axes else [()] * count
    sums, metadata_sums = (_single_sums(column) or absent for column in (columns.sums, columns.metadata_sums))
    for number, values, digits, metadata_digits, metadata, time_ns in zip(
        range(first, first + count),
        axes,
        sums,
        metadata_sums,
        columns.metadata or absent,
        columns.times or absent,
        strict=True,
    ):
        try:
            own = check_axes(dict(zip(columns.axes, values, strict=True)))
            axes_text = axes_json(own)
            text, time_ns = take_metadata(metadata, axes_text, time_ns)  # noqa: PLW2901 - it may stand in the metadata
            checksum, metadata_checksum = (
                _parse_checksum({"xxh3": one} if one is not None else None, key)
                for one, key in ((digits, "sums"), (metadata_digits, "msums"))
            )
            headers.append(FrameHeader(number, *kind, own, text, checksum, time_ns, axes_text, metadata_checksum))
        except _INVALID as error:
            headers.append(FrameRefused(f"frame {number}: {error}", code="bad_header", number=number))
    return headers


def _single_sums(sums: Sequence[Any] | None) -> Sequence[Any] | None:
    return [sums[at : at + SUM_DIGITS] for at in range(0, len(sums), SUM_DIGITS)] if type(sums) is str else sums


def _axis_columns(value: object, count: int) -> dict[str, Sequence[Any]]:
    """Values by axis: a list with one for every frame, or {"start", "step"} of integers."""
    if not isinstance(value, dict):
        raise ProtocolError("field 'ax' must be a map of axis name to a list of values, or to {start, step}")
    columns: dict[str, Sequence[Any]] = {}
    for name, column in value.items():
        if isinstance(column, dict):
            start = check_integer(column.get("start"), "start", minimum=-(2**31), maximum=2**31 - 1)
            step = check_integer(column.get("step"), "step", minimum=-(2**31), maximum=2**31 - 1)
            columns[name] = range(start, start + count * step, step) if step else [start] * count
        elif isinstance(column, list) and len(column) == count:
            columns[name] = column
        else:
            raise ProtocolError(f"axis {name!r:.40} needs a list of {count} values, or {{start, step}}")
    return columns


def _column(fields: Mapping[str, Any], key: str, count: int) -> Sequence[Any] | None:
    value = fields.get(key)
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != count:
        raise ProtocolError(f"field {key!r} must be null or a list with one entry for each of the {count} frames")
    return value


def _sums(fields: Mapping[str, Any], key: str, count: int) -> Sequence[Any] | None:
    """A list of checksums, or all of them in one text."""
    value = fields.get(key)
    if type(value) is not str:
        return _column(fields, key, count)
    if len(value) != SUM_DIGITS * count:
        raise ProtocolError(f"field {key!r} must be null, a list, or a text of {SUM_DIGITS} hex digits for each frame")
    return value
