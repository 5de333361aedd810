"""Files of containers in the data directory, as they are: mirrors, and chunk datasets of other programs."""

from __future__ import annotations

import re
from pathlib import Path

from aiohttp import web

from acqstream.errors import CorruptDataset, DatasetError, StorageError, UnsupportedFeature
from acqstream.formats.ndtiff import NDTiffFormat
from acqstream.formats.registry import find_format
from acqstream.storage.boundary import Boundary
from acqstream.storage.read_file import ReadFile, is_absent
from acqstream.web.answers import BYTES, JSON, Body, FilePart, absent, send, tag_of
from acqstream.web.web_context import CONTEXT

_SERVED_DOT_FILES = (".zarray", ".zattrs", ".zgroup", ".zmetadata")
_JSON_NAMES = re.compile(r"(.*\.json|info|\.z(array|attrs|group|metadata))")


def has_chunks(folder: Path) -> bool:
    """Return True if a folder is a container of a chunk format."""
    try:
        return not isinstance(find_format(folder), NDTiffFormat)
    except DatasetError:
        return False


def open_file(folder: Path, key: tuple[str, ...]) -> ReadFile | None:
    """A file of a container; None if it is missing, a folder, a temporary file or a link that leads out."""
    if not key or any(part.startswith(".") and part not in _SERVED_DOT_FILES for part in key):
        return None
    try:
        with Boundary(folder, follows=False).inside():
            return ReadFile(folder.joinpath(*key))
    except (CorruptDataset, UnsupportedFeature):
        return None
    except StorageError as error:
        if is_absent(error) or error.errno is None:
            return None
        raise


async def send_file(request: web.Request, folder: Path, key: tuple[str, ...]) -> web.StreamResponse:
    """Answer with a file of a container."""
    context = request.app[CONTEXT]
    file = await context.run(open_file, folder, key)
    if file is None:
        return absent()
    size = file.size()
    content_type = JSON if _JSON_NAMES.fullmatch(key[-1]) else BYTES
    return await send(request, Body((), tag_of(file.version()), content_type, part=FilePart(file, 0, size)))
