"""Routes below /data/: files of containers, and virtual datasets of frames."""

from __future__ import annotations

from collections.abc import Iterator

from aiohttp import web

from acqstream.web.answers import absent
from acqstream.web.data_address import PREFIX, BadAddress, path_parts
from acqstream.web.file_routes import has_chunks, send_file
from acqstream.web.web_context import CONTEXT, WebContext, plain_path


def data_routes(context: WebContext) -> Iterator[web.RouteDef]:
    """The routes of this group."""
    del context
    yield web.get(PREFIX + "{rest:.*}", serve_data)


async def serve_data(request: web.Request) -> web.StreamResponse:
    """Answer a request for an object of a dataset."""
    context = request.app[CONTEXT]
    try:
        first, *rest = path_parts(plain_path(request))
    except BadAddress:
        return absent()
    folder = await context.run(context.folders.find, first)
    if folder is not None and await context.run(has_chunks, folder):
        return await send_file(request, folder, tuple(rest))
    return absent()
