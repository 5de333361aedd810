"""Finds the container of ours, or the dataset of any domain, that a path means, and opens its levels."""

from __future__ import annotations

from collections.abc import Sequence

from acqstream.errors import CorruptDataset, DatasetError
from acqstream.formats.chunk_format import ChunkArrayReader
from acqstream.formats.chunk_reader import open_layout, read_document
from acqstream.formats.hsds.dataset_reader import DatasetReader
from acqstream.formats.hsds.domain_search import DATASET_NAME, find_dataset, is_tree
from acqstream.formats.hsds.layout import HsdsLayout, noted_layout
from acqstream.formats.hsds.notes import NOTE_NAME, is_note, parse_note
from acqstream.formats.hsds.reference_note import is_reference_note
from acqstream.formats.hsds.reference_reader import open_references
from acqstream.storage.boundary import requested_links
from acqstream.storage.read_place import ReadPlace
from acqstream.storage.store import Store

_MARK_BYTES = 2**20  # of a document that tell what it is
_MAX_DEPTH = 5  # of a domain in its container, folders


def detect(path: ReadPlace) -> bool:
    """Return True if `path` is a container of ours, or a part of a tree of a server: see domain_search."""
    return container_of(path) is not None or is_tree(path)


def folder_of(path: ReadPlace) -> ReadPlace:
    """The container of ours that `path` means, else `path` itself."""
    return container_of(path) or path


def open_readers(path: ReadPlace) -> Sequence[ChunkArrayReader]:
    """Readers of all levels, the full resolution first.

    Raises DatasetError that lists the datasets of a tree with several, UnknownFormat, CorruptDataset, StorageError.
    """
    container = container_of(path)
    if container is not None:
        return [open_references(container)] if is_by_reference(container) else open_layout(container, read_layout)
    return [open_dataset(path)]


def open_dataset(path: ReadPlace) -> DatasetReader:
    """The reader of the one dataset that a path in a tree of a server means. Raises as `open_readers`."""
    follows = requested_links() is True
    found = find_dataset(path, follows_links=follows)
    return DatasetReader(found.bucket, found.id, follows_links=follows)


def container_of(path: ReadPlace) -> ReadPlace | None:
    """The container of ours that a path is, or is the note, the bucket or the domain of; None for anything else.

    A dataset in a container is an array by itself, as the server has it.
    """
    if path.name == NOTE_NAME:
        return path.parent if is_container(path.parent) else None
    if path.name == DATASET_NAME or (path / DATASET_NAME).is_object():
        return None
    return next((folder for folder in path.upwards(_MAX_DEPTH) if is_container(folder)), None)


def is_container(folder: ReadPlace) -> bool:
    """Return True for the top folder of a container of ours."""
    content = _mark(folder)
    return is_note(content) or is_reference_note(content)


def is_by_reference(container: ReadPlace) -> bool:
    """Return True for a container of ours whose pixels stay in the stacks of a dataset."""
    return is_reference_note(_mark(container))


def _mark(folder: ReadPlace) -> bytes:
    """The beginning of the note in a folder; empty without one."""
    try:
        return folder.store(follows_links=True).get(NOTE_NAME, 0, _MARK_BYTES) or b""
    except CorruptDataset:
        return b""  # a folder or a pipe of that name


def read_layout(store: Store) -> tuple[HsdsLayout, bool]:
    """The layout of a container of ours, and whether it is complete. Raises DatasetError, CorruptDataset."""
    where = f"{store.url}/{NOTE_NAME}"
    content = read_document(store, NOTE_NAME)
    if content is None:
        raise DatasetError(f"{where}: no such file")
    note = parse_note(content, where)
    return noted_layout(note), note.complete
