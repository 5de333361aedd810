"""All formats that can be read, one line each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from acqstream.errors import DatasetError, StorageError, UnknownFormat, UnsupportedFeature
from acqstream.formats import n5, ndtiff, wkw
from acqstream.formats.base import FrameFormat
from acqstream.formats.chunk_format import ChunkFormat

FRAME_FORMATS: tuple[FrameFormat, ...] = (ndtiff.FORMAT,)
CHUNK_FORMATS: tuple[ChunkFormat[Any], ...] = (n5.FORMAT, wkw.FORMAT)
FORMATS: tuple[FrameFormat | ChunkFormat[Any], ...] = (*FRAME_FORMATS, *CHUNK_FORMATS)


def find_format(path: Path) -> FrameFormat | ChunkFormat[Any]:
    """The format of the dataset at `path`: a container, a level folder, or a file in it.

    Raises DatasetError if there is nothing at `path`, UnknownFormat with what was looked for.
    """
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise DatasetError(f"{path}: no such file or folder") from error
    except OSError as error:
        raise StorageError.wrap(error, str(path), "open the dataset") from error
    for candidate in FORMATS:
        if candidate.detect(path):
            return candidate
    looked_for = "; ".join(f"{entry.name}: {entry.looked_for}" for entry in FORMATS)
    raise UnknownFormat(f"{path}: no known format here. Looked for {looked_for}")


def find_frame_format(path: Path) -> FrameFormat:
    """As `find_format`, for a dataset of frames. Raises UnsupportedFeature for one of arrays."""
    found = find_format(path)
    if isinstance(found, ChunkFormat):
        names = ", ".join(entry.name for entry in FRAME_FORMATS)
        raise UnsupportedFeature(f"{path}: {found.name} keeps arrays, not frames; this needs a dataset in {names}")
    return found
