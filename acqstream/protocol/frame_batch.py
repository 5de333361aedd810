"""`frames`: many equally shaped frames in one message. Field names on the wire: docs/protocol.md, "frames"."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from acqstream.errors import FrameRefused, ProtocolError
from acqstream.model.axes import are_good_columns, axes_json, axes_json_rows, check_axes
from acqstream.model.fields import check_integer, check_map, check_optional_integer
from acqstream.model.frame_header import FrameHeader
from acqstream.model.frame_run import FrameRun
from acqstream.model.metadata import check_given, encode_given, frame_text
from acqstream.model.pixel_type import PixelType
from acqstream.protocol.shared_memory import MemoryPlace, parse_place
from acqstream.protocol.texts import take_dataset_id

MAX_BATCH_FRAMES = 4096
SUM_DIGITS = 16  # of a checksum, hexadecimal
_INVALID = (ProtocolError, ValueError, TypeError, RecursionError)


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


def parse_frames(
    fields: Mapping[str, Any],
    *,
    kind_of: Callable[[Mapping[str, Any], int], tuple[PixelType, int, int]],
    checksum_of: Callable[[object, str], int | None],
) -> FrameBatch:
    """The batch in a decoded header. kind_of and checksum_of read the fields that `frame` has too.

    Raises ProtocolError or FrameRefused where not even the first frame can be read.
    """
    dataset_id = take_dataset_id(fields)
    first = check_integer(fields.get("n"), "n")
    count = check_integer(fields.get("count"), "count", minimum=1, maximum=MAX_BATCH_FRAMES)
    pixel_type, height, width = kind_of(fields, first)
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
        headers = _headers_one_by_one(first, count, kind, columns, checksum_of)
        good = [header for header in headers if isinstance(header, FrameHeader)]
        headers = FrameRun.of(good) if len(good) == count else headers
    frame_bytes = height * width * pixel_type.pixel_bytes
    return FrameBatch(dataset_id, first, count, frame_bytes, headers, parse_place(fields, first))


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
    checksum_of: Callable[[object, str], int | None],
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
                checksum_of({"xxh3": one} if one is not None else None, key)
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
