"""Watches the daemon for all clients of this server: one question a second, however many pages are open."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Protocol

from acqstream.model.units import duration_text
from acqstream.monitor.daemon_watch import DaemonView, DaemonWatch, StatusHistory

logger = logging.getLogger("acqstream.web")

LOOK_INTERVAL_S = 1.0


class Watch(Protocol):
    """What the feed asks; `DaemonWatch`, or a stand-in for tests."""

    def tick(self) -> DaemonView: ...
    def close(self) -> None: ...


class DaemonFeed:
    """The latest view of the daemon. Used by the loop's thread; questions are asked in a thread of its own."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="web-status")
        self._changed = asyncio.Condition()
        self._answered_s: float | None = None
        self._is_silent = False
        self.view = DaemonView(why="the daemon has not been asked yet")
        self.history = StatusHistory()
        self.n_reports = 0

    @property
    def silence_s(self) -> float | None:
        """Seconds since the last answer of the daemon; None before the first one."""
        return None if self._answered_s is None else time.monotonic() - self._answered_s

    async def wait_for_report(self, after: int) -> int:
        """Wait until there were more reports than `after`, and return their number."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.n_reports > after)
        return self.n_reports

    async def ask(self) -> None:
        """Ask once. Errors are in the view, and the first one of several is in the log."""
        try:
            view = await asyncio.get_running_loop().run_in_executor(self._thread, self._watch.tick)
            self.history.add(view)
        except Exception as error:
            if not self._is_silent:
                logger.exception("cannot read the status of the daemon")
            self._is_silent = True
            view = replace(self.view, status=None, why=f"the status cannot be read: {error!r}", at_s=time.monotonic())
        self._log_change(view)
        if view.status is not None:
            self._answered_s = time.monotonic()
        self.view = view

    def _log_change(self, view: DaemonView) -> None:
        is_silent = view.status is None
        if is_silent and not self._is_silent:
            logger.warning("no word from the daemon: %s", view.why)
        elif self._is_silent and not is_silent:
            silence_s = self.silence_s
            logger.info("the daemon answers%s", "" if silence_s is None else f" again after {duration_text(silence_s)}")
        self._is_silent = is_silent

    async def report(self) -> None:
        """Wake who waits for news: a new view, or a longer silence."""
        self.n_reports += 1
        async with self._changed:
            self._changed.notify_all()

    async def run(self) -> None:
        """Ask every LOOK_INTERVAL_S, and report as often while an answer takes longer; until canceled."""
        loop = asyncio.get_running_loop()
        next_s = loop.time()
        look: asyncio.Task[None] | None = None
        try:
            while True:
                if look is None:
                    look = asyncio.create_task(self.ask())
                next_s = max(next_s + LOOK_INTERVAL_S, loop.time())
                await asyncio.wait({look}, timeout=next_s - loop.time())
                if look.done():
                    look.result()
                    look = None
                await self.report()
                await asyncio.sleep(next_s - loop.time())
        finally:
            if look is not None:
                look.cancel()

    def close(self) -> None:
        """Close the connection to the daemon, in its own thread, after the question in progress."""
        self._thread.submit(self._watch.close)
        self._thread.shutdown(wait=True)


@asynccontextmanager
async def feeding(endpoint: str | None) -> AsyncIterator[DaemonFeed]:
    """A feed that asks while the block lasts. endpoint: of the daemon; None: found as by the other commands."""
    feed = DaemonFeed(DaemonWatch(endpoint))
    task = asyncio.create_task(feed.run())
    try:
        yield feed
    finally:
        task.cancel()
        await asyncio.wait({task})  # a question that begins after `close` has no thread
        feed.close()
