"""What the handlers of all routes share: settings, datasets, bounds and threads."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field
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


MAX_SOURCES = 64
QUIET_S = 0.4  # a viewer that asks for nothing so long after an answer has all that it wants


@dataclass(slots=True)
class _Load:
    n_open: int = 0
    has_chunks: bool = False
    ended_s: float = 0.0


class SourceLoads:
    """Whether viewers have what they asked for of a source, by the first part of its address.

    Of the MAX_SOURCES that were asked for last. Used in the server's loop.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._loads: OrderedDict[str, _Load] = OrderedDict()

    @contextmanager
    def answering(self, address: str, *, is_chunk: bool) -> Iterator[None]:
        """A request for an object of a source, until its answer was sent."""
        load = self._loads.setdefault(address, _Load())
        self._loads.move_to_end(address)
        if len(self._loads) > MAX_SOURCES:
            self._loads.popitem(last=False)
        load.n_open += 1
        try:
            yield
        finally:
            load.n_open -= 1
            load.has_chunks |= is_chunk
            load.ended_s = self._clock()

    def is_loaded(self, address: str) -> bool | None:
        """True when chunks were asked for, and nothing more since QUIET_S; None if no chunk was asked for."""
        load = self._loads.get(address)
        if load is None or not (load.n_open or load.has_chunks):
            return None
        return load.has_chunks and not load.n_open and self._clock() - load.ended_s >= QUIET_S


@dataclass(frozen=True)
class WebContext:
    """One per server. watch: of its connections. feed: views of the daemon. metrics: of requests, in registry.

    loads: what viewers have of sources that never change.
    """

    settings: WebSettings
    gate: RequestGate
    watch: ConnectionWatch
    folders: ServedFolders
    shelf: DatasetShelf
    threads: ThreadPoolExecutor
    feed: DaemonFeed
    registry: CollectorRegistry
    metrics: WebMetrics
    loads: SourceLoads = field(default_factory=SourceLoads)

    async def run(self, function: Callable[_P, _T], *arguments: _P.args, **keywords: _P.kwargs) -> _T:
        """Call a function that reads files, in a thread: the loop waits for no disk."""
        call = partial(copy_context().run, function, *arguments, **keywords)
        return await asyncio.get_running_loop().run_in_executor(self.threads, call)


CONTEXT = web.AppKey("context", WebContext)


def base_of(request: web.Request) -> str:
    """The begin of addresses as the client sees this server, with the token, which it has shown."""
    return f"{request.scheme}://{request.headers.get('Host', '')}{request.app[CONTEXT].settings.token_path}"


def plain_path(request: web.Request) -> str:
    """The path of a request as it came, not decoded, without query and token."""
    return split_token(request.raw_path.partition("?")[0])[1]
