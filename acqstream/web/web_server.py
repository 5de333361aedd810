"""Runs the web face: sockets, bounds on connections, and the end; alone, or as a child process of the daemon.

`acqstream.daemon.child_process` starts `python -m acqstream.web.web_server SETTINGS SOCKET PARENT`, SETTINGS in JSON.
The process ends when the socket is closed. Exit codes: 0 in order, 78 the settings cannot work. Of errors that any
client can cause the log has how many there were, not what they held, which may be a token.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from prometheus_client import CollectorRegistry

from acqstream.errors import AcqStreamError, ConfigError
from acqstream.extras import install_command
from acqstream.frames.frame_pixels import LevelCache
from acqstream.storage.local_sockets import take_over
from acqstream.storage.patient_output import never_wait_for_output
from acqstream.storage.platform import STOP_SIGNALS, child_process, keep_large_blocks, session_signals
from acqstream.storage.platform.capabilities import go_last, has_local_sockets
from acqstream.web.app import make_app
from acqstream.web.connection_watch import ConnectionWatch
from acqstream.web.daemon_feed import feeding
from acqstream.web.data.dataset_shelf import DatasetShelf, ServedFolders
from acqstream.web.data.virtual_dataset import ServedDataset
from acqstream.web.metrics import WebMetrics
from acqstream.web.request_gate import RequestGate
from acqstream.web.web_context import WebContext
from acqstream.web.web_settings import LOOPBACK, VIEWER_ORIGINS, WebLimits, WebSettings, read_or_make_token

logger = logging.getLogger("acqstream.web")

EXIT_CONFIGURATION = 78


def settings_of(values: Mapping[str, Any]) -> WebSettings:
    """The settings that the daemon sends. Raises ConfigError, StorageError."""
    token_file, neuroglancer, rate = values["token_file"], values["neuroglancer"], values["read_mb_s"]
    return WebSettings(
        data=Path(values["data"]),
        address=values["address"],
        port=values["port"],
        endpoint=values["endpoint"],
        hosts=tuple(values["hosts"]),
        origins=(*VIEWER_ORIGINS, *values["origins"]),
        token=read_or_make_token(Path(token_file), for_group=True) if token_file else "",
        neuroglancer=Path(neuroglancer) if neuroglancer else None,
        limits=WebLimits(read_bytes_per_s=None if rate is None else int(rate * 1e6)),
    )


def main() -> None:
    """Run the process. Ctrl-C and SIGTERM go to the whole process group, but the daemon decides when to end."""
    never_wait_for_output()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for number in child_process.ignored_signals():
        signal.signal(number, signal.SIG_IGN)
    child_process.follow_parent(sys.argv[3])
    child_process.yield_to_parent()
    try:
        if find_spec("aiohttp") is None:
            raise ConfigError(f"web needs more packages: {install_command('web')}")

        settings = settings_of(json.loads(sys.argv[1]))
        with child_process.adopt_connection(sys.argv[2]) as connection:
            run_server(settings, lambda url: logger.info("web: serving at %s", url), connection)
    except AcqStreamError as error:
        logger.error("%s", error)  # noqa: TRY400 - no traceback: the text says all
        sys.exit(EXIT_CONFIGURATION if isinstance(error, ConfigError) else 1)


LOGGERS = ("aiohttp.server", "asyncio")
_INTERVAL_S = 60.0
_MALFORMED = "requests could not be parsed"
_NO_DESCRIPTORS = "connections could not be accepted for want of descriptors (`ulimit -n`)"


class MalformedRequests(logging.Filter):
    """A filter for LOGGERS: one line of a kind at first, then at most one each minute. Other errors pass."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._counts: dict[str, int] = {}
        self._next_s: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return False for a record that is only counted; the others are changed."""
        kind = _kind_of(record.exc_info[1] if record.exc_info else None)
        if kind is None:
            return True
        self._counts[kind] = self._counts.get(kind, 0) + 1
        now_s = self._clock()
        if now_s < self._next_s.get(kind, now_s):
            return False
        record.levelno, record.levelname = logging.WARNING, "WARNING"
        record.msg, record.args = f"%d {kind} since the last such line", (self._counts[kind],)
        record.exc_info = record.exc_text = None
        self._counts[kind], self._next_s[kind] = 0, now_s + _INTERVAL_S
        return True


def _kind_of(error: BaseException | None) -> str | None:
    if isinstance(error, HttpProcessingError):
        return _MALFORMED
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return _NO_DESCRIPTORS
    return None


_BACKLOG = 128
_LINGER_S = 0.5  # for the rest of a request that was refused
_END_S = 2.0
_KEPT_BYTES = 64 * 2**20  # of pieces that were sent: their memory serves the next ones


def check_settings(settings: WebSettings) -> None:
    """Raise ConfigError for settings that would show data to strangers, or cannot work."""
    if not settings.is_local and not settings.token:
        raise ConfigError(
            f"web: other machines can reach {settings.address}, so a token is needed: give --token-file FILE, or "
            f"serve {LOOPBACK} and use ssh -L"
        )
    if settings.socket is not None and not has_local_sockets():
        raise ConfigError("web: this system has no local sockets")
    if not settings.data.is_dir():
        raise ConfigError(f"web: the data directory {settings.data} is missing")
    if settings.neuroglancer is not None and not (settings.neuroglancer / "index.html").is_file():
        raise ConfigError(
            f"web: {settings.neuroglancer} has no index.html, so it is not a built client of Neuroglancer"
        )


@asynccontextmanager
async def serving(settings: WebSettings) -> AsyncIterator[tuple[str, WebContext]]:
    """Serve while the block lasts; gives the address and what the handlers share.

    Raises ConfigError for settings that cannot work, and for an address that cannot be used.
    """
    check_settings(settings)
    async with AsyncExitStack() as undo:
        threads = ThreadPoolExecutor(settings.limits.threads, thread_name_prefix="web-read")
        undo.callback(threads.shutdown, cancel_futures=True)
        barrier = threading.Barrier(settings.limits.threads)
        for _ in range(settings.limits.threads):
            threads.submit(barrier.wait)  # all of them start now, not with some request
        runner: web.AppRunner | None = None

        def make_inner() -> asyncio.Protocol:
            assert runner is not None
            assert runner.server is not None
            return runner.server()

        watch = ConnectionWatch(settings.limits, make_inner)
        limits = settings.limits
        registry = CollectorRegistry()
        feed = await undo.enter_async_context(feeding(settings.endpoint))
        shelf = DatasetShelf(limits.datasets, partial(ServedDataset, cache=LevelCache(limits.level_bytes)))
        undo.callback(shelf.close)
        context = WebContext(
            settings,
            RequestGate(limits, lambda: bool(feed.view.running)),
            watch,
            ServedFolders(settings.data),
            shelf,
            threads,
            feed,
            registry,
            WebMetrics(registry),
        )
        size = limits.header_bytes
        runner = web.AppRunner(
            make_app(context),
            access_log=None,  # paths may have tokens
            max_line_size=size,
            max_field_size=size,
            keepalive_timeout=limits.idle_s,
            lingering_time=_LINGER_S,
            handler_cancellation=True,  # a client that is gone needs no answer
            shutdown_timeout=_END_S,
        )
        malformed = MalformedRequests()
        for name in LOGGERS:
            logging.getLogger(name).addFilter(malformed)
            undo.callback(logging.getLogger(name).removeFilter, malformed)
        await runner.setup()
        undo.push_async_callback(runner.cleanup)
        server, url = await _listen(settings, watch.make_protocol)
        undo.callback(server.close)
        task = asyncio.create_task(watch.run())
        undo.callback(task.cancel)
        yield url, context


async def _listen(settings: WebSettings, make: Callable[[], asyncio.Protocol]) -> tuple[asyncio.Server, str]:
    loop = asyncio.get_running_loop()
    try:
        if settings.socket is not None:
            return await _listen_locally(settings.socket, make), f"unix:{settings.socket}"
        server = await loop.create_server(make, settings.address, settings.port, backlog=_BACKLOG)
    except OSError as error:
        where = settings.socket or f"{settings.address}:{settings.port}"
        raise ConfigError(f"web: cannot listen at {where}: {error.strerror or error}") from error
    host, port = server.sockets[0].getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    return server, f"http://{shown}:{port}"


async def _listen_locally(path: Path, make: Callable[[], asyncio.Protocol]) -> asyncio.Server:
    """Listen at a local socket for its owner and group, in place of one that a killed process left."""
    take_over(path)
    server = await asyncio.get_running_loop().create_unix_server(make, str(path), backlog=_BACKLOG)
    os.chmod(path, 0o660)
    return server


def run_server(settings: WebSettings, on_ready: Callable[[str], None], stop_fd: socket.socket | None = None) -> None:
    """Serve until a signal, or until the other end of `stop_fd` is closed. on_ready gets the address."""
    go_last()  # before its threads start
    keep_large_blocks(_KEPT_BYTES)  # likewise
    asyncio.run(_run(settings, on_ready, stop_fd))


async def _run(settings: WebSettings, on_ready: Callable[[str], None], stop_fd: socket.socket | None) -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()

    def end(_number: int, _frame: object) -> None:
        loop.call_soon_threadsafe(stop.set)

    if stop_fd is None:
        for number in (*STOP_SIGNALS, *session_signals()):
            signal.signal(number, end)
    async with serving(settings) as (url, _):
        on_ready(url)
        if stop_fd is None:
            await stop.wait()
            return
        stop_fd.setblocking(False)
        while await loop.sock_recv(stop_fd, 1024):
            pass


if __name__ == "__main__":
    main()
