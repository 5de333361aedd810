"""The application: the routes of all groups behind one guard.

A group is a function that yields `web.RouteDef`s, in a module of its own. Each route is added twice: as it is, and
below /t/TOKEN/ for viewers that can send no header.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from aiohttp import web

from acqstream.web.data_routes import data_routes
from acqstream.web.neuroglancer_routes import follow_app, neuroglancer_routes
from acqstream.web.request_guard import add_headers, guard
from acqstream.web.web_context import CONTEXT, WebContext

RouteGroup = Callable[[WebContext], Iterable[web.RouteDef]]
ROUTE_GROUPS: tuple[RouteGroup, ...] = (data_routes, neuroglancer_routes)
TOKEN_PREFIX = "/t/{token}"


def make_app(context: WebContext, groups: Iterable[RouteGroup] = ROUTE_GROUPS) -> web.Application:
    """The application of a server. Handlers find the context at `request.app[CONTEXT]`."""
    app = web.Application(middlewares=[guard])
    app[CONTEXT] = context
    app.cleanup_ctx.append(follow_app)
    app.on_response_prepare.append(add_headers)
    for group in groups:
        for route in group(context):
            for path in (route.path, TOKEN_PREFIX + route.path):
                # "*": the guard refuses other methods for all paths alike.
                app.router.add_route("*", path, route.handler)
    return app
