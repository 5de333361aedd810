"""Reads a container that our writer made: all its images as one array, as our note describes it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_spec import ArraySpec, Position
from acqstream.errors import CorruptDataset, DatasetError
from acqstream.formats.level_plan import PLANE
from acqstream.formats.ome_zarr.axes import SAMPLE, split_axes
from acqstream.formats.ome_zarr.chunk_store import ChunkStore, IndexCache
from acqstream.formats.ome_zarr.image_folders import ImageFolders
from acqstream.formats.ome_zarr.notes import Note, has_note, parse_note
from acqstream.formats.ome_zarr.zarr_array import ZarrArray
from acqstream.formats.ome_zarr.zarr_json import DOCUMENT_NAME, parse_array
from acqstream.model.fields import Fields
from acqstream.storage.boundary import requested_links
from acqstream.storage.json_file import MAX_FILE_BYTES, parse_fields
from acqstream.storage.read_place import ReadPlace
from acqstream.storage.store import Store


class ContainerLevel:
    """A ChunkArrayReader of one level of all images. No file stays open, and it may be sent to another process."""

    def __init__(self, path: ReadPlace, level: int, *, follows_links: bool) -> None:
        self.path = path
        self._level = level
        self._follows_links = follows_links
        self._store = path.store(follows_links=follows_links)
        self.refresh()

    def __reduce__(self) -> tuple[object, ...]:
        return _level, (self.path, self._level, self._follows_links)

    def refresh(self) -> None:
        """See ChunkArrayReader. Raises DatasetError if the level no longer exists; then nothing changes."""
        note = read_note(self._store, str(self.path))
        if self._level >= len(note.levels):
            raise DatasetError(f"{self.path}: level {self._level} no longer exists")
        spec = note.levels[self._level]
        members, _ = split_axes(spec.axes)
        array = self._first_array(note, len(members))
        self._array, self._folders, self._members = array, note.folders, len(members)
        self._cache = IndexCache(may_change=not note.complete)
        self.complete = note.complete
        self.spec: ArraySpec = replace(spec, chunk_shape=(*(1 for _ in members), *array.chunk_shape))

    def read_chunk(self, position: Position) -> NDArray[np.generic] | None:
        """See ChunkArrayReader."""
        spec = self.spec
        if not _is_inside(position, spec):
            raise IndexError(f"{self.path}: no chunk {position} in a grid of {spec.grid_shape}")
        members = self._members
        chunk = self._chunks(position[:members]).read(position[members:])
        if chunk is None:
            return None
        crop = tuple(part.stop - part.start for part in spec.region(position))
        inside = chunk[tuple(slice(0, size) for size in crop[members:])]
        return np.ascontiguousarray(inside).reshape(crop)

    def stored(self) -> Iterator[Position]:
        """See ChunkArrayReader."""
        return (position for position in self.stored_anywhere() if _is_inside(position, self.spec))

    def stored_anywhere(self) -> Iterator[Position]:
        """As `stored`, with chunks beyond the array, of its images."""
        for member in np.ndindex(*self.spec.shape[: self._members]):
            for position in self._chunks(member).stored("c/"):
                yield (*member, *position)

    def place(self, position: Position) -> str:
        """The object of a chunk, for messages."""
        members = self._members
        shard, _ = self._array.place(position[members:])
        return f"{self._store.url}/{self._chunks(position[:members]).key(shard)}"

    def close(self) -> None:
        """No file stays open."""

    def _chunks(self, member: Position) -> ChunkStore:
        return ChunkStore(self._store, self._prefix(member, self._folders), self._array, self._cache)

    def _prefix(self, member: Position, folders: ImageFolders) -> str:
        return "".join(f"{part}/" for part in (*folders.parts(member), self._level))

    def _first_array(self, note: Note, members: int) -> ZarrArray:
        """The array of the first image: all have the same chunks and codecs."""
        key = f"{self._prefix((0,) * members, note.folders)}{DOCUMENT_NAME}"
        content = self._store.get(key, 0, MAX_FILE_BYTES)
        if content is None:
            raise DatasetError(f"{self.path}/{key} is missing")
        array = parse_array(content, f"{self.path}/{key}")
        if len(array.shape) != len(note.levels[0].axes) - members or array.dtype != note.levels[0].dtype:
            raise DatasetError(f"{self.path}/{key}: {array.shape} of {array.dtype} is not an image of the container")
        noted = note.levels[self._level]
        for axis, has, stated in zip(noted.axes[members:], array.shape, noted.shape[members:], strict=True):
            # Documents of arrays are put first: while it grows they have more of other axes than the note, or, when
            # it ends, less. A size of the note alone would be zeros.
            if has != stated if axis in (*PLANE, SAMPLE) else note.complete and has < stated:
                text = f"has {has} items along {axis}, {DOCUMENT_NAME} of the container states {stated}"
                raise CorruptDataset(text, path=f"{self.path}/{key}")
        return array


def note_at(path: ReadPlace) -> Fields | None:
    """The attributes of a group with our note; None for anything else."""
    document = path / DOCUMENT_NAME
    if not document.is_object():
        return None
    fields = parse_fields(document.content(), str(document))
    return fields.child("attributes") if has_note(fields.values.get("attributes")) else None


def read_note(store: Store, where: str) -> Note:
    """Our note in a container. Raises CorruptDataset, DatasetError if it has none."""
    content = store.get(DOCUMENT_NAME, 0, MAX_FILE_BYTES)
    if content is None:
        raise DatasetError(f"{where}/{DOCUMENT_NAME} is missing")
    fields = parse_fields(content, f"{where}/{DOCUMENT_NAME}")
    if not has_note(fields.values.get("attributes")):
        raise DatasetError(f"{where} is not a container of acqstream any longer")
    return parse_note(fields.child("attributes"))


def open_container(path: ReadPlace) -> list[ContainerLevel]:
    """Readers of all levels of a container with our note. Raises CorruptDataset, DatasetError, StorageError."""
    follows = requested_links() is True
    count = len(read_note(path.store(follows_links=follows), str(path)).levels)
    return [ContainerLevel(path, level, follows_links=follows) for level in range(count)]


def _level(path: ReadPlace, level: int, follows_links: bool) -> ContainerLevel:
    return ContainerLevel(path, level, follows_links=follows_links)


def _is_inside(position: Position, spec: ArraySpec) -> bool:
    grid = spec.grid_shape
    return len(position) == len(grid) and all(0 <= at < size for at, size in zip(position, grid, strict=True))
