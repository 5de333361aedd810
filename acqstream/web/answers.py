"""Sends answers: conditions, ranges, bounds, and bytes of files without a copy."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aiohttp import web

from acqstream.storage.read_file import ReadFile
from acqstream.web.byte_range import RangeMissed, matches_tag, parse_range
from acqstream.web.web_context import CONTEXT

JSON = "application/json"
BYTES = "application/octet-stream"
NO_CACHE = "no-cache"
NO_STORE = "no-store"
IMMUTABLE = "private, max-age=31536000, immutable"
_PIECE_BYTES = 2**20
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


async def _send_range(request: web.Request, response: web.StreamResponse, body: Body, asked: tuple[int, int]) -> None:
    context = request.app[CONTEXT]
    first, stop = asked
    # The page and its picture do not wait behind those who copy a whole run.
    with await context.gate.sending(stop - first, is_paced=body.content_type == BYTES):
        # A client that does not read must not keep memory and files: it gets time in proportion to the answer.
        limits = context.settings.limits
        limit_s = limits.patience_s + (stop - first) / limits.min_bytes_per_s
        try:
            async with asyncio.timeout(limit_s):
                await response.prepare(request)
                at, written = 0, 0
                for piece in body.pieces:
                    data = memoryview(piece)[max(0, first - at) : max(0, stop - at)]
                    await _write(response, data)
                    at += len(piece)  # offset of the next piece in the complete body
                    written += len(data)
                if body.part is not None and stop > at:
                    begin = max(first, at)
                    part = FilePart(body.part.file, body.part.offset + begin - at, stop - begin)
                    await _send_part(request, response, part, is_begun=written > 0)
                await response.write_eof()
        except TimeoutError:
            _abort(request)


async def _write(response: web.StreamResponse, data: memoryview) -> None:
    for first in range(0, len(data), _PIECE_BYTES):
        await response.write(data[first : first + _PIECE_BYTES])


async def _send_part(request: web.Request, response: web.StreamResponse, part: FilePart, *, is_begun: bool) -> None:
    """Send a part of a file from the kernel. A part that ends early breaks the connection: it is never padded.

    is_begun: the headers are sent; they go out with the first bytes.
    """
    offset, count = part.offset, part.count
    if not is_begun:
        start = await request.app[CONTEXT].run(part.file.read, offset, min(count, FIRST_BYTES))
        await response.write(start)
        offset, count = offset + len(start), count - len(start)
    if not count:
        return
    transport = request.transport
    if transport is None:
        raise ConnectionResetError
    loop = asyncio.get_running_loop()
    sent = await loop.sendfile(transport, part.file, offset, count, fallback=True)  # type: ignore[arg-type]
    if sent != count:
        _abort(request)


def _abort(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()
