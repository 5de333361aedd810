"""Bounds on requests that are answered at the same time, and on the bytes of their answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from acqstream.web.web_settings import WebLimits


class GateClosed(Exception):
    """The server has as many requests as it may have."""


class BytePool:
    """Bytes that answers may have together; the next one waits until enough come back. Used by the loop's thread."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = self._bytes_left = max_bytes
        self._changed = asyncio.Condition()
        self.peak_bytes = 0

    @asynccontextmanager
    async def take(self, count: int) -> AsyncIterator[None]:
        """Reserve bytes for the block; an answer larger than the budget waits until no other one is active."""
        share = min(count, self._max_bytes)
        async with self._changed:
            await self._changed.wait_for(lambda: self._bytes_left >= share)
            self._bytes_left -= share
        self.peak_bytes = max(self.peak_bytes, self._max_bytes - self._bytes_left)
        try:
            yield
        finally:
            async with self._changed:
                self._bytes_left += share
                self._changed.notify_all()


class RequestGate:
    """Counts requests and bytes; peaks show how near the bounds came. Used by the loop's thread.

    is_recording tells whether the daemon records a run now.
    """

    def __init__(self, limits: WebLimits, is_recording: Callable[[], bool]) -> None:
        self._limits = limits
        self._is_recording = is_recording
        self.in_transit = BytePool(limits.sending_bytes)
        self.in_memory = BytePool(limits.memory_bytes)  # of chunks that were read or made for an answer
        self._turn = asyncio.Lock()
        self._next_s = 0.0
        self.requests = self.peak_requests = 0
        self.streams = self.peak_streams = 0
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
    async def sending(self, count: int, *, is_paced: bool) -> AsyncIterator[None]:
        """Wait until an answer of `count` bytes fits below the bounds on memory and, if it is paced, on the rate."""
        async with self.in_transit.take(count):
            if is_paced:
                await self._pace(count)
            yield
            self.sent_bytes += count

    async def _pace(self, count: int) -> None:
        """Wait for the bound on bytes per second, which protects the disk of a running acquisition.

        In turn, and a client that leaves while it waits has used nothing.
        """
        async with self._turn:
            rate = self._limits.read_bytes_per_s
            if rate is None and self._is_recording():
                rate = self._limits.recording_bytes_per_s
            if rate is None:
                return
            clock = asyncio.get_running_loop().time
            if (wait_s := self._next_s - clock()) > 0:
                await asyncio.sleep(wait_s)
            self._next_s = max(self._next_s, clock()) + count / rate
