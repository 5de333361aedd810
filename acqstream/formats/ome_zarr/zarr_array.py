"""One array of a Zarr hierarchy, as its document describes it. Pure. `zarr_json` reads and writes that of Zarr v3."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from acqstream.formats.ome_zarr.codec import ChunkCodecs, IndexCodec

Position = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class KeyEncoding:
    """The names of chunk objects: `c/0/1`, `c.0.1`, or `0.1` without the prefix."""

    has_prefix: bool = True
    separator: Literal["/", "."] = "/"

    @property
    def folder(self) -> str:
        """The folder of all chunk objects of an array with axes, with "/" at its end; "" for the array's own."""
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
        if len(parts) != ndim or not all(_is_number(part) for part in parts):
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


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and (text == "0" or text[0] != "0") and len(text) < 20
