"""Routes for monitors: /metrics, /healthz and /readyz."""

from __future__ import annotations

from collections.abc import Iterator

from aiohttp import web
from prometheus_client import CollectorRegistry

from acqstream.web.health import trouble_of
from acqstream.web.metrics import DaemonCollector, exposition
from acqstream.web.web_context import WebContext

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
