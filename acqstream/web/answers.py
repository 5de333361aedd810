"""Sends answers: conditions, ranges, bounds, and bytes of files without a copy."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aiohttp import web

from acqstream.storage.read_file import ReadFile
from acqstream.web.byte_range import RangeMissed, matches_tag, parse_range
from acqstream.web.web_context import CONTEXT, WebContext

logger = logging.getLogger("acqstream.web")

JSON = "application/json"
BYTES = "application/octet-stream"
NO_CACHE = "no-cache"
NO_STORE = "no-store"
IMMUTABLE = "private, max-age=31536000, immutable"
_PIECE_BYTES = 2**20
_SENT_BYTES = 16 * 2**20  # of a file at a time
FIRST_BYTES = 16 * 1024  # of a file, which go out with the headers


@dataclass(frozen=True, slots=True)
class FilePart:
    """`count` bytes of a file from `offset` on."""

    file: ReadFile
    offset: int
    count: int


@dataclass(frozen=True, slots=True)
class Body:
    """An object to send: bytes in pieces, then a part of a file. tag: a quoted entity tag. cache: Cache-Control."""

    pieces: Sequence[bytes | memoryview]
    tag: str
    content_type: str = BYTES
    cache: str = NO_CACHE
    part: FilePart | None = None

    @property
    def size(self) -> int:
        """Length in bytes."""
        return sum(map(len, self.pieces)) + (self.part.count if self.part is not None else 0)


def tag_of(*values: object) -> str:
    """An entity tag that differs whenever one of the values does."""
    text = "\0".join(map(str, values))
    return f'"{hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()}"'


def content_tag(content: bytes) -> str:
    """An entity tag of a document."""
    return f'"{hashlib.blake2b(content, digest_size=12).hexdigest()}"'


def absent(text: str = "not found") -> web.Response:
    """The answer for what is missing, now: it may come, so no cache may keep this."""
    return web.Response(status=404, text=text, headers={"Cache-Control": NO_STORE})


async def send(request: web.Request, body: Body, more: Mapping[str, str] | None = None) -> web.StreamResponse:
    """Answer GET or HEAD with a body, a range of it, 304 or 416. more: further headers."""
    headers = {**(more or {}), "ETag": body.tag, "Cache-Control": body.cache, "Accept-Ranges": "bytes"}
    if matches_tag(request.headers.get("If-None-Match"), body.tag):
        return web.Response(status=304, headers=headers)
    size = body.size
    asked = request.headers.get("Range")
    if asked is not None and request.headers.get("If-Range", body.tag) != body.tag:
        asked = None
    try:
        found = parse_range(asked, size)
    except RangeMissed:
        return web.Response(status=416, headers={**headers, "Content-Range": f"bytes */{size}"})
    first, stop = found or (0, size)
    if found is not None:
        headers["Content-Range"] = f"bytes {first}-{stop - 1}/{size}"
    headers["Content-Type"] = body.content_type  # here, and not by the response: it would parse them for each answer
    headers["Content-Length"] = str(stop - first)
    response = web.StreamResponse(status=200 if found is None else 206, headers=headers)
    if request.method == "HEAD":  # the length alone: the library must not wait for a body
        await response.prepare(request)
        await response.write_eof()
        return response
    await _send_range(request, response, body, (first, stop))
    return response


class _Transfer:
    """An answer on its way, part by part: each waits for its turn, and then the client has time for it. So neither a
    large file nor a client that does not read holds up others, or stays for long.
    """

    def __init__(self, context: WebContext, clock: asyncio.Timeout, *, is_paced: bool) -> None:
        self._gate, self._limits = context.gate, context.settings.limits
        self._clock = clock
        self._is_paced = is_paced
        self._loop = asyncio.get_running_loop()

    async def begin(self, count: int) -> None:
        """Wait for the bound on bytes per second. The page and its picture do not: they are not paced."""
        if self._is_paced:
            self._clock.reschedule(None)
            await self._gate.pace(count)
        self.give_time(count)

    def give_time(self, count: int) -> None:
        """From now on, the client may take the time for so many bytes."""
        limits = self._limits
        self._clock.reschedule(self._loop.time() + limits.patience_s + count / limits.min_bytes_per_s)


async def _send_range(request: web.Request, response: web.StreamResponse, body: Body, asked: tuple[int, int]) -> None:
    context, (first, stop) = request.app[CONTEXT], asked
    held = max(0, min(stop, sum(map(len, body.pieces))) - first)
    with await context.gate.in_transit.take(held):  # bytes of files are not in memory
        try:
            async with asyncio.timeout(None) as clock:
                transfer = _Transfer(context, clock, is_paced=body.content_type == BYTES)
                await transfer.begin(held or min(stop - first, FIRST_BYTES))
                await response.prepare(request)
                at = 0
                for piece in body.pieces:
                    await _write(response, transfer, memoryview(piece)[max(0, first - at) : max(0, stop - at)])
                    at += len(piece)  # offset of the next piece in the complete body
                if body.part is not None and stop > at:
                    begin = max(first, at)
                    part = FilePart(body.part.file, body.part.offset + begin - at, stop - begin)
                    await _send_part(request, response, transfer, part, is_begun=held > 0)
                await response.write_eof()
        except (TimeoutError, ConnectionError) as error:  # viewers leave often: they need other chunks by now
            logger.debug("a client has left, or was too slow: %r", error)
            _abort(request)


async def _write(response: web.StreamResponse, transfer: _Transfer, data: memoryview) -> None:
    for first in range(0, len(data), _PIECE_BYTES):
        transfer.give_time(_PIECE_BYTES)
        await response.write(data[first : first + _PIECE_BYTES])


async def _send_part(
    request: web.Request, response: web.StreamResponse, transfer: _Transfer, part: FilePart, *, is_begun: bool
) -> None:
    """Send a part of a file from the kernel. A part that ends early breaks the connection: it is never padded.

    is_begun: the headers are sent; they go out with the first bytes.
    """
    offset, end, loop = part.offset, part.offset + part.count, asyncio.get_running_loop()
    if not is_begun:
        start = await request.app[CONTEXT].run(part.file.read, offset, min(part.count, FIRST_BYTES))
        await response.write(start)
        offset += len(start)
    while offset < end:
        count = min(end - offset, _SENT_BYTES)
        await transfer.begin(count)
        transport = request.transport
        if transport is None:
            raise ConnectionResetError
        sent = await loop.sendfile(transport, part.file, offset, count, fallback=True)  # type: ignore[arg-type]
        if sent != count:
            _abort(request)
            return
        offset += count


def _abort(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()
