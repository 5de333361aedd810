"""Large answers and slow clients hold up no other client, and end with the reason in the log when they fail."""

from __future__ import annotations

import asyncio
import errno
import itertools
import logging
import os
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import BinaryIO, cast

import numpy as np
import psutil
import pytest

from acqstream.errors import StorageError
from acqstream.storage.files.read_file import ReadFile
from acqstream.web import answers
from acqstream.web.answers import _Transfer
from acqstream.web.web_context import WebContext
from acqstream.web.web_settings import WebLimits
from tests.log.make_frames import write_log
from tests.mirrors.mirror_cases import frames_at, places_of
from tests.waiting import WAIT_S, until
from tests.web.web_process import Site, web_thread

SIZE = 40 * 2**20
DOCUMENT = b'{"n5":"4.0.0"}'
needs_sendfile = pytest.mark.skipif(not hasattr(os, "sendfile"), reason="another call sends files on Windows")
FILE, CHUNK = "/data/files.n5/s0/0/0", "/data/cells@chunk=2048/ome.zarr/0/c/0/0/0"


@pytest.fixture(scope="module")
def content() -> bytes:
    return np.random.default_rng(1).bytes(SIZE)


@pytest.fixture
def data(tmp_path: Path, content: bytes) -> Path:
    """A container with a file that is sent in parts, and frames of which chunks are pieces."""
    container = tmp_path / "files.n5"
    (container / "s0" / "0").mkdir(parents=True)
    (container / "attributes.json").write_bytes(DOCUMENT)
    (container / "s0" / "0" / "0").write_bytes(content)
    write_log(tmp_path / "cells", frames_at(places_of(("time",), {"time": 1}), (2048, 4096)), memory_bytes=2**26)
    return tmp_path


@contextmanager
def client_that_does_not_read(site: Site, path: str) -> Iterator[socket.socket]:
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.settimeout(WAIT_S)
        slow.connect(("127.0.0.1", site.port))
        slow.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert slow.recv(100).startswith(b"HTTP/1.1 200 ")  # it is sent from now on
        yield slow


def is_idle(site: Site) -> bool:
    assert site.context is not None
    return site.context.gate.requests == 0


def test_clients_that_do_not_read_a_file_hold_up_no_other(data: Path) -> None:
    """A file is larger than the bound on all answers, as a cube of WKW or a stack may be."""
    with web_thread(data, limits=WebLimits(sending_bytes=20_000)) as site:
        with client_that_does_not_read(site, FILE), client_that_does_not_read(site, FILE):
            for path in ("/data/files.n5/attributes.json", "/api/datasets", "/data/cells/ome.zarr/zarr.json"):
                assert site.ask(path).status == 200
            assert site.ask(FILE, headers={"Range": "bytes=0-99"}).status == 206
        until(lambda: is_idle(site), "the answers are given up")
        assert site.context is not None
        assert site.context.gate.in_transit.peak_bytes >= answers.FIRST_BYTES


@pytest.mark.parametrize(("first", "stop"), [(0, SIZE), (5, SIZE), (3 * 2**20, 35 * 2**20 + 1), (SIZE - 1, SIZE)])
def test_parts_of_a_file_make_up_the_answer_each_at_its_turn(
    data: Path, content: bytes, first: int, stop: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    paced: list[int] = []
    with web_thread(data) as site:
        assert site.context is not None
        monkeypatch.setattr(site.context.gate, "_rate", lambda: paced.append(1))
        reply = site.ask(FILE, headers={"Range": f"bytes={first}-{stop - 1}"})
    assert reply.status == 206
    assert reply.body == content[first:stop]
    # the beginning goes out with the headers
    assert len(paced) == 1 + -(-max(0, stop - first - answers.FIRST_BYTES) // (8 * 2**20))


def test_a_large_file_waits_for_each_part_and_the_page_does_not(data: Path) -> None:
    """The rate of a whole file would let its bytes out at once, and then nothing for minutes."""
    with web_thread(data, limits=WebLimits(read_bytes_per_s=1000)) as site:
        assert site.context is not None
        turn = site.context.gate._turn
        assert site.ask(FILE, headers={"Range": "bytes=0-99"}).status == 206
        with client_that_does_not_read(site, FILE):
            until(turn.locked, "the rest of the file waits for its turn")
            assert site.ask("/data/files.n5/attributes.json").body == DOCUMENT
            assert site.ask("/api/datasets").status == 200
        until(lambda: is_idle(site) and not turn.locked(), "the client is gone, and its turn")


def test_a_large_document_keeps_the_rate_as_well(data: Path) -> None:
    """It is a file as any other: a list of a million chunks may have some 100 MB."""
    (data / "files.n5" / "s0" / "attributes.json").write_bytes(b" " * 3 * 2**20)
    with web_thread(data, limits=WebLimits(read_bytes_per_s=1000)) as site:
        assert site.context is not None
        assert site.ask(FILE, headers={"Range": "bytes=0-99"}).status == 206  # its time is that of all that follow
        with client_that_does_not_read(site, "/data/files.n5/s0/attributes.json"):
            until(site.context.gate._turn.locked, "the rest of it waits for its turn")
            assert site.ask("/data/files.n5/attributes.json").body == DOCUMENT


@pytest.mark.parametrize("path", [FILE, CHUNK])
def test_a_client_that_does_not_read_has_the_time_of_a_part(
    data: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not that of all the answer, which would be hours for a file of some GB."""
    monkeypatch.setattr(answers, "_PIECE_BYTES", 2**12)
    monkeypatch.setattr(answers, "_SENT_BYTES", 2**12)
    limits = WebLimits(patience_s=2, min_bytes_per_s=2**12)  # 3 s for a part, half an hour for the chunk
    with web_thread(data, limits=limits) as site, client_that_does_not_read(site, path):
        until(lambda: is_idle(site), "the answer is given up")
        assert site.ask("/data/files.n5/attributes.json").body == DOCUMENT


def test_waiting_for_a_turn_takes_no_time_of_the_client(data: Path, content: bytes) -> None:
    limits = WebLimits(read_bytes_per_s=2_000_000, patience_s=3, min_bytes_per_s=2**40)
    with web_thread(data, limits=limits) as site:
        for _ in range(2):  # the second one waits for 4 s; it is too large for the buffers
            assert site.ask(FILE, headers={"Range": "bytes=0-7999999"}).body == content[:8_000_000]


@pytest.mark.parametrize("path", [FILE, CHUNK])
@needs_sendfile
def test_a_viewer_that_leaves_is_no_error(
    data: Path, path: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with web_thread(data) as site:
        is_full = fullness(site, monkeypatch)
        with client_that_does_not_read(site, path) as slow:
            until(is_full, "the buffers are full")
            # it resets the connection at the end
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        until(lambda: is_idle(site), "the answer is given up")
        metrics = site.ask("/metrics").body.decode()
    assert warnings_in(caplog) == []
    codes = [line for line in metrics.splitlines() if "_requests_total{" in line and 'code="499"' in line]
    assert [line.split()[-1] for line in codes] == ["1.0"]
    sent = [float(line.split()[-1]) for line in metrics.splitlines() if "_sent_bytes_total{" in line]
    assert sum(sent) < 2**20


@needs_sendfile
def test_a_file_that_the_kernel_cannot_send_is_read(
    data: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EINVAL, "not on this file system")

    monkeypatch.setattr(os, "sendfile", refuse)
    with web_thread(data) as site:
        assert site.ask(FILE).body == content
        assert site.ask(FILE, headers={"Range": "bytes=5-"}).body == content[5:]


def test_a_disk_that_fails_before_the_headers_has_an_answer_of_its_own(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_reads(monkeypatch, after=0)
    with web_thread(data) as site:
        reply = site.ask(FILE, headers={"Range": "bytes=0-99"})
    assert (reply.status, reply.headers["retry-after"]) == (503, "5")


@needs_sendfile
def test_a_disk_that_fails_later_breaks_the_answer_off_and_the_log_says_why(
    data: Path, content: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.EIO, "cannot read")

    monkeypatch.setattr(os, "sendfile", fail)
    fail_reads(monkeypatch, after=3)
    with web_thread(data) as site, socket.create_connection(("127.0.0.1", site.port), timeout=WAIT_S) as client:
        client.sendall(f"GET {FILE} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        received = all_of(client)
        assert b'code="499"' in site.ask("/metrics").body
    body = received.partition(b"\r\n\r\n")[2]
    assert body == content[: len(body)]
    assert len(body) < SIZE
    (told,) = warnings_in(caplog)
    assert "Input/output error" in told


@needs_sendfile
def test_a_file_that_becomes_shorter_ends_with_the_connection(
    data: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with web_thread(data) as site:
        is_full = fullness(site, monkeypatch)
        with client_that_does_not_read(site, FILE) as client:
            until(is_full, "the buffers are full")
            os.truncate(data / "files.n5" / "s0" / "0" / "0", 20 * 2**20)
            all_of(client)  # it ends
        until(lambda: is_idle(site), "the answer is given up")
    (told,) = warnings_in(caplog)
    assert "became shorter" in told


@needs_sendfile
def test_a_disk_that_stalls_while_a_file_is_sent_holds_up_no_other(
    data: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on, stalls, send = threading.Event(), threading.Event(), os.sendfile

    def stall(*arguments: int) -> int:
        stalls.set()
        assert goes_on.wait(WAIT_S)
        return send(*arguments)

    monkeypatch.setattr(os, "sendfile", stall)
    with web_thread(data) as site, ThreadPoolExecutor(1) as clients:
        file = clients.submit(site.ask, FILE)
        try:
            assert stalls.wait(WAIT_S)
            assert site.ask("/data/files.n5/attributes.json").body == DOCUMENT
            assert site.ask("/api/datasets").status == 200
        finally:
            goes_on.set()
        assert file.result().body == content


@needs_sendfile
def test_a_file_comes_behind_what_was_written_before_and_the_loop_reads_no_disk(
    data: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client may ask for many answers before it reads the first, so that the transport has bytes of them."""
    threads, send, n = set(), os.sendfile, 260

    def note(*arguments: int) -> int:
        threads.add(threading.current_thread().name.rstrip("_0123456789"))
        return send(*arguments)

    monkeypatch.setattr(os, "sendfile", note)
    with web_thread(data) as site, socket.socket() as client:
        ask_for_many(client, site, n)
        until(lambda: has_bytes_to_write(site), "the transport has bytes")
        received = bytearray()
        while not threads:  # more slowly than the server answers, so that it has some still when it comes to the file
            received += client.recv(4096)
            time.sleep(0.001)
        with client.makefile("rb") as rest:
            answers_sent = bodies_of(bytes(received), rest, n + 1)
    assert answers_sent == [content[:16384]] * n + [content]
    assert threads == {"web-read"}


@needs_sendfile
def test_a_client_that_half_leaves_while_the_file_waits_for_its_turn_is_no_error(
    data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with web_thread(data, limits=WebLimits(read_bytes_per_s=1_000_000)) as site, socket.socket() as client:
        ask_for_many(client, site, 260)
        until(lambda: has_bytes_to_write(site), "the transport has bytes")
        client.shutdown(socket.SHUT_WR)
        all_of(client)
        until(lambda: is_idle(site), "the answers are over")
    assert warnings_in(caplog) == []


def ask_for_many(client: socket.socket, site: Site, count: int) -> None:
    """Ask for the beginning of a file, many times, and then for all of it, and read nothing."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(WAIT_S)
    client.connect(("127.0.0.1", site.port))
    head = f"GET {FILE} HTTP/1.1\r\nHost: localhost\r\n"
    client.sendall((f"{head}Range: bytes=0-16383\r\n\r\n" * count + f"{head}\r\n").encode())


def has_bytes_to_write(site: Site) -> bool:
    assert site.context is not None
    transports = [one.transport for one in [*site.context.watch._connections.values()]]
    return any(one.get_write_buffer_size() for one in transports if one is not None)


def bodies_of(received: bytes, rest: BinaryIO, count: int) -> list[bytes]:
    """The bodies of answers, of which these bytes have come already."""
    bodies = []
    for _ in range(count):
        while b"\r\n\r\n" not in received:
            received += rest.read(1)
        head, _, received = received.partition(b"\r\n\r\n")
        length = int(re.findall(rb"(?i)content-length: (\d+)", head)[0])
        received += rest.read(max(0, length - len(received)))
        bodies.append(received[:length])
        received = received[length:]
    return bodies


@needs_sendfile
@pytest.mark.parametrize("is_sent", [True, False], ids=["sent", "read"])
def test_a_slow_disk_takes_no_time_of_the_client(
    data: Path, content: bytes, is_sent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    send, read, patience_s = os.sendfile, ReadFile.read, 5.0
    slow = itertools.chain([patience_s + 1], itertools.repeat(0))  # the first call

    def send_slowly(*arguments: int) -> int:
        if not is_sent:
            raise OSError(errno.EINVAL, "not on this file system")
        time.sleep(next(slow))
        return send(*arguments)

    def read_slowly(self: ReadFile, offset: int, count: int) -> bytes:
        if offset and not is_sent:
            time.sleep(next(slow))
        return read(self, offset, count)

    monkeypatch.setattr(os, "sendfile", send_slowly)
    monkeypatch.setattr(ReadFile, "read", read_slowly)
    with web_thread(data, limits=WebLimits(patience_s=patience_s, min_bytes_per_s=2**40)) as site:
        assert site.ask(FILE, headers={"Range": "bytes=0-7999999"}).body == content[:8_000_000]


@needs_sendfile
def test_clients_that_do_not_read_hold_no_thread_and_no_descriptor(data: Path) -> None:
    with web_thread(data, limits=WebLimits(threads=1)) as site:
        with ExitStack() as stack:
            for _ in range(4):
                stack.enter_context(client_that_does_not_read(site, FILE))
            for _ in range(3):
                assert site.ask(FILE, headers={"Range": "bytes=5000000-5099999"}).status == 206
        until(lambda: is_idle(site), "the answers are given up")
        until(lambda: connections(site) == 0, "their descriptors are closed")


def connections(site: Site) -> int:
    """Connections to the server of which it has a descriptor."""
    found = psutil.Process().net_connections("tcp")
    return sum(one.laddr.port == site.port and one.status != psutil.CONN_LISTEN for one in found)


def fail_reads(monkeypatch: pytest.MonkeyPatch, *, after: int) -> None:
    """Let the reads of files fail after some that go well."""
    read, calls = ReadFile.read, itertools.count()

    def failing(self: ReadFile, offset: int, count: int) -> bytes:
        if self.path.name == "0" and next(calls) >= after:
            raise StorageError.wrap(OSError(errno.EIO, os.strerror(errno.EIO)), str(self.path), "read")
        return read(self, offset, count)

    monkeypatch.setattr(ReadFile, "read", failing)


def fullness(site: Site, monkeypatch: pytest.MonkeyPatch) -> Callable[[], bool]:
    """A function that tells whether the buffers before a client that does not read have become full."""
    is_full, send = threading.Event(), os.sendfile

    def note(out: int, file: int, offset: int, count: int) -> int:
        sent = send(out, file, offset, count)
        if sent < count:  # as much as there was room for
            is_full.set()
        return sent

    def look() -> bool:
        return is_full.is_set() or has_bytes_to_write(site)

    monkeypatch.setattr(os, "sendfile", note)
    return look


def all_of(client: socket.socket) -> bytes:
    received = b""
    with suppress(ConnectionResetError):
        while piece := client.recv(2**20):
            received += piece
    return received


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    """But that no daemon answers."""
    told = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    return [one for one in told if "no daemon answers" not in one]


def test_a_client_is_not_blamed_for_the_time_of_the_disk() -> None:
    limits = WebLimits(patience_s=0.2, min_bytes_per_s=10**9)

    async def read() -> str:
        await asyncio.sleep(0.6)
        return "read"

    async def answer() -> str:
        context = SimpleNamespace(gate=None, settings=SimpleNamespace(limits=limits), run=lambda _function: read())
        async with asyncio.timeout(limits.patience_s) as clock:
            transfer = _Transfer(cast("WebContext", context), clock, is_paced=False)
            found: str = await transfer.run(lambda: "")
            await asyncio.sleep(0)
        return found

    assert asyncio.run(answer()) == "read"
