"""Reads the levels of a container, ours or foreign: one reader for all formats.

A format finds the levels of a container, and how the chunks of each are found and decoded. Bounds, ends of the array,
links, reading the metadata again and other processes are the reader's affair.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_spec import ArraySpec, Position
from acqstream.errors import CorruptDataset, DatasetError
from acqstream.formats.chunk_layout import ChunkLayout
from acqstream.storage.files.boundary import Boundary, following_links, requested_links
from acqstream.storage.files.small_file import MAX_FILE_BYTES
from acqstream.storage.stores.data_path import DataPath
from acqstream.storage.stores.shard_index import ShardReader, note_key
from acqstream.storage.stores.store import Store

_MARK_BYTES = 2**20
_MAX_OPEN_SLOTS = 2**20  # of shards whose index is kept: 16 MiB

Damage = Callable[[CorruptDataset], None]
_Key = TypeVar("_Key", bound=Hashable)
_Item = TypeVar("_Item")


class StoredLevel(Protocol):
    """One level of an array as its documents were last read; from any thread. It opens files only while it reads.

    Methods raise StorageError, CorruptDataset with the file, the offset and what was expected, UnsupportedFeature.
    """

    @property
    def spec(self) -> ArraySpec:
        """chunk_shape is the unit of `read`."""

    @property
    def complete(self) -> bool:
        """False while its writer, one of ours, has noted that chunks may come."""

    def read(self, position: Position) -> NDArray[np.generic] | None:
        """The chunk at a position of the grid, a new array; at the end of the array it may reach beyond.

        None if it is missing, which is never remembered.
        """

    def positions(self, on_damage: Damage) -> Iterator[Position]:
        """All stored chunks, also those outside the grid; on_damage gets what is wrong with an index."""

    def place(self, position: Position) -> str:
        """The object of a chunk, for messages."""


FindLevels = Callable[[DataPath], Sequence[Callable[[], StoredLevel]]]
"""Finds the levels of the array that a place means, the full resolution first, and opens one; a function of a module.

Raises DatasetError, CorruptDataset, UnsupportedFeature, StorageError.
"""


class ChunkReader:
    """Reads one level of an array, finished or growing; from any thread. `open_readers` makes those of all levels.

    No file stays open, and it may be sent to another process. boundary: files that are opened by their places must lie
    below it; None where stores check this.
    """

    def __init__(
        self,
        path: DataPath,
        number: int,
        find: FindLevels,
        boundary: Boundary | None,
        *,
        follows_links: bool,
        level: StoredLevel | None = None,
    ) -> None:
        self.path = path
        self._number = number
        self._find = find
        self._boundary = boundary
        self._follows_links = follows_links
        if level is None:
            self.refresh()
        else:
            self.level = level

    def __reduce__(self) -> tuple[object, ...]:
        return _reader, (self.path, self._number, self._find, self._boundary, self._follows_links)

    def refresh(self) -> None:
        """Read the metadata again: the array may have grown.

        Raises DatasetError if the level no longer exists; then nothing changes.
        """
        with following_links(self._follows_links), self.inside():
            levels = self._find(self.path)
            if self._number >= len(levels):
                raise DatasetError(f"{self.path}: level {self._number} no longer exists")
            self.level = levels[self._number]()

    @property
    def spec(self) -> ArraySpec:
        """As last read: at opening or by `refresh`. chunk_shape is the unit of `read_chunk`."""
        return self.level.spec

    @property
    def complete(self) -> bool:
        """False while its writer, one of ours, has noted that chunks may come. As last read."""
        return self.level.complete

    def read_chunk(self, position: Position) -> NDArray[np.generic] | None:
        """The chunk, a new array of dtype `spec.dtype`, in C order, cropped to the array; None if it is missing.

        Raises CorruptDataset with the file, the offset and what was expected, UnsupportedFeature, StorageError. That a
        chunk is not there is never remembered.
        """
        level = self.level
        spec = level.spec
        if not level.complete and 0 in spec.grid_shape:
            raise DatasetError(f"{self.path}: is growing, and nothing of it is announced yet")
        if not self.has(position):
            raise IndexError(f"{self.path}: no chunk {position} in a grid of {spec.grid_shape}")
        with self.inside():
            chunk = level.read(position)
        if chunk is None:
            return None
        shape = tuple(part.stop - part.start for part in spec.region(position))
        # Of an array without axes a contiguous copy would have one.
        return np.ascontiguousarray(chunk[tuple(slice(0, size) for size in shape)]).reshape(shape)

    def stored(self) -> Iterator[Position]:
        """Positions in the grid of all stored chunks, without reading them; in any order.

        Raises CorruptDataset for a damaged index of a shard.
        """
        return (position for position in self.stored_anywhere(_raised) if self.has(position))

    def stored_anywhere(self, on_damage: Damage) -> Iterator[Position]:
        """As `stored`, with positions of chunks outside the grid; on_damage gets what is wrong with an index."""
        positions = self.level.positions(on_damage)
        while True:
            with self.inside():  # the caller's own files are not inside
                position = next(positions, None)
            if position is None:
                return
            yield position

    def has(self, position: Position) -> bool:
        """Return True for a position in the grid."""
        grid = self.spec.grid_shape
        return len(position) == len(grid) and all(0 <= at < size for at, size in zip(position, grid, strict=True))

    def place(self, position: Position) -> str:
        """The object of a chunk, for messages."""
        return self.level.place(position)

    def close(self) -> None:
        """No file stays open."""

    def inside(self) -> AbstractContextManager[Any]:
        """Files that are opened in the `with` block must lie inside the boundary."""
        return nullcontext() if self._boundary is None else self._boundary.inside()


def open_readers(path: DataPath, find: FindLevels, boundary: Boundary | None = None) -> list[ChunkReader]:
    """Readers of all levels of a container, the full resolution first. Raises as `find`."""
    follows = requested_links() is True
    with nullcontext() if boundary is None else boundary.inside():
        levels = [opened() for opened in find(path)]
    return [
        ChunkReader(path, number, find, boundary, follows_links=follows, level=level)
        for number, level in enumerate(levels)
    ]


def requested_store(path: DataPath) -> Store:
    """The store at a place, with the links that the enclosing `following_links` allows."""
    return path.store(follows_links=requested_links() is True)


def read_mark(folder: DataPath, name: str) -> bytes:
    """The beginning of a document in a folder, which tells what this is; empty without one."""
    # Through a store: servers have no file names by which a document could be told from a folder.
    try:
        return folder.store(follows_links=True).get(name, 0, _MARK_BYTES) or b""
    except CorruptDataset:
        return b""  # a folder or a pipe of that name


def read_document(store: Store, key: str, max_bytes: int = MAX_FILE_BYTES) -> bytes | None:
    """A document of a store; None if it does not exist. Raises CorruptDataset if it is longer, StorageError."""
    content = store.get(key, 0, max_bytes + 1)
    if content is not None and len(content) > max_bytes:
        raise CorruptDataset(f"has more than {max_bytes} bytes", path=f"{store.url}/{key}")
    return content


def require_document(store: Store, key: str) -> bytes:
    """As `read_document`. Raises DatasetError if it does not exist."""
    content = read_document(store, key)
    if content is None:
        raise DatasetError(f"{store.url}/{key}: no such file")
    return content


def read_object(store: Store, key: str, max_bytes: int | None) -> bytes | None:
    """The object of a chunk; None if it does not exist. Raises CorruptDataset if it is longer, StorageError."""
    # One byte more than a chunk may have: a longer object is found without being read.
    data = store.get(key, 0, None if max_bytes is None else max_bytes + 1)
    if data is not None:
        _check_length(data, max_bytes, f"{store.url}/{key}")
    return data


ReadLayout = Callable[[Store], tuple[ChunkLayout, bool]]
"""The layout of a container of ours as its documents describe it, and whether it is complete.

Raises DatasetError and CorruptDataset.
"""


def open_layout(path: DataPath, read_layout: ReadLayout) -> list[ChunkReader]:
    """Readers of all levels of a container of ours, in which documents and chunks are objects of a store."""
    return open_readers(path, partial(layout_levels, read_layout))


def layout_levels(read_layout: ReadLayout, path: DataPath) -> Sequence[Callable[[], StoredLevel]]:
    """The levels of a container of ours: see FindLevels."""
    store = requested_store(path)
    layout, complete = read_layout(store)
    kind = ShardLevel if layout.needs == "append" else ObjectLevel
    return [partial(kind, layout, number, store, complete) for number in range(len(layout.plan.levels))]


class RecentlyUsed(Generic[_Key, _Item]):
    """The items that were used last, by key, as many as fit into max_size; from any thread."""

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._lock = threading.Lock()  # for the two that follow
        self._size = 0
        self._items: OrderedDict[_Key, tuple[_Item, int]] = OrderedDict()  # with sizes; the one used last at the end

    def get(self, key: _Key) -> _Item | None:
        """An item that is still kept."""
        with self._lock:
            if key not in self._items:
                return None
            self._items.move_to_end(key)
            return self._items[key][0]

    def put(self, key: _Key, item: _Item, size: int) -> None:
        """Keep an item, unless it is too large alone; those that were not used for longest are dropped."""
        with self._lock:
            self._forget(key)
            if size > self._max_size:
                return
            self._items[key] = item, size
            self._size += size
            while self._size > self._max_size:
                _, (_, dropped) = self._items.popitem(last=False)
                self._size -= dropped

    def drop(self, key: _Key) -> None:
        """Forget an item."""
        with self._lock:
            self._forget(key)

    def _forget(self, key: _Key) -> None:
        if key in self._items:
            self._size -= self._items.pop(key)[1]


class ObjectLevel:
    """A StoredLevel of a layout, with an object for each chunk."""

    def __init__(self, layout: ChunkLayout, number: int, store: Store, complete: bool) -> None:
        self.complete = complete
        self.spec = layout.plan.levels[number]
        self._layout = layout
        self._number = number
        self._store = store

    def read(self, position: Position) -> NDArray[np.generic] | None:
        """See StoredLevel."""
        data = self._content(position)
        if data is None:
            return None
        spec = self.spec
        chunk = self._layout.decode(self._number, position, data, self.place(position))
        if not spec.block_shape:
            return chunk
        # Axes of the grid of blocks, then those inside a block: each pair makes one axis of the chunk.
        ndim = len(spec.axes)
        pairs = [axis for pair in zip(range(ndim), range(ndim, 2 * ndim), strict=True) for axis in pair]
        return chunk.transpose(pairs).reshape(spec.chunk_shape)

    def positions(self, on_damage: Damage) -> Iterator[Position]:
        """See StoredLevel."""
        del on_damage
        for key in self._store.keys(""):
            found = self._layout.parse_key(key)
            if found is not None and found[0] == self._number:
                yield found[1]

    def place(self, position: Position) -> str:
        """See StoredLevel."""
        return f"{self._store.url}/{self._layout.key(self._number, position)}"

    def _content(self, position: Position) -> bytes | None:
        layout, number = self._layout, self._number
        return read_object(self._store, layout.key(number, position), layout.max_chunk_bytes(number))


class ShardLevel(ObjectLevel):
    """A StoredLevel of a layout, with chunks in shards as published by now, or later.

    Keeps the indices of the shards that were read last; a new object reads them again.
    """

    def __init__(self, layout: ChunkLayout, number: int, store: Store, complete: bool) -> None:
        super().__init__(layout, number, store, complete)
        self._open = RecentlyUsed[str, ShardReader](_MAX_OPEN_SLOTS)

    def positions(self, on_damage: Damage) -> Iterator[Position]:
        """See StoredLevel."""
        ending = note_key("")
        for key in {key.removesuffix(ending) for key in self._store.keys("")}:
            if self._layout.shard_level(key) != self._number:
                continue
            try:
                slots = list(self._reader(key).stored())
            except CorruptDataset as error:
                on_damage(error)
                continue
            positions = (self._layout.slot_position(key, slot) for slot in slots)
            yield from (position for position in positions if position is not None)

    def _content(self, position: Position) -> bytes | None:
        key, limit = self._layout.key(self._number, position), self._layout.max_chunk_bytes(self._number)
        data = self._reader(key).read(self._layout.slot(self._number, position), limit)
        if data is not None:
            _check_length(data, limit, f"{self._store.url}/{key}")
        return data

    def _reader(self, key: str) -> ShardReader:
        reader = self._open.get(key)
        if reader is None:
            reader = ShardReader(self._store, key, self._layout.shard_index(key))
            self._open.put(key, reader, reader.slots)
        return reader


def _check_length(data: bytes, limit: int | None, where: str) -> None:
    if limit is not None and len(data) > limit:
        raise CorruptDataset(f"has more than {limit} bytes, which no chunk takes", path=where, offset=limit)


def _raised(error: CorruptDataset) -> None:
    raise error


def _reader(
    path: DataPath, number: int, find: FindLevels, boundary: Boundary | None, follows_links: bool
) -> ChunkReader:
    return ChunkReader(path, number, find, boundary, follows_links=follows_links)
