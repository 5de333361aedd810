"""Fills the page's HTML with texts, as the page's own script does later: one template for both.

An element names the text that it shows in `data-text`, whether it is shown in `data-show`, a number from 0 to 1 in
`data-share` (of a progress element), a word for its style in `data-word`, and in `data-list` a list whose items are
filled into the template named in `data-item`. The files of the page are read once from the package: no request makes up
a path.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from acqstream.web.answers import content_tag

_TAG = re.compile(r"<[a-z][a-z0-9]*(?: [^<>]*)?>")
_DATA = re.compile(r' data-(text|show|share|word|list|item)="([a-z_]+)"')
_TEMPLATE = re.compile(r'<template id="([a-z_]+)">(.*?)</template>', re.DOTALL)


class PageTemplate:
    """An HTML page with `<template id="...">` elements for the items of its lists."""

    def __init__(self, text: str) -> None:
        self._items = dict(_TEMPLATE.findall(text))
        first = _TEMPLATE.search(text)
        # The templates themselves stay as they are, for the script; they are the last elements of the page.
        self._body = text[: first.start()] if first is not None else text
        self._rest = text[len(self._body) :]

    def render(self, texts: Mapping[str, Any]) -> str:
        """The page with all texts, escaped. Raises KeyError for a text that is missing."""
        return _filled(self._body, texts, self._items) + self._rest


def _filled(body: str, texts: Mapping[str, Any], items: Mapping[str, str]) -> str:
    def fill(match: re.Match[str]) -> str:
        tag = match[0]
        asked = dict(_DATA.findall(tag))
        if "show" in asked and not texts[asked["show"]]:
            tag = f"{tag[:-1]} hidden>"
        if "share" in asked:
            tag = f'{tag[:-1]} value="{float(texts[asked["share"]]):.4f}">'
        if "word" in asked:
            tag = f'{tag[:-1]} data-is="{html.escape(_word(texts[asked["word"]]))}">'
        if "text" in asked:
            tag += html.escape(str(texts[asked["text"]]))
        if "list" in asked:
            tag += "".join(_filled(items[asked["item"]], one, items) for one in texts[asked["list"]])
        return tag

    return _TAG.sub(fill, body)


def _word(value: object) -> str:
    """A value as the page's script writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


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
