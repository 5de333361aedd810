"""Watches the daemon for all clients of this server: one question a second, however many pages are open."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Protocol

from acqstream.monitor.daemon_view import DaemonView
from acqstream.monitor.daemon_watch import DaemonWatch
from acqstream.monitor.status_history import StatusHistory, frame_rates

logger = logging.getLogger("acqstream.web")

LOOK_INTERVAL_S = 1.0
_RATE_LOOKS = 4  # looks over which the rate of frames is measured


class Watch(Protocol):
    """What the feed asks; `DaemonWatch`, or a stand-in for tests."""

    def look(self) -> DaemonView: ...
    def close(self) -> None: ...


class DaemonFeed:
    """The latest view of the daemon. Used by the loop's thread; questions are asked in a thread of its own."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="web-status")
        self._changed = asyncio.Condition()
        self._recent: deque[DaemonView] = deque(maxlen=_RATE_LOOKS + 1)
        self.view = DaemonView(why="the daemon has not been asked yet")
        self.history = StatusHistory()
        self.n_looks = 0

    def run_rates(self) -> dict[str, float]:
        """Frames per second that were received lately, by the dataset id of each run."""
        return frame_rates(self._recent)

    async def wait_for_look(self, after: int) -> int:
        """Wait until there were more looks than `after`, and return their number."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.n_looks > after)
        return self.n_looks

    async def look(self) -> None:
        """Ask once."""
        view = await asyncio.get_running_loop().run_in_executor(self._thread, self._watch.look)
        self.view = view
        self._recent.append(view)
        self.history.add(view)
        self.n_looks += 1
        async with self._changed:
            self._changed.notify_all()

    async def run(self) -> None:
        """Ask every LOOK_INTERVAL_S, until canceled."""
        loop = asyncio.get_running_loop()
        next_s = loop.time()
        while True:
            try:
                await self.look()
            except Exception:
                logger.exception("cannot watch the daemon")
            next_s = max(next_s + LOOK_INTERVAL_S, loop.time())
            await asyncio.sleep(next_s - loop.time())

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
        feed.close()
