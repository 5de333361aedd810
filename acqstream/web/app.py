"""The application: the routes of all groups behind one guard.

A group is a function that yields `web.RouteDef`s, in a module of its own. Each route is added twice: as it is, and
below /t/TOKEN/ for viewers that can send no header.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from aiohttp import web

from acqstream.web.data_routes import data_routes
from acqstream.web.dataset_routes import dataset_routes
from acqstream.web.monitoring_routes import monitoring_routes
from acqstream.web.neuroglancer_routes import follow_app, neuroglancer_routes
from acqstream.web.page_routes import page_routes
from acqstream.web.page_state import PageState
from acqstream.web.request_count import count_requests
from acqstream.web.request_guard import add_headers, guard
from acqstream.web.web_context import CONTEXT, WebContext

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
    app.on_cleanup.append(_closing(state))
    for route in (
        *(one for group in groups for one in group(context)),
        *(one for group in PAGE_GROUPS for one in group(state)),
    ):
        for path in (route.path, TOKEN_PREFIX + route.path):
            # "*": the guard refuses other methods for all paths alike.
            app.router.add_route("*", path, route.handler)
    return app


def _closing(state: PageState) -> Callable[[web.Application], Awaitable[None]]:
    async def close(_app: web.Application) -> None:
        state.close()

    return close
