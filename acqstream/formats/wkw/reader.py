"""One level of an array in WKW, read in pieces of its cubes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_spec import ArraySpec, Position
from acqstream.errors import CorruptDataset, DatasetError
from acqstream.formats.wkw.axes import Place, axis_roles
from acqstream.formats.wkw.cube_folder import CubeFolder, piece_shape_of
from acqstream.formats.wkw.cube_paths import Cube
from acqstream.formats.wkw.header import HEADER_NAME
from acqstream.formats.wkw.opening import FoundLevel, container_of, find_levels
from acqstream.storage.files.boundary import Boundary
from acqstream.storage.stores.data_path import ReadPlace

_MOST_FOLDERS = 256  # of which the headers are kept


class WkwReader:
    """A ChunkArrayReader. No file is kept open, and it may be sent to another process.

    path is what was opened, layer the one that was chosen of a dataset.
    """

    def __init__(self, path: ReadPlace, level: int, layer: str | None = None, boundary: Boundary | None = None) -> None:
        self.path = path
        self.boundary = boundary_of(path) if boundary is None else boundary
        self._number = level
        self._layer = layer
        self._lock = threading.Lock()
        self._folders: dict[ReadPlace, CubeFolder] = {}
        self.refresh()

    def __reduce__(self) -> tuple[Callable[..., WkwReader], tuple[ReadPlace, int, str | None, Boundary]]:
        return WkwReader, (self.path, self._number, self._layer, self.boundary)

    @property
    def spec(self) -> ArraySpec:
        """See ChunkArrayReader."""
        return self._spec

    @property
    def complete(self) -> bool:
        """See ChunkArrayReader."""
        return self._level.complete

    def read_chunk(self, position: Position) -> NDArray[np.generic] | None:
        """See ChunkArrayReader. None where there is no cube file, and after the watermark of one that is written."""
        if len(position) != len(self._spec.axes) or not all(
            0 <= at < count for at, count in zip(position, self._spec.grid_shape, strict=True)
        ):
            raise IndexError(f"chunk {position} is not in the grid of {self._spec.grid_shape}")
        place = self._roles.place(position)
        with self.boundary.inside():
            folder = self._folder(place) if self._is_whole(place) else None
            voxels = None if folder is None else folder.read_piece(place.voxel)
        if voxels is None:
            return None
        region = self._spec.region(position)
        sizes = tuple(slice(part.stop - part.start) for part in region)
        return np.ascontiguousarray(self._roles.as_chunk(voxels)[sizes])

    def stored(self) -> Iterator[Position]:
        """See ChunkArrayReader: all chunks of cube files that are there."""
        for place, folder in self.folders():
            for cube in folder.cubes():
                for position in self.positions_in(place, folder, cube):
                    if self._is_whole(self._roles.place(position)):
                        yield position

    def folders(self) -> Iterator[tuple[Place, CubeFolder]]:
        """The folders of cubes of the array that are there, each with the place of its first voxel."""
        for dataset in self._roles.datasets(self._spec.shape):
            for layer in range(self._roles.layers(self._spec.shape)):
                place = Place(dataset, layer, (0, 0, 0))
                with self.boundary.inside():
                    folder = self._folder(place)
                if folder is not None:
                    yield place, folder

    def positions_in(self, place: Place, folder: CubeFolder, cube: Cube) -> Iterator[Position]:
        """Positions of the chunks of a cube file that lie in the array."""
        for piece in folder.pieces_of(cube):
            position = self._roles.position(replace(place, voxel=piece))
            if all(at < count for at, count in zip(position, self._spec.grid_shape, strict=True)):
                yield position

    def refresh(self) -> None:
        """See ChunkArrayReader. Raises DatasetError if the level no longer exists."""
        with self.boundary.inside():
            levels = find_levels(self.path, self._layer)
        if self._number >= len(levels):
            raise DatasetError(f"{self.path}: level {self._number} no longer exists")
        level = levels[self._number]
        roles = axis_roles(level.spec.axes)
        components = (level.header.channels,) if roles.has_components else ()
        chunk_shape = (1,) * roles.depth + piece_shape_of(level.header) + components
        self._spec = replace(level.spec, chunk_shape=chunk_shape)
        self._level: FoundLevel = level
        self._roles = roles
        self._whole: dict[tuple[tuple[int, ...], int], int] = {}

    def close(self) -> None:
        """No file is held open."""

    def _is_whole(self, place: Place) -> bool:
        """Return True if a piece may be read: one that is being written in place may be half old, half new."""
        level, key = self._level, (place.dataset, place.layer)
        if level.whole is None:
            return True
        start = place.voxel[0] * level.header.block_side
        whole = self._whole.get(key, 0)
        if start >= whole:
            whole = level.whole(*key)
            if len(self._whole) >= _MOST_FOLDERS:
                self._whole.clear()
            self._whole[key] = whole
        return start < whole

    def _folder(self, place: Place) -> CubeFolder | None:
        """None where nothing is there yet."""
        path = self._level.folder(place.dataset, place.layer)
        with self._lock:
            folder = self._folders.get(path)
        if folder is None:
            if not self._level.complete and not (path / HEADER_NAME).is_object():
                return None
            folder = CubeFolder(path)
            expected = self._level.header
            if replace(folder.header, data_offset=0) != replace(expected, data_offset=0):
                text = f"tells of {folder.header}, the rest of the array is of {expected}"
                raise CorruptDataset(text, path=str(path / HEADER_NAME))
            with self._lock:
                if len(self._folders) >= _MOST_FOLDERS:
                    self._folders.clear()
                self._folders[path] = folder
        return folder


def open_readers(path: ReadPlace, layer: str | None = None) -> list[WkwReader]:
    """The readers of all levels at `path`, the finest first. Raises as `find_levels`."""
    boundary = boundary_of(path)
    with boundary.inside():
        count = len(find_levels(path, layer))
    return [WkwReader(path, level, layer, boundary) for level in range(count)]


def boundary_of(path: ReadPlace) -> Boundary:
    """Around the dataset that a path lies in."""
    return container_of(path).boundary()
