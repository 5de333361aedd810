"""Finds the volume, or the container of ours, that a path means, and opens its levels."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from acqstream.errors import CorruptDataset, DatasetError, UnknownFormat
from acqstream.formats.chunk_format import ChunkArrayReader
from acqstream.formats.chunk_reader import open_layout, read_document
from acqstream.formats.precomputed.info import INFO_NAME, is_info
from acqstream.formats.precomputed.layout import PrecomputedLayout
from acqstream.formats.precomputed.layout_choice import noted_layout
from acqstream.formats.precomputed.notes import NOTE_NAME, is_note, parse_note
from acqstream.formats.precomputed.volume import open_volume
from acqstream.storage.read_place import ReadPlace
from acqstream.storage.store import Store

_MARK_BYTES = 2**20  # of a document that tell what it is
_MAX_DEPTH = 20  # of a member in its container, folders


def detect(path: ReadPlace) -> bool:
    """Return True if `path` is a container of ours, a volume, or the file that describes one."""
    if path.name not in (INFO_NAME, NOTE_NAME) and not path.is_folder():
        return False
    folder = path.folder()
    return is_container(folder) or _has(folder, INFO_NAME, is_info)


def folder_of(path: ReadPlace) -> ReadPlace:
    """The container that `path` means: of a member of ours the container, else the volume."""
    folder = path.folder()
    return next((place for place in folder.upwards(_MAX_DEPTH) if is_container(place)), folder)


def open_readers(path: ReadPlace) -> Sequence[ChunkArrayReader]:
    """Readers of all levels, the full resolution first. Raises UnknownFormat, DatasetError, StorageError."""
    folder = path.folder()
    if is_container(folder):
        return open_layout(folder, read_layout)
    if not _has(folder, INFO_NAME, is_info):
        raise UnknownFormat(f"{path}: no precomputed volume here")
    return open_volume(folder)


def is_container(folder: ReadPlace) -> bool:
    """Return True for the top folder of a container of ours."""
    return _has(folder, NOTE_NAME, is_note)


def read_layout(store: Store) -> tuple[PrecomputedLayout, bool]:
    """The layout of a container of ours, and whether it is complete. Raises DatasetError, CorruptDataset."""
    where = f"{store.url}/{NOTE_NAME}"
    content = read_document(store, NOTE_NAME)
    if content is None:
        raise DatasetError(f"{where}: no such file")
    note = parse_note(content, where)
    return noted_layout(note), note.complete


def _has(folder: ReadPlace, name: str, is_kind: Callable[[bytes], bool]) -> bool:
    # Through a store: servers have no file names by which `info` could be told from a folder.
    try:
        content = folder.store(follows_links=True).get(name, 0, _MARK_BYTES)
    except CorruptDataset:
        return False  # a folder or a pipe of that name
    return content is not None and is_kind(content)
