"""Finds the chunks of a dataset: files of its own, or spans of other files, which `file_uri` names."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_spec import Position
from acqstream.errors import CorruptDataset, UnsupportedFeature
from acqstream.formats.chunk_reader import RecentlyUsed, read_object
from acqstream.formats.hsds.codec import ChunkCodec
from acqstream.formats.hsds.dataset_layout import Span
from acqstream.formats.hsds.domain import Bucket
from acqstream.formats.hsds.hdf_type import DType
from acqstream.formats.hsds.metadata import DatasetDocument
from acqstream.formats.hsds.object_id import parse_index, parse_key
from acqstream.storage.files.boundary import leads_out
from acqstream.storage.stores.data_path import DataPath
from acqstream.storage.stores.store import Store

Rows = NDArray[Any]
"""Rows of a chunk table, an array of a compound with offset and size."""


class FileKey(NamedTuple):
    """A file in a store."""

    store: Store
    key: str

    @property
    def where(self) -> str:
        """The file, for messages."""
        return f"{self.store.url}/{self.key}"


ResolveUri = Callable[[str], FileKey]
"""The file that a file_uri means. Raises UnsupportedFeature, CorruptDataset.

A container of ours replaces `in_root`: its note names the files, and no link of the bucket is followed.
"""


def in_root(root: DataPath, *, follows_links: bool) -> ResolveUri:
    """Files below the folder with the buckets. A link that leads out of it is followed with follows_links only."""
    store = root.store(follows_links=follows_links)

    def resolve(uri: str) -> FileKey:
        parts = [part for part in uri.split("/") if part not in ("", ".")]
        if leads_out(uri) or ".." in parts or "\\" in uri or len(parts) < 2:
            raise UnsupportedFeature(
                f"{root}: chunks lie in {uri!r:.200}; expected a file below {root}, <bucket>/<path>"
            )
        return FileKey(store, "/".join(parts))

    return resolve


MAX_CHUNK_BYTES = 1 << 30
_CONTIGUOUS_BYTES = 16 << 20  # a dataset in one piece is read in parts of about that
_MAX_ROW_BYTES = 64 << 20  # of a chunk table that are kept; ours have 1 MiB a chunk
_ENTRY_BYTES = 1024  # of a chunk of it that is kept, beside its rows
_PRIMES = (29, 31, 37, 41, 43, 47, 53, 59, 61, 67)  # the server derives a chunk's partition from them


class ChunkBytes(NamedTuple):
    """The stored bytes of one chunk: from byte `offset` of a file on; None for a file of its own."""

    data: bytes
    where: str
    offset: int | None = None


class DatasetChunks(ABC):
    """Encoded chunks of one dataset; from any thread. Methods raise StorageError, CorruptDataset."""

    def __init__(self, document: DatasetDocument) -> None:
        self._document = document
        self.chunk_shape = document.chunk_shape
        """The shape of a chunk, slowest dimension first; () for a scalar."""

    @abstractmethod
    def read(self, position: Position) -> ChunkBytes | None:
        """A chunk as stored; None if it is missing, which is never remembered."""

    @abstractmethod
    def positions(self) -> Iterator[Position]:
        """All stored chunks, also outside the grid, in any order."""

    @abstractmethod
    def place(self, position: Position) -> str:
        """The file of a chunk, for messages."""


def dataset_chunks(bucket: Bucket, document: DatasetDocument, codec: ChunkCodec, resolve: ResolveUri) -> DatasetChunks:
    """The chunks of a dataset. codec is that of its chunks.

    Raises CorruptDataset, UnsupportedFeature for chunks of more than 1 GiB.
    """
    kind = document.layout.kind
    if kind == "H5D_CONTIGUOUS_REF":
        return ContiguousSpan(document, resolve)
    if codec.raw_bytes > MAX_CHUNK_BYTES:
        text = f"{bucket.where(document.id.key)}: chunks of {codec.raw_bytes} bytes"
        raise UnsupportedFeature(f"{text}; acqstream reads up to {MAX_CHUNK_BYTES}")
    if kind == "H5D_CHUNKED_REF":
        return ListedSpans(document, codec, resolve)
    if kind == "H5D_CHUNKED_REF_INDIRECT":
        return TableSpans(bucket, document, codec, resolve)
    return FilePerChunk(bucket, document, codec)


class FilePerChunk(DatasetChunks):
    """DatasetChunks with a file each."""

    def __init__(self, bucket: Bucket, document: DatasetDocument, codec: ChunkCodec) -> None:
        self._bucket = bucket
        super().__init__(document)
        self._codec = codec

    def read(self, position: Position) -> ChunkBytes | None:
        """See DatasetChunks."""
        key = self._key(position)
        data = read_object(self._bucket.store, key, self._codec.max_bytes)
        return None if data is None else ChunkBytes(data, self._bucket.where(key))

    def positions(self) -> Iterator[Position]:
        """See DatasetChunks."""
        own, store = self._document.id, self._bucket.store
        if own.is_v1:
            # All objects of all domains lie in one folder.
            for name in store.children():
                found = parse_key(name)
                if found is not None and found.id == own and found.position is not None:
                    yield self._shown(found.position)
            return
        for name in store.children(own.folder):
            position = parse_index(name)
            if position is not None:
                yield self._shown(position)
            elif name.startswith("p") and name[1:-1].isdecimal() and name.endswith("/"):
                inside = map(parse_index, store.children(f"{own.folder}/{name}"))
                yield from (self._shown(one) for one in inside if one is not None)

    def place(self, position: Position) -> str:
        """See DatasetChunks."""
        return self._bucket.where(self._key(position))

    def _key(self, position: Position) -> str:
        index, count = position or (0,), self._document.layout.partitions
        partition = None
        if count > 1:
            partition = sum(at * _PRIMES[axis % len(_PRIMES)] for axis, at in enumerate(index)) % count
        return self._document.id.chunk_key(index, partition)

    def _shown(self, position: Position) -> Position:
        """The chunk of a scalar is named 0."""
        return position if self._document.space.dims else position[1:]


class ListedSpans(DatasetChunks):
    """DatasetChunks in one file, with offsets and lengths in the document."""

    def __init__(self, document: DatasetDocument, codec: ChunkCodec, resolve: ResolveUri) -> None:
        super().__init__(document)
        self._codec = codec
        self._file = resolve(document.layout.file_uri)

    def read(self, position: Position) -> ChunkBytes | None:
        """See DatasetChunks."""
        span = self._document.layout.spans.get(position)
        return None if span is None else _read_span(self._file, span, self._codec.max_bytes)

    def positions(self) -> Iterator[Position]:
        """See DatasetChunks."""
        return (position for position, (_, size) in self._document.layout.spans.items() if size)

    def place(self, position: Position) -> str:
        """See DatasetChunks."""
        return self._file.where


class ChunkTable:
    """Rows of a chunk table, with at least offset and size of a chunk of the dataset each; from any thread.

    steps: rows of a chunk of the table along each axis. read gives those of the chunk at a position; None if it is
    missing: its rows have a size of 0, as all chunks of the dataset that are not stored. may_change: such a row is
    looked for again whenever it is asked for, as it may have come.
    """

    def __init__(
        self, steps: tuple[int, ...], dtype: DType, read: Callable[[Position], Rows | None], *, may_change: bool
    ) -> None:
        self.steps = steps
        self._read = read
        self._may_change = may_change
        self._dtype = dtype
        self._kept = RecentlyUsed[Position, Rows](max(_MAX_ROW_BYTES, math.prod(steps) * dtype.itemsize + _ENTRY_BYTES))

    def rows(self, chunk: Position) -> Rows:
        """The rows of a chunk of the table. Raises as `read`."""
        rows = self._kept.get(chunk)
        return self._read_again(chunk) if rows is None else rows

    def row(self, position: Position) -> Any:
        """The row of a chunk of the dataset; None if it is not stored."""
        # The table has a row for each chunk of the dataset, so a position is cut by the table's own chunks.
        chunk = self.chunk_of(position)
        inside = tuple(at % step for at, step in zip(position, self.steps, strict=True))
        rows = self._kept.get(chunk)
        if rows is None or (self._may_change and not rows[inside]["size"]):
            rows = self._read_again(chunk)
        return rows[inside] if rows[inside]["size"] else None

    def chunk_of(self, position: Position) -> Position:
        """The chunk of the table with the row of a chunk of the dataset."""
        return tuple(at // step for at, step in zip(position, self.steps, strict=True))

    def positions(self, chunks: Iterable[Position]) -> Iterator[Position]:
        """The stored chunks of the dataset by the rows in these chunks of the table."""
        for chunk in chunks:
            rows = self._read_again(chunk) if self._may_change else self.rows(chunk)
            for inside in np.argwhere(rows["size"] != 0).tolist():
                yield tuple(n * step + at for n, step, at in zip(chunk, self.steps, inside, strict=True))

    def _read_again(self, chunk: Position) -> Rows:
        found = self._read(chunk)
        # Of a missing chunk, rows without memory for each.
        rows: Rows = np.broadcast_to(np.zeros((), self._dtype), self.steps) if found is None else found
        self._kept.put(chunk, rows, rows.nbytes + _ENTRY_BYTES)
        return rows


class TableSpans(DatasetChunks):
    """DatasetChunks in other files, with a row for each in another dataset, the chunk table."""

    def __init__(self, bucket: Bucket, document: DatasetDocument, codec: ChunkCodec, resolve: ResolveUri) -> None:
        self._bucket = bucket
        super().__init__(document)
        self._codec = codec
        self._resolve = resolve
        self._where = bucket.where(document.id.key)
        table_id = document.layout.chunk_table
        assert table_id is not None  # a layout of this kind has one
        table = bucket.dataset(table_id)
        self._table = self._checked(table)
        self._table_codec = ChunkCodec(table.chunk_shape, table.dtype, table.filters)
        if table.layout.is_reference or self._table_codec.raw_bytes > MAX_CHUNK_BYTES:
            raise UnsupportedFeature(f"{self._where}: a chunk table that is not read here ({table.layout.kind})")
        self._files = FilePerChunk(bucket, table, self._table_codec)
        self._rows = ChunkTable(self._files.chunk_shape, table.dtype, self._chunk_of_table, may_change=True)

    def read(self, position: Position) -> ChunkBytes | None:
        """See DatasetChunks."""
        row = self._rows.row(position)
        if row is None:
            return None
        offset, size = int(row["offset"]), int(row["size"])
        return _read_span(self._file(row), (offset, size), self._codec.max_bytes)

    def positions(self) -> Iterator[Position]:
        """See DatasetChunks."""
        return self._rows.positions(self._files.positions())

    def place(self, position: Position) -> str:
        """See DatasetChunks."""
        row = self._rows.row(position)
        return self._where if row is None else self._file(row).where

    def _checked(self, table: DatasetDocument) -> DatasetDocument:
        names = table.dtype.names or ()
        dims = self._document.space.dims or ()
        wrong = [name for name in ("offset", "size") if name not in names or table.dtype[name].kind not in "iu"]
        if wrong or len(table.space.dims or ()) != len(dims):
            text = f"the chunk table {table.id} has {table.space.dims} items of {table.dtype}"
            raise CorruptDataset(f"{text}, expected a row of offset and size for each chunk", path=self._where)
        if "file_uri" in names and table.dtype["file_uri"].kind != "S":
            raise CorruptDataset(f"file_uri of {table.id} is not a fixed string", path=self._where)
        return table

    def _chunk_of_table(self, chunk: Position) -> Rows | None:
        stored = self._files.read(chunk)
        if stored is None:
            return None
        rows: Rows = self._table_codec.decode(stored.data, stored.where)
        # Of a stranger's signed type: no chunk has such a size.
        rows["size"][rows["size"] < 0] = 0
        return rows

    def _file(self, row: Any) -> FileKey:
        uri = self._document.layout.file_uri
        # A row without a name means the file of the layout.
        if "file_uri" in (row.dtype.names or ()):
            uri = bytes(row["file_uri"]).rstrip(b"\0").decode("utf-8", "replace") or uri
        return self._resolve(uri)


class ContiguousSpan(DatasetChunks):
    """DatasetChunks of a dataset that lies in one piece in another file: parts of it along its first dimensions."""

    def __init__(self, document: DatasetDocument, resolve: ResolveUri) -> None:
        super().__init__(document)
        self._file = resolve(document.layout.file_uri)
        self._item_bytes = document.dtype.itemsize
        self.chunk_shape = self._parts(document.space.dims or ())

    def read(self, position: Position) -> ChunkBytes | None:
        """See DatasetChunks."""
        dims, span = self._document.space.dims or (), self._document.layout.span
        assert span is not None  # a layout of this kind has one
        # The part is one run: all dimensions after its first long one are complete.
        first = 0
        for at, step, size in zip(position, self.chunk_shape, dims, strict=True):
            first = first * size + at * step
        length = math.prod(self.chunk_shape) * self._item_bytes
        start = first * self._item_bytes
        if start + length > span[1]:
            raise CorruptDataset(f"a span of {span[1]} bytes is too short for {dims}", path=self._file.where)
        return _read_span(self._file, (span[0] + start, length), length)

    def positions(self) -> Iterator[Position]:
        """See DatasetChunks."""
        sides = zip(self._document.space.dims or (), self.chunk_shape, strict=True)
        return itertools.product(*(range(-(-size // step)) for size, step in sides))

    def place(self, position: Position) -> str:
        """See DatasetChunks."""
        return self._file.where

    def _parts(self, dims: tuple[int, ...]) -> tuple[int, ...]:
        """Items along the first dimensions one by one, until a part is small enough: each part is one run of bytes."""
        shape = [max(1, size) for size in dims]
        for axis in range(len(shape)):
            if math.prod(shape) * self._item_bytes <= _CONTIGUOUS_BYTES:
                break
            shape[axis] = 1
        return tuple(shape)


def _read_span(file: FileKey, span: Span, limit: int) -> ChunkBytes | None:
    offset, size = span
    if size == 0:
        return None
    if size > limit or offset < 0:
        raise CorruptDataset(f"a chunk of {size} bytes at {offset}, expected at most {limit}", path=file.where)
    data = file.store.get(file.key, offset, size)
    if data is None:
        raise CorruptDataset("no such file, but chunks of a dataset lie in it", path=file.where)
    if len(data) < size:
        raise CorruptDataset(f"ends after {len(data)} of the {size} bytes of a chunk", path=file.where, offset=offset)
    return ChunkBytes(data, file.where, offset)
