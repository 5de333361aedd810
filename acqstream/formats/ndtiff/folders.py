"""The folders of a dataset: the container, and one folder per resolution level.

Source: fact sheet section 1. Version 3 flat: everything in the container. Version 2, and tiled datasets of version 3:
`Full resolution`, `Downsampled_x2`, `Downsampled_x4` ... in the container, each with its own index and stack files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from acqstream.errors import CorruptDataset, StorageError, UnknownFormat, UnsupportedFeature
from acqstream.formats.ndtiff.index import INDEX_NAME
from acqstream.formats.ndtiff.stack_header import INDEX_MAP_MAGIC, NDTIFF_MAGIC
from acqstream.storage.read_file import ReadFile

FULL_RESOLUTION = "Full resolution"
_LEVEL = re.compile(r"Full resolution|Downsampled_x(?P<factor>[1-9][0-9]{0,9})")
_OLD_MAGICS = {INDEX_MAP_MAGIC.to_bytes(4, "little"), INDEX_MAP_MAGIC.to_bytes(4, "big")}
_MAGICS = {NDTIFF_MAGIC.to_bytes(4, "little"), NDTIFF_MAGIC.to_bytes(4, "big")} | _OLD_MAGICS


def level_name(level: int) -> str:
    """Name of the folder of resolution level `level`, 0 being the full resolution."""
    return FULL_RESOLUTION if level == 0 else f"Downsampled_x{2**level}"


@dataclass(frozen=True, slots=True)
class DatasetFolders:
    """container holds `acqstream.json`, if there is one; levels the folders with an index, full resolution first."""

    container: Path
    levels: tuple[Path, ...]


def is_ndtiff(path: Path) -> bool:
    """True if `path` is a container, a level folder, or a file in one of them; damaged ones included."""
    folder = path if path.is_dir() else path.parent
    return (folder / INDEX_NAME).exists() or (folder / FULL_RESOLUTION).is_dir() or _first_magic(folder) is not None


def container_of(path: Path) -> Path:
    """The container of the dataset at `path`: itself, or what holds the level folder or file."""
    folder = path if path.is_dir() else path.parent
    return folder.absolute().parent if _LEVEL.fullmatch(folder.absolute().name) else folder


def level_of(folder: Path) -> int:
    """The resolution level whose folder this is; 0 for a container."""
    found = _LEVEL.fullmatch(folder.absolute().name)
    factor = int(found["factor"] or 1) if found else 1
    return factor.bit_length() - 1


def overlap_in(summary: Mapping[str, Any]) -> tuple[int, int] | None:
    """Overlap (y, x) in pixels of the tiles of a dataset with this summary; None if its frames are no tiles."""
    overlap = [summary.get(key) for key in ("GridPixelOverlapY", "GridPixelOverlapX")]
    if not summary.get("TiledImageStorage", overlap != [None, None]):
        return None
    y, x = (value if isinstance(value, int) else 0 for value in overlap)
    return y, x


def find_folders(path: Path) -> DatasetFolders:
    """The folders to read for `path`: a container gives all levels, a level folder or a file in it that level.

    Raises UnsupportedFeature for versions 0 and 1, CorruptDataset where the index is lost, UnknownFormat otherwise.
    """
    folder = path if path.is_dir() else path.parent
    full = folder / FULL_RESOLUTION
    if full.is_dir():
        _require_index(full)
        return DatasetFolders(folder, (full, *_lower_levels(folder)))
    _require_index(folder)
    is_level = _LEVEL.fullmatch(folder.name) is not None
    return DatasetFolders(folder.parent if is_level else folder, (folder,))


def stack_paths(folder: Path) -> list[Path]:
    """The `*.tif` files of a folder in order of their names."""
    try:
        return sorted(path for path in folder.iterdir() if path.suffix in (".tif", ".TIF") and path.is_file())
    except OSError as error:
        raise StorageError.wrap(error, str(folder), "list the folder") from error


def has_ndtiff_mark(path: Path) -> bool:
    """False for foreign TIFF files and for stack files whose header is not yet written."""
    return _magic(path) in _MAGICS


def _lower_levels(container: Path) -> list[Path]:
    """Without gaps: a level becomes visible with its index."""
    levels: list[Path] = []
    while True:
        folder = container / level_name(len(levels) + 1)
        if not (folder / INDEX_NAME).is_file():
            return levels
        levels.append(folder)


def _require_index(folder: Path) -> None:
    if (folder / INDEX_NAME).is_file():
        return
    magic = _first_magic(folder)
    if magic is None:
        raise UnknownFormat(
            f"{folder}: no NDTiff dataset: found neither {INDEX_NAME} nor a folder {FULL_RESOLUTION!r} nor "
            "an NDTiff stack file (*.tif)"
        )
    if magic in _OLD_MAGICS:
        raise UnsupportedFeature(f"{folder}: NDTiff versions 0 and 1 cannot be read yet; versions 2 and 3 can")
    raise CorruptDataset(
        f"{INDEX_NAME} is missing, but stack files are there: `acqstream repair` rebuilds it", path=str(folder)
    )


def _first_magic(folder: Path) -> bytes | None:
    """Bytes 8 to 11 of the first stack file that has a known mark there; others are foreign or not yet begun."""
    return next(filter(_MAGICS.__contains__, map(_magic, stack_paths(folder))), None)


def _magic(path: Path) -> bytes:
    file = ReadFile(path)
    magic = file.read(8, 4)
    file.close()
    return magic
