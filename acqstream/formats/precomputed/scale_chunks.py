"""The stored chunks of one scale: a file each, or in shards. Everything here has the order x, y, z."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from acqstream.errors import CorruptDataset, UnsupportedFeature
from acqstream.formats.precomputed.chunk_files import chunk_name, parse_chunk_name
from acqstream.formats.precomputed.info import Scale, Three
from acqstream.formats.precomputed.minishards import MinishardReader, unpacked
from acqstream.formats.precomputed.sharding import MinishardIndex, Sharding, cell_of, chunk_id
from acqstream.storage.stores.store import Store

_GZIP, _BROTLI = ".gz", ".br"
_AT_ONCE = 65536  # ids of a minishard index
_SPARE_BYTES = 65536  # what gzip may add

Damage = Callable[[CorruptDataset], None]


class Content(NamedTuple):
    """The bytes of a chunk, not decoded, and where they are, for messages."""

    data: bytes
    where: str


class ScaleChunks(Protocol):
    """Reads and lists the chunks of a scale; from any thread."""

    def content(self, cell: Three, max_bytes: int) -> Content | None:
        """At most max_bytes; None if the chunk is not stored. Raises CorruptDataset, UnsupportedFeature."""

    def cells(self, on_damage: Damage) -> Iterator[Three]:
        """All stored cells inside the grid; on_damage gets what is wrong with an index and may raise it."""

    def strangers(self) -> Iterator[str]:
        """Files of the folder that belong to no chunk, for messages."""


@dataclass(frozen=True, slots=True)
class ChunkFiles:
    """A scale without shards; folder is its key in the store, "" or with "/" at the end."""

    store: Store
    folder: str
    scale: Scale

    def content(self, cell: Three, max_bytes: int) -> Content | None:
        """See ScaleChunks. A file with `.gz` after its name stands for one without."""
        key = self.folder + self._name(cell)
        data = self._read(key, max_bytes)
        if data is not None:
            return Content(data, f"{self.store.url}/{key}")
        packed = self._read(key + _GZIP, max_bytes + _SPARE_BYTES)
        if packed is not None:
            where = f"{self.store.url}/{key}{_GZIP}"
            return Content(unpacked(packed, max_bytes, where, 0), where)
        if self.store.size(key + _BROTLI) is not None:
            raise UnsupportedFeature(f"{self.store.url}/{key}{_BROTLI}: brotli is not read; gzip and plain files are")
        return None

    def cells(self, on_damage: Damage) -> Iterator[Three]:
        """See ScaleChunks."""
        del on_damage
        yield from {
            cell
            for name in self.store.children(self.folder.removesuffix("/"))
            if (cell := self._cell(name)) is not None
        }

    def strangers(self) -> Iterator[str]:
        """See ScaleChunks."""
        for name in self.store.children(self.folder.removesuffix("/")):
            if not name.endswith("/") and self._cell(name) is None:
                yield f"{self.store.url}/{self.folder}{name}"

    def _name(self, cell: Three) -> str:
        scale = self.scale
        # Ends are cut at the size of the scale, before the offset is added.
        starts = [at * step for at, step in zip(cell, scale.chunk, strict=True)]
        ends = [min(start + step, size) for start, step, size in zip(starts, scale.chunk, scale.size, strict=True)]
        moved = [
            [place + offset for place, offset in zip(places, scale.offset, strict=True)] for places in (starts, ends)
        ]
        return chunk_name(*moved)

    def _cell(self, name: str) -> Three | None:
        plain = name.removesuffix(_GZIP).removesuffix(_BROTLI)
        found = parse_chunk_name(plain)
        if found is None:
            return None
        scale = self.scale
        x, y, z = (
            (start - offset) // step for start, offset, step in zip(found[0], scale.offset, scale.chunk, strict=True)
        )
        is_inside = all(0 <= at < size for at, size in zip((x, y, z), scale.grid, strict=True))
        return (x, y, z) if is_inside and self._name((x, y, z)) == plain else None

    def _read(self, key: str, max_bytes: int) -> bytes | None:
        data = self.store.get(key, 0, max_bytes + 1)
        if data is not None and len(data) > max_bytes:
            text = f"has more than {max_bytes} bytes, which no chunk takes"
            raise CorruptDataset(text, path=f"{self.store.url}/{key}", offset=max_bytes)
        return data


@dataclass(frozen=True, slots=True)
class ShardFiles:
    """A scale in shards. Three reads for a chunk: its entry of the shard index, its minishard index, and itself."""

    store: Store
    folder: str
    scale: Scale
    sharding: Sharding

    def content(self, cell: Three, max_bytes: int) -> Content | None:
        """See ScaleChunks."""
        # Three reads, none of them cached: a shard that grows is seen.
        chunk = chunk_id(cell, self.scale.grid)
        shard, minishard = self.sharding.place(chunk)
        key = self.folder + self.sharding.shard_name(shard)
        where = f"{self.store.url}/{key}"
        index = self._minishards.find(key, minishard)
        found = None if index is None else index.find(chunk, where)
        return None if found is None else Content(self._payload(key, *found, max_bytes), where)

    def cells(self, on_damage: Damage) -> Iterator[Three]:
        """See ScaleChunks."""
        for name in self.store.children(self.folder.removesuffix("/")):
            shard = self.sharding.parse_shard_name(name)
            if shard is None:
                continue
            try:
                for minishard, index in self._minishards.all(self.folder + name):
                    yield from self._cells_in(index, (shard, minishard), f"{self.store.url}/{self.folder}{name}")
            except CorruptDataset as error:
                on_damage(error)

    def strangers(self) -> Iterator[str]:
        """See ScaleChunks."""
        for name in self.store.children(self.folder.removesuffix("/")):
            if not name.endswith("/") and self.sharding.parse_shard_name(name) is None:
                yield f"{self.store.url}/{self.folder}{name}"

    def _cells_in(self, index: MinishardIndex, place: tuple[int, int], where: str) -> Iterator[Three]:
        if len(np.unique(index.ids)) < len(index.ids):  # each would be read, and refused by `find`
            raise CorruptDataset(f"lists a chunk of minishard {place[1]} twice", path=where)
        ids = (chunk for start in range(0, len(index.ids), _AT_ONCE) for chunk in index.ids[start:][:_AT_ONCE].tolist())
        for chunk in ids:
            cell = cell_of(chunk, self.scale.grid)
            # Such a chunk would never be found by its id.
            if cell is None or self.sharding.place(chunk) != place:
                raise CorruptDataset(f"lists chunk {chunk}, which does not belong to minishard {place[1]}", path=where)
            x, y, z = cell
            yield x, y, z

    def _payload(self, key: str, start: int, size: int, max_bytes: int) -> bytes:
        where, offset = f"{self.store.url}/{key}", self.sharding.index_bytes + start
        # The size in the index is bounded by what a chunk of this shape can take.
        is_packed = self.sharding.data_encoding == "gzip"
        if size > max_bytes + (_SPARE_BYTES if is_packed else 0):
            raise CorruptDataset(f"a chunk of {size} bytes, expected at most {max_bytes}", path=where, offset=offset)
        data = self._minishards.payload(key, start, size)
        return unpacked(data, max_bytes, where, offset) if is_packed else data

    @property
    def _minishards(self) -> MinishardReader:
        return MinishardReader(self.store, self.sharding)
