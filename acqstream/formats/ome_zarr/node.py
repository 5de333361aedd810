"""Reads one node of a Zarr hierarchy: an array, or a group with its OME metadata. Zarr v3 wins over v2 in one folder.

Sources: Zarr v3 core and Zarr v2, "Metadata"; OME-NGFF 0.5 and 0.4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from acqstream.errors import CorruptDataset
from acqstream.formats.ome_zarr.zarr_array import ZarrArray
from acqstream.formats.ome_zarr.zarr_json import parse_array
from acqstream.formats.ome_zarr.zarr_v2 import parse_array_v2
from acqstream.model.fields import Fields
from acqstream.storage.files.small_file import MAX_FILE_BYTES, parse_fields
from acqstream.storage.stores.store import Store, check_key

V3_NAME = "zarr.json"
V2_ARRAY_NAME, V2_GROUP_NAME, V2_ATTRIBUTES_NAME = ".zarray", ".zgroup", ".zattrs"
DOCUMENT_NAMES = (V3_NAME, V2_ARRAY_NAME, V2_GROUP_NAME, V2_ATTRIBUTES_NAME)


@dataclass(frozen=True, slots=True)
class Node:
    """An array (`array` is set) or a group. ome is its OME metadata; where names their document in errors."""

    where: str
    array: ZarrArray | None = None
    ome: Mapping[str, Any] = field(default_factory=dict)

    @property
    def fields(self) -> Fields:
        """The OME metadata of a group; its checks raise CorruptDataset."""
        return Fields(self.ome, error=partial(CorruptDataset, path=self.where))

    @property
    def is_image(self) -> bool:
        """True for a group with resolution levels."""
        return self.array is None and "multiscales" in self.ome


def read_node(store: Store, path: str = "") -> Node | None:
    """The node at a path of a store, "" for its root; None if there is none.

    Raises CorruptDataset, UnsupportedFeature, StorageError.
    """
    prefix = f"{path}/" if path else ""
    content, where = _read(store, prefix + V3_NAME)
    if content is not None:
        return _v3_node(content, where)
    content, where = _read(store, prefix + V2_ARRAY_NAME)
    if content is not None:
        return Node(where, parse_array_v2(content, where))
    content, where = _read(store, prefix + V2_ATTRIBUTES_NAME)
    if content is not None:
        return Node(where, ome=parse_fields(content, where).values)
    return Node(where) if store.size(prefix + V2_GROUP_NAME) is not None else None


def node_path(path: object, where: str) -> str:
    """A path below a group. Raises CorruptDataset unless it is relative and stays there."""
    parts = path.split("/") if isinstance(path, str) else [""]
    if isinstance(path, str) and "\\" not in path and not {"", ".", ".."} & set(parts):
        try:
            check_key(path)
        except ValueError as error:
            raise CorruptDataset(f"path {path!r:.60}: {error}", path=where) from error
        return path
    raise CorruptDataset(f"path {path!r:.60}, expected a relative one without empty parts, . and ..", path=where)


def _v3_node(content: bytes, where: str) -> Node:
    fields = parse_fields(content, where)
    if (fields.values.get("zarr_format"), fields.values.get("node_type")) != (3, "group"):
        return Node(where, parse_array(content, where))
    ome = fields.mapping("attributes").get("ome")
    if ome is not None and not isinstance(ome, dict):
        raise fields.wrong("attributes", "a map whose ome is a map")
    return Node(where, ome=ome or {})


def _read(store: Store, key: str) -> tuple[bytes | None, str]:
    """A document and its place for messages."""
    where = f"{store.url}/{key}"
    content = store.get(key, 0, MAX_FILE_BYTES + 1)
    if content is not None and len(content) > MAX_FILE_BYTES:
        raise CorruptDataset(f"has more than {MAX_FILE_BYTES} bytes", path=where)
    return content, where
