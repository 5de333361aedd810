"""What the handlers of all routes share: settings, datasets, bounds and threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import ParamSpec, TypeVar

from aiohttp import web
from prometheus_client import CollectorRegistry

from acqstream.web.connection_watch import ConnectionWatch
from acqstream.web.daemon_feed import DaemonFeed
from acqstream.web.data.dataset_shelf import DatasetShelf, ServedFolders
from acqstream.web.metrics import WebMetrics
from acqstream.web.request_gate import RequestGate
from acqstream.web.web_settings import WebSettings, split_token

_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclass(frozen=True)
class WebContext:
    """One per server. watch: of its connections. feed: views of the daemon. metrics: of requests, in registry."""

    settings: WebSettings
    gate: RequestGate
    watch: ConnectionWatch
    folders: ServedFolders
    shelf: DatasetShelf
    threads: ThreadPoolExecutor
    feed: DaemonFeed
    registry: CollectorRegistry
    metrics: WebMetrics

    async def run(self, function: Callable[_P, _T], *arguments: _P.args, **keywords: _P.kwargs) -> _T:
        """Call a function that reads files, in a thread: the loop waits for no disk."""
        call = partial(copy_context().run, function, *arguments, **keywords)
        return await asyncio.get_running_loop().run_in_executor(self.threads, call)


CONTEXT = web.AppKey("context", WebContext)


def plain_path(request: web.Request) -> str:
    """The path of a request as it came, not decoded, without query and token."""
    return split_token(request.raw_path.partition("?")[0])[1]
