"""Documents and cubes of a WKW dataset in a folder, as the reader opens them."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator

from acqstream.errors import FileMissing
from acqstream.formats.wkw.cube_paths import X_NAME, Y_NAME, Z_NAME, Cube
from acqstream.formats.wkw.datasource import DatasourceProperties, parse_properties
from acqstream.formats.wkw.notes import ARRAY_NAME, StoredArray, parse_array
from acqstream.formats.wkw.progress import parse_depths
from acqstream.storage.stores.data_path import ReadPlace


def read_array(container: ReadPlace) -> StoredArray:
    """The array that the note in this folder describes. Raises CorruptDataset, StorageError."""
    path = container / ARRAY_NAME
    return parse_array(path.content(), str(path))


def read_depths(path: ReadPlace) -> dict[tuple[int, int], int] | None:
    """Voxels by (level, layer); None without the file. Raises CorruptDataset, StorageError."""
    try:
        return parse_depths(path.content(), str(path))
    except FileMissing:
        return None


def read_properties(path: ReadPlace) -> DatasourceProperties:
    """The WKW layers of a dataset. Raises as `parse_properties`, and StorageError."""
    return parse_properties(path.content(), str(path))


def find_cubes(folder: ReadPlace) -> Iterator[Cube]:
    """The cube files of a folder; temporary files and whatever else lies there are passed over. In any order."""
    for z, z_folder in _numbered(folder, Z_NAME):
        for y, y_folder in _numbered(z_folder, Y_NAME):
            for x, _ in _numbered(y_folder, X_NAME):
                yield z, y, x


def _numbered(folder: ReadPlace, pattern: re.Pattern[str]) -> Iterator[tuple[int, ReadPlace]]:
    try:
        names = folder.names()
    except FileMissing as error:
        if error.errno != errno.ENOTDIR:
            raise
        return  # a file with the name of a folder
    for name in names:
        if found := pattern.fullmatch(name):
            yield int(found[1]), folder / name
