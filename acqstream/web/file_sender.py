"""Has the kernel send bytes of files over a connection, without a copy. Threads do it: the loop waits for no disk."""

from __future__ import annotations

import asyncio
import os
import select
import threading
from collections.abc import Callable
from typing import Protocol, Self

from acqstream.errors import CorruptDataset
from acqstream.storage.files.read_file import ReadFile
from acqstream.storage.platform.capabilities import are_sockets_files

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
