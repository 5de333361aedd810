"""Bounds on requests that are answered at the same time, and on the bytes of their answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from acqstream.web.web_settings import WebLimits


class GateClosed(Exception):
    """The server has as many requests as it may have."""


class RequestGate:
    """Counts requests and bytes; peaks show how near the bounds came. Used by the loop's thread."""

    def __init__(self, limits: WebLimits) -> None:
        self._limits = limits
        self._bytes_left = limits.sending_bytes
        self._waiters = asyncio.Condition()
        self._next_s = 0.0
        self.requests = self.peak_requests = 0
        self.streams = self.peak_streams = 0
        self.peak_bytes = 0
        self.sent_bytes = 0

    @contextmanager
    def request(self) -> Iterator[None]:
        """Count a request. Raises GateClosed if there are too many."""
        if self.requests >= self._limits.requests:
            raise GateClosed
        self.requests += 1
        self.peak_requests = max(self.peak_requests, self.requests)
        try:
            yield
        finally:
            self.requests -= 1

    @contextmanager
    def stream(self) -> Iterator[None]:
        """Count an event stream, which is not counted as a request meanwhile. Raises GateClosed for one too many."""
        if self.streams >= self._limits.streams:
            raise GateClosed
        self.streams += 1
        self.requests -= 1
        self.peak_streams = max(self.peak_streams, self.streams)
        try:
            yield
        finally:
            self.streams -= 1
            self.requests += 1

    @asynccontextmanager
    async def sending(self, count: int) -> AsyncIterator[None]:
        """Wait until an answer of `count` bytes fits below the bounds on memory and rate."""
        share = min(count, self._limits.sending_bytes)  # a larger one waits until it is alone
        async with self._waiters:
            await self._waiters.wait_for(lambda: self._bytes_left >= share)
            self._bytes_left -= share
        self.peak_bytes = max(self.peak_bytes, self._limits.sending_bytes - self._bytes_left)
        try:
            await self._pace(count)
            yield
            self.sent_bytes += count
        finally:
            async with self._waiters:
                self._bytes_left += share
                self._waiters.notify_all()

    async def _pace(self, count: int) -> None:
        """Wait for the bound on bytes per second, which protects the disk of a running acquisition."""
        rate = self._limits.read_bytes_per_s
        if rate is None:
            return
        now_s = asyncio.get_running_loop().time()
        start_s = max(now_s, self._next_s)
        self._next_s = start_s + count / rate
        if start_s > now_s:
            await asyncio.sleep(start_s - now_s)
