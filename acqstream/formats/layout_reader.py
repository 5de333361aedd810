"""Reads and checks containers of any format through their layout and a store."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_spec import ArraySpec, Position
from acqstream.errors import CorruptDataset, DatasetError, UnsupportedFeature
from acqstream.formats.check_report import CheckReport
from acqstream.formats.chunk_format import ChunkCounts
from acqstream.formats.chunk_layout import ChunkLayout
from acqstream.formats.stored_chunks import Damage, stored_chunks
from acqstream.storage.files.boundary import requested_links
from acqstream.storage.stores.data_path import ReadPlace
from acqstream.storage.stores.store import Store

ReadLayout = Callable[[Store], tuple[ChunkLayout, bool]]
"""The layout of an existing container as its documents describe it, and whether it is complete; a function of a module.

Raises DatasetError and CorruptDataset.
"""


class LayoutReader:
    """A ChunkArrayReader of one level. `open_readers` makes those of all levels.

    No file stays open, and it may be sent to another process.
    """

    def __init__(self, path: ReadPlace, level: int, read_layout: ReadLayout, *, follows_links: bool) -> None:
        self.path = path
        self._level = level
        self._read_layout = read_layout
        self._follows_links = follows_links
        self._store = path.store(follows_links=follows_links)
        self.refresh()

    def __reduce__(self) -> tuple[object, ...]:
        return _reader, (self.path, self._level, self._read_layout, self._follows_links)

    def refresh(self) -> None:
        """See ChunkArrayReader. Raises DatasetError if the level no longer exists; then nothing changes."""
        layout, complete = self._read_layout(self._store)
        if self._level >= len(layout.plan.levels):
            raise DatasetError(f"{self.path}: level {self._level} no longer exists")
        self._layout, self.complete = layout, complete
        self._chunks = stored_chunks(layout, self._level, self._store)

    @property
    def spec(self) -> ArraySpec:
        """See ChunkArrayReader."""
        return self._layout.plan.levels[self._level]

    def read_chunk(self, position: Position) -> NDArray[np.generic] | None:
        """See ChunkArrayReader."""
        spec = self.spec
        if 0 in spec.grid_shape:
            raise DatasetError(f"{self.path}: is growing, and nothing of it is announced yet")
        if not _is_inside(position, spec):
            raise IndexError(f"{self.path}: no chunk {position} in a grid of {spec.grid_shape}")
        data = self._chunks.read(position)
        if data is None:
            return None
        chunk = self._layout.decode(self._level, position, data, self.place(position))
        if spec.block_shape:
            # Axes of the grid of blocks, then those inside a block: each pair makes one axis of the chunk.
            ndim = len(spec.axes)
            chunk = chunk.transpose(
                [axis for pair in zip(range(ndim), range(ndim, 2 * ndim), strict=True) for axis in pair]
            )
            chunk = chunk.reshape(spec.chunk_shape)
        crop = tuple(slice(0, part.stop - part.start) for part in spec.region(position))
        return np.ascontiguousarray(chunk[crop])

    def stored(self) -> Iterator[Position]:
        """See ChunkArrayReader. Raises CorruptDataset for a damaged index of a shard."""
        for position in self.stored_anywhere(_raised):
            if _is_inside(position, self.spec):
                yield position

    def stored_anywhere(self, on_damage: Damage) -> Iterator[Position]:
        """As `stored`, with positions of chunks outside the grid; on_damage gets what is wrong with an index."""
        yield from self._chunks.positions(on_damage)

    def place(self, position: Position) -> str:
        """The object of a chunk, for messages."""
        return f"{self._store.url}/{self._layout.key(self._level, position)}"

    def close(self) -> None:
        """No file stays open."""


def open_readers(path: ReadPlace, read_layout: ReadLayout) -> list[LayoutReader]:
    """Readers of all levels of a container, the full resolution first. Raises DatasetError, StorageError."""
    follows = requested_links() is True
    first = LayoutReader(path, 0, read_layout, follows_links=follows)
    count = len(first._layout.plan.levels)
    return [first, *(LayoutReader(path, level, read_layout, follows_links=follows) for level in range(1, count))]


def check_container(path: ReadPlace, read_layout: ReadLayout, report: CheckReport) -> ChunkCounts:
    """Read every chunk and report what cannot be decoded; chunks outside the grid are noted."""
    arrays = chunks = missing = payload_bytes = 0
    try:
        readers = open_readers(path, read_layout)
    except CorruptDataset as error:
        report.add_error(error)
        return ChunkCounts(0, 0, 0, 0)
    for reader in readers:
        arrays += 1
        count = 0
        for position in reader.stored_anywhere(report.add_error):
            report.on_progress("reading chunks", payload_bytes, 0)
            if not _is_inside(position, reader.spec):
                report.add_note(f"{reader.place(position)} lies outside the array")
                continue
            count += 1
            try:
                chunk = reader.read_chunk(position)
            except CorruptDataset as error:
                report.add_error(error)
                continue
            except UnsupportedFeature as error:
                report.add_problem(reader.place(position), str(error))
                continue
            payload_bytes += 0 if chunk is None else chunk.nbytes
        chunks += count
        missing += math.prod(reader.spec.grid_shape) - count
    return ChunkCounts(arrays, chunks, missing, payload_bytes)


def _reader(path: ReadPlace, level: int, read_layout: ReadLayout, follows_links: bool) -> LayoutReader:
    return LayoutReader(path, level, read_layout, follows_links=follows_links)


def _raised(error: CorruptDataset) -> None:
    raise error


def _is_inside(position: Position, spec: ArraySpec) -> bool:
    grid = spec.grid_shape
    return len(position) == len(grid) and all(0 <= at < size for at, size in zip(position, grid, strict=True))
