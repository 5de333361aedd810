"""Middleware and headers of every answer: the security rules, the bounds, and errors as plain text."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from aiohttp import web

from acqstream.errors import AcqStreamError, FrameNotFound, StorageError, UnknownFormat
from acqstream.web.request_gate import GateClosed
from acqstream.web.web_context import CONTEXT, WebContext
from acqstream.web.web_settings import (
    TOKEN_COOKIE,
    allowed_origin,
    bearer_token,
    is_known_host,
    is_token_shown,
    split_token,
    token_cookie,
)

logger = logging.getLogger("acqstream.web")

METHODS = ("GET", "HEAD", "OPTIONS")
_PREFLIGHT = {
    "Access-Control-Allow-Methods": "GET, HEAD",
    "Access-Control-Allow-Headers": "Range, If-None-Match, Authorization",
    "Access-Control-Max-Age": "7200",
}
_STORAGE_RETRY_S = 5
_EXPOSED = "Content-Range, Content-Length, ETag, Accept-Ranges"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse requests that break a rule, bound the others, and answer errors."""
    context = request.app[CONTEXT]
    context.watch.begin_request(request.transport)
    try:
        refusal = _refusal(request, context)
        if refusal is not None:
            return refusal
        if request.method == "OPTIONS":
            return web.Response(status=204, headers=_PREFLIGHT)
        with context.gate.request():
            return await handler(request)
    except GateClosed:
        return _plain(503, "the server is busy", {"Retry-After": "1", "Cache-Control": "no-store"})
    except (UnknownFormat, FrameNotFound, FileNotFoundError) as error:
        # A dataset that begins has no frame yet; one that was deleted has no file.
        logger.debug("404: %s", error)
        return _plain(404, "not found", {"Cache-Control": "no-store"})
    except StorageError as error:  # a disk that fails or is not mounted may come back
        logger.warning("cannot answer %s: %s", request.method, error)
        headers = {"Retry-After": str(_STORAGE_RETRY_S), "Cache-Control": "no-store"}
        return _plain(503, "the disk cannot be read now; the log of the server has the reason", headers)
    except AcqStreamError as error:
        logger.warning("cannot answer %s: %s", request.method, error)
        return _plain(500, "the dataset cannot be read; the log of the server has the reason")
    except MemoryError as error:  # of a file that claims to be large, where no bound of ours was met first
        logger.warning("cannot answer %s: %r", request.method, error)
        return _plain(503, "there is no memory for this answer", {"Cache-Control": "no-store"})
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


def _refusal(request: web.Request, context: WebContext) -> web.Response | None:
    if request.method not in METHODS:
        return _plain(405, "only GET, HEAD and OPTIONS", {"Allow": ", ".join(METHODS)})
    if not is_known_host(request.headers.get("Host", ""), _own_address(request), context.settings.hosts):
        return _plain(421, "this server has another name")
    if context.settings.token and request.method != "OPTIONS" and not _has_token(request, context.settings.token):
        return _plain(401, "a token is needed", {"WWW-Authenticate": "Bearer", "Cache-Control": "no-store"})
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


def _plain(status: int, text: str, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(status=status, text=text, headers=headers)
