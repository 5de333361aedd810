"""All formats that can be read, one line each; chunk formats of other packages come by their entry points."""

from __future__ import annotations

import functools
import logging
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from acqstream.errors import DatasetError, StorageError, UnknownFormat, UnsupportedFeature
from acqstream.formats import n5, ndtiff, wkw
from acqstream.formats.base import FrameFormat
from acqstream.formats.chunk_format import ChunkFormat

ENTRY_POINTS = "acqstream.formats"
FRAME_FORMATS: tuple[FrameFormat, ...] = (ndtiff.FORMAT,)
CHUNK_FORMATS: tuple[ChunkFormat[Any], ...] = (n5.FORMAT, wkw.FORMAT)
FORMATS: tuple[FrameFormat | ChunkFormat[Any], ...] = (*FRAME_FORMATS, *CHUNK_FORMATS)

_LOG = logging.getLogger("acqstream.formats")


@functools.cache
def foreign_formats() -> tuple[ChunkFormat[Any], ...]:
    """Those of other packages. One that cannot be loaded is named in the log and passed over."""
    known = {entry.name for entry in FORMATS}
    found: dict[str, ChunkFormat[Any]] = {}
    for entry in entry_points(group=ENTRY_POINTS):
        try:
            loaded = entry.load()
        except Exception as error:  # noqa: BLE001 - another package's code: ours works without it
            _LOG.warning(
                "format %s (%s) cannot be loaded: %s: %s", entry.name, entry.value, type(error).__name__, error
            )
            continue
        if not isinstance(loaded, ChunkFormat) or loaded.name in known | found.keys():
            _LOG.warning(
                "format %s (%s) is no chunk format with a name of its own: passed over", entry.name, entry.value
            )
            continue
        found[loaded.name] = loaded
    return tuple(found.values())


def chunk_formats() -> dict[str, ChunkFormat[Any]]:
    """All chunk formats by their names."""
    return {entry.name: entry for entry in (*CHUNK_FORMATS, *foreign_formats())}


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
    candidates = (*FORMATS, *foreign_formats())
    for candidate in candidates:
        if candidate.detect(path):
            return candidate
    looked_for = "; ".join(f"{entry.name}: {entry.looked_for}" for entry in candidates)
    raise UnknownFormat(f"{path}: no known format here. Looked for {looked_for}")


def find_frame_format(path: Path) -> FrameFormat:
    """As `find_format`, for a dataset of frames. Raises UnsupportedFeature for one of arrays."""
    found = find_format(path)
    if isinstance(found, ChunkFormat):
        names = ", ".join(entry.name for entry in FRAME_FORMATS)
        raise UnsupportedFeature(f"{path}: {found.name} keeps arrays, not frames; this needs a dataset in {names}")
    return found
