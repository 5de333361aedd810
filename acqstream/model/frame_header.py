"""A frame without its pixels: enough to place it in a stack file."""

from __future__ import annotations

from typing import NamedTuple

from acqstream.model.axes import AxisValue
from acqstream.model.pixel_type import PixelType

MAX_NUMBER = 2**48 - 1
"""Upper limit of the frame numbers of an acquisition, skipped ones included."""


class FrameHeader(NamedTuple):
    """One frame of an acquisition, without its pixels. A tuple, because one is made for every frame.

    number counts 0, 1, 2 ... without holes. metadata is the frame's JSON object as ASCII bytes, `Axes` included.
    checksum is the XXH3-64 of the pixel bytes as the producer computed it, or None; metadata_checksum that of
    metadata. time_ns is the capture time in nanoseconds since 1970, or None; metadata has it too. axes_text is
    `axes_json(axes)` where it was made already, else empty.
    """

    number: int
    pixel_type: PixelType
    height: int
    width: int
    axes: dict[str, AxisValue]
    metadata: bytes
    checksum: int | None = None
    time_ns: int | None = None
    axes_text: bytes = b""
    metadata_checksum: int | None = None

    @property
    def payload_bytes(self) -> int:
        """Bytes of the pixels, C order."""
        return self.height * self.width * self.pixel_type.pixel_bytes

    @property
    def shape(self) -> tuple[int, ...]:
        """(Y, X), or (Y, X, 3) for RGB."""
        return self.pixel_type.shape(self.height, self.width)
