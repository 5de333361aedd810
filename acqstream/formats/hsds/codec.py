"""The bytes of a chunk: from an array and back. Pure.

A chunk is always complete, in C order, in the byte order of its type; items beyond the array are padding. With a
compression filter its bytes are a blosc-1 container, whichever codec is inside, and blosc undoes the byte shuffle; or,
with deflate alone, a bare zlib stream, and the byte shuffle of HDF5 is undone afterwards. Shuffle, fletcher32 and
bitshuffle without a compression filter change nothing: the server stores plain bytes.

Source: HDF Group, HSDS object storage schema, "Chunks", as versions 1.0.2 and 0.9.4 of the server read it; HDF5,
shuffle and deflate filters; c-blosc 1, "Header".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from acqstream.codecs import blosc, gzip
from acqstream.codecs.sizes import SPARE_BYTES, Data
from acqstream.errors import CorruptDataset, UnsupportedFeature
from acqstream.formats.hsds.dataset_layout import DEFLATE, LZ4, SHUFFLE, ZSTD, ChunkFilter
from acqstream.formats.hsds.hdf_type import DType

_COMPRESSORS = {"gzip", "deflate", "zlib", "lz4", "lz4hc", "blosclz", "blosc", "zstd"}
_COMPRESSOR_NUMBERS = {DEFLATE.number, 32001, LZ4.number, 32005, ZSTD.number}
_PLAIN_NUMBERS = {SHUFFLE.number, 3, 32008}  # fletcher32, bitshuffle
_PLAIN = {"shuffle", "fletcher32", "bitshuffle"}
_BLOSC_VERSION = 2  # the first byte of a blosc-1 header; a zlib stream begins with 0x08 to 0x78
_DEFLATE_LEVEL = 1
_BLOSC_LEVELS = {LZ4.number: ("lz4", 5), ZSTD.number: ("zstd", 1)}


@dataclass(frozen=True, slots=True)
class ChunkCodec:
    """Encodes and decodes chunks. shape: that of a complete chunk, slowest dimension first; dtype: as stored."""

    shape: tuple[int, ...]
    dtype: DType
    filters: tuple[ChunkFilter, ...] = ()

    @property
    def raw_bytes(self) -> int:
        """Bytes of a chunk without compression."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def max_bytes(self) -> int:
        """More than a stored chunk can have: no compressor doubles its data."""
        return 2 * self.raw_bytes + SPARE_BYTES if self.is_compressed else self.raw_bytes

    @property
    def is_compressed(self) -> bool:
        """True with a compression filter."""
        return any(_is_compressor(one) for one in self.filters)

    @property
    def only_shuffles(self) -> bool:
        """True with shuffle and no compression: version 1.0.2 of the server reads such chunks wrong."""
        return not self.is_compressed and any(_is_shuffle(one) for one in self.filters)

    def check_filters(self, where: str) -> None:
        """Raise UnsupportedFeature for a filter that acqstream does not undo. where names the file in errors."""
        for one in self.filters:
            is_plain = one.number in _PLAIN_NUMBERS or one.name.lower() in _PLAIN
            if not _is_compressor(one) and not is_plain:
                name = one.name or one.kind or str(one.number)
                raise UnsupportedFeature(
                    f"{where}: chunks went through the filter {name!r:.60}, which is not read here"
                )

    def encode(self, chunk: NDArray[np.generic]) -> Data:
        """The stored bytes of a chunk of `shape`; they may refer to its memory."""
        data: Data = np.ascontiguousarray(chunk, self.dtype).reshape(-1).view(np.uint8).data
        numbers = {one.number for one in self.filters}
        for number, (name, level) in _BLOSC_LEVELS.items():
            if number in numbers:
                return blosc.encode(data, self.dtype.itemsize, cname=name, clevel=level, shuffle=blosc.BYTE_SHUFFLE)
        if DEFLATE.number not in numbers:
            return data
        shuffled = _shuffle(data, self.dtype.itemsize) if SHUFFLE.number in numbers else data
        return gzip.encode(shuffled, _DEFLATE_LEVEL, zlib=True)

    def decode(self, data: Data, where: str, offset: int | None = None) -> NDArray[np.generic]:
        """A new array of `shape` in the byte order of this machine. where names the file in errors, offset the first
        byte of the chunk in it.

        Raises CorruptDataset, UnsupportedFeature. Takes no more memory than a chunk, whatever the data claim.
        """
        self.check_filters(where)
        try:
            content = self._decompressed(data)
        except CorruptDataset as error:
            raise CorruptDataset(str(error), path=where, offset=offset) from error
        if len(content) != self.raw_bytes:
            text = f"a chunk of {len(content)} bytes, expected {self.raw_bytes} for {self.shape} of {self.dtype}"
            raise CorruptDataset(text, path=where, offset=offset)
        # Into new memory: the caller may write to the array, and `content` may be a part of a file.
        items = np.frombuffer(content, self.dtype)
        return np.array(items.reshape(self.shape), self.dtype.newbyteorder("="), order="C")

    def _decompressed(self, data: Data) -> Data | bytearray:
        if not self.is_compressed:
            return data  # also with shuffle alone: the server stores such chunks plain
        # The length that each decoder must give is known, so a hostile header cannot ask for more memory.
        if len(data) and data[0] == _BLOSC_VERSION:
            return blosc.decode(data, self.raw_bytes)
        if not any(_is_deflate(one) for one in self.filters):
            raise CorruptDataset(f"a chunk begins with {bytes(data[:2]).hex()!r}, expected a blosc-1 header (02)")
        content = gzip.decode(data, self.raw_bytes)
        return _unshuffle(content, self.dtype.itemsize) if any(map(_is_shuffle, self.filters)) else content


def _is_compressor(one: ChunkFilter) -> bool:
    return one.number in _COMPRESSOR_NUMBERS or one.name.lower() in _COMPRESSORS


def _is_shuffle(one: ChunkFilter) -> bool:
    return one.number == SHUFFLE.number or one.name.lower() == SHUFFLE.name


def _is_deflate(one: ChunkFilter) -> bool:
    return one.number == DEFLATE.number or one.name.lower() in ("gzip", "deflate", "zlib")


def _shuffle(data: Data, item_bytes: int) -> memoryview:
    """First bytes of all items, then second bytes, and so on."""
    columns = np.frombuffer(data, np.uint8).reshape(-1, item_bytes)
    return np.ascontiguousarray(columns.T).reshape(-1).data


def _unshuffle(data: Data, item_bytes: int) -> memoryview:
    rows = np.frombuffer(data, np.uint8).reshape(item_bytes, -1)
    return np.ascontiguousarray(rows.T).reshape(-1).data
