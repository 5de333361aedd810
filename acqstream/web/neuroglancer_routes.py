"""Routes for Neuroglancer: its state for a dataset, a viewer that follows it, and a built client.

/view/NAME               leads to a Neuroglancer that shows the dataset
/view/NAME/state.json    the state, with the frames that are published now
/view/NAME/loaded/PART   whether viewers have what they asked for of a source below /data/PART/
/neuroglancer/...        files of the built client, if there is one
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from aiohttp import web

from acqstream.errors import UnknownFormat
from acqstream.web.answers import Body, FilePart, absent, send, send_json, tag_of
from acqstream.web.data import neuroglancer_follower
from acqstream.web.data.data_address import DataOptions, data_path
from acqstream.web.data.neuroglancer_state import PUBLIC_CLIENT, state_url, viewer_state
from acqstream.web.file_routes import open_file
from acqstream.web.web_context import CONTEXT, WebContext, base_of, plain_path

MAX_VIEWERS = 4  # processes, one for each dataset that is looked at
_START_S = 30.0
_LAYOUT = "ome.zarr"
_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".wasm": "application/wasm"}


class ViewerProcesses:
    """The viewers of the Python package, by dataset; the oldest one ends when there are too many."""

    def __init__(self) -> None:
        self._running: dict[str, tuple[asyncio.subprocess.Process, str]] = {}
        self._lock = asyncio.Lock()

    @property
    def is_possible(self) -> bool:
        """True if the package is installed."""
        return find_spec("neuroglancer") is not None

    async def address(self, name: str, state_address: str) -> str:
        """The address of the viewer of a dataset, which is started if need be. Raises TimeoutError, OSError."""
        async with self._lock:
            found = self._running.get(name)
            if found is not None and found[0].returncode is None:
                return found[1]
            while len(self._running) >= MAX_VIEWERS:
                await self._end(next(iter(self._running)))
            program = str(Path(neuroglancer_follower.__file__))
            pipe = asyncio.subprocess.PIPE
            process = await asyncio.create_subprocess_exec(sys.executable, "-I", program, stdin=pipe, stdout=pipe)
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(f"{state_address}\n".encode())  # no argument, which all users read: it has the token
            try:
                line = await asyncio.wait_for(process.stdout.readline(), _START_S)
            except TimeoutError:
                process.kill()
                raise
            self._running[name] = process, line.decode().strip()
            return self._running[name][1]

    async def close(self) -> None:
        """End all viewers."""
        for name in list(self._running):
            await self._end(name)

    async def _end(self, name: str) -> None:
        process, _ = self._running.pop(name)
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


_VIEWERS = web.AppKey("viewers", ViewerProcesses)


def neuroglancer_routes(context: WebContext) -> Iterator[web.RouteDef]:
    """The routes of this group."""
    yield web.get("/view/{name}", show)
    yield web.get("/view/{name}/state.json", send_state)
    yield web.get("/view/{name}/loaded/{address}", send_loaded)
    if context.settings.neuroglancer is not None:
        yield web.get("/neuroglancer/{rest:.*}", send_client)


def find_state(context: WebContext, name: str, base: str) -> dict[str, Any] | None:
    """The state for a dataset as it is published now; None if it has no array yet. base: of the server, for viewers."""
    folder = context.folders.find(name)
    if folder is None:
        return None
    with context.shelf.borrow(folder) as dataset:
        dataset.refresh()
        options = DataOptions(generation=dataset.count, identity=dataset.identity[:12])
        array = dataset.array(_LAYOUT, options)
    if array is None:
        return None
    layout = array.virtual.layout
    image, full = "", layout.plan.full
    if layout.plan.member_axes:  # the first image of a collection or plate, whose own document comes last
        image = [*layout.member_documents((0,) * len(layout.plan.member_axes))][-1].rpartition("/")[0] + "/"
        members = len(layout.plan.member_axes)
        full = full.of_image(dict.fromkeys(full.axes[:members], 0)).ordered(full.axes[members:])
    return viewer_state(full, base + data_path(name, _LAYOUT, options) + image, name)


async def send_state(request: web.Request) -> web.StreamResponse:
    """Answer with the state for a dataset."""
    context = request.app[CONTEXT]
    state = await context.run(find_state, context, _name(request), base_of(request))
    return absent() if state is None else await send_json(request, state)


async def send_loaded(request: web.Request) -> web.StreamResponse:
    """Answer with {"loaded": true}, false while viewers load a source, null if none has asked for its chunks."""
    found = request.app[CONTEXT].loads.is_loaded(request.match_info["address"])
    return await send_json(request, {"loaded": found})


async def show(request: web.Request) -> web.StreamResponse:
    """Lead to a Neuroglancer: the built client, else that of the Python package, else the public one."""
    context, name, base = request.app[CONTEXT], _name(request), base_of(request)
    state = await context.run(find_state, context, name, base)
    if state is None:
        raise UnknownFormat(f"{name}: no frames yet")
    viewers = request.app[_VIEWERS]
    if context.settings.neuroglancer is not None:
        target = state_url(f"{base}/neuroglancer/index.html", state)
    elif viewers.is_possible and (own := _own_base(request)):
        target = await viewers.address(name, f"{own}/view/{quote(name, safe='')}/state.json")
    else:
        target = state_url(PUBLIC_CLIENT, state)
    return web.Response(status=302, headers={"Location": target, "Cache-Control": "no-store"})


async def send_client(request: web.Request) -> web.StreamResponse:
    """Answer with a file of the built client."""
    context = request.app[CONTEXT]
    folder = context.settings.neuroglancer
    assert folder is not None
    key = tuple(part for part in unquote(plain_path(request)).split("/")[2:] if part) or ("index.html",)
    if any(part in (".", "..") or "\\" in part or "\0" in part for part in key):
        return absent()
    file = await context.run(open_file, folder, key)
    if file is None:
        return absent()
    content_type = _TYPES.get(Path(key[-1]).suffix, "application/octet-stream")
    body = Body((), tag_of(*file.version()), content_type, part=FilePart(file, 0, file.size()))
    return await send(request, body)


async def follow_app(app: web.Application) -> Any:
    """Keep the viewers for the life of the application."""
    app[_VIEWERS] = ViewerProcesses()
    yield
    await app[_VIEWERS].close()


def _name(request: web.Request) -> str:
    return request.match_info["name"]


def _own_base(request: web.Request) -> str:
    """The same as this machine sees the server, whatever the client calls it; empty if it cannot be reached so."""
    found = request.get_extra_info("sockname")
    if not isinstance(found, tuple) or not request.app[CONTEXT].settings.is_local:
        return ""
    host, port = found[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}{request.app[CONTEXT].settings.token_path}"
