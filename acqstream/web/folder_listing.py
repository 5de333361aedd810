"""A page that lists a folder: for people who paste an address, and for software that looks whether a folder exists."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from urllib.parse import quote

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
