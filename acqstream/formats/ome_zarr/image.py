"""Opens an image of other software, or one array, and reads its levels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_spec import ArraySpec, Position
from acqstream.errors import AcqStreamError, CorruptDataset, DatasetError
from acqstream.formats.ome_zarr.chunk_store import ChunkStore, IndexCache
from acqstream.formats.ome_zarr.multiscales import (
    LevelEntry,
    Multiscales,
    axis_name,
    dimension_units,
    parse_multiscales,
)
from acqstream.formats.ome_zarr.node import Node, read_node
from acqstream.formats.ome_zarr.zarr_array import ZarrArray
from acqstream.storage.files.boundary import requested_links
from acqstream.storage.stores.data_path import ReadPlace
from acqstream.storage.stores.store import Store

_MAX_ABOVE = 4  # folders between an array and the group that lists it


@dataclass(frozen=True, slots=True)
class ImageLevel:
    """A level: its path below the place that was opened, "" for the place itself."""

    path: str
    array: ZarrArray
    spec: ArraySpec


class ZarrLevel:
    """A ChunkArrayReader of one level of an image. `open_image` makes those of all levels.

    No file stays open, and it may be sent to another process. complete is True: other software notes nothing of it.
    """

    complete = True

    def __init__(self, path: ReadPlace, level: int, *, follows_links: bool, found: ImageLevel | None = None) -> None:
        self.path = path
        self._level = level
        self._follows_links = follows_links
        self._store = path.store(follows_links=follows_links)
        if found is None:
            self.refresh()
        else:
            self._use(found)

    def __reduce__(self) -> tuple[object, ...]:
        return _level, (self.path, self._level, self._follows_links)

    def refresh(self) -> None:
        """See ChunkArrayReader. Raises DatasetError if the level no longer exists; then nothing changes."""
        levels = find_levels(self.path, self._store)
        if self._level >= len(levels):
            raise DatasetError(f"{self.path}: level {self._level} no longer exists")
        self._use(levels[self._level])

    @property
    def spec(self) -> ArraySpec:
        """See ChunkArrayReader."""
        return self._found.spec

    def read_chunk(self, position: Position) -> NDArray[np.generic] | None:
        """See ChunkArrayReader. A missing chunk is returned as one of the fill value, unless that is 0."""
        spec, array = self.spec, self._found.array
        if not _is_inside(position, spec):
            raise IndexError(f"{self.path}: no chunk {position} in a grid of {spec.grid_shape}")
        region = spec.region(position)
        shape = tuple(part.stop - part.start for part in region)
        chunk = self._chunks.read(position)
        if chunk is None:
            return np.full(shape, array.fill, array.dtype) if array.fill != 0 else None
        # Of an array without axes it would have one.
        return np.ascontiguousarray(chunk[tuple(slice(0, size) for size in shape)]).reshape(shape)

    def stored(self) -> Iterator[Position]:
        """See ChunkArrayReader."""
        for position in self.stored_anywhere():
            if _is_inside(position, self.spec):
                yield position

    def stored_anywhere(self) -> Iterator[Position]:
        """As `stored`, with positions of chunks outside the grid."""
        return self._chunks.stored()

    def place(self, position: Position) -> str:
        """The object of a chunk, for messages."""
        return f"{self._store.url}/{self._chunks.key(self._found.array.place(position)[0])}"

    def close(self) -> None:
        """No file stays open."""

    def _use(self, found: ImageLevel) -> None:
        self._found = found
        prefix = f"{found.path}/" if found.path else ""
        # Its writer may still be at work, and nothing tells.
        self._chunks = ChunkStore(self._store, prefix, found.array, IndexCache(may_change=True))


def open_image(place: ReadPlace) -> list[ZarrLevel]:
    """Readers of all levels of the image, or of the one array, in a folder; the full resolution first.

    Raises DatasetError if it is neither, CorruptDataset, UnsupportedFeature, StorageError.
    """
    follows = requested_links() is True
    levels = find_levels(place, place.store(follows_links=follows))
    return [ZarrLevel(place, number, follows_links=follows, found=found) for number, found in enumerate(levels)]


def find_levels(place: ReadPlace, store: Store) -> list[ImageLevel]:
    """The levels of an image, or the one of an array, from its documents. store has `place` as its root."""
    node = read_node(store)
    if node is None:
        raise DatasetError(f"{place}: no Zarr array or group here")
    if node.array is not None:
        return [ImageLevel("", node.array, _array_spec(place, node.array))]
    if not node.is_image:
        raise DatasetError(f"{place}: a Zarr group, but no image")
    image = parse_multiscales(node)
    arrays = [_level_array(store, entry, node) for entry in image.levels]
    first = arrays[0]
    return [
        ImageLevel(entry.path, array, _image_spec(image, entry, array, first, node))
        for entry, array in zip(image.levels, arrays, strict=True)
    ]


def _level_array(store: Store, entry: LevelEntry, group: Node) -> ZarrArray:
    node = read_node(store, entry.path)
    if node is None or node.array is None:
        raise CorruptDataset(f"level {entry.path!r:.60} is no array", path=group.where)
    return node.array


def _image_spec(image: Multiscales, entry: LevelEntry, array: ZarrArray, first: ZarrArray, node: Node) -> ArraySpec:
    """The spec of a level. first is the full resolution."""
    if len(array.shape) != len(image.axes):
        text = f"level {entry.path!r:.60} has {len(array.shape)} axes, expected {len(image.axes)}"
        raise CorruptDataset(text, path=node.where)
    if image.has_scales:
        scale = entry.scale
        factors = tuple(_ratio(own, full) for own, full in zip(scale, image.levels[0].scale, strict=True))
    else:
        factors = tuple(_ratio(full, own) for own, full in zip(array.shape, first.shape, strict=True))
        scale = tuple(one * factor for one, factor in zip(entry.scale, factors, strict=True))
    labels = {}
    if "channel" in image.axes and array.shape[image.axes.index("channel")] == len(image.channels):
        labels = {"channel": list(image.channels)}
    return ArraySpec(
        axes=image.axes,
        shape=array.shape,
        dtype=array.dtype,
        chunk_shape=array.chunk_shape,
        shard_shape=array.shard_shape,
        factors=factors,
        scale=scale,
        units=image.units,
        translation=entry.translation,
        labels=labels,
    )


def _array_spec(place: ReadPlace, array: ZarrArray) -> ArraySpec:
    """The spec of an array that was opened by itself, with what a group above says of it."""
    names = [axis_name(name) for name in array.dimension_names]
    above = _listed_above(place)
    if above is not None:
        image, entry, group = above
        if len(image.axes) == len(array.shape) and ("" in names or tuple(names) == image.axes):
            alone = Multiscales(image.name, image.axes, image.units, (entry,), True, image.channels)
            return _image_spec(alone, entry, array, array, group)
    if "" in names or len(set(names)) < len(names):
        ndim = len(array.shape)
        names = [f"dim{axis}" for axis in range(ndim - 2)] + (["y", "x"] if ndim > 1 else ["x"])[: ndim or 0]
    scale, units = dimension_units(array.attributes.get("dimension_units"), len(array.shape))
    return ArraySpec(
        axes=tuple(names),
        shape=array.shape,
        dtype=array.dtype,
        chunk_shape=array.chunk_shape,
        shard_shape=array.shard_shape,
        scale=scale,
        units=units,
    )


def _listed_above(place: ReadPlace) -> tuple[Multiscales, LevelEntry, Node] | None:
    """The image that lists an array as a level; damaged and forbidden folders above it do not matter."""
    parts: list[str] = []
    for folder in place.upwards(_MAX_ABOVE):
        if parts:
            try:
                node = read_node(folder.store(follows_links=requested_links() is True))
                image = parse_multiscales(node) if node is not None and node.is_image else None
            except AcqStreamError:
                image = None
            if image is not None and node is not None:
                path = "/".join(reversed(parts))
                return next(((image, entry, node) for entry in image.levels if entry.path == path), None)
        parts.append(folder.name)
    return None


def _ratio(larger: float, smaller: float) -> int:
    """The whole number nearest to a ratio, at least 1."""
    ratio = larger / smaller if smaller else 1.0
    return max(1, round(ratio)) if ratio < 2**53 else 1


def _level(path: ReadPlace, level: int, follows_links: bool) -> ZarrLevel:
    return ZarrLevel(path, level, follows_links=follows_links)


def _is_inside(position: Position, spec: ArraySpec) -> bool:
    grid = spec.grid_shape
    return len(position) == len(grid) and all(0 <= at < size for at, size in zip(position, grid, strict=True))
