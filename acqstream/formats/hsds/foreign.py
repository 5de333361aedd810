"""Finds the container of ours, or the dataset of any domain, that a path means; reads and checks it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_spec import ArraySpec, Position
from acqstream.errors import CorruptDataset, UnsupportedFeature
from acqstream.formats.check_report import CheckReport
from acqstream.formats.chunk_format import ChunkCounts
from acqstream.formats.chunk_reader import (
    ChunkReader,
    Damage,
    StoredLevel,
    open_layout,
    open_readers,
    read_mark,
    require_document,
)
from acqstream.formats.container_check import check_layout, check_levels, open_checked
from acqstream.formats.hsds.codec import ChunkCodec
from acqstream.formats.hsds.dataset_chunks import dataset_chunks, in_root
from acqstream.formats.hsds.domain import DATASET_NAME, bucket_at, find_dataset, is_tree
from acqstream.formats.hsds.hdf_type import VARIABLE_TEXT, DType
from acqstream.formats.hsds.layout import NOTE_NAME, HsdsLayout, is_note, parse_note
from acqstream.formats.hsds.metadata import DatasetDocument
from acqstream.formats.hsds.object_id import ObjectId
from acqstream.formats.hsds.reference_layout import is_reference_note
from acqstream.formats.hsds.reference_reader import check_references, find_references
from acqstream.storage.files.boundary import requested_links
from acqstream.storage.stores.data_path import DataPath
from acqstream.storage.stores.store import Store

_MAX_DEPTH = 5  # of a domain in its container, folders
_LABELS = "DIMENSION_LABELS"
_MISSING = "is missing; HSDS servers need it"


def detect(path: DataPath) -> bool:
    """Return True if `path` is a container of ours, or a part of a tree of a server: see domain."""
    return container_of(path) is not None or is_tree(path)


def folder_of(path: DataPath) -> DataPath:
    """The container of ours that `path` means, else `path` itself."""
    return container_of(path) or path


def open_array(path: DataPath) -> list[ChunkReader]:
    """Readers of all levels, the full resolution first.

    Raises DatasetError that lists the datasets of a tree with several, UnknownFormat, CorruptDataset, StorageError.
    """
    readers = [open_dataset(path)] if container_of(path) is None else []
    container = container_of(path)  # again: its note may have come after the look for it, and before the dataset
    if container is None:
        return readers
    if is_by_reference(container):
        return open_readers(container, find_references)
    return open_layout(container, read_layout)


def open_dataset(path: DataPath) -> ChunkReader:
    """The reader of the one dataset that a path in a tree of a server means. Raises as `open_array`."""
    found = find_dataset(path, follows_links=requested_links() is True)
    place = found.bucket / (found.id.key if found.id.is_v1 else found.id.folder)
    (reader,) = open_readers(place, partial(_find_dataset, found.bucket, found.id))
    return reader


def _find_dataset(bucket: DataPath, own: ObjectId, _place: DataPath) -> Sequence[Callable[[], StoredLevel]]:
    return [partial(DatasetLevel, bucket, own)]


def container_of(path: DataPath) -> DataPath | None:
    """The container of ours that a path is, or is the note, the bucket or the domain of; None for anything else.

    A dataset in a container is an array by itself, as the server has it.
    """
    if path.name == NOTE_NAME:
        return path.parent if is_container(path.parent) else None
    if path.name == DATASET_NAME or (path / DATASET_NAME).is_object():
        return None
    return next((folder for folder in path.upwards(_MAX_DEPTH) if is_container(folder)), None)


def is_container(folder: DataPath) -> bool:
    """Return True for the top folder of a container of ours."""
    return is_note(content := read_mark(folder, NOTE_NAME)) or is_reference_note(content)


def is_by_reference(container: DataPath) -> bool:
    """Return True for a container of ours whose pixels stay in the stacks of a dataset."""
    return is_reference_note(read_mark(container, NOTE_NAME))


def read_layout(store: Store) -> tuple[HsdsLayout, bool]:
    """The layout of a container of ours, and whether it is complete. Raises DatasetError, CorruptDataset."""
    return parse_note(require_document(store, NOTE_NAME), f"{store.url}/{NOTE_NAME}")


def check(path: DataPath, report: CheckReport) -> ChunkCounts:
    """All levels of a container of ours with the documents for the server, or the one dataset that a path means."""
    container = container_of(path)
    if container is not None and is_by_reference(container):
        return check_references(container, report)
    if container is not None:
        texts = _MISSING, f"differs from what {NOTE_NAME} states"
        return check_layout(container, read_layout, report, lambda one: [one.documents(complete=True)], texts)
    readers = open_checked(lambda place: [open_dataset(place)], path, report)
    for reader in readers:
        assert isinstance(reader.level, DatasetLevel)  # as `open_dataset` makes them
        if reader.level.codec.only_shuffles:
            report.add_note(f"{reader.path} declares shuffle without compression: HSDS 1.0.2 returns other values")
    return check_levels(readers, report, _outside_text)


def _outside_text(reader: ChunkReader, position: Position) -> str:
    return f"{reader.path}: the chunk {position} lies outside the array"


class DatasetLevel:
    """A StoredLevel: one dataset of a domain of any writer. The array grows when its document is read again.

    A missing chunk is returned as one of the fill value, unless that is 0. Raises DatasetError if the dataset does not
    exist.
    """

    complete = True

    def __init__(self, path: DataPath, own: ObjectId) -> None:
        follows = requested_links() is True
        bucket = bucket_at(path, follows_links=follows)
        document = bucket.dataset(own)
        where = bucket.where(own.key)
        dims, dtype = _checked_items(document, where)
        shape = tuple(max(1, size) for size in document.chunk_shape)
        codec = ChunkCodec(shape, dtype, document.filters)
        self._chunks = dataset_chunks(bucket, document, codec, in_root(path.parent, follows_links=follows))
        self.spec = ArraySpec(
            axes=_axes(document, len(dims)),
            shape=dims,
            dtype=dtype.newbyteorder("="),
            chunk_shape=tuple(max(1, size) for size in self._chunks.chunk_shape),
            attributes=document.values,
        )
        self.codec = ChunkCodec(self.spec.chunk_shape, dtype, document.filters)
        self._fill = _fill(document.fill_value, self.spec.dtype, where)

    def read(self, position: Position) -> NDArray[np.generic] | None:
        """See StoredLevel."""
        stored = self._chunks.read(position)
        if stored is not None:
            return self.codec.decode(stored.data, stored.where, stored.offset)
        shape = tuple(part.stop - part.start for part in self.spec.region(position))
        return None if self._fill is None else np.full(shape, self._fill, self.spec.dtype)

    def positions(self, on_damage: Damage) -> Iterator[Position]:
        """See StoredLevel."""
        del on_damage
        return self._chunks.positions()

    def place(self, position: Position) -> str:
        """See StoredLevel."""
        return self._chunks.place(position)


def _checked_items(document: DatasetDocument, where: str) -> tuple[tuple[int, ...], DType]:
    """Shape and type of a dataset. Raises CorruptDataset, UnsupportedFeature."""
    dims, dtype = document.space.dims, document.dtype
    if dims is None:
        raise UnsupportedFeature(f"{where}: a dataset without any item (H5S_NULL)")
    if dtype == VARIABLE_TEXT:
        raise UnsupportedFeature(f"{where}: items are strings of variable length; acqstream reads those of a fixed one")
    if dtype.subdtype is not None:
        raise UnsupportedFeature(f"{where}: items are arrays ({dtype}); acqstream reads arrays inside compounds")
    if math.prod(dims) >= 2**63:
        raise CorruptDataset(f"dims {dims} have more than 2^63 items", path=where)
    return dims, dtype


def _axes(document: DatasetDocument, ndim: int) -> tuple[str, ...]:
    """Names of the dimensions: their labels in HDF5 if each has one, else y and x for the last two."""
    labels = document.values.get(_LABELS)
    if isinstance(labels, list) and len(labels) == ndim and all(isinstance(name, str) and name for name in labels):
        names = tuple(map(str, labels))
        if len(set(names)) == ndim:
            return names
    last = ("y", "x") if ndim > 1 else ("x",) * ndim
    return (*(f"dim{axis}" for axis in range(ndim - len(last))), *last)


def _fill(given: Any, dtype: DType, where: str) -> Any:
    """The value of missing chunks; None for zeros."""
    if given is None:
        return None
    try:
        value = np.zeros((), dtype)
        value[()] = _item(given)
    except (ValueError, TypeError, OverflowError) as error:
        raise CorruptDataset(f"fillValue {given!r:.60} is not an item of {dtype}", path=where) from error
    return value if value.tobytes().strip(b"\0") else None


def _item(given: Any) -> Any:
    """A value of JSON as numpy takes it: items of compounds are tuples."""
    if isinstance(given, list):
        return tuple(map(_item, given))
    return float("nan") if given == "NaN" else given.encode() if isinstance(given, str) else given
