"""The files of the page, read once from the package: no request makes up a path."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

from acqstream.web.answers import content_tag
from acqstream.web.page_template import PageTemplate

_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file as it is sent. tag: a quoted entity tag."""

    content: bytes
    content_type: str
    tag: str


@dataclass(frozen=True, slots=True)
class PageFiles:
    """The template of the page, and its other files by name."""

    template: PageTemplate
    by_name: Mapping[str, PageFile]


def load_page_files() -> PageFiles:
    """Read all files of the page."""
    folder = files("acqstream.web") / "page" / "static"
    found: dict[str, PageFile] = {}
    for entry in folder.iterdir():
        kind = _TYPES.get(entry.name[entry.name.rfind(".") :])
        if kind is not None:
            content = entry.read_bytes()
            found[entry.name] = PageFile(content, kind, content_tag(content))
    template = PageTemplate((folder / "index.html").read_text(encoding="utf-8"))
    return PageFiles(template, found)
