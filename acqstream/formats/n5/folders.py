"""Which container a path lies in, and which folder of it is meant."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from acqstream.errors import DatasetError, FileMissing, StorageError
from acqstream.formats.n5.attributes import ATTRIBUTES_NAME, MAX_ATTRIBUTES_BYTES, VERSION_KEY, is_dataset
from acqstream.storage.json_file import read_json_object

SUFFIX = ".n5"
_MAX_DEPTH = 32
_MAX_CHILDREN = 1000  # looked at to tell a container that does not say so


def read_attributes(folder: Path) -> dict[str, Any] | None:
    """The attributes of a group; None if it has no file of them. Raises CorruptDataset if that is not a JSON object."""
    try:
        return read_json_object(folder / ATTRIBUTES_NAME, MAX_ATTRIBUTES_BYTES)
    except FileMissing:
        return None


def attributes_path(folder: Path) -> str:
    """The file of a folder's attributes, for errors."""
    return str(folder / ATTRIBUTES_NAME)


def container_of(folder: Path) -> Path:
    """The container that a folder lies in: the nearest that says so, else the outermost one with attributes."""
    outermost = folder
    for place in upwards(folder):
        if _is_container(place):
            return place
        if has_attributes(place):
            outermost = place
    return outermost


def array_folder(path: Path) -> Path | None:
    """The array or group that `path` means: itself, or what an attributes.json or a block file in it belongs to.

    None if there is nothing of N5 there.
    """
    start = path if path.is_dir() else path.parent
    for place in upwards(start):
        if is_dataset(readable_attributes(place)):
            return place
        if not place.name.isdecimal():
            break
    return start if (path.is_dir() or path.name == ATTRIBUTES_NAME) and _is_group(start) else None


def upwards(folder: Path) -> Iterator[Path]:
    """A folder and those above it, the nearest first."""
    place = folder.absolute()
    for _ in range(_MAX_DEPTH):
        yield place
        if place.parent == place:
            break
        place = place.parent


def below(folder: Path, names: Iterable[str]) -> Path:
    """The place at the end of these names. Places in URLs have no joinpath."""
    for name in names:
        folder /= name
    return folder


def has_attributes(folder: Path) -> bool:
    """Return True if a folder has a file of attributes."""
    return (folder / ATTRIBUTES_NAME).is_file()


def find_datasets(folder: Path, limit: int) -> list[Path]:
    """Datasets at or below `folder`, at most `limit` of them, in the order of their names."""
    return list(itertools.islice(_datasets(folder, ()), limit))


def _datasets(folder: Path, above: tuple[Path, ...]) -> Iterator[Path]:
    if is_dataset(read_attributes(folder)):
        yield folder
    elif len(above) < _MAX_DEPTH:
        inside = (*above, folder.resolve())
        for child in list_folders(folder):
            if not child.is_symlink() or child.resolve() not in inside:  # else it leads round in a ring
                yield from _datasets(child, inside)


def list_folders(folder: Path) -> list[Path]:
    """Child folders in the order of their names. Raises StorageError, DatasetError if there is no such folder."""
    try:
        return sorted(child for child in folder.iterdir() if child.is_dir())
    except FileNotFoundError as error:
        raise DatasetError(f"{folder}: no such folder") from error
    except OSError as error:
        raise StorageError.wrap(error, str(folder), "list the folder") from error


def readable_attributes(folder: Path) -> Mapping[str, Any] | None:
    """Of a folder above or beside the one asked for, where damaged and forbidden ones do not matter."""
    try:
        return read_attributes(folder)
    except (DatasetError, StorageError):
        return None


def _is_container(folder: Path) -> bool:
    return folder.suffix == SUFFIX or VERSION_KEY in (readable_attributes(folder) or {})


def _is_group(folder: Path) -> bool:
    """Return True if a folder is a dataset, or a group of one of the kinds that can be told from any other folder."""
    try:
        attributes = read_attributes(folder)
    except DatasetError:
        return True  # damaged: opening it will say so
    if is_dataset(attributes) or _is_container(container_of(folder)):
        return True
    try:
        children = list(itertools.islice(folder.iterdir(), _MAX_CHILDREN))
    except OSError as error:
        raise StorageError.wrap(error, str(folder), "list the folder") from error
    return any(is_dataset(readable_attributes(child)) for child in children)
