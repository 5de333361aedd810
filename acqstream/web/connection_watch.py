"""Watches connections: how many there are, and clients that send nothing or only parts of requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from acqstream.web.web_settings import WebLimits

CHECK_S = 0.5


class WatchedProtocol(asyncio.Protocol):
    """Passes all events of a connection on to the protocol of the HTTP library, and notes when they come."""

    def __init__(self, inner: asyncio.Protocol, watch: ConnectionWatch) -> None:
        self._inner = inner
        self._watch = watch
        self.transport: asyncio.Transport | None = None
        self.waits_since_s: float | None = None  # for a request, or the rest of one; None while one is answered
        self.has_partial_request = True  # or has never sent one

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.waits_since_s = asyncio.get_running_loop().time()
        if self._watch.add(self):
            self._inner.connection_made(transport)
        else:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._watch.remove(self):
            self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self._watch.has(self):
            return
        if self.waits_since_s is not None and not self.has_partial_request:
            self.has_partial_request = True
            self.waits_since_s = asyncio.get_running_loop().time()
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()


class ConnectionWatch:
    """Closes connections that break the limits. `make_protocol` is the factory for the loop's servers."""

    def __init__(self, limits: WebLimits, make_inner: Callable[[], asyncio.Protocol]) -> None:
        self._limits = limits
        self._make_inner = make_inner
        self._connections: dict[int, WatchedProtocol] = {}  # by identity of the transport
        self.peak = 0
        self.refused = 0
        self.timed_out = 0

    def __len__(self) -> int:
        return len(self._connections)

    def make_protocol(self) -> WatchedProtocol:
        """The protocol of a new connection."""
        return WatchedProtocol(self._make_inner(), self)

    def add(self, one: WatchedProtocol) -> bool:
        """Count a connection. Of too many, one that waits for a request is closed, the longest first; else False."""
        if len(self._connections) >= self._limits.connections:
            self.refused += 1
            waiting = [other for other in self._connections.values() if other.waits_since_s is not None]
            if not waiting:
                return False
            longest = min(waiting, key=lambda other: other.waits_since_s or 0.0)
            assert longest.transport is not None
            longest.transport.abort()
            longest.waits_since_s = None  # it goes in this turn of the loop, and another one for the next that comes
        self._connections[id(one.transport)] = one
        self.peak = max(self.peak, len(self._connections))
        return True

    def has(self, one: WatchedProtocol) -> bool:
        """Return True while a connection counts."""
        return self._connections.get(id(one.transport)) is one

    def remove(self, one: WatchedProtocol) -> bool:
        """Forget a connection; False if it was refused."""
        if not self.has(one):
            return False
        del self._connections[id(one.transport)]
        return True

    def begin_request(self, transport: asyncio.BaseTransport | None) -> None:
        """Note that a request is answered: its time is bounded by the rate at which the client reads."""
        one = self._connections.get(id(transport))
        if one is not None:
            one.waits_since_s = None

    def end_request(self, transport: asyncio.BaseTransport | None) -> None:
        """Note that the next request may come."""
        one = self._connections.get(id(transport))
        if one is not None:
            one.waits_since_s = asyncio.get_running_loop().time()
            one.has_partial_request = False

    def close_late(self) -> None:
        """Close connections whose time is over."""
        now_s = asyncio.get_running_loop().time()
        for one in list(self._connections.values()):
            if one.waits_since_s is None or one.transport is None:
                continue
            limit_s = self._limits.first_request_s if one.has_partial_request else self._limits.idle_s
            if now_s - one.waits_since_s > limit_s:
                self.timed_out += 1
                one.transport.abort()

    async def run(self) -> None:
        """Close late connections until canceled."""
        while True:
            await asyncio.sleep(CHECK_S)
            self.close_late()
