"""Resumes a container that an earlier process left in a store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from acqstream.arrays.array_spec import Position
from acqstream.errors import CorruptDataset, DatasetExists
from acqstream.formats.chunk_layout import ChunkLayout
from acqstream.storage.files.small_file import MAX_FILE_BYTES
from acqstream.storage.stores.store import Store

_Layout = TypeVar("_Layout", bound=ChunkLayout)


def resume_layout(layout: _Layout, store: Store) -> tuple[_Layout, bool] | None:
    """Return the layout of the existing container and whether it is complete; None if the store holds nothing.

    Raises DatasetExists if the store holds something else, CorruptDataset.
    """
    first, *others = layout.resume_keys()
    note = read_document(store, first)
    if note is None:
        if next(iter(store.keys()), None) is not None:
            raise DatasetExists(f"{store.url} exists and is not a container of acqstream: it has no {first}")
        return None
    documents = {key: content for key in others if (content := read_document(store, key)) is not None}
    return layout.resume({first: note, **documents}, store.url)


def existing_members(layout: ChunkLayout, store: Store) -> Iterator[Position]:
    """Yield the members whose documents are in the store.

    Folders are listed first, each once: a new container has few of its members, which may be a million.
    """
    listed: dict[str, frozenset[str]] = {}
    for member in layout.plan.members():
        keys = [*layout.member_documents(member)]
        if not keys:
            continue
        parts, folder = keys[-1].split("/"), ""
        for part in parts[:-2]:  # the folders of the member itself, not those of its levels
            if folder not in listed:
                listed[folder] = frozenset(store.children(folder))
            if f"{part}/" not in listed[folder]:
                break
            folder = f"{folder}/{part}" if folder else part
        else:
            if store.size(keys[-1]) is not None:
                yield member


def read_document(store: Store, key: str) -> bytes | None:
    """A document of a container; None if it does not exist. Raises CorruptDataset if it is too large."""
    content = store.get(key, 0, MAX_FILE_BYTES + 1)
    if content is not None and len(content) > MAX_FILE_BYTES:
        raise CorruptDataset(f"has more than {MAX_FILE_BYTES} bytes", path=f"{store.url}/{key}")
    return content
