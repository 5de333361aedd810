"""The contrast that the first frames of each channel show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.channel_looks import CHANNEL, ChannelLook, Limits, channel_looks, contrast_of
from acqstream.errors import DatasetError
from acqstream.formats.ndtiff.reader import NDTiffReader
from acqstream.model.axes import AxisValue

_MAX_FRAMES = 32  # of a channel
_MAX_CHANNELS = 64
_MAX_ROWS = 4096  # in which they are looked for
_STRIPS, _STRIP_BYTES = 8, 2**16  # read of a frame
_MAX_SAMPLES = 4096  # of a strip
_MAX_BYTES = 2**24  # of one strip, or of a compressed frame


class FrameLooks:
    """Looks of the channels of a growing dataset; its contrast settles with the first frames."""

    def __init__(self, reader: NDTiffReader) -> None:
        self._reader = reader
        self._contrast: tuple[tuple[object, ...], dict[AxisValue | None, Limits]] = ((), {})

    def find(self, channels: Sequence[AxisValue | None]) -> dict[AxisValue | None, ChannelLook]:
        """Looks by channel, of None without any; may read frames. Raises StorageError."""
        reader, count = self._reader, min(len(self._reader), _MAX_ROWS)
        key = (tuple(channels), count if count <= 2 * _MAX_FRAMES else -count.bit_length())
        if key != self._contrast[0]:
            self._contrast = key, shown_contrast(reader)
        looks = channel_looks(channels, reader.summary_metadata, reader.display_settings, self._contrast[1])
        return dict(zip(channels or [None], looks, strict=True))


def shown_contrast(reader: NDTiffReader) -> dict[AxisValue | None, Limits]:
    """Contrast limits by channel, None for frames without one: 0.1 % and 99.9 % of samples of its first frames.

    A function of the published frames alone. Damaged frames show nothing; RGB has no contrast. Raises StorageError.
    """
    if not len(reader) or len(reader.frame_shape(0)) > 2:
        return {}
    rows: dict[AxisValue | None, list[int]] = {}
    for row in range(min(len(reader), _MAX_ROWS)):
        channel = reader.key(row).get(CHANNEL)
        if channel in rows or len(rows) < _MAX_CHANNELS:
            own = rows.setdefault(channel, [])
            if len(own) < _MAX_FRAMES:
                own.append(row)
    samples = {channel: [_samples(reader, row) for row in own] for channel, own in rows.items()}
    found = {channel: [part for part in parts if part.size] for channel, parts in samples.items()}
    return {channel: contrast_of(np.concatenate(parts)) for channel, parts in found.items() if parts}


def _samples(reader: NDTiffReader, row: int) -> NDArray[Any]:
    """Pixels of strips of a frame from its top to its bottom; none of a frame of which too much would be read."""
    frame = reader.stored_frame(row)[1]
    row_bytes = frame.width * frame.pixel_type.pixel_bytes
    lines = max(1, min(frame.height, _STRIP_BYTES // max(1, row_bytes)))
    if (lines * row_bytes if frame.is_plain else frame.payload_bytes) > _MAX_BYTES:  # an entry may claim any size
        return np.zeros(0, np.uint16)
    tops = sorted({(frame.height - lines) * at // (_STRIPS - 1) for at in range(_STRIPS)})
    try:
        if frame.is_plain:
            strips = [reader.read_rows(row, first, first + lines) for first in tops]
        else:  # decoded whole
            pixels = reader.read_pixels(row)
            strips = [pixels[first : first + lines] for first in tops]
    except DatasetError:  # reading the frame itself says what is wrong with it
        return np.zeros(0, np.uint16)
    return np.concatenate([strip.reshape(-1)[:: -(-strip.size // _MAX_SAMPLES)] for strip in strips])
