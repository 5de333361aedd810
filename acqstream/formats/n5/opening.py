"""Finds the N5 container that a path means, and opens its levels."""

from __future__ import annotations

from acqstream.errors import UnknownFormat, UnsupportedFeature
from acqstream.formats.n5.array import N5Array, open_levels
from acqstream.formats.n5.bdv_xml import SUFFIX, contains_bdv, parse_xml
from acqstream.formats.n5.folders import array_folder, container_of
from acqstream.formats.n5.space import Attributes
from acqstream.storage.files.boundary import leads_out, requested_links
from acqstream.storage.stores.data_path import ReadPlace

_MAX_XML_BYTES = 512 * 1024 * 1024


def detect(path: ReadPlace) -> bool:
    """Return True if `path` is an N5 container, lies in one, or is an XML file of BigDataViewer that names one."""
    return _bdv_content(path) is not None or array_folder(path) is not None


def open_readers(path: ReadPlace) -> list[N5Array]:
    """Readers of all levels, the full resolution first. Raises UnknownFormat, DatasetError."""
    folder, fallback = _place(path)
    return open_levels(folder, fallback)


def folder_of(path: ReadPlace) -> ReadPlace:
    """The container that `path` means. Raises UnknownFormat."""
    return container_of(_place(path)[0])


def _place(path: ReadPlace) -> tuple[ReadPlace, Attributes]:
    """The folder that is meant, and attributes that an XML file adds to it."""
    fallback: Attributes = {}
    content = _bdv_content(path)
    if content is not None:
        base, name, fallback = parse_xml(content, str(path))
        if requested_links() is not True and leads_out(base, name):
            claim = f"names the container {base}/{name}, outside of this folder"
            raise UnsupportedFeature(f"{path}: {claim}; that is followed with follow_links=True only")
        path = path.parent / base / name
    folder = array_folder(path)
    if folder is None:
        raise UnknownFormat(f"{path}: no N5 container here")
    return folder, fallback


def _bdv_content(path: ReadPlace) -> bytes | None:
    """The content of an XML file of BigDataViewer; None for any other file or folder."""
    if path.suffix != SUFFIX or not path.is_object():
        return None
    file = path.open()
    try:
        content = file.read(0, _MAX_XML_BYTES)
    finally:
        file.close()
    return content if contains_bdv(content) else None
