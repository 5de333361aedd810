"""The images in a group that is none itself: series of positions, plates, labels, or folders of images.

Sources: OME-NGFF 0.4 and 0.5, "bioformats2raw.layout", "plate", "well" and "labels".
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from acqstream.errors import AcqStreamError, DatasetError
from acqstream.formats.ome_zarr.node import Node, node_path, read_node
from acqstream.storage.stores.store import Store

CollectionKind = Literal["plate", "well", "series", "labels", "group"]

_MAX_LISTED = 200
_MAX_CHILDREN = 1000  # of a plain group and those inside, looked at
_MAX_DEPTH = 8
_MAX_SERIES = 100_000
_SERIES_GROUP = "OME"


@dataclass(frozen=True, slots=True)
class ListedImage:
    """An image: its path below the group and its name, "" for none."""

    path: str
    name: str


def collection_kind(node: Node) -> CollectionKind | None:
    """The kind of a group; None for an array or an image."""
    if node.array is not None or node.is_image:
        return None
    for kind in ("plate", "well", "labels"):
        if kind in node.ome:
            return kind
    return "series" if "bioformats2raw.layout" in node.ome else "group"


def list_images(store: Store) -> list[ListedImage]:
    """The images of the group at the root of a store, in order; [] if it is none or has none.

    Raises CorruptDataset, StorageError. A damaged image is listed without a name.
    """
    node = read_node(store)
    return [] if node is None else [ListedImage(path, _name(store, path)) for path in image_paths(store, node)]


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
