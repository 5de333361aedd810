"""The contrast that the first frames of each channel show."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.channel_looks import CHANNEL, Limits, contrast_of
from acqstream.errors import DatasetError
from acqstream.formats.ndtiff.reader import NDTiffReader
from acqstream.model.axes import AxisValue

_MAX_FRAMES = 32  # of a channel
_MAX_CHANNELS = 64
_MAX_ROWS = 4096  # in which they are looked for
_STRIPS, _STRIP_BYTES = 8, 2**16  # read of a frame
_MAX_SAMPLES = 4096  # of a strip
_MAX_PIXELS = 2**24


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
    """Pixels of strips of a frame from its top to its bottom."""
    height, width, *_ = reader.frame_shape(row)
    is_plain = reader.stored_frame(row)[1].is_plain
    if (width if is_plain else height * width) > _MAX_PIXELS:  # of one read: an index may promise any size
        return np.zeros(0, np.uint16)
    lines = max(1, min(height, _STRIP_BYTES // max(1, width * 2)))
    parts = []
    try:
        for first in sorted({(height - lines) * at // (_STRIPS - 1) for at in range(_STRIPS)}):
            strip = reader.read_rows(row, first, first + lines).reshape(-1)
            parts.append(strip[:: -(-strip.size // _MAX_SAMPLES)])
    except DatasetError:  # reading the frame itself says what is wrong with it
        return np.zeros(0, np.uint16)
    return np.concatenate(parts)
