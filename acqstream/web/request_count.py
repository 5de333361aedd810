"""Middleware that counts requests for the metrics, by layout and code."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from aiohttp import web

from acqstream.web.answers import BROKEN_OFF
from acqstream.web.web_context import CONTEXT, plain_path

_LAYOUTS = frozenset({"ome.zarr", "v2.ome.zarr", "n5", "precomputed", "xarray.zarr"})
_GROUPS = frozenset({"api", "metrics", "healthz", "readyz", "page"})
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def count_requests(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Count a request when it is answered, or when its answer breaks off: the client left, or the disk failed."""
    begin_s, code, sent = time.monotonic(), 499, 0  # 499: the answer was not sent completely
    try:
        response = await handler(request)
        if not request.get(BROKEN_OFF):
            code, sent = response.status, response.content_length or 0
        return response
    except web.HTTPException as error:
        code = error.status
        raise
    finally:
        body = 0 if request.method == "HEAD" else sent
        request.app[CONTEXT].metrics.note(layout_of(plain_path(request)), code, body, time.monotonic() - begin_s)


def layout_of(path: str) -> str:
    """A word for the kind of a path, of a fixed list: it becomes a label of metrics."""
    _, first, *rest = [*path.split("/"), "", ""][:5]
    if first == "data":
        return rest[1] if len(rest) > 1 and rest[1] in _LAYOUTS else "files"
    return first if first in _GROUPS else "page" if not first else "other"
