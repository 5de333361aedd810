"""Routes of the page, and what they share: its files, the pictures, the texts of the last look at the daemon.

The page's HTML is filled with texts as the page's own script does later: one template for both. An element names the
text that it shows in `data-text`, a time in ISO 8601 in `data-time`, whether it is shown in `data-show`, a number from
0 to 1 in `data-share` (of a progress element), a word for its style in `data-word`, and in `data-list` a list whose
items are filled into the template named in `data-item`. The files of the page are read once from the package: no
request makes up a path.
"""

from __future__ import annotations

import asyncio
import contextlib
import html
import json
import re
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from importlib.resources import files
from typing import Any

from aiohttp import web

from acqstream.web.answers import Body, absent, content_tag, send, send_json
from acqstream.web.page.page_texts import page_texts, time_text
from acqstream.web.page.picture_source import borrow_pictures
from acqstream.web.previews import Previews
from acqstream.web.web_context import CONTEXT, WebContext
from acqstream.web.web_settings import split_token, token_cookie

_TAG = re.compile(r"<[a-z][a-z0-9]*(?: [^<>]*)?>")
_DATA = re.compile(r' data-(text|time|show|share|word|list|item)="([a-z_]+)"')
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
        if "time" in asked:
            tag += html.escape(time_text(texts[asked["time"]]))  # a script shows it in its reader's zone
        if "list" in asked:
            tag += "".join(_filled(items[asked["item"]], one, items) for one in texts[asked["list"]])
        return tag

    return _TAG.sub(fill, body)


def _word(value: object) -> str:
    """A value as the page's script writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


@dataclass(frozen=True, slots=True)
class PageFiles:
    """The template of the page, and its other files by name."""

    template: PageTemplate
    by_name: Mapping[str, Body]


def load_page_files() -> PageFiles:
    """Read all files of the page."""
    folder = files("acqstream.web") / "page" / "static"
    found: dict[str, Body] = {}
    for entry in folder.iterdir():
        kind = _TYPES.get(entry.name[entry.name.rfind(".") :])
        if kind is not None:
            content = entry.read_bytes()
            found[entry.name] = Body([content], content_tag(content), kind)
    template = PageTemplate((folder / "index.html").read_text(encoding="utf-8"))
    return PageFiles(template, found)


class PageState:
    """One per server. Used by the loop's thread."""

    def __init__(self, context: WebContext) -> None:
        self._feed = context.feed
        self.folders, self.threads = context.folders, context.threads
        self.host = socket.gethostname()
        self.files: PageFiles = load_page_files()
        self.previews = Previews(partial(borrow_pictures, context.shelf), context.run, context.gate.pace)
        self._texts: tuple[int, dict[str, Any], str] = (-1, {}, "")

    @property
    def texts(self) -> dict[str, Any]:
        """All texts of the page, of the last look at the daemon."""
        return self._made()[1]

    @property
    def event(self) -> str:
        """The texts as the data of an event; made once for all pages."""
        return self._made()[2]

    def history(self) -> dict[str, Any]:
        """Steps of the last hour: seconds before now, bytes and frames per second, waiting frames, and late seconds."""
        now_s = self._feed.view.at_s
        steps = [
            [round(now_s - one.at_s, 1), one.bytes_per_s, one.frames_per_s, one.queue_frames, one.publish_p99_s]
            for one in self._feed.history.steps
        ]
        return {"steps": steps}

    def _made(self) -> tuple[int, dict[str, Any], str]:
        feed, n_reports = self._feed, self._feed.n_reports
        if self._texts[0] != n_reports:
            texts = page_texts(feed.view, self.host, datetime.now().astimezone(), feed.silence_s)
            self._texts = n_reports, texts, json.dumps(texts, separators=(",", ":"))
        return self._texts


RETRY_MS = 1000
QUIET_S = 15.0  # without an event before a comment line keeps proxies from closing the stream
_NO_STORE = {"Cache-Control": "no-store"}
_POLICY = "default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


def page_routes(state: PageState) -> Iterator[web.RouteDef]:
    """The routes of this group."""

    async def page(request: web.Request) -> web.StreamResponse:
        token, _ = split_token(request.raw_path)
        if token:
            return _with_cookie(request, token)
        text = state.files.template.render(state.texts)
        headers = {**_NO_STORE, "Content-Security-Policy": _POLICY}
        return web.Response(text=text, content_type="text/html", headers=headers)

    async def page_file(request: web.Request) -> web.StreamResponse:
        file = state.files.by_name.get(request.match_info["name"])
        return absent() if file is None else await send(request, file)

    async def status(request: web.Request) -> web.StreamResponse:
        view = request.app[CONTEXT].feed.view
        known = view.status.as_dict() if view.status is not None else None
        return await send_json(request, {"texts": state.texts, "status": known, "why": view.why})

    async def history(request: web.Request) -> web.StreamResponse:
        return await send_json(request, state.history())

    async def events(request: web.Request) -> web.StreamResponse:
        return await _stream(request, state)

    yield web.get("/", page)
    yield web.get("/page/{name}", page_file)
    yield web.get("/api/status", status)
    yield web.get("/api/history", history)
    yield web.get("/api/events", events)


def _with_cookie(request: web.Request, token: str) -> web.Response:
    """Keep a token that came in the path in a cookie, so that the page and what it loads need none in their paths."""
    answer = web.Response(status=303, headers={**_NO_STORE, "Location": "/"})
    answer.set_cookie(token_cookie(request.headers.get("Host", "")), token, httponly=True, samesite="Strict", path="/")
    return answer


async def _stream(request: web.Request, state: PageState) -> web.StreamResponse:
    """Send the texts after each look at the daemon, until the client leaves."""
    context: WebContext = request.app[CONTEXT]
    headers = {**_NO_STORE, "X-Accel-Buffering": "no", "Content-Type": "text/event-stream"}
    response = web.StreamResponse(headers=headers)
    with context.gate.stream(), contextlib.suppress(ConnectionError, TimeoutError):
        await response.prepare(request)
        if request.method == "HEAD":
            return response
        await response.write(f"retry: {RETRY_MS}\n\n".encode())
        reports = -1
        async with asyncio.timeout(context.settings.limits.stream_s):
            while True:
                try:
                    reports = await asyncio.wait_for(context.feed.wait_for_report(reports), QUIET_S)
                except TimeoutError:
                    await response.write(b": quiet\n\n")
                    continue
                await response.write(f"id: {reports}\nevent: status\ndata: {state.event}\n\n".encode())
    transport = request.transport
    if transport is not None and transport.get_write_buffer_size():  # the end of an answer would wait for its reader
        transport.abort()
    return response
