"""Resumes a container that an earlier process left in a store."""

from __future__ import annotations

from typing import TypeVar

from acqstream.errors import CorruptDataset, DatasetExists
from acqstream.formats.chunk_layout import ChunkLayout
from acqstream.storage.json_file import MAX_FILE_BYTES
from acqstream.storage.store import Store

_Layout = TypeVar("_Layout", bound=ChunkLayout)


def resume_layout(layout: _Layout, store: Store) -> tuple[_Layout, bool] | None:
    """The layout of the existing container, and whether it is complete; None if the store is empty.

    Raises DatasetExists if the store holds something else, CorruptDataset.
    """
    first, *others = layout.resume_keys()
    note = read_document(store, first)
    if note is None:
        if any(True for _ in store.children()):
            raise DatasetExists(f"{store.url} exists and is not a container of acqstream: it has no {first}")
        return None
    documents = {key: content for key in others if (content := read_document(store, key)) is not None}
    return layout.resume({first: note, **documents}, store.url)


def read_document(store: Store, key: str) -> bytes | None:
    """A document of a container; None if it does not exist. Raises CorruptDataset if it is too large."""
    content = store.get(key, 0, MAX_FILE_BYTES + 1)
    if content is not None and len(content) > MAX_FILE_BYTES:
        raise CorruptDataset(f"has more than {MAX_FILE_BYTES} bytes", path=f"{store.url}/{key}")
    return content
