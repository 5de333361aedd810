"""Nodes of a Zarr hierarchy, and the images in a group that is none itself: series, plates, labels, or folders of them.

A node is an array, or a group with its OME metadata. Zarr v3 wins over v2 in one folder. Sources: Zarr v3 core and Zarr
v2, "Metadata"; OME-NGFF 0.4 and 0.5, "bioformats2raw.layout", "plate", "well" and "labels".
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from acqstream.errors import AcqStreamError, CorruptDataset, DatasetError
from acqstream.formats.ome_zarr.codec import ZarrArray
from acqstream.formats.ome_zarr.zarr_json import DOCUMENT_NAME, parse_array, parse_array_v2
from acqstream.model.fields import Fields
from acqstream.storage.files.small_file import MAX_FILE_BYTES, parse_fields
from acqstream.storage.stores.store import Store, check_key

V2_ARRAY_NAME, V2_GROUP_NAME, V2_ATTRIBUTES_NAME = ".zarray", ".zgroup", ".zattrs"
DOCUMENT_NAMES = (DOCUMENT_NAME, V2_ARRAY_NAME, V2_GROUP_NAME, V2_ATTRIBUTES_NAME)


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
    content, where = _read(store, prefix + DOCUMENT_NAME)
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


CollectionKind = Literal["plate", "well", "series", "labels", "group"]

_MAX_LISTED = 200
_MAX_CHILDREN = 1000  # of a plain group and those inside, looked at
_MAX_DEPTH = 8
_MAX_SERIES = 100_000
_SERIES_GROUP = "OME"


def collection_kind(node: Node) -> CollectionKind | None:
    """The kind of a group; None for an array or an image."""
    if node.array is not None or node.is_image:
        return None
    for kind in ("plate", "well", "labels"):
        if kind in node.ome:
            return kind
    return "series" if "bioformats2raw.layout" in node.ome else "group"


def image_paths(store: Store, node: Node) -> Iterator[str]:
    """The paths of the images of a group, `node` at the root of a store. Raises CorruptDataset, StorageError."""
    kind = collection_kind(node)
    if kind == "plate":
        yield from _plate(store, node)
    elif kind == "well":
        yield from _well(node)
    elif kind == "labels":
        yield from (node_path(path, node.where) for path in node.fields.items("labels"))
    elif kind == "series":
        yield from _series(store)
    elif kind == "group":
        yield from _children(store, "", [_MAX_CHILDREN])


def several_images(store: Store, node: Node, where: str) -> DatasetError:
    """The error for a group that is no image: what it holds, and how to choose. where names the group."""
    kind = collection_kind(node)
    paths = list(image_paths(store, node))
    if kind != "plate":  # what else is in it, beside the listed images
        others = _children(store, "", [_MAX_CHILDREN])
        paths = list(dict.fromkeys([*paths, *(path for path in others if path.split("/")[0] != _SERIES_GROUP)]))
    what = {"plate": "a plate", "well": "a well", "labels": "label images", "series": "a series of images"}.get(
        kind or "", "a Zarr group"
    )
    if not paths:
        return DatasetError(f"{where}: {what} without any image")
    texts = []
    for path in paths[:_MAX_LISTED]:
        name = _name(store, path)
        texts.append(f"{path} ({name:.60})" if name and name != path else path)
    more = f" and {len(paths) - _MAX_LISTED} more" if len(paths) > _MAX_LISTED else ""
    listed = ", ".join(texts)
    return DatasetError(f"{where}: {what}, not one image; open the path of one image, {where}/...: {listed}{more}")


def _plate(store: Store, node: Node) -> Iterator[str]:
    for well in node.fields.child("plate").children("wells"):
        path = node_path(well.values.get("path"), node.where)
        found = read_node(store, path)
        if found is not None and "well" in found.ome:  # a well without images need not exist
            yield from (f"{path}/{image}" for image in _well(found))


def _well(node: Node) -> Iterator[str]:
    for image in node.fields.child("well").children("images"):
        yield node_path(image.values.get("path"), node.where)


def _series(store: Store) -> Iterator[str]:
    """Listed in the group OME, else the groups 0, 1, 2 and so on."""
    listing = read_node(store, _SERIES_GROUP)
    if listing is not None and "series" in listing.ome:
        yield from (node_path(path, listing.where) for path in listing.fields.items("series"))
    else:
        numbers = itertools.takewhile(lambda number: read_node(store, str(number)) is not None, range(_MAX_SERIES))
        yield from map(str, numbers)


def _children(store: Store, folder: str, left: list[int]) -> Iterator[str]:
    """Images, arrays and collections in a plain group, and in the plain groups inside; `left` nodes are looked at."""
    for name in sorted(one.removesuffix("/") for one in store.children(folder) if one.endswith("/"))[: left[0]]:
        path = f"{folder}/{name}" if folder else name
        left[0] -= 1
        try:
            found = read_node(store, path)
        except DatasetError:
            yield path  # damaged: opening it will say so
            continue
        if found is not None and collection_kind(found) != "group":
            yield path
        elif found is not None and path.count("/") < _MAX_DEPTH:
            yield from _children(store, path, left)


def _name(store: Store, path: str) -> str:
    """The name that an image has, "" if it is damaged or has none."""
    try:
        node = read_node(store, path)
    except AcqStreamError:
        return ""
    entries = node.ome.get("multiscales") if node is not None else None
    first = entries[0] if isinstance(entries, list) and entries else None
    name = first.get("name") if isinstance(first, dict) else None
    return name if isinstance(name, str) else ""
