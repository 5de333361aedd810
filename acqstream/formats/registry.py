"""All formats that can be read, one line each."""

from __future__ import annotations

from pathlib import Path

from acqstream.errors import DatasetError, StorageError, UnknownFormat
from acqstream.formats import ndtiff
from acqstream.formats.base import FrameFormat

FORMATS: tuple[FrameFormat, ...] = (ndtiff.FORMAT,)


def find_format(path: Path) -> FrameFormat:
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
