"""Sends answers: conditions, ranges, bounds, and bytes of files without a copy.

Sources for ranges and entity tags: RFC 9110, sections 8.8.3, 13.1 and 14.1. `KernelSender` has the kernel send bytes of
files over a connection. Threads do it: the loop waits for no disk.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import re
import select
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ParamSpec, Protocol, Self, TypeVar

from aiohttp import web

from acqstream.errors import AcqStreamError, CorruptDataset
from acqstream.storage.files.read_file import ReadFile
from acqstream.storage.platform.capabilities import are_sockets_files
from acqstream.web.web_context import CONTEXT, WebContext

_RANGE = re.compile(r"bytes=\s*([0-9]{0,19})\s*-\s*([0-9]{0,19})\s*")
_TAG = re.compile(r'(?:W/)?("[^"]*")')


class RangeMissed(Exception):
    """The range begins behind the end of the object."""


def parse_range(header: str | None, size: int) -> tuple[int, int] | None:
    """The bytes [first, stop) that a Range header asks for; None for all of an object of `size` bytes.

    None also for several ranges and other units, which a server may ignore. Raises RangeMissed.
    """
    match = None if header is None else _RANGE.fullmatch(header)
    if match is None or not (match[1] or match[2]):
        return None
    if not match[1]:
        count = min(int(match[2]), size)
        if not count:
            raise RangeMissed
        return size - count, size
    first = int(match[1])
    last = int(match[2]) if match[2] else size - 1
    if match[2] and last < first:
        return None
    if first >= size:
        raise RangeMissed
    return first, min(last + 1, size)


def matches_tag(header: str | None, tag: str) -> bool:
    """Return True if an If-None-Match header names the entity tag, which is quoted and strong."""
    if header is None:
        return False
    return header.strip() == "*" or tag in _TAG.findall(header)


logger = logging.getLogger("acqstream.web")

_P = ParamSpec("_P")
_T = TypeVar("_T")

JSON = "application/json"
BYTES = "application/octet-stream"
NO_CACHE = "no-cache"
NO_STORE = "no-store"
IMMUTABLE = "private, max-age=31536000, immutable"
_PIECE_BYTES = 2**20
_SENT_BYTES = 8 * 2**20  # of a file at a time
FIRST_BYTES = 16 * 1024  # of a file, which are read before the headers go out
BROKEN_OFF = web.RequestKey("broken_off", bool)  # of a request whose answer was not sent completely


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


def refusal(status: int, text: str, **headers: str) -> web.Response:
    """An answer of one line that no cache may keep: the next one may be another."""
    return web.Response(status=status, text=text, headers={**headers, "Cache-Control": NO_STORE})


def absent() -> web.Response:
    """The answer for what is missing, now: it may come."""
    return refusal(404, "not found")


async def send_json(request: web.Request, value: object) -> web.StreamResponse:
    """Answer with a document that changes all the time."""
    content = json.dumps(value, separators=(",", ":")).encode()
    return await send(request, Body([content], content_tag(content), JSON))


async def send(request: web.Request, body: Body, more: Mapping[str, str] | None = None) -> web.StreamResponse:
    """Answer GET or HEAD with a body, a range of it, 304 or 416. more: further headers."""
    headers = {**(more or {}), "ETag": body.tag, "Cache-Control": body.cache, "Accept-Ranges": "bytes"}
    if matches_tag(request.headers.get("If-None-Match"), body.tag):
        return web.Response(status=304, headers=headers)
    size = body.size
    asked = request.headers.get("Range") if request.method == "GET" else None  # RFC 9110, 14.2
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

    A client may be `patience_s` behind the slowest rate that is allowed, all parts together.
    """

    def __init__(self, context: WebContext, clock: asyncio.Timeout, *, is_paced: bool) -> None:
        self._context = context
        self._gate, self._limits = context.gate, context.settings.limits
        self._clock = clock
        self._is_paced = is_paced
        self._loop = asyncio.get_running_loop()
        self._deadline_s = self._loop.time() + self._limits.patience_s

    async def begin(self, count: int) -> None:
        """Wait for the bound on bytes per second. The page and its picture do not: they are not paced."""
        if self._is_paced:
            with self._stopped_clock():
                await self._gate.pace(count)
        self.give_time(count)

    async def run(self, function: Callable[_P, _T], *arguments: _P.args, **keywords: _P.kwargs) -> _T:
        """As `WebContext.run`. The client is not blamed for a disk that takes its time."""
        with self._stopped_clock():
            return await self._context.run(function, *arguments, **keywords)

    def give_time(self, count: int) -> None:
        """Extend the deadline by the time of these bytes. What is left over counts up to `patience_s` only."""
        own_s = count / self._limits.min_bytes_per_s
        latest_s = self._loop.time() + self._limits.patience_s + own_s
        self._deadline_s = min(self._deadline_s + own_s, latest_s)
        self._clock.reschedule(self._deadline_s)

    @contextmanager
    def _stopped_clock(self) -> Iterator[None]:
        begin_s = self._loop.time()
        self._clock.reschedule(None)
        try:
            yield
        finally:
            self._deadline_s += self._loop.time() - begin_s
            self._clock.reschedule(self._deadline_s)


async def _send_range(request: web.Request, response: web.StreamResponse, body: Body, asked: tuple[int, int]) -> None:
    context = request.app[CONTEXT]
    pieces, part = _cut(body, *asked)
    if part is not None and not pieces:  # before the headers: a disk that fails has an answer of its own
        start = await context.run(_first_bytes, part)
        pieces = [memoryview(start)]
        part = FilePart(part.file, part.offset + len(start), part.count - len(start))
    clock = asyncio.timeout(None)
    try:
        async with clock:
            with await context.gate.in_transit.take(sum(map(len, pieces))):
                transfer = _Transfer(context, clock, is_paced=_is_data(body.content_type, asked[1] - asked[0]))
                await transfer.begin(sum(map(len, pieces)))
                await response.prepare(request)
                for piece in pieces:
                    await _write(response, transfer, piece)
            if part is not None:  # its bytes are not in memory
                await _send_part(request, response, transfer, part)
            await response.write_eof()
    except (OSError, AcqStreamError) as error:
        # The headers are out: whatever else was sent would be taken for a part of the body.
        is_client = clock.expired() or isinstance(error, ConnectionError)  # viewers leave often
        logger.log(logging.DEBUG if is_client else logging.WARNING, "an answer breaks off: %r", error)
        _abort(request)


def _is_data(content_type: str, count: int) -> bool:
    """Whether an answer keeps the rate: pixels, and large documents. The page and its lists do not wait."""
    return content_type == BYTES or (content_type == JSON and count > _PIECE_BYTES)


def _cut(body: Body, first: int, stop: int) -> tuple[list[memoryview], FilePart | None]:
    """The bytes [first, stop) of a body: those in memory, which are not empty, and those in a file."""
    at, pieces = 0, []
    for piece in body.pieces:
        found = memoryview(piece)[max(0, first - at) : max(0, stop - at)]
        pieces += [found] if found else []
        at += len(piece)  # offset of the next piece in the complete body
    if body.part is None or stop <= at:
        return pieces, None
    begin = max(first, at)
    return pieces, FilePart(body.part.file, body.part.offset + begin - at, stop - begin)


def _first_bytes(part: FilePart) -> bytes:
    """What goes out with the headers. Raises CorruptDataset if the file is shorter than it was, StorageError."""
    count = min(part.count, FIRST_BYTES)
    found = part.file.read(part.offset, count)
    if len(found) < count:
        raise CorruptDataset(f"the file became shorter than {part.offset + count} bytes", path=str(part.file.path))
    return found


async def _write(response: web.StreamResponse, transfer: _Transfer, data: memoryview) -> None:
    for first in range(0, len(data), _PIECE_BYTES):
        piece = data[first : first + _PIECE_BYTES]
        transfer.give_time(len(piece))
        await response.write(piece)


async def _send_part(request: web.Request, response: web.StreamResponse, transfer: _Transfer, part: FilePart) -> None:
    """Send a part of a file from the kernel. Raises CorruptDataset if it ends early: it is never padded."""
    offset, end = part.offset, part.offset + part.count
    with KernelSender(transfer.run, _transport_of(request)) as sender:
        while offset < end:
            count = min(end - offset, _SENT_BYTES)
            await transfer.begin(count)
            await _flush(request)
            sent = await sender.send(part.file, offset, count)
            if sent != count:
                await _send_by_reading(response, transfer, FilePart(part.file, offset + sent, count - sent))
            offset += count


async def _flush(request: web.Request) -> None:
    """Wait until the transport has sent what it was given: the kernel is given the bytes behind it directly."""
    transport = _transport_of(request)
    transport.set_write_buffer_limits(0)
    try:
        await request.writer.drain()
    finally:
        transport.set_write_buffer_limits()


def _transport_of(request: web.Request) -> asyncio.Transport:
    """Raises ConnectionResetError if the client left."""
    transport = request.transport
    if transport is None or transport.is_closing():
        raise ConnectionResetError
    return transport


async def _send_by_reading(response: web.StreamResponse, transfer: _Transfer, part: FilePart) -> None:
    """Send a part of a file that the kernel cannot send. Raises StorageError, and CorruptDataset if it ends early."""
    sent = 0
    while sent < part.count:
        piece = await transfer.run(part.file.read, part.offset + sent, min(part.count - sent, _PIECE_BYTES))
        if not piece:
            raise CorruptDataset("the file became shorter while it was sent", path=str(part.file.path))
        await response.write(piece)
        sent += len(piece)


def _abort(request: web.Request) -> None:
    """Break the connection, and have the request counted as one that was given up."""
    request[BROKEN_OFF] = True
    if request.transport is not None:
        request.transport.abort()


_WAIT_MS = 2  # a thread waits so long for a client; the loop waits for a slower one


class Runner(Protocol):
    """Calls a function in a thread, and waits for what it returns."""

    async def __call__(
        self, function: Callable[[ReadFile, int, int], tuple[int, bool]], file: ReadFile, at: int, end: int, /
    ) -> tuple[int, bool]: ...


class KernelSender:
    """Sends parts of files over one connection. Used as a context. run: calls a function in a thread.

    On Windows it sends nothing, and all is read: files and sockets are no descriptors there.

    It has a descriptor of its own, and so has each call in a thread: when an answer is given up, a thread may be
    sending still, and the number of a descriptor that was closed may belong to another connection by then.
    """

    def __init__(self, run: Runner, transport: asyncio.WriteTransport) -> None:
        self._run = run
        self._transport = transport
        self._descriptor = -1
        if are_sockets_files():
            self._descriptor = os.dup(transport.get_extra_info("socket").fileno())
        self._lock = threading.Lock()  # held while the descriptor is copied or closed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    async def send(self, file: ReadFile, offset: int, count: int) -> int:
        """Send the bytes [offset, offset + count); return how many, fewer if the kernel cannot send the rest.

        The transport must have sent what it was given. Raises CorruptDataset if the file ends before, ConnectionError
        if the client left.
        """
        at, end = offset, offset + count
        while at < end and self._descriptor >= 0:
            if self._transport.is_closing():
                raise ConnectionResetError
            at, is_full = await self._run(self._give, file, at, end)
            if not is_full and at < end:
                break
            if is_full and not self._transport.is_closing():
                await self._wait_for_room()
        return at - offset

    def _give(self, file: ReadFile, at: int, end: int) -> tuple[int, bool]:
        with self._lock:
            if self._descriptor < 0:  # given up before the thread came to it
                raise ConnectionResetError
            descriptor = os.dup(self._descriptor)
        try:
            return self._give_to(descriptor, file, at, end)
        finally:
            os.close(descriptor)

    def _give_to(self, descriptor: int, file: ReadFile, at: int, end: int) -> tuple[int, bool]:
        """Give bytes to the kernel; the offset behind them, and whether it has no room for more.

        Without either it cannot send: the reason comes to light where the bytes are read.
        """
        room, has_room = select.poll(), False
        room.register(descriptor, select.POLLOUT)
        while at < end:
            try:
                sent = os.sendfile(descriptor, file.fileno(), at, end - at)
            except BlockingIOError:
                if has_room:  # then it is the file that has no bytes yet, on a tape for example
                    return at, False
                if self._transport.is_closing() or not room.poll(_WAIT_MS):
                    return at, True
                has_room = True
                continue
            except ConnectionError:
                raise
            except OSError:
                return at, False
            if not sent:  # a file is never padded
                raise CorruptDataset("the file became shorter while it was sent", path=str(file.path))
            at, has_room = at + sent, False
        return at, False

    async def _wait_for_room(self) -> None:
        loop = asyncio.get_running_loop()
        ready = loop.create_future()

        def note() -> None:
            if not ready.done():
                ready.set_result(None)

        loop.add_writer(self._descriptor, note)
        try:
            await ready
        finally:
            loop.remove_writer(self._descriptor)
