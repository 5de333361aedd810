"""The application: the routes of all groups behind one guard, counted for the metrics; routes for monitors.

A group is a function that yields `web.RouteDef`s, in a module of its own. Each route is added twice: as it is, and
below /t/TOKEN/ for viewers that can send no header. The guard is middleware and headers of every answer: the security
rules, the bounds, and errors as plain text.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Iterator

from aiohttp import web
from prometheus_client import CollectorRegistry

from acqstream.errors import AcqStreamError, FrameNotFound, StorageError, UnknownFormat
from acqstream.model.dataset_name import MAX_FOLDERS
from acqstream.model.status import SpaceLevel
from acqstream.monitor.daemon_watch import DaemonView
from acqstream.web.answers import BROKEN_OFF, JSON, absent, refusal
from acqstream.web.data_routes import data_routes
from acqstream.web.dataset_routes import NOTES_PATH, dataset_routes
from acqstream.web.metrics import DaemonCollector, exposition
from acqstream.web.neuroglancer_routes import follow_app, neuroglancer_routes
from acqstream.web.page_routes import PageState, page_routes
from acqstream.web.request_gate import GateClosed
from acqstream.web.web_context import CONTEXT, WebContext, plain_path
from acqstream.web.web_settings import (
    TOKEN_COOKIE,
    allowed_origin,
    bearer_token,
    is_known_host,
    is_own_origin,
    is_token_shown,
    split_token,
    token_cookie,
)

logger = logging.getLogger("acqstream.web")

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
    _, first, *rest = [*path.split("/"), ""][: MAX_FOLDERS + 4]
    if first == "data":
        return next((part for part in rest[1:] if part in _LAYOUTS), "files")
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


ROUTE_GROUPS = (data_routes, monitoring_routes, neuroglancer_routes)
PAGE_GROUPS = (page_routes, dataset_routes)
TOKEN_PREFIX = "/t/{token}"


def make_app(context: WebContext) -> web.Application:
    """The application of a server. Handlers find the context at `request.app[CONTEXT]`."""
    app = web.Application(middlewares=[count_requests, guard])
    app[CONTEXT] = context
    app.cleanup_ctx.append(follow_app)
    app.on_response_prepare.append(add_headers)
    state = PageState(context)
    for route in (
        *(one for group in ROUTE_GROUPS for one in group(context)),
        *(one for group in PAGE_GROUPS for one in group(state)),
    ):
        for path in (route.path, TOKEN_PREFIX + route.path):
            # "*": the guard refuses other methods for all paths alike.
            app.router.add_route("*", path, route.handler)
    return app


METHODS = ("GET", "HEAD", "OPTIONS")
WRITE_PATHS = frozenset({NOTES_PATH})
_PREFLIGHT = {
    "Access-Control-Allow-Methods": "GET, HEAD",
    "Access-Control-Allow-Headers": "Range, If-None-Match, Authorization",
    "Access-Control-Max-Age": "7200",
}
_STORAGE_RETRY_S = 5
_EXPOSED = "Content-Range, Content-Length, ETag, Accept-Ranges"


@web.middleware
async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse requests that break a rule, bound the others, and answer errors."""
    context = request.app[CONTEXT]
    context.watch.begin_request(request.transport)
    try:
        refused = _refused(request, context)
        if refused is not None:
            return refused
        if request.method == "OPTIONS":
            return web.Response(status=204, headers=_PREFLIGHT)
        with context.gate.request():
            return await handler(request)
    except GateClosed:
        return refusal(503, "the server is busy", **{"Retry-After": "1"})
    except (UnknownFormat, FrameNotFound, FileNotFoundError) as error:
        # A dataset that begins has no frame yet; one that was deleted has no file.
        logger.debug("404: %s", error)
        return absent()
    except StorageError as error:  # a disk that fails or is not mounted may come back
        logger.warning("cannot answer %s: %s", request.method, error)
        text = "the disk cannot be read now; the log of the server has the reason"
        return refusal(503, text, **{"Retry-After": str(_STORAGE_RETRY_S)})
    except AcqStreamError as error:
        logger.warning("cannot answer %s: %s", request.method, error)
        return web.Response(status=500, text="the dataset cannot be read; the log of the server has the reason")
    except MemoryError as error:  # of a file that claims to be large, where no bound of ours was met first
        logger.warning("cannot answer %s: %r", request.method, error)
        return refusal(503, "there is no memory for this answer")
    finally:
        context.watch.end_request(request.transport)


async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Headers of every answer, errors included: viewers ask for paths that never exist, and need them there, too."""
    headers, context = response.headers, request.app[CONTEXT]
    headers["X-Content-Type-Options"] = "nosniff"
    headers["Cross-Origin-Resource-Policy"] = "same-origin"
    headers["Referrer-Policy"] = "no-referrer"  # paths may have a token
    headers.pop("Server", None)
    vary = [one for one in (headers.get("Vary"), "Origin") if one]
    headers["Vary"] = ", ".join(vary)
    origin = allowed_origin(request.headers.get("Origin"), request.headers.get("Host", ""), context.settings.origins)
    if origin:
        headers["Access-Control-Allow-Origin"] = origin
        headers["Access-Control-Expose-Headers"] = _EXPOSED
        if request.headers.get("Access-Control-Request-Private-Network") == "true":
            headers["Access-Control-Allow-Private-Network"] = "true"


def _refused(request: web.Request, context: WebContext) -> web.Response | None:
    is_write = request.method == "POST" and plain_path(request) in WRITE_PATHS
    if request.method not in METHODS and not is_write:
        return web.Response(status=405, text="only GET, HEAD and OPTIONS", headers={"Allow": ", ".join(METHODS)})
    if not is_known_host(request.headers.get("Host", ""), _own_address(request), context.settings.hosts):
        return web.Response(status=421, text="this server has another name")
    if context.settings.token and request.method != "OPTIONS" and not _has_token(request, context.settings.token):
        return refusal(401, "a token is needed", **{"WWW-Authenticate": "Bearer"})
    if is_write and not is_own_origin(request.headers.get("Origin"), request.headers.get("Host", "")):
        return refusal(403, "only pages of this server may write")
    if is_write and request.content_type != JSON:  # no form of another page can send it
        return refusal(415, f"expected {JSON}")
    return None


def _has_token(request: web.Request, token: str) -> bool:
    in_path = split_token(request.raw_path)[0]
    in_header = bearer_token(request.headers.get("Authorization", ""))
    kept = [request.cookies.get(name, "") for name in (token_cookie(request.headers.get("Host", "")), TOKEN_COOKIE)]
    return is_token_shown(token, [in_path, in_header, *kept])


def _own_address(request: web.Request) -> str:
    """The address of this machine that the client connected to; "" for a local socket."""
    name = request.get_extra_info("sockname")
    return str(name[0]) if isinstance(name, tuple) else ""
