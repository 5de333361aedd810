"""Requests of readers to web servers of strangers, with bounds on memory and time.

The library that speaks HTTP reads an answer to its end, also where a server sends more than was asked, or never ends.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any, cast

import aiohttp

PATIENCE_S = 30.0  # for the head of an answer, and beside the time that its bytes may take
MIN_BYTES_PER_S = 16 * 1024
MAX_LISTING_BYTES = 64 * 2**20  # of an answer that no range bounds
_RANGE = re.compile(r"bytes=([0-9]+)-([0-9]+)")


async def bounded_session(**arguments: Any) -> aiohttp.ClientSession:
    """A session for fsspec's HTTP file system, whose answers keep the bounds."""
    clock = aiohttp.ClientTimeout(total=None, sock_connect=PATIENCE_S, sock_read=PATIENCE_S)
    return aiohttp.ClientSession(**{"timeout": clock, "response_class": _BoundedResponse, **arguments})


class _BoundedResponse(aiohttp.ClientResponse):
    async def start(self, connection: Any) -> aiohttp.ClientResponse:
        try:
            async with asyncio.timeout(PATIENCE_S):
                await super().start(connection)
        except TimeoutError as error:
            raise TimeoutError(f"the server did not answer within {PATIENCE_S:g} s") from error
        asked = _RANGE.fullmatch(self.request_info.headers.get("Range", ""))
        limit = MAX_LISTING_BYTES if asked is None else int(asked[2]) - int(asked[1]) + 1
        self.content = cast("aiohttp.StreamReader", _BoundedStream(self.content, limit, is_range=asked is not None))
        return self


class _BoundedStream:
    """The content of an answer. Of one that is longer than the range, `read` gives one byte more than was asked.

    Raises TimeoutError for a server that is slower than MIN_BYTES_PER_S for PATIENCE_S, ClientPayloadError for more
    than `limit` bytes where no range was asked.
    """

    def __init__(self, stream: aiohttp.StreamReader, limit: int, *, is_range: bool) -> None:
        self._stream = stream
        self._limit = limit
        self._is_range = is_range

    async def read(self) -> bytes:
        found, clock = bytearray(), asyncio.get_running_loop().time
        begin_s = clock()
        while len(found) <= self._limit:
            left_s = begin_s + PATIENCE_S + len(found) / MIN_BYTES_PER_S - clock()
            try:
                piece = await asyncio.wait_for(self._stream.read(self._limit + 1 - len(found)), left_s)
            except TimeoutError as error:
                raise TimeoutError(
                    f"the server is too slow: {len(found)} bytes in {clock() - begin_s:.0f} s"
                ) from error
            if not piece:
                return bytes(found)
            found += piece
        if not self._is_range:
            raise aiohttp.ClientPayloadError(f"more than {self._limit} bytes")
        return bytes(found)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
