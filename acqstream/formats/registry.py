"""All formats that can be read; chunk formats of other packages come by their entry points.

A format of ours is imported when it is first needed, so the daemon loads no codec for a run without mirrors.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from acqstream.errors import DatasetError, StorageError, UnknownFormat, UnsupportedFeature
from acqstream.formats.chunk_format import ChunkFormat
from acqstream.formats.ndtiff import FORMAT as NDTIFF
from acqstream.formats.ndtiff import NDTiffFormat
from acqstream.model.view_spec import ViewSpec
from acqstream.storage.stores.data_path import DataPath, data_path_of

ENTRY_POINTS = "acqstream.formats"
CHUNK_FORMATS = (
    "n5",
    "wkw",
    "ome-zarr",
    "precomputed",
    "hsds",
)  # formats of ours; packages of these names, with _ for -, define FORMAT

_LOG = logging.getLogger("acqstream.formats")


@functools.cache
def foreign_formats() -> tuple[ChunkFormat[Any], ...]:
    """Chunk formats of other packages. One that cannot be loaded is logged and ignored."""
    own = {NDTIFF.name, *CHUNK_FORMATS}
    found: dict[str, ChunkFormat[Any]] = {}
    for entry in entry_points(group=ENTRY_POINTS):
        try:
            loaded = entry.load()
        except Exception as error:  # noqa: BLE001 - another package's code: ours works without it
            _LOG.warning(
                "format %s (%s) cannot be loaded: %s: %s", entry.name, entry.value, type(error).__name__, error
            )
            continue
        if not isinstance(loaded, ChunkFormat) or loaded.name in own | found.keys():
            _LOG.warning("format %s (%s) ignored: expected a ChunkFormat with an unused name", entry.name, entry.value)
            continue
        found[loaded.name] = loaded
    return tuple(found.values())


def chunk_formats() -> Iterator[ChunkFormat[Any]]:
    """Chunk formats, ours first, each imported when the caller gets to it."""
    yield from map(_own_format, CHUNK_FORMATS)
    yield from foreign_formats()


def all_formats() -> Iterator[NDTiffFormat | ChunkFormat[Any]]:
    yield NDTIFF
    yield from chunk_formats()


def chunk_format_names() -> tuple[str, ...]:
    return (*CHUNK_FORMATS, *(entry.name for entry in foreign_formats()))


def chunk_format(name: str) -> ChunkFormat[Any]:
    """The chunk format with this name. Imports it if need be. Raises KeyError if it is not installed."""
    if name in CHUNK_FORMATS:
        found: ChunkFormat[Any] = _own_format(name)
        return found
    return {entry.name: entry for entry in foreign_formats()}[name]


def mirror_folder(dataset: Path, spec: ViewSpec) -> Path:
    """The default folder of a mirror, beside its dataset: `cells.n5`. Raises KeyError for an unknown format."""
    target = chunk_format(spec.kind)
    middle = "" if spec.name == target.name else f".{spec.name}"
    return dataset.with_name(f"{dataset.name}{middle}{target.suffix}")


def _own_format(name: str) -> Any:
    return import_module(f"acqstream.formats.{name.replace('-', '_')}").FORMAT


def find_format(path: Path) -> NDTiffFormat | ChunkFormat[Any]:
    """The format of the dataset at `path`: a container, a level folder, or a file in it.

    Raises DatasetError if there is nothing at `path`, UnknownFormat with what was looked for.
    """
    place = data_path_of(path)
    try:
        place.require()
    except DatasetError:
        inside = (candidate for candidate in chunk_formats() if candidate.names_inside and candidate.detect(place))
        found = next(inside, None)
        if found is None:
            raise
        return found
    patterns = []
    for candidate in all_formats():
        if candidate.detect(place) if isinstance(candidate, ChunkFormat) else candidate.detect(path):
            return candidate
        patterns.append(f"{candidate.name}: {candidate.looked_for}")
    if other := other_file(place):
        raise UnknownFormat(f"{path} is no dataset but {other}")
    raise UnknownFormat(f"{path}: no known format here. Looked for {'; '.join(patterns)}")


def find_frame_format(path: Path) -> NDTiffFormat:
    """As `find_format`, for a dataset of frames. Raises UnsupportedFeature for one of arrays."""
    found = find_format(path)
    if isinstance(found, ChunkFormat):
        raise UnsupportedFeature(f"{path}: {found.name} keeps arrays, not frames; expected a dataset in {NDTIFF.name}")
    return found


_HEAD_BYTES = 16
_TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
_KINDS = (  # first bytes, what it is
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file, which h5py opens"),
    (b"ZISRAWFILE", "a CZI file of ZEISS, which Fiji opens"),
    (b"\xda\xce\xbe\x0a", "an ND2 file of Nikon, which Fiji opens"),
    (b"\x89PNG", "a PNG picture"),
    (b"\xff\xd8\xff", "a JPEG picture"),
    (b"PK\x03\x04", "a ZIP archive: unpack it first"),
)


def other_file(path: DataPath) -> str:
    """What a file is, by its first bytes; empty for a folder, and for a file of no known kind."""
    try:
        file = path.open()
    except (DatasetError, StorageError):  # a folder, or what cannot be read: the error says what was looked for
        return ""
    try:
        head = file.read(0, _HEAD_BYTES)
    except StorageError:
        return ""
    finally:
        file.close()
    if head.startswith(_TIFF):
        kind = "an OME-TIFF" if ".ome." in path.name.lower() else "a TIFF file that is no NDTiff stack"
        return f"{kind}; Fiji and tifffile open it (`acqstream export` writes such files)"
    return next((kind for start, kind in _KINDS if head.startswith(start)), "")
