"""Finds the volume, or the container of ours, that a path means; reads and checks it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_spec import ArraySpec, Position
from acqstream.codecs.sizes import SPARE_BYTES
from acqstream.errors import CorruptDataset, DatasetError, UnknownFormat, UnsupportedFeature
from acqstream.formats.array_members import stacked
from acqstream.formats.check_report import CheckReport
from acqstream.formats.chunk_format import ChunkCounts
from acqstream.formats.chunk_reader import (
    ChunkReader,
    Damage,
    StoredLevel,
    open_layout,
    open_readers,
    read_document,
    read_mark,
    read_object,
    requested_store,
    require_document,
)
from acqstream.formats.container_check import check_layout, check_levels, open_checked
from acqstream.formats.precomputed.codec import decode_chunk, max_chunk_bytes
from acqstream.formats.precomputed.layout import PrecomputedLayout, chunk_name, parse_chunk_name
from acqstream.formats.precomputed.metadata import (
    COMPONENT,
    INFO_NAME,
    MAX_INFO_BYTES,
    NOTE_NAME,
    Scale,
    VolumeInfo,
    is_info,
    is_note,
    parse_info,
)
from acqstream.formats.precomputed.shard_layout import noted_layout
from acqstream.formats.precomputed.sharding import (
    MinishardIndex,
    MinishardReader,
    Sharding,
    Three,
    cell_of,
    chunk_id,
    id_bits,
    unpacked,
)
from acqstream.storage.files.boundary import leads_out, requested_links
from acqstream.storage.stores.data_path import DataPath
from acqstream.storage.stores.store import Store

_MAX_DEPTH = 20  # of a member in its container, folders
_NM_PER_UM = 1000.0
_GZIP, _BROTLI = ".gz", ".br"
_AT_ONCE = 65536  # ids of a minishard index


def detect(path: DataPath) -> bool:
    """Return True if `path` is a container of ours, a volume, or the file that describes one."""
    if path.name not in (INFO_NAME, NOTE_NAME) and not path.is_folder():
        return False
    folder = path.folder()
    return is_container(folder) or is_info(read_mark(folder, INFO_NAME))


def folder_of(path: DataPath) -> DataPath:
    """The container that `path` means: of a member of ours the container, else the volume."""
    folder = path.folder()
    return next((place for place in folder.upwards(_MAX_DEPTH) if is_container(place)), folder)


def open_array(path: DataPath) -> Sequence[ChunkReader]:
    """Readers of all levels, the full resolution first. Raises UnknownFormat, DatasetError, StorageError."""
    folder = path.folder()
    if is_container(folder):
        return open_layout(folder, read_layout)
    if not is_info(read_mark(folder, INFO_NAME)):
        raise UnknownFormat(f"{path}: no precomputed volume here")
    return open_volume(folder)


def is_container(folder: DataPath) -> bool:
    """Return True for the top folder of a container of ours."""
    return is_note(read_mark(folder, NOTE_NAME))


def read_layout(store: Store) -> tuple[PrecomputedLayout, bool]:
    """The layout of a container of ours, and whether it is complete. Raises DatasetError, CorruptDataset."""
    return noted_layout(require_document(store, NOTE_NAME), f"{store.url}/{NOTE_NAME}")


def open_volume(folder: DataPath) -> Sequence[ChunkReader]:
    """Readers of all scales of a volume, the finest first. Raises DatasetError, StorageError."""
    return open_readers(folder, _find_scales)


def _find_scales(folder: DataPath) -> Sequence[Callable[[], StoredLevel]]:
    store = requested_store(folder)
    info = read_info(store)
    return [partial(VolumeLevel, folder, store, info, level) for level in range(len(info.scales))]


def check(container: DataPath, report: CheckReport) -> ChunkCounts:
    """Check a container of ours, or a volume of any writer; what is wrong goes to `report`. Raises StorageError."""
    if not is_container(container):
        return check_volume(container, report)
    texts = "is missing", f"does not describe the array of {NOTE_NAME}"
    return check_layout(
        container, read_layout, report, lambda one: map(one.member_documents, one.plan.members()), texts
    )


def check_volume(volume: DataPath, report: CheckReport) -> ChunkCounts:
    """Check all scales of a volume of any writer; what is wrong goes to `report`. Raises StorageError."""
    readers = open_checked(open_volume, volume, report, DatasetError)
    for reader in readers:
        assert isinstance(reader.level, VolumeLevel)  # as `open_volume` makes them
        for place in reader.level.chunks.strangers():
            report.add_note(f"{place} belongs to no chunk")
    return check_levels(readers, report, None)


class VolumeLevel:
    """A StoredLevel of one scale: axes (z, y, x), or (c, z, y, x) with more than one channel, in um."""

    complete = True

    def __init__(self, folder: DataPath, store: Store, info: VolumeInfo, level: int) -> None:
        self.chunks = _open_chunks(folder, store, info.scales[level])
        self.spec = scale_spec(info, level)
        self._info = info
        self._scale = info.scales[level]

    def read(self, position: Position) -> NDArray[np.generic] | None:
        """See StoredLevel."""
        # Files have x first, arrays the slowest axis.
        z, y, x = position[-3:]
        info, scale = self._info, self._scale
        shape = tuple(part.stop - part.start for part in self.spec.region(position))
        stored = (info.channels, *shape[-3:])
        bx, by, bz = scale.block
        kind = (scale.encoding, (bz, by, bx))
        content = self.chunks.content((x, y, z), max_chunk_bytes(stored, info.dtype, kind))
        if content is None:
            return None
        return decode_chunk(content.data, stored, info.dtype, kind, content.where).reshape(shape)

    def positions(self, on_damage: Damage) -> Iterator[Position]:
        """See StoredLevel."""
        for cell in self.chunks.cells(on_damage):
            yield (*(0 for _ in self.spec.axes[:-3]), *reversed(cell))

    def place(self, position: Position) -> str:
        """See StoredLevel: the folder of the scale."""
        del position
        return f"{self.chunks.store.url}/{self.chunks.folder}"


def _open_chunks(volume: DataPath, store: Store, scale: Scale) -> ScaleChunks:
    """The stored chunks of a scale. Raises CorruptDataset, UnsupportedFeature."""
    where = f"{volume}/{INFO_NAME}"
    folder = _folder(scale.key, where)
    # The key of a stranger's scale may lead anywhere.
    if folder is None:
        if requested_links() is not True:
            claim = f"a scale lies at {scale.key!r:.200}, outside of this folder"
            raise UnsupportedFeature(f"{where}: {claim}; that is followed with follow_links=True only")
        store, folder = (volume / scale.key).store(follows_links=True), ""
    if scale.sharding is None:
        return ChunkFiles(store, folder, scale)
    if id_bits(scale.grid) > 64:
        raise CorruptDataset(f"a grid of {scale.grid} chunks, whose ids take more than 64 bits", path=where)
    return ShardFiles(store, folder, scale, scale.sharding)


def read_info(store: Store) -> VolumeInfo:
    """The description of the volume in a store. Raises DatasetError without one, CorruptDataset."""
    where = f"{store.url}/{INFO_NAME}"
    content = read_document(store, INFO_NAME, MAX_INFO_BYTES)
    if content is None:
        raise DatasetError(f"{where}: no such file, expected that of a precomputed volume")
    return parse_info(content, where)


def scale_spec(info: VolumeInfo, level: int) -> ArraySpec:
    """The array of a scale. Voxel v of it reaches from v to v + 1 times its resolution."""
    full, scale = info.scales[0], info.scales[level]
    sizes = [size / _NM_PER_UM for size in scale.resolution]
    # Distances count from the centre of voxel 0 of the finest scale, as in other formats.
    places = zip(scale.offset, scale.resolution, full.resolution, strict=True)
    centres = [(at * here + (here - there) / 2) / _NM_PER_UM for at, here, there in places]
    ratios = [here / there for here, there in zip(scale.resolution, full.resolution, strict=True)]
    channel = ArraySpec(
        axes=("z", "y", "x"),
        shape=scale.size[::-1],
        dtype=info.dtype,
        chunk_shape=scale.chunk[::-1],
        factors=tuple(max(1, round(min(ratio, 2.0**30))) for ratio in reversed(ratios)),
        scale=tuple(reversed(sizes)),
        units=("um", "um", "um"),
        translation=tuple(reversed(centres)),
        attributes={"type": info.kind, "key": scale.key, "encoding": scale.encoding},
    )
    if info.channels == 1:
        return channel
    # A chunk has all channels.
    found = stacked(channel, (COMPONENT,), (info.channels,))
    return replace(found, chunk_shape=(info.channels, *channel.chunk_shape))


def _folder(key: str, where: str) -> str | None:
    """The folder of a scale below its volume, "" or with "/" at the end; None if it lies elsewhere."""
    if leads_out(key):
        return None
    parts: list[str] = []
    for part in key.split("/"):
        if part == "..":
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    if "\\" in key:
        raise CorruptDataset(f"a scale has the key {key!r:.200}, which is not a relative path", path=where)
    return "".join(f"{part}/" for part in parts)


class Content(NamedTuple):
    """The bytes of a chunk, not decoded, and where they are, for messages."""

    data: bytes
    where: str


@dataclass(frozen=True, slots=True)
class ScaleChunks(ABC):
    """Reads and lists the chunks of a scale; from any thread. Everything has the order x, y, z.

    folder is its key in the store, "" or with "/" at the end.
    """

    store: Store
    folder: str
    scale: Scale

    @abstractmethod
    def content(self, cell: Three, max_bytes: int) -> Content | None:
        """At most max_bytes; None if the chunk is not stored. Raises CorruptDataset, UnsupportedFeature."""

    @abstractmethod
    def cells(self, on_damage: Damage) -> Iterator[Three]:
        """All stored cells inside the grid; on_damage gets what is wrong with an index and may raise it."""

    @abstractmethod
    def is_own(self, name: str) -> bool:
        """Return True for a file of the folder that has chunks of this scale."""

    def names(self) -> Iterable[str]:
        """What lies in the folder; names of folders have "/" at their end."""
        return self.store.children(self.folder.removesuffix("/"))

    def strangers(self) -> Iterator[str]:
        """Files of the folder that belong to no chunk, for messages."""
        # Folders are left alone: other scales may lie below this one.
        for name in self.names():
            if not name.endswith("/") and not self.is_own(name):
                yield f"{self.store.url}/{self.folder}{name}"


class ChunkFiles(ScaleChunks):
    """A scale without shards: a file for each chunk."""

    def content(self, cell: Three, max_bytes: int) -> Content | None:
        """See ScaleChunks. A file with `.gz` after its name stands for one without."""
        key = self.folder + self._name(cell)
        data = read_object(self.store, key, max_bytes)
        if data is not None:
            return Content(data, f"{self.store.url}/{key}")
        # cloud-volume packs chunks so; servers of the web unpack them under the plain name.
        packed = read_object(self.store, key + _GZIP, max_bytes + SPARE_BYTES)
        if packed is not None:
            where = f"{self.store.url}/{key}{_GZIP}"
            return Content(unpacked(packed, max_bytes, where, 0), where)
        if self.store.size(key + _BROTLI) is not None:
            raise UnsupportedFeature(f"{self.store.url}/{key}{_BROTLI}: brotli is not read; gzip and plain files are")
        return None

    def cells(self, on_damage: Damage) -> Iterator[Three]:
        """See ScaleChunks."""
        del on_damage
        yield from {cell for name in self.names() if (cell := self._cell(name)) is not None}

    def is_own(self, name: str) -> bool:
        """See ScaleChunks."""
        return self._cell(name) is not None

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


@dataclass(frozen=True, slots=True)
class ShardFiles(ScaleChunks):
    """A scale in shards. Three reads for a chunk: its entry of the shard index, its minishard index, and itself."""

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
        for name in self.names():
            shard = self.sharding.parse_shard_name(name)
            if shard is None:
                continue
            try:
                for minishard, index in self._minishards.all(self.folder + name):
                    yield from self._cells_in(index, (shard, minishard), f"{self.store.url}/{self.folder}{name}")
            except CorruptDataset as error:
                on_damage(error)

    def is_own(self, name: str) -> bool:
        """See ScaleChunks."""
        return self.sharding.parse_shard_name(name) is not None

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
        if size > max_bytes + (SPARE_BYTES if is_packed else 0):
            raise CorruptDataset(f"a chunk of {size} bytes, expected at most {max_bytes}", path=where, offset=offset)
        data = self._minishards.payload(key, start, size)
        return unpacked(data, max_bytes, where, offset) if is_packed else data

    @property
    def _minishards(self) -> MinishardReader:
        return MinishardReader(self.store, self.sharding)
