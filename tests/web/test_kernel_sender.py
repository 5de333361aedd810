"""Parts of files that the kernel sends come behind what the transport had, and end when an answer is given up."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from acqstream.errors import CorruptDataset
from acqstream.storage.files.read_file import ReadFile
from acqstream.web.answers import KernelSender
from tests.waiting import WAIT_S

SIZE = 8 * 2**20


@pytest.fixture
def file(tmp_path: Path) -> ReadFile:
    (tmp_path / "file").write_bytes(np.random.default_rng(1).bytes(SIZE))
    return ReadFile(tmp_path / "file")


class Site:
    """A transport whose client is a plain socket, and a context with one thread."""

    def __init__(self) -> None:
        ours, self.client = socket.socketpair()
        self.client.settimeout(WAIT_S)
        self._ours = ours
        self.threads = ThreadPoolExecutor(1)

    def close(self) -> None:
        self.client.close()
        self._ours.close()
        self.threads.shutdown()

    async def transport(self) -> asyncio.Transport:
        return (await asyncio.get_running_loop().create_connection(asyncio.Protocol, sock=self._ours))[0]

    def sender(self, transport: asyncio.Transport) -> KernelSender:
        async def run(function: Any, *arguments: Any) -> Any:
            return await asyncio.get_running_loop().run_in_executor(self.threads, function, *arguments)

        return KernelSender(run, transport)

    def read(self, count: int) -> bytes:
        received = bytearray()
        while len(received) < count:
            received += self.client.recv(2**20)
        return bytes(received)


@pytest.fixture
def site() -> Iterator[Site]:
    with closing(Site()) as made:
        yield made


needs_sendfile = pytest.mark.skipif(not hasattr(os, "sendfile"), reason="another call sends files on Windows")


@needs_sendfile
def test_a_part_goes_out_while_the_client_reads(site: Site, file: ReadFile) -> None:
    first, count = 5, SIZE - 9

    async def send() -> int:
        transport = await site.transport()
        with ThreadPoolExecutor(1) as clients, site.sender(transport) as sender:
            read = clients.submit(site.read, count)
            sent = await sender.send(file, first, count)
            assert await asyncio.wrap_future(read) == file.read(first, count)
        transport.abort()
        return sent

    assert asyncio.run(send()) == count


@needs_sendfile
def test_a_file_whose_bytes_have_yet_to_come_is_not_asked_for_ever(
    site: Site, file: ReadFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One on a tape, opened without waiting: the socket has room, and the kernel says EAGAIN all the same."""
    calls = 0

    def refuse(*_: object) -> int:
        nonlocal calls
        calls += 1
        raise BlockingIOError(errno.EAGAIN, "not yet")

    async def send() -> int:
        transport = await site.transport()
        with site.sender(transport) as sender:
            sent = await sender.send(file, 0, SIZE)
        transport.abort()
        return sent

    monkeypatch.setattr(os, "sendfile", refuse)
    assert asyncio.run(send()) == 0
    assert calls == 2


@needs_sendfile
def test_a_file_that_ends_early_is_told(site: Site, file: ReadFile) -> None:
    async def send() -> None:
        transport = await site.transport()
        with ThreadPoolExecutor(1) as clients, site.sender(transport) as sender:
            clients.submit(site.read, 100)
            with pytest.raises(CorruptDataset, match="became shorter"):
                await sender.send(file, SIZE - 100, 101)
        transport.abort()

    asyncio.run(send())


@needs_sendfile
def test_a_thread_that_comes_too_late_sends_nothing(site: Site, file: ReadFile) -> None:
    """The answer is given up while its turn in the threads has not come: its descriptor may be another one's now."""

    async def send() -> None:
        goes_on = threading.Event()
        transport = await site.transport()
        site.threads.submit(goes_on.wait, WAIT_S)  # it has the only thread
        with site.sender(transport) as sender:
            sending = asyncio.create_task(sender.send(file, 0, SIZE))
            await asyncio.sleep(0)
        goes_on.set()
        with pytest.raises(ConnectionResetError):
            await sending
        transport.abort()

    asyncio.run(send())
    assert site.client.recv(100) == b""


@needs_sendfile
def test_a_client_that_left_ends_the_part(site: Site, file: ReadFile) -> None:
    async def send() -> None:
        transport = await site.transport()
        with site.sender(transport) as sender:
            sending = asyncio.create_task(sender.send(file, 0, SIZE))
            await asyncio.sleep(0)
            site.client.close()
            with pytest.raises(ConnectionError):
                await sending
        transport.abort()

    asyncio.run(send())
