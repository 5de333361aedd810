"""Files of containers in the data directory, as they are: mirrors, and chunk datasets of other programs.

A folder is listed: for people who paste an address, and for software that looks whether a folder exists.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from urllib.parse import quote

from aiohttp import web

from acqstream.errors import CorruptDataset, StorageError, UnsupportedFeature
from acqstream.storage.files.boundary import Boundary
from acqstream.storage.files.read_file import ReadFile, is_absent
from acqstream.web.answers import BYTES, JSON, Body, FilePart, absent, content_tag, send, tag_of
from acqstream.web.data.dataset_shelf import leads_out
from acqstream.web.web_context import CONTEXT

CONTENT_TYPE = "text/html"
POLICY = "default-src 'none'; frame-ancestors 'none'"
MAX_LISTED = 10_000


def listing_page(raw_path: str, names: Iterable[str]) -> bytes:
    """The page of the folder at a path, as it came in the request. Names of folders end with "/"."""
    base = raw_path.rstrip("/")
    links = []
    for name in names:
        target = escape(f"{base}/{quote(name)}", quote=True)
        links.append(f'<li><a href="{target}">{escape(name)}</a></li>')
    return f"<!doctype html><meta charset=utf-8><title>folder</title><ul>{''.join(links)}</ul>".encode()


_SERVED_DOT_FILES = (".zarray", ".zattrs", ".zgroup", ".zmetadata")
_JSON_NAMES = re.compile(r"(.*\.json|info|\.z(array|attrs|group|metadata))")


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


def list_folder(folder: Path, key: tuple[str, ...]) -> list[str] | None:
    """The names in a folder of a container, folders with "/" at their end; None if it is no folder, or elsewhere."""
    if any(part.startswith(".") for part in key):
        return None
    path = folder.joinpath(*key)
    if leads_out(path, folder):
        return None
    found = []
    try:
        with os.scandir(path) as entries:
            for entry in itertools.islice(entries, MAX_LISTED):
                if not entry.is_symlink() and (not entry.name.startswith(".") or entry.name in _SERVED_DOT_FILES):
                    found.append(entry.name + ("/" if entry.is_dir() else ""))
    except OSError:
        return None
    return sorted(found)


async def send_listing(request: web.Request, names: Sequence[str]) -> web.StreamResponse:
    """Answer with the names in a folder."""
    content = listing_page(request.raw_path.partition("?")[0], names)
    body = Body([content], content_tag(content), CONTENT_TYPE)
    return await send(request, body, {"Content-Security-Policy": POLICY})


async def send_file(request: web.Request, folder: Path, key: tuple[str, ...]) -> web.StreamResponse:
    """Answer with a file of a container."""
    context = request.app[CONTEXT]
    file = await context.run(open_file, folder, key)
    if file is None:
        names = await context.run(list_folder, folder, key)
        return absent() if names is None else await send_listing(request, names)
    size = file.size()
    content_type = JSON if _JSON_NAMES.fullmatch(key[-1]) else BYTES
    return await send(request, Body((), tag_of(file.version()), content_type, part=FilePart(file, 0, size)))
