"""Bounds on requests that are answered at the same time, and on the bytes of their answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from acqstream.web.web_settings import WebLimits


class GateClosed(Exception):
    """The server has as many requests as it may have."""


class BytePool:
    """Bytes that answers may have together; the next one waits until enough come back. Used by the loop's thread.

    In the order in which they came: many small answers do not keep a large one waiting.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = self._bytes_left = max_bytes
        self._turn = asyncio.Lock()
        self._freed: asyncio.Future[None] | None = None  # what the first one in order waits for
        self.peak_bytes = 0

    async def take(self, count: int) -> TakenBytes:
        """Reserve bytes for a `with` block; more than the budget waits until no other answer is active."""
        share = min(count, self._max_bytes)
        if not share:  # it does not wait behind those that need memory
            return TakenBytes(self, 0)
        async with self._turn:
            while self._bytes_left < share:
                self._freed = asyncio.get_running_loop().create_future()
                try:
                    await self._freed
                finally:
                    self._freed = None
            self._bytes_left -= share
        self.peak_bytes = max(self.peak_bytes, self._max_bytes - self._bytes_left)
        return TakenBytes(self, share)

    def give_back(self, share: int) -> None:
        """Free bytes that were reserved."""
        self._bytes_left += share
        if self._freed is not None and not self._freed.done():
            self._freed.set_result(None)


class TakenBytes:
    """A share of a pool, which comes back at the end of the block. A class, since it is made for every answer."""

    __slots__ = ("_pool", "share")

    def __init__(self, pool: BytePool, share: int) -> None:
        self._pool = pool
        self.share = share

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        self._pool.give_back(self.share)


class RequestGate:
    """Counts requests and bytes; peaks show how near the bounds came. Used by the loop's thread.

    is_recording tells whether the daemon records a run now.
    """

    def __init__(self, limits: WebLimits, is_recording: Callable[[], bool]) -> None:
        self._limits = limits
        self._is_recording = is_recording
        self.in_transit = BytePool(limits.sending_bytes)  # of answers in memory
        self.in_memory = BytePool(limits.memory_bytes)  # of chunks that were read or made for an answer
        self._turn = asyncio.Lock()
        self._next_s = 0.0
        self.requests = self.peak_requests = 0
        self.streams = self.peak_streams = 0

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

    async def pace(self, count: int) -> None:
        """Wait for the bound on bytes per second, which protects the disk of a running acquisition.

        In turn, and a client that leaves while it waits has used nothing.
        """
        if self._rate() is None:
            return
        async with self._turn:
            rate = self._rate()
            if rate is None:
                return
            clock = asyncio.get_running_loop().time
            if (wait_s := self._next_s - clock()) > 0:
                await asyncio.sleep(wait_s)
            self._next_s = max(self._next_s, clock()) + count / rate

    def _rate(self) -> int | None:
        if self._limits.read_bytes_per_s is None and self._is_recording():
            return self._limits.recording_bytes_per_s
        return self._limits.read_bytes_per_s
