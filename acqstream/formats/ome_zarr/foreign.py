"""Opens a container of ours, or an image or array of other software, by its place in a Zarr hierarchy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_spec import ArraySpec, Position
from acqstream.errors import AcqStreamError, CorruptDataset, DatasetError, UnknownFormat
from acqstream.formats.check_report import CheckReport
from acqstream.formats.chunk_format import ChunkCounts
from acqstream.formats.chunk_reader import (
    ChunkReader,
    Damage,
    StoredLevel,
    open_readers,
    read_document,
    requested_store,
)
from acqstream.formats.container_check import check_levels, open_checked
from acqstream.formats.level_plan import PLANE
from acqstream.formats.ome_zarr.chunk_store import ChunkStore, IndexCache
from acqstream.formats.ome_zarr.codec import ZarrArray
from acqstream.formats.ome_zarr.hierarchy import DOCUMENT_NAMES, Node, read_node, several_images
from acqstream.formats.ome_zarr.image_folders import SAMPLE
from acqstream.formats.ome_zarr.layout import OmeZarrLayout, has_note, parse_note
from acqstream.formats.ome_zarr.metadata import LevelEntry, Multiscales, axis_name, dimension_units, parse_multiscales
from acqstream.formats.ome_zarr.zarr_json import DOCUMENT_NAME, parse_array
from acqstream.storage.files.small_file import parse_fields
from acqstream.storage.stores.data_path import DataPath
from acqstream.storage.stores.store import Store

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

    Raises DatasetError that lists the images of a foreign collection or plate, UnknownFormat for anything else,
    CorruptDataset, UnsupportedFeature, StorageError.
    """
    folder = folder_of(path)
    return open_readers(folder, _find_levels if has_own_note(folder) else _find_image_levels)


def check(container: DataPath, report: CheckReport) -> ChunkCounts:
    """All levels: documents, indices of shards and chunks. Chunks beyond the grid in a shard are no problem."""
    return check_levels(open_checked(open_array, container, report), report, None)


def has_own_note(folder: DataPath) -> bool:
    """Return True for a container of ours; a damaged document is left to the reader that names what is wrong."""
    document = folder / DOCUMENT_NAME
    if not document.is_object():
        return False
    try:
        return has_note(parse_fields(document.content(), str(document)).values.get("attributes"))
    except CorruptDataset:
        return False


def read_layout(store: Store, where: str) -> tuple[OmeZarrLayout, bool]:
    """The layout of a container of ours by its note, and whether it is complete.

    Raises CorruptDataset, DatasetError if it has none.
    """
    fields = parse_fields(_require_document(store, DOCUMENT_NAME, where), f"{where}/{DOCUMENT_NAME}")
    if not has_note(fields.values.get("attributes")):
        raise DatasetError(f"{where} is not a container of acqstream any longer")
    return parse_note(fields.child("attributes"))


def _require_document(store: Store, key: str, where: str) -> bytes:
    content = read_document(store, key)
    if content is None:
        raise DatasetError(f"{where}/{key} is missing")
    return content


def _node_folder(path: DataPath) -> DataPath | None:
    if path.name in DOCUMENT_NAMES and path.is_object():
        return path.parent
    return path if any((path / name).is_object() for name in DOCUMENT_NAMES) else None


def _find_levels(path: DataPath) -> Sequence[Callable[[], StoredLevel]]:
    store = requested_store(path)
    layout, complete = read_layout(store, str(path))
    levels = range(len(layout.plan.levels))
    return [partial(_container_level, path, store, layout, level, complete=complete) for level in levels]


def _container_level(path: DataPath, store: Store, layout: OmeZarrLayout, level: int, *, complete: bool) -> ZarrLevel:
    """A level of a container that our writer made: of all its images as one array, as our note describes it.

    The array of the first image stands for all: they have the same chunks and codecs.
    """
    noted, members = layout.plan.levels[level], len(layout.plan.member_axes)

    def folder(member: Position) -> str:
        return "/".join((*layout.folders.parts(member), str(level)))

    key = f"{folder((0,) * members)}/{DOCUMENT_NAME}"
    array = parse_array(_require_document(store, key, str(path)), f"{path}/{key}")
    if len(array.shape) != len(noted.axes) - members or array.dtype != noted.dtype:
        raise DatasetError(f"{path}/{key}: {array.shape} of {array.dtype} is not an image of the container")
    for axis, has, stated in zip(noted.axes[members:], array.shape, noted.shape[members:], strict=True):
        # Documents of arrays are put first: while it grows they have more of other axes than the note, or, when
        # it ends, less. A size of the note alone would be zeros.
        if has != stated if axis in (*PLANE, SAMPLE) else complete and has < stated:
            text = f"has {has} items along {axis}, {DOCUMENT_NAME} of the container states {stated}"
            raise CorruptDataset(text, path=f"{path}/{key}")
    spec = replace(noted, chunk_shape=(*(1,) * members, *array.chunk_shape))
    return ZarrLevel(store, array, spec, folder, is_ours=True, complete=complete)


def _find_image_levels(path: DataPath) -> Sequence[Callable[[], StoredLevel]]:
    """The levels of an image, or the one of an array, from its documents."""
    store = requested_store(path)
    node = read_node(store)
    if node is None:
        raise DatasetError(f"{path}: no Zarr array or group here")
    if node.array is not None:
        return [partial(ZarrLevel, store, node.array, _array_spec(path, node.array), _always(""))]
    if not node.is_image:
        raise several_images(store, node, str(path))
    image = parse_multiscales(node)
    arrays = [_level_array(store, entry, node) for entry in image.levels]
    return [
        partial(ZarrLevel, store, array, _image_spec(image, entry, array, arrays[0], node), _always(entry.path))
        for entry, array in zip(image.levels, arrays, strict=True)
    ]


def _always(folder: str) -> Callable[[Position], str]:
    return lambda _member: folder


class ZarrLevel:
    """A StoredLevel: the arrays of one level, by their positions along the first axes of spec; `folder` has each.

    Without a note of ours it counts as complete, and may change all the same: nothing tells.
    A missing chunk is returned as one of the fill value, unless that is 0.
    """

    def __init__(
        self,
        store: Store,
        array: ZarrArray,
        spec: ArraySpec,
        folder: Callable[[Position], str],
        *,
        is_ours: bool = False,
        complete: bool = True,
    ) -> None:
        self.spec = spec
        self.complete = complete
        self._store = store
        self._array = array
        self._folder = folder
        self._members = len(spec.axes) - len(array.shape)
        self._cache = IndexCache(may_change=not (is_ours and complete))

    def read(self, position: Position) -> NDArray[np.generic] | None:
        """See StoredLevel."""
        members = self._members
        chunk, fill = self._chunks(position[:members]).read(position[members:]), self._array.fill
        if chunk is not None:
            return chunk.reshape(self.spec.chunk_shape)
        if fill == 0:
            return None
        return np.full([part.stop - part.start for part in self.spec.region(position)], fill, self._array.dtype)

    def positions(self, on_damage: Damage) -> Iterator[Position]:
        """See StoredLevel. A damaged shard counts as complete: reading its chunks reports it."""
        del on_damage
        for member in np.ndindex(*self.spec.shape[: self._members]):
            for position in self._chunks(member).stored():
                yield (*member, *position)

    def place(self, position: Position) -> str:
        """See StoredLevel."""
        members = self._members
        return f"{self._store.url}/{self._chunks(position[:members]).key(self._array.place(position[members:])[0])}"

    def _chunks(self, member: Position) -> ChunkStore:
        folder = self._folder(member)
        return ChunkStore(self._store, f"{folder}/" if folder else "", self._array, self._cache)


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
                node = read_node(requested_store(folder))
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
