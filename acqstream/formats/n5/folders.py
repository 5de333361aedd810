"""Which container a path lies in, and which folder of it is meant."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from acqstream.errors import DatasetError, FileMissing, StorageError
from acqstream.formats.n5.attributes import (
    ATTRIBUTES_NAME,
    MAX_ATTRIBUTES_BYTES,
    VERSION_KEY,
    is_dataset,
    parse_attributes,
)
from acqstream.storage.stores.data_path import ReadPlace

SUFFIX = ".n5"
_MAX_DEPTH = 32
_MAX_CHILDREN = 1000  # looked at to tell a container that does not say so


def read_attributes(folder: ReadPlace) -> dict[str, Any] | None:
    """The attributes of a group; None if it has no file of them. Raises CorruptDataset if that is not a JSON object."""
    file = folder / ATTRIBUTES_NAME
    try:
        content = file.content(MAX_ATTRIBUTES_BYTES)
    except FileMissing:
        return None
    return parse_attributes(content, str(file))


def attributes_path(folder: ReadPlace) -> str:
    """The file of a folder's attributes, for errors."""
    return str(folder / ATTRIBUTES_NAME)


def container_of(folder: ReadPlace) -> ReadPlace:
    """The container that a folder lies in: the nearest that says so, else the outermost one with attributes."""
    outermost = folder
    for place in upwards(folder):
        if _is_container(place):
            return place
        if has_attributes(place):
            outermost = place
    return outermost


def array_folder(path: ReadPlace) -> ReadPlace | None:
    """The array or group that `path` means: itself, or what an attributes.json or a block file in it belongs to.

    None if there is nothing of N5 there.
    """
    is_folder = path.is_folder()
    start = path if is_folder else path.parent
    for place in upwards(start):
        if is_dataset(readable_attributes(place)):
            return place
        if not place.name.isdecimal():
            break
    return start if (is_folder or path.name == ATTRIBUTES_NAME) and _is_group(start) else None


def upwards(folder: ReadPlace) -> Iterator[ReadPlace]:
    """A folder and those above it, the nearest first."""
    return folder.upwards(_MAX_DEPTH)


def below(folder: ReadPlace, names: Iterable[str]) -> ReadPlace:
    """The place at the end of these names."""
    for name in names:
        folder /= name
    return folder


def has_attributes(folder: ReadPlace) -> bool:
    """Return True if a folder has a file of attributes."""
    return (folder / ATTRIBUTES_NAME).is_object()


def find_datasets(folder: ReadPlace, limit: int) -> list[ReadPlace]:
    """Datasets at or below `folder`, at most `limit` of them, in the order of their names."""
    return list(itertools.islice(_datasets(folder, ()), limit))


def _datasets(folder: ReadPlace, above: tuple[str, ...]) -> Iterator[ReadPlace]:
    if is_dataset(read_attributes(folder)):
        yield folder
    elif len(above) < _MAX_DEPTH:
        inside = (*above, folder.real())
        for child in list_folders(folder):
            if not child.is_link() or child.real() not in inside:  # else it leads round in a ring
                yield from _datasets(child, inside)


def list_folders(folder: ReadPlace) -> list[ReadPlace]:
    """Child folders in the order of their names. Raises StorageError, DatasetError if there is no such folder."""
    try:
        return sorted(child for child in folder.children() if child.is_folder())
    except FileMissing as error:
        raise DatasetError(f"{folder}: no such folder") from error


def readable_attributes(folder: ReadPlace) -> Mapping[str, Any] | None:
    """Of a folder above or beside the one asked for, where damaged and forbidden ones do not matter."""
    try:
        return read_attributes(folder)
    except (DatasetError, StorageError):
        return None


def _is_container(folder: ReadPlace) -> bool:
    return folder.suffix == SUFFIX or VERSION_KEY in (readable_attributes(folder) or {})


def _is_group(folder: ReadPlace) -> bool:
    """Return True if a folder is a dataset, or a group of one of the kinds that can be told from any other folder."""
    try:
        attributes = read_attributes(folder)
    except DatasetError:
        return True  # damaged: opening it will say so
    if is_dataset(attributes) or _is_container(container_of(folder)):
        return True
    children = itertools.islice(folder.children(), _MAX_CHILDREN)
    return any(is_dataset(readable_attributes(child)) for child in children)
