"""Reads the documents in a bucket, the folder below which all keys of the server lie."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from acqstream.errors import CorruptDataset, DatasetError
from acqstream.formats.hsds.object_documents import (
    DatasetDocument,
    DomainDocument,
    GroupDocument,
    parse_dataset,
    parse_domain,
    parse_group,
)
from acqstream.formats.hsds.object_id import ObjectId
from acqstream.storage.files.small_file import MAX_FILE_BYTES, parse_json
from acqstream.storage.stores.data_path import ReadPlace
from acqstream.storage.stores.store import Store

_ATTEMPTS = 4
_PAUSE_S = 0.02  # a writer that replaces a document in place is done after that
_Document = TypeVar("_Document")


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket at a place; store has the same root. Methods raise CorruptDataset, StorageError."""

    place: ReadPlace
    store: Store

    def group(self, own: ObjectId) -> GroupDocument:
        """A group. Raises DatasetError if it does not exist."""
        return self._read(own.key, parse_group)

    def dataset(self, own: ObjectId) -> DatasetDocument:
        """A dataset. Raises DatasetError if it does not exist, UnsupportedFeature for items that are not read."""
        return self._read(own.key, parse_dataset)

    def domain(self, key: str) -> DomainDocument:
        """The domain with this key. Raises DatasetError if it does not exist."""
        return self._read(key, parse_domain)

    def where(self, key: str) -> str:
        """A file, for messages."""
        return f"{self.store.url}/{key}"

    def _read(self, key: str, parse: Callable[[bytes, str], _Document]) -> _Document:
        where = self.where(key)
        # Some writers replace documents in place: one that is half written is read again.
        for _ in range(_ATTEMPTS - 1):
            content = self._content(key)
            if _is_json(content, where):
                return parse(content, where)
            time.sleep(_PAUSE_S)
        return parse(self._content(key), where)

    def _content(self, key: str) -> bytes:
        content = self.store.get(key, 0, MAX_FILE_BYTES + 1)
        if content is None:
            raise DatasetError(f"{self.where(key)}: no such file")
        if len(content) > MAX_FILE_BYTES:
            raise CorruptDataset(f"has more than {MAX_FILE_BYTES} bytes", path=self.where(key))
        return content


def bucket_at(place: ReadPlace, *, follows_links: bool) -> Bucket:
    """The bucket in a folder."""
    return Bucket(place, place.store(follows_links=follows_links))


def _is_json(content: bytes, where: str) -> bool:
    try:
        parse_json(content, where)
    except CorruptDataset:
        return False
    return True
