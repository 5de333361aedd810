"""Opens a path as a container of ours, or as an image or array of other software."""

from __future__ import annotations

from acqstream.errors import CorruptDataset
from acqstream.formats.ome_zarr.container import ContainerLevel, note_at, open_container
from acqstream.formats.ome_zarr.foreign import foreign_folder, is_foreign, open_foreign
from acqstream.formats.ome_zarr.image import ZarrLevel
from acqstream.storage.stores.data_path import ReadPlace


def detect(path: ReadPlace) -> bool:
    """Return True if `path` is a node of a Zarr hierarchy, or a document in one."""
    return is_foreign(path)


def folder_of(path: ReadPlace) -> ReadPlace:
    """The node that `path` means. Raises UnknownFormat."""
    return foreign_folder(path)


def open_readers(path: ReadPlace) -> list[ContainerLevel] | list[ZarrLevel]:
    """Readers of all levels, the full resolution first: of all images of our container, or of one foreign image.

    Raises UnknownFormat, DatasetError that lists the images of a foreign collection, CorruptDataset, StorageError.
    """
    folder = foreign_folder(path)
    return open_container(folder) if has_own_note(folder) else open_foreign(folder)


def has_own_note(folder: ReadPlace) -> bool:
    """Return True for a container of ours; a damaged document is left to the reader that names what is wrong."""
    try:
        return note_at(folder) is not None
    except CorruptDataset:
        return False
