"""Finds the OME-Zarr container that a path means, and opens its levels."""

from __future__ import annotations

from acqstream.errors import CorruptDataset, UnknownFormat
from acqstream.formats.ome_zarr.container import ContainerLevel, note_at, open_container
from acqstream.formats.ome_zarr.zarr_json import DOCUMENT_NAME
from acqstream.storage.read_place import ReadPlace


def detect(path: ReadPlace) -> bool:
    """Return True if `path` is an OME-Zarr container, or its document."""
    try:
        return note_at(_meant(path)) is not None
    except CorruptDataset:
        return True  # opening it says what is wrong


def folder_of(path: ReadPlace) -> ReadPlace:
    """The container that `path` means."""
    return _meant(path)


def open_readers(path: ReadPlace) -> list[ContainerLevel]:
    """Readers of all levels, the full resolution first. Raises UnknownFormat, DatasetError."""
    folder = _meant(path)
    if note_at(folder) is None:
        raise UnknownFormat(f"{path}: no OME-Zarr container here")
    return open_container(folder)


def _meant(path: ReadPlace) -> ReadPlace:
    return path.parent if path.name == DOCUMENT_NAME else path
