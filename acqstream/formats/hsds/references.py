"""Finds files that a dataset refers to by `file_uri`, `<bucket>/<path inside the bucket>`."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from acqstream.errors import UnsupportedFeature
from acqstream.storage.files.boundary import leads_out
from acqstream.storage.stores.data_path import ReadPlace
from acqstream.storage.stores.store import Store


class FileKey(NamedTuple):
    """A file in a store."""

    store: Store
    key: str

    @property
    def where(self) -> str:
        """The file, for messages."""
        return f"{self.store.url}/{self.key}"


ResolveUri = Callable[[str], FileKey]
"""The file that a file_uri means. Raises UnsupportedFeature, CorruptDataset.

A container of ours replaces `in_root`: its note names the files, and no link of the bucket is followed.
"""


def in_root(root: ReadPlace, *, follows_links: bool) -> ResolveUri:
    """Files below the folder with the buckets. A link that leads out of it is followed with follows_links only."""
    store = root.store(follows_links=follows_links)

    def resolve(uri: str) -> FileKey:
        parts = [part for part in uri.split("/") if part not in ("", ".")]
        if leads_out(uri) or ".." in parts or "\\" in uri or len(parts) < 2:
            raise UnsupportedFeature(
                f"{root}: chunks lie in {uri!r:.200}; expected a file below {root}, <bucket>/<path>"
            )
        return FileKey(store, "/".join(parts))

    return resolve
