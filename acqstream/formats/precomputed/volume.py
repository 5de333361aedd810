"""Reads the scales of a volume of any writer, or of one member of a container of ours."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_spec import ArraySpec, Position
from acqstream.errors import CorruptDataset, DatasetError, UnsupportedFeature
from acqstream.formats.precomputed.codec import decode_chunk, max_chunk_bytes
from acqstream.formats.precomputed.info import INFO_NAME, MAX_INFO_BYTES, Scale, Three, VolumeInfo, parse_info
from acqstream.formats.precomputed.scale_chunks import ChunkFiles, Damage, ScaleChunks, ShardFiles
from acqstream.formats.precomputed.sharding import has_long_ids
from acqstream.storage.files.boundary import leads_out, requested_links
from acqstream.storage.stores.data_path import ReadPlace
from acqstream.storage.stores.store import Store

_NM_PER_UM = 1000.0


class VolumeReader:
    """A ChunkArrayReader of one scale: axes (z, y, x), or (c, z, y, x) with more than one channel, in um.

    No file is kept open, and it may be sent to another process.
    """

    complete = True

    def __init__(self, path: ReadPlace, level: int, *, follows_links: bool) -> None:
        self.path = path
        self._level = level
        self._follows_links = follows_links
        self._store = path.store(follows_links=follows_links)
        self.refresh()

    def __reduce__(self) -> tuple[object, ...]:
        return _reader, (self.path, self._level, self._follows_links)

    @property
    def spec(self) -> ArraySpec:
        """See ChunkArrayReader."""
        return self._spec

    @property
    def chunks(self) -> ScaleChunks:
        """The stored chunks of the scale."""
        return self._chunks

    @property
    def scale(self) -> Scale:
        """The scale in `info`."""
        return self._info.scales[self._level]

    def refresh(self) -> None:
        """See ChunkArrayReader. Raises DatasetError if the scale no longer exists; then nothing changes."""
        info = read_info(self._store)
        if self._level >= len(info.scales):
            raise DatasetError(f"{self.path}: scale {self._level} no longer exists")
        chunks = self._open_chunks(info.scales[self._level])
        self._info, self._chunks, self._spec = info, chunks, scale_spec(info, self._level)

    def read_chunk(self, position: Position) -> NDArray[np.generic] | None:
        """See ChunkArrayReader."""
        spec, info = self._spec, self._info
        grid = spec.grid_shape
        if len(position) != len(grid) or not all(0 <= at < size for at, size in zip(position, grid, strict=True)):
            raise IndexError(f"{self.path}: no chunk {position} in a grid of {grid}")
        z, y, x = position[-3:]
        scale = info.scales[self._level]
        shape = tuple(part.stop - part.start for part in spec.region(position))
        stored = (info.channels, *shape[-3:])
        bx, by, bz = scale.block
        kind = (scale.encoding, (bz, by, bx))
        content = self._chunks.content((x, y, z), max_chunk_bytes(stored, info.dtype, kind))
        if content is None:
            return None
        return decode_chunk(content.data, stored, info.dtype, kind, content.where).reshape(shape)

    def stored(self) -> Iterator[Position]:
        """See ChunkArrayReader. Raises CorruptDataset for a damaged index of a shard."""
        for cell in self._chunks.cells(_raised):
            yield self.position(cell)

    def stored_with(self, on_damage: Damage) -> Iterator[Position]:
        """As `stored`; on_damage gets what is wrong with an index."""
        for cell in self._chunks.cells(on_damage):
            yield self.position(cell)

    def position(self, cell: Three) -> Position:
        """The position of a cell (x, y, z) in the grid of the array."""
        return (*(0 for _ in self._spec.axes[:-3]), *reversed(cell))

    def close(self) -> None:
        """No file is kept open."""

    def _open_chunks(self, scale: Scale) -> ScaleChunks:
        where = f"{self.path}/{INFO_NAME}"
        store, folder = self._store, _folder(scale.key, where)
        if folder is None:
            if not self._follows_links:
                claim = f"a scale lies at {scale.key!r:.200}, outside of this folder"
                raise UnsupportedFeature(f"{where}: {claim}; that is followed with follow_links=True only")
            store, folder = (self.path / scale.key).store(follows_links=True), ""
        if scale.sharding is None:
            return ChunkFiles(store, folder, scale)
        if has_long_ids(scale.grid):
            raise CorruptDataset(f"a grid of {scale.grid} chunks, whose ids take more than 64 bits", path=where)
        return ShardFiles(store, folder, scale, scale.sharding)


def open_volume(path: ReadPlace) -> list[VolumeReader]:
    """Readers of all scales of a volume, the finest first. Raises DatasetError, StorageError."""
    follows = requested_links() is True
    first = VolumeReader(path, 0, follows_links=follows)
    count = len(first._info.scales)
    return [first, *(VolumeReader(path, level, follows_links=follows) for level in range(1, count))]


def read_info(store: Store) -> VolumeInfo:
    """The description of the volume in a store. Raises DatasetError without one, CorruptDataset."""
    where = f"{store.url}/{INFO_NAME}"
    content = store.get(INFO_NAME, 0, MAX_INFO_BYTES + 1)
    if content is None:
        raise DatasetError(f"{where}: no such file, expected that of a precomputed volume")
    if len(content) > MAX_INFO_BYTES:
        raise CorruptDataset(f"has more than {MAX_INFO_BYTES} bytes", path=where)
    return parse_info(content, where)


def scale_spec(info: VolumeInfo, level: int) -> ArraySpec:
    """The array of a scale. Voxel v of it reaches from v to v + 1 times its resolution."""
    full, scale = info.scales[0], info.scales[level]
    leading = (info.channels,) if info.channels > 1 else ()
    ones, empty = (1,) * len(leading), ("",) * len(leading)
    sizes = [size / _NM_PER_UM for size in scale.resolution]
    # Distances count from the centre of voxel 0 of the finest scale, as in other formats.
    places = zip(scale.offset, scale.resolution, full.resolution, strict=True)
    centres = [(at * here + (here - there) / 2) / _NM_PER_UM for at, here, there in places]
    ratios = [here / there for here, there in zip(scale.resolution, full.resolution, strict=True)]
    return ArraySpec(
        axes=("c", "z", "y", "x")[1 - len(leading) :],
        shape=(*leading, *reversed(scale.size)),
        dtype=info.dtype,
        chunk_shape=(*leading, *reversed(scale.chunk)),
        factors=(*ones, *(max(1, round(min(ratio, 2.0**30))) for ratio in reversed(ratios))),
        scale=(*map(float, ones), *reversed(sizes)),
        units=(*empty, "um", "um", "um"),
        translation=(*(0.0 for _ in ones), *reversed(centres)),
        attributes={"type": info.kind, "key": scale.key, "encoding": scale.encoding},
    )


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


def _raised(error: CorruptDataset) -> None:
    raise error


def _reader(path: ReadPlace, level: int, follows_links: bool) -> VolumeReader:
    return VolumeReader(path, level, follows_links=follows_links)
