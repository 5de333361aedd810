"""Reads one dataset of a domain of any writer as an array."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_spec import ArraySpec, Position
from acqstream.errors import CorruptDataset, UnsupportedFeature
from acqstream.formats.hsds.bucket import Bucket, bucket_at
from acqstream.formats.hsds.codec import ChunkCodec
from acqstream.formats.hsds.dataset_chunks import DatasetChunks, dataset_chunks
from acqstream.formats.hsds.hdf_type import VARIABLE_TEXT, DType
from acqstream.formats.hsds.object_documents import DatasetDocument
from acqstream.formats.hsds.object_id import ObjectId
from acqstream.formats.hsds.references import ResolveUri, in_root
from acqstream.storage.stores.data_path import ReadPlace

_LABELS = "DIMENSION_LABELS"


@dataclass(frozen=True, slots=True)
class _Dataset:
    """A dataset as last read. fill is a value of its type."""

    spec: ArraySpec
    codec: ChunkCodec
    chunks: DatasetChunks
    fill: Any


class DatasetReader:
    """A ChunkArrayReader of one dataset. No file stays open, and it may be sent to another process.

    The array grows when its document is read again. complete is True: other software notes nothing of it.
    """

    complete = True

    def __init__(self, bucket: ReadPlace, own: ObjectId, *, follows_links: bool) -> None:
        self.path = bucket / (own.key if own.is_v1 else own.folder)
        self._place = bucket
        self._id = own
        self._follows_links = follows_links
        self._bucket = bucket_at(bucket, follows_links=follows_links)
        self._resolve = in_root(bucket.parent, follows_links=follows_links)
        self.refresh()

    def __reduce__(self) -> tuple[object, ...]:
        return _reader, (self._place, self._id, self._follows_links)

    @property
    def spec(self) -> ArraySpec:
        """See ChunkArrayReader."""
        return self._found.spec

    @property
    def only_shuffles(self) -> bool:
        """True for chunks that version 1.0.2 of the server reads wrong: see ChunkCodec."""
        return self._found.codec.only_shuffles

    def refresh(self) -> None:
        """See ChunkArrayReader."""
        self._found = read_dataset(self._bucket, self._id, self._resolve)

    def read_chunk(self, position: Position) -> NDArray[np.generic] | None:
        """See ChunkArrayReader. A missing chunk is returned as one of the fill value, unless that is 0."""
        found = self._found
        spec = found.spec
        if not _is_inside(position, spec):
            raise IndexError(f"{self.path}: no chunk {position} in a grid of {spec.grid_shape}")
        shape = tuple(part.stop - part.start for part in spec.region(position))
        stored = found.chunks.read(position)
        if stored is None:
            return None if found.fill is None else np.full(shape, found.fill, spec.dtype)
        chunk = found.codec.decode(stored.data, stored.where, stored.offset)
        # Of an array without axes it would have one.
        return np.ascontiguousarray(chunk[tuple(slice(0, size) for size in shape)]).reshape(shape)

    def stored(self) -> Iterator[Position]:
        """See ChunkArrayReader."""
        return (position for position in self.stored_anywhere() if _is_inside(position, self.spec))

    def stored_anywhere(self) -> Iterator[Position]:
        """As `stored`, with positions of chunks outside the grid."""
        return self._found.chunks.positions()

    def place(self, position: Position) -> str:
        """The file of a chunk, for messages."""
        return self._found.chunks.place(position)

    def close(self) -> None:
        """No file stays open."""


def read_dataset(bucket: Bucket, own: ObjectId, resolve: ResolveUri) -> _Dataset:
    """The array, the chunks and the fill value of a dataset.

    Raises DatasetError if it does not exist, CorruptDataset, UnsupportedFeature.
    """
    document = bucket.dataset(own)
    where = bucket.where(own.key)
    dims, dtype = document.space.dims, document.dtype
    if dims is None:
        raise UnsupportedFeature(f"{where}: a dataset without any item (H5S_NULL)")
    if dtype == VARIABLE_TEXT:
        raise UnsupportedFeature(f"{where}: items are strings of variable length; acqstream reads those of a fixed one")
    if dtype.subdtype is not None:
        raise UnsupportedFeature(f"{where}: items are arrays ({dtype}); acqstream reads arrays inside compounds")
    if math.prod(dims) >= 2**63:
        raise CorruptDataset(f"dims {dims} have more than 2^63 items", path=where)
    shape = tuple(max(1, size) for size in document.chunk_shape)
    codec = ChunkCodec(shape, dtype, document.filters)
    chunks = dataset_chunks(bucket, document, codec, resolve)
    spec = ArraySpec(
        axes=_axes(document, len(dims)),
        shape=dims,
        dtype=dtype.newbyteorder("="),
        chunk_shape=tuple(max(1, size) for size in chunks.chunk_shape),
        attributes=document.values,
    )
    codec = ChunkCodec(spec.chunk_shape, dtype, document.filters)
    return _Dataset(spec, codec, chunks, _fill(document.fill_value, spec.dtype, where))


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
    return given.encode() if isinstance(given, str) and given != "NaN" else float("nan") if given == "NaN" else given


def _reader(bucket: ReadPlace, own: ObjectId, follows_links: bool) -> DatasetReader:
    return DatasetReader(bucket, own, follows_links=follows_links)


def _is_inside(position: Position, spec: ArraySpec) -> bool:
    grid = spec.grid_shape
    return len(position) == len(grid) and all(0 <= at < size for at, size in zip(position, grid, strict=True))
