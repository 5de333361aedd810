"""The application: the routes of all groups behind one guard, counted for the metrics; routes for monitors.

A group is a function that yields `web.RouteDef`s, in a module of its own. Each route is added twice: as it is, and
below /t/TOKEN/ for viewers that can send no header.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Iterator

from aiohttp import web
from prometheus_client import CollectorRegistry

from acqstream.model.status import SpaceLevel
from acqstream.monitor.daemon_watch import DaemonView
from acqstream.web.answers import BROKEN_OFF
from acqstream.web.data_routes import data_routes
from acqstream.web.dataset_routes import dataset_routes
from acqstream.web.metrics import DaemonCollector, exposition
from acqstream.web.neuroglancer_routes import follow_app, neuroglancer_routes
from acqstream.web.page_routes import PageState, page_routes
from acqstream.web.request_guard import add_headers, guard
from acqstream.web.web_context import CONTEXT, WebContext, plain_path

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


def trouble_of(view: DaemonView) -> str:
    """Return one line about what keeps the daemon from recording; "" if nothing does."""
    status = view.status
    if status is None:
        return (view.why if view.is_starting else f"no daemon answers: {view.why}").splitlines()[0]
    for one in status.acquisitions:
        if one.stall:
            return f"{one.name}: the disk stalls: {one.stall}".splitlines()[0]
    if status.space == SpaceLevel.FULL:
        return f"the disk of {status.data} is full: {status.free_bytes} bytes are free".splitlines()[0]
    return ""


_NO_STORE = {"Cache-Control": "no-store"}


def monitoring_routes(context: WebContext) -> Iterator[web.RouteDef]:
    """The routes of this group."""
    registry: CollectorRegistry = context.registry
    registry.register(DaemonCollector(lambda: context.feed.view))

    async def metrics(request: web.Request) -> web.Response:
        body, content_type = exposition(registry, request.headers.get("Accept", ""))
        return web.Response(body=body, headers={**_NO_STORE, "Content-Type": content_type})

    async def alive(_request: web.Request) -> web.Response:
        return web.Response(text="ok\n", headers=_NO_STORE)

    async def ready(_request: web.Request) -> web.Response:
        trouble = trouble_of(context.feed.view)
        return web.Response(status=503 if trouble else 200, text=f"{trouble or 'ok'}\n", headers=_NO_STORE)

    yield web.get("/metrics", metrics)
    yield web.get("/healthz", alive)
    yield web.get("/readyz", ready)


RouteGroup = Callable[[WebContext], Iterable[web.RouteDef]]
ROUTE_GROUPS: tuple[RouteGroup, ...] = (data_routes, monitoring_routes, neuroglancer_routes)
PAGE_GROUPS = (page_routes, dataset_routes)
TOKEN_PREFIX = "/t/{token}"


def make_app(context: WebContext, groups: Iterable[RouteGroup] = ROUTE_GROUPS) -> web.Application:
    """The application of a server. Handlers find the context at `request.app[CONTEXT]`."""
    app = web.Application(middlewares=[count_requests, guard])
    app[CONTEXT] = context
    app.cleanup_ctx.append(follow_app)
    app.on_response_prepare.append(add_headers)
    state = PageState(context)
    for route in (
        *(one for group in groups for one in group(context)),
        *(one for group in PAGE_GROUPS for one in group(state)),
    ):
        for path in (route.path, TOKEN_PREFIX + route.path):
            # "*": the guard refuses other methods for all paths alike.
            app.router.add_route("*", path, route.handler)
    return app
