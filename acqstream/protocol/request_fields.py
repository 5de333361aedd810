"""Header parts of requests. Field names on the wire: docs/protocol.md, "Producer to daemon"."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgpack
import xxhash

from acqstream.errors import ConfigError
from acqstream.model.axes import AxisValue, are_good_columns, axes_json, axes_json_rows
from acqstream.model.metadata import frame_text
from acqstream.model.pixel_type import PixelType
from acqstream.protocol.encoding import MAX_HEADER_BYTES, Encoding, encode_header
from acqstream.protocol.shared_memory import MemoryPlace

MAX_METADATA_BYTES = MAX_HEADER_BYTES - 8192
"""Upper limit of a frame's encoded metadata; the rest of its header is bounded."""


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
        "ax": {name: _column(column) for name, column in axes.items()},
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


def _column(values: tuple[AxisValue, ...]) -> tuple[AxisValue, ...] | dict[str, int]:
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
