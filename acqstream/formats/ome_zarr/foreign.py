"""Opens a container of ours, or an image or array of other software, by its place in a Zarr hierarchy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_spec import ArraySpec, Position
from acqstream.errors import AcqStreamError, CorruptDataset, DatasetError, UnknownFormat
from acqstream.formats.check_report import CheckReport
from acqstream.formats.chunk_format import ChunkCounts
from acqstream.formats.chunk_reader import ChunkReader, Damage, StoredLevel, open_readers
from acqstream.formats.container_check import check_levels, open_checked
from acqstream.formats.level_plan import PLANE
from acqstream.formats.ome_zarr.chunk_store import ChunkStore, IndexCache
from acqstream.formats.ome_zarr.hierarchy import DOCUMENT_NAMES, Node, collection_kind, read_node, several_images
from acqstream.formats.ome_zarr.image_folders import SAMPLE, split_axes
from acqstream.formats.ome_zarr.layout import Note, has_note, parse_note
from acqstream.formats.ome_zarr.metadata import LevelEntry, Multiscales, axis_name, dimension_units, parse_multiscales
from acqstream.formats.ome_zarr.zarr_array import ZarrArray
from acqstream.formats.ome_zarr.zarr_json import DOCUMENT_NAME, parse_array
from acqstream.storage.files.boundary import requested_links
from acqstream.storage.files.small_file import MAX_FILE_BYTES, parse_fields
from acqstream.storage.stores.data_path import DataPath
from acqstream.storage.stores.store import Store

NodeKind = Literal["image", "array", "plate", "collection", "nothing"]

_MAX_ABOVE = 4  # folders between an array and the group that lists it


def detect(path: DataPath) -> bool:
    """Return True if a path is a node of a Zarr hierarchy, or a document in one; its content is not looked at."""
    return _node_folder(path) is not None


def folder_of(path: DataPath) -> DataPath:
    """The folder of the node that a path means. Raises UnknownFormat."""
    folder = _node_folder(path)
    if folder is None:
        raise UnknownFormat(f"{path}: no Zarr array or group here")
    return folder


def open_array(path: DataPath) -> list[ChunkReader]:
    """Readers of all levels, the full resolution first: of all images of our container, or of one foreign image.

    Raises UnknownFormat, DatasetError that lists the images of a foreign collection, CorruptDataset, StorageError.
    """
    folder = folder_of(path)
    return open_readers(folder, _find_levels) if has_own_note(folder) else open_foreign(folder)


def open_foreign(path: DataPath) -> list[ChunkReader]:
    """Readers of all levels of an image or an array, the full resolution first.

    Raises DatasetError that lists the images of a collection or a plate, UnknownFormat for anything else,
    CorruptDataset, UnsupportedFeature, StorageError.
    """
    folder = folder_of(path)
    store = _store(folder)
    node = read_node(store)
    if node is not None and node.array is None and not node.is_image:
        raise several_images(store, node, str(folder))
    return open_image(folder)


def open_image(path: DataPath) -> list[ChunkReader]:
    """Readers of all levels of the image, or of the one array, in a folder; the full resolution first.

    Raises DatasetError if it is neither, CorruptDataset, UnsupportedFeature, StorageError.
    """
    return open_readers(path, _find_image_levels)


def check(container: DataPath, report: CheckReport) -> ChunkCounts:
    """All levels: documents, indices of shards and chunks. Chunks beyond the grid in a shard are no problem."""
    return check_levels(open_checked(open_array, container, report), report, None)


def find_node(path: DataPath) -> NodeKind:
    """The kind of a node. A group that is no image and no plate is a collection, even an empty one.

    Raises CorruptDataset, UnsupportedFeature, StorageError.
    """
    folder = _node_folder(path)
    node = None if folder is None else read_node(_store(folder))
    if node is None:
        return "nothing"
    if node.array is not None:
        return "array"
    if node.is_image:
        return "image"
    return "plate" if collection_kind(node) == "plate" else "collection"


def has_own_note(folder: DataPath) -> bool:
    """Return True for a container of ours; a damaged document is left to the reader that names what is wrong."""
    document = folder / DOCUMENT_NAME
    if not document.is_object():
        return False
    try:
        return has_note(parse_fields(document.content(), str(document)).values.get("attributes"))
    except CorruptDataset:
        return False


def read_note(store: Store, where: str) -> Note:
    """Our note in a container. Raises CorruptDataset, DatasetError if it has none."""
    content = store.get(DOCUMENT_NAME, 0, MAX_FILE_BYTES)
    if content is None:
        raise DatasetError(f"{where}/{DOCUMENT_NAME} is missing")
    fields = parse_fields(content, f"{where}/{DOCUMENT_NAME}")
    if not has_note(fields.values.get("attributes")):
        raise DatasetError(f"{where} is not a container of acqstream any longer")
    return parse_note(fields.child("attributes"))


def _node_folder(path: DataPath) -> DataPath | None:
    if path.name in DOCUMENT_NAMES and path.is_object():
        return path.parent
    return path if any((path / name).is_object() for name in DOCUMENT_NAMES) else None


def _store(folder: DataPath) -> Store:
    return folder.store(follows_links=requested_links() is True)


def _find_levels(path: DataPath) -> Sequence[Callable[[], StoredLevel]]:
    store = _store(path)
    note = read_note(store, str(path))
    return [partial(ContainerLevel, path, store, note, level) for level in range(len(note.levels))]


class ContainerLevel:
    """A StoredLevel of a container that our writer made: of all its images as one array, as our note describes it."""

    def __init__(self, path: DataPath, store: Store, note: Note, level: int) -> None:
        spec = note.levels[level]
        members, _ = split_axes(spec.axes)
        self.complete = note.complete
        self._store = store
        self._folders = note.folders
        self._level = level
        self._members = len(members)
        self._array = self._first_array(path, note)
        self._cache = IndexCache(may_change=not note.complete)
        self.spec: ArraySpec = replace(spec, chunk_shape=(*(1 for _ in members), *self._array.chunk_shape))

    def read(self, position: Position) -> NDArray[np.generic] | None:
        """See StoredLevel."""
        members = self._members
        chunk = self._chunks(position[:members]).read(position[members:])
        return None if chunk is None else chunk.reshape(self.spec.chunk_shape)

    def positions(self, on_damage: Damage) -> Iterator[Position]:
        """See StoredLevel. A damaged shard counts as complete: reading its chunks reports it."""
        del on_damage
        for member in np.ndindex(*self.spec.shape[: self._members]):
            for position in self._chunks(member).stored("c/"):
                yield (*member, *position)

    def place(self, position: Position) -> str:
        """See StoredLevel."""
        members = self._members
        shard, _ = self._array.place(position[members:])
        return f"{self._store.url}/{self._chunks(position[:members]).key(shard)}"

    def _chunks(self, member: Position) -> ChunkStore:
        return ChunkStore(self._store, self._prefix(member), self._array, self._cache)

    def _prefix(self, member: Position) -> str:
        return "".join(f"{part}/" for part in (*self._folders.parts(member), self._level))

    def _first_array(self, path: DataPath, note: Note) -> ZarrArray:
        """The array of the first image: all have the same chunks and codecs."""
        members = self._members
        key = f"{self._prefix((0,) * members)}{DOCUMENT_NAME}"
        content = self._store.get(key, 0, MAX_FILE_BYTES)
        if content is None:
            raise DatasetError(f"{path}/{key} is missing")
        array = parse_array(content, f"{path}/{key}")
        if len(array.shape) != len(note.levels[0].axes) - members or array.dtype != note.levels[0].dtype:
            raise DatasetError(f"{path}/{key}: {array.shape} of {array.dtype} is not an image of the container")
        noted = note.levels[self._level]
        for axis, has, stated in zip(noted.axes[members:], array.shape, noted.shape[members:], strict=True):
            # Documents of arrays are put first: while it grows they have more of other axes than the note, or, when
            # it ends, less. A size of the note alone would be zeros.
            if has != stated if axis in (*PLANE, SAMPLE) else note.complete and has < stated:
                text = f"has {has} items along {axis}, {DOCUMENT_NAME} of the container states {stated}"
                raise CorruptDataset(text, path=f"{path}/{key}")
        return array


@dataclass(frozen=True, slots=True)
class ImageLevel:
    """A level: its path below the place that was opened, "" for the place itself."""

    path: str
    array: ZarrArray
    spec: ArraySpec


def _find_image_levels(path: DataPath) -> Sequence[Callable[[], StoredLevel]]:
    store = _store(path)
    return [partial(ZarrLevel, store, found) for found in find_levels(path, store)]


class ZarrLevel:
    """A StoredLevel of one level of an image. complete is True: other software notes nothing of it.

    A missing chunk is returned as one of the fill value, unless that is 0.
    """

    complete = True

    def __init__(self, store: Store, found: ImageLevel) -> None:
        self.spec = found.spec
        self._array = found.array
        self._store = store
        # Its writer may still be at work, and nothing tells.
        prefix = f"{found.path}/" if found.path else ""
        self._chunks = ChunkStore(store, prefix, found.array, IndexCache(may_change=True))

    def read(self, position: Position) -> NDArray[np.generic] | None:
        """See StoredLevel."""
        chunk, fill = self._chunks.read(position), self._array.fill
        if chunk is not None or fill == 0:
            return chunk
        return np.full([part.stop - part.start for part in self.spec.region(position)], fill, self._array.dtype)

    def positions(self, on_damage: Damage) -> Iterator[Position]:
        """See StoredLevel. A damaged shard counts as complete: reading its chunks reports it."""
        del on_damage
        return self._chunks.stored()

    def place(self, position: Position) -> str:
        """See StoredLevel."""
        return f"{self._store.url}/{self._chunks.key(self._array.place(position)[0])}"


def find_levels(path: DataPath, store: Store) -> list[ImageLevel]:
    """The levels of an image, or the one of an array, from its documents. store has `place` as its root."""
    node = read_node(store)
    if node is None:
        raise DatasetError(f"{path}: no Zarr array or group here")
    if node.array is not None:
        return [ImageLevel("", node.array, _array_spec(path, node.array))]
    if not node.is_image:
        raise DatasetError(f"{path}: a Zarr group, but no image")
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


def _array_spec(path: DataPath, array: ZarrArray) -> ArraySpec:
    """The spec of an array that was opened by itself, with what a group above says of it."""
    names = [axis_name(name) for name in array.dimension_names]
    above = _listed_above(path)
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


def _listed_above(place: DataPath) -> tuple[Multiscales, LevelEntry, Node] | None:
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
