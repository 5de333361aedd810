"""Tells what a place is in a Zarr hierarchy of other software, and opens it."""

from __future__ import annotations

from typing import Literal

from acqstream.errors import UnknownFormat
from acqstream.formats.ome_zarr.collection import collection_kind, several_images
from acqstream.formats.ome_zarr.image import ZarrLevel, open_image
from acqstream.formats.ome_zarr.node import DOCUMENT_NAMES, read_node
from acqstream.storage.files.boundary import requested_links
from acqstream.storage.stores.data_path import ReadPlace

NodeKind = Literal["image", "array", "plate", "collection", "nothing"]


def is_foreign(place: ReadPlace) -> bool:
    """Return True if a place is a node of a Zarr hierarchy, or a document in one; its content is not looked at."""
    return _node_folder(place) is not None


def foreign_folder(place: ReadPlace) -> ReadPlace:
    """The folder of the node that a place means. Raises UnknownFormat."""
    folder = _node_folder(place)
    if folder is None:
        raise UnknownFormat(f"{place}: no Zarr array or group here")
    return folder


def find_node(place: ReadPlace) -> NodeKind:
    """The kind of a node. A group that is no image and no plate is a collection, even an empty one.

    Raises CorruptDataset, UnsupportedFeature, StorageError.
    """
    folder = _node_folder(place)
    node = None if folder is None else read_node(folder.store(follows_links=requested_links() is True))
    if node is None:
        return "nothing"
    if node.array is not None:
        return "array"
    if node.is_image:
        return "image"
    return "plate" if collection_kind(node) == "plate" else "collection"


def open_foreign(place: ReadPlace) -> list[ZarrLevel]:
    """Readers of all levels of an image or an array, the full resolution first.

    Raises DatasetError that lists the images of a collection or a plate, UnknownFormat for anything else,
    CorruptDataset, UnsupportedFeature, StorageError.
    """
    folder = foreign_folder(place)
    store = folder.store(follows_links=requested_links() is True)
    node = read_node(store)
    if node is not None and node.array is None and not node.is_image:
        raise several_images(store, node, str(folder))
    return open_image(folder)


def _node_folder(place: ReadPlace) -> ReadPlace | None:
    if place.name in DOCUMENT_NAMES and place.is_object():
        return place.parent
    return place if any((place / name).is_object() for name in DOCUMENT_NAMES) else None
