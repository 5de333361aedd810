"""Header parts of requests. Field names on the wire: docs/protocol.md, "Producer to daemon"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgpack

from acqstream.errors import ConfigError, FrameRefused
from acqstream.model.axes import AxisValue
from acqstream.model.pixel_type import PixelType
from acqstream.protocol.encoding import MAX_HEADER_BYTES, Encoding, encode_header
from acqstream.protocol.shared_memory import MemoryPlace

_HEADER_RESERVE_BYTES = 8192  # for everything in a frame's header but its metadata: axes are bounded


class FrameFields(NamedTuple):
    """What a header says of one frame, apart from its number. checksum is the XXH3-64 of its pixels."""

    pixel_type: PixelType
    shape: tuple[int, ...]
    axes: Mapping[str, AxisValue]
    metadata: Mapping[str, Any] | None
    time_ns: int | None
    checksum: int

    def is_like(self, other: FrameFields) -> bool:
        """True if both may stand in one `frames` message."""
        same_kind = self.pixel_type is other.pixel_type and self.shape == other.shape
        return same_kind and self.axes.keys() == other.axes.keys()


def metadata_bytes(number: int, metadata: Mapping[str, Any]) -> int:
    """What a frame's metadata takes in a header. Raises FrameRefused if it cannot be sent."""
    try:
        size = len(msgpack.packb(metadata, use_bin_type=True))
    except (ValueError, TypeError, OverflowError) as error:
        raise FrameRefused(f"frame {number}: {error}", code="bad_header", number=number) from error
    if size > MAX_HEADER_BYTES - _HEADER_RESERVE_BYTES:
        most = MAX_HEADER_BYTES - _HEADER_RESERVE_BYTES
        text = f"frame {number}: its metadata takes {size} bytes; at most {most} are allowed"
        raise FrameRefused(text, code="bad_header", number=number)
    return size


class FrameEncoder:
    """Makes the header parts of one acquisition's frames. Not for several threads at a time."""

    def __init__(self, dataset_id: str) -> None:
        self._dataset_id = dataset_id
        self._packer = msgpack.Packer(use_bin_type=True)

    def frame(self, number: int, frame: FrameFields, place: MemoryPlace | None = None) -> bytes:
        """The header of one frame. place: of its pixels in shared memory, if they are there."""
        fields = self._kind("frame", number, frame, place)
        fields["ax"] = frame.axes
        if frame.time_ns is not None:
            fields["tns"] = frame.time_ns
        if frame.metadata:
            fields["meta"] = frame.metadata
        fields["sum"] = {"xxh3": f"{frame.checksum:016x}"}
        header: bytes = self._packer.pack(fields)
        return header

    def frames(self, number: int, frames: Sequence[FrameFields], place: MemoryPlace | None = None) -> bytes:
        """The header of several frames that are like the first one, from `number` on; place as in `frame`."""
        first = frames[0]
        fields = self._kind("frames", number, first, place)
        fields["count"] = len(frames)
        fields["ax"] = {name: [frame.axes[name] for frame in frames] for name in first.axes}
        fields["sums"] = [f"{frame.checksum:016x}" for frame in frames]
        if any(frame.time_ns is not None for frame in frames):
            fields["tns"] = [frame.time_ns for frame in frames]
        if any(frame.metadata for frame in frames):
            fields["meta"] = [frame.metadata for frame in frames]
        header: bytes = self._packer.pack(fields)
        return header

    def _kind(self, kind: str, number: int, frame: FrameFields, place: MemoryPlace | None) -> dict[str, Any]:
        pixel_type = frame.pixel_type
        fields: dict[str, Any] = {
            "t": kind,
            "ds": self._dataset_id,
            "n": number,
            "dt": pixel_type.dtype,
            "sh": frame.shape,
        }
        if pixel_type.bits != 8 * pixel_type.sample_bytes:
            fields["bits"] = pixel_type.bits
        if place is not None:
            fields["mem"] = place
        return fields


def encode_request(kind: str, **fields: Any) -> bytes:
    """The header of any other request. Raises ConfigError if it is too large or holds what no message can."""
    try:
        header = encode_header({"t": kind, **fields}, Encoding.MSGPACK)
    except (ValueError, TypeError, OverflowError) as error:
        raise ConfigError(f"{kind!r} cannot be sent: {error}") from error
    if len(header) > MAX_HEADER_BYTES:
        raise ConfigError(f"{kind!r} takes {len(header)} bytes; at most {MAX_HEADER_BYTES} fit into a message")
    return header
