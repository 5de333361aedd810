"""The codecs of a chunk: from an array to bytes and back. Pure.

Source: Zarr v3 core, "Codecs", with the codecs `bytes`, `transpose` and those of `compression`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from acqstream.codecs.sizes import Data
from acqstream.errors import CorruptDataset
from acqstream.formats.compression import Compressor

_SPARE_BYTES = 65536  # what a compressed chunk of few bytes may have besides


@dataclass(frozen=True, slots=True)
class ChunkCodecs:
    """Encodes and decodes chunks of one shape.

    shape is that of a chunk in the order of the array's axes. dtype has the byte order of the stored items. order:
    stored axis i is the array's axis order[i]; (): as in the array. compressors come in the order of encoding; all
    but one change the length by a fixed number of bytes.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    compressors: tuple[Compressor, ...] = ()
    order: tuple[int, ...] = ()

    @property
    def raw_bytes(self) -> int:
        """Bytes of a chunk before its compressors."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def max_bytes(self) -> int:
        """More than a stored chunk can have: no compressor doubles its data."""
        return 2 * self.raw_bytes + _SPARE_BYTES if self.compressors else self.raw_bytes

    @property
    def is_raw(self) -> bool:
        """True if the stored bytes are the items in the order of the array."""
        return not self.compressors and not self.order

    def encode(self, chunk: NDArray[np.generic]) -> Data:
        """The stored bytes of a chunk; they may refer to its memory. chunk: contiguous, of `shape`; no `order`."""
        data: Data = np.ascontiguousarray(chunk, self.dtype).reshape(-1).view(np.uint8).data
        for compressor in self.compressors:
            data = compressor.encode(data, self.dtype.itemsize)
        return data

    def decode(self, data: Data, where: str, offset: int | None = None) -> NDArray[np.generic]:
        """A new array of `shape` in the byte order of this machine. where names the object in errors, offset the
        first byte of the chunk in it.

        Raises CorruptDataset. Takes no more memory than a chunk, whatever the data claim.
        """
        content: Data | bytearray = data
        # Each decoder gets the length that it must give, so a hostile frame cannot ask for more memory.
        try:
            for at, compressor in reversed(list(enumerate(self.compressors))):
                growth = compressor.fixed_growth
                if growth is None:
                    size = self.raw_bytes + sum(one.fixed_growth or 0 for one in self.compressors[:at])
                else:
                    size = max(0, len(content) - growth)
                content = compressor.decode(memoryview(content), size)
        except CorruptDataset as error:
            raise CorruptDataset(str(error), path=where, offset=offset) from error
        if len(content) != self.raw_bytes:
            text = f"a chunk of {len(content)} bytes, expected {self.raw_bytes} for {self.shape} of {self.dtype}"
            raise CorruptDataset(text, path=where, offset=offset)
        # Into new memory: the caller may write to the array, and `content` may be a part of an object.
        items = np.frombuffer(content, self.dtype)
        if self.order:
            stored_shape = [self.shape[axis] for axis in self.order]
            items = items.reshape(stored_shape).transpose(np.argsort(self.order))
        return np.array(items.reshape(self.shape), self.dtype.newbyteorder("="), order="C")


def known_sizes(compressors: Sequence[Compressor]) -> bool:
    """Return True if the length before each of these compressors is known when it decodes."""
    return sum(compressor.fixed_growth is None for compressor in compressors) <= 1
