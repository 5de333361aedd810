"""One array of a Zarr hierarchy: the codecs of a chunk, the index of a shard, and where each chunk lies. Pure.

`zarr_json` reads and writes its document.

The index has offset and length of every chunk: an array of uint64 pairs in C order of the shard's grid of chunks, at
the end of the object or at its start; both numbers are 2^64 - 1 for a chunk that is missing. Source: Zarr v3 core,
"Codecs", with the codecs `bytes`, `transpose`, `sharding_indexed` and those of `compression`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_spec import Position
from acqstream.codecs import crc32c
from acqstream.codecs.sizes import SPARE_BYTES, Data
from acqstream.errors import CorruptDataset
from acqstream.formats.array_members import is_plain_number
from acqstream.formats.compression import Compressor

MISSING = 2**64 - 1

Extents = NDArray[np.uint64]
"""Shape (chunks, 2): offset from the start of the object and length of each chunk, in bytes."""


@dataclass(frozen=True, slots=True)
class IndexCodec:
    """The bytes of an index of `count` chunks. is_at_end: else at the start; has_checksum: a CRC-32C follows."""

    count: int
    is_at_end: bool = True
    has_checksum: bool = True
    byte_order: str = "<"

    @property
    def length(self) -> int:
        """Bytes of the index."""
        return 16 * self.count + (crc32c.LENGTH if self.has_checksum else 0)

    def encode(self, extents: Extents) -> bytes:
        """The index."""
        content = extents.astype(f"{self.byte_order}u8").tobytes()
        return crc32c.encode(content) if self.has_checksum else content

    def decode(self, content: bytes, object_bytes: int, where: str) -> Extents:
        """The extents in an index of an object of so many bytes, checked. Raises CorruptDataset that names `where`."""
        if len(content) != self.length:
            text = f"has {object_bytes} bytes, the index of {self.count} chunks alone has {self.length}"
            raise CorruptDataset(text, path=where)
        # In errors: the place of the index in the object.
        offset = object_bytes - self.length if self.is_at_end else 0
        try:
            data = crc32c.decode(content, 16 * self.count) if self.has_checksum else content
        except CorruptDataset as error:
            raise CorruptDataset(f"index of the shard: {error}", path=where, offset=offset) from error
        extents = np.frombuffer(data, f"{self.byte_order}u8").reshape(-1, 2).astype(np.uint64)
        is_missing = extents == MISSING
        # Compared with what remains after the offset: a sum could wrap around.
        beyond = (extents[:, 0] > object_bytes) | (
            extents[:, 1] > object_bytes - np.minimum(extents[:, 0], np.uint64(object_bytes))
        )
        wrong = np.flatnonzero(~is_missing.all(axis=1) & (is_missing.any(axis=1) | beyond))
        if len(wrong):
            start, length = extents[wrong[0]].tolist()
            text = f"chunk {wrong[0]} of the shard is at byte {start} with {length} bytes"
            raise CorruptDataset(f"{text}, the object has {object_bytes}", path=where, offset=offset)
        return extents

    def consecutive(self, chunk_bytes: int) -> bytes:
        """The index of a shard in which all chunks have this length and lie one after the other from byte 0 on."""
        # Known before the first chunk is stored, so such a shard is readable from its birth on.
        return _consecutive(self, chunk_bytes)


@lru_cache(maxsize=16)  # of the levels of a few mirrors, asked for with every chunk; each is 256 KiB at most
def _consecutive(index: IndexCodec, chunk_bytes: int) -> bytes:
    lengths = np.full(index.count, chunk_bytes, np.uint64)
    return index.encode(np.stack([np.arange(index.count, dtype=np.uint64) * np.uint64(chunk_bytes), lengths], axis=1))


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
        return 2 * self.raw_bytes + SPARE_BYTES if self.compressors else self.raw_bytes

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


@dataclass(frozen=True, slots=True)
class KeyEncoding:
    """The names of chunk objects: `c/0/1`, `c.0.1`, or `0.1` without the prefix."""

    has_prefix: bool = True
    separator: Literal["/", "."] = "/"

    @property
    def folder(self) -> str:
        """The folder of all chunk objects of an array with axes, with "/" at its end; "" for the array's own."""
        # Keys with dots lie among the documents and folders of the array itself.
        return "c/" if self.has_prefix and self.separator == "/" else ""

    def key(self, position: Sequence[int]) -> str:
        """The key of a grid position, below the array."""
        prefix = ["c"] if self.has_prefix else []
        return self.separator.join([*prefix, *map(str, position)]) or "0"

    def parse(self, key: str, ndim: int) -> Position | None:
        """The inverse of `key`; None if the key is not that of a chunk."""
        parts = key.split(self.separator)
        if self.has_prefix:
            if parts[0] != "c":
                return None
            del parts[0]
        elif not ndim:
            return () if key == "0" else None
        if len(parts) != ndim or not all(map(is_plain_number, parts)):
            return None
        return tuple(map(int, parts))


@dataclass(frozen=True, slots=True, kw_only=True)
class ZarrArray:
    """shape and shard_shape are in the order of the array's axes, slowest first.

    codecs are those of a chunk, the unit that is decoded. shard_shape is the part that one object holds if it has
    several chunks, and index its index; (): an object is one chunk. fill is the value of items that are not stored.
    dimension_names are "" where the document has none.
    """

    shape: tuple[int, ...]
    codecs: ChunkCodecs
    shard_shape: tuple[int, ...] = ()
    index: IndexCodec | None = None
    keys: KeyEncoding = KeyEncoding()
    fill: Any = 0
    dimension_names: tuple[str, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def chunk_shape(self) -> tuple[int, ...]:
        return self.codecs.shape

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """In the byte order of this machine."""
        return self.codecs.dtype.newbyteorder("=")

    @property
    def grid_shape(self) -> tuple[int, ...]:
        """Number of chunks along each axis."""
        return tuple(-(-size // step) for size, step in zip(self.shape, self.chunk_shape, strict=True))

    @property
    def shard_counts(self) -> tuple[int, ...]:
        """Number of chunks in a shard along each axis; 1 each without shards."""
        if not self.shard_shape:
            return (1,) * len(self.shape)
        return tuple(size // step for size, step in zip(self.shard_shape, self.chunk_shape, strict=True))

    def place(self, position: Sequence[int]) -> tuple[Position, int]:
        """The object of a chunk, and the chunk's number in it."""
        counts = self.shard_counts
        # Counted in C order, as the entries of a shard's index are.
        number = 0
        for at, count in zip(position, counts, strict=True):
            number = number * count + at % count
        return tuple(at // count for at, count in zip(position, counts, strict=True)), number

    def chunks_of(self, shard: Sequence[int]) -> Iterator[Position]:
        """The positions of all chunks of an object, in the order of its index, also those beyond the array."""
        counts = self.shard_counts
        for number in range(math.prod(counts)):
            local = np.unravel_index(number, counts) if counts else ()
            yield tuple(at * count + int(more) for at, count, more in zip(shard, counts, local, strict=True))
