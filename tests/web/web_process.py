"""Servers of the web face for tests: one in a thread of this process, and one in a process of its own."""

from __future__ import annotations

import asyncio
import http.client
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

from acqstream.web.web_context import WebContext
from acqstream.web.web_server import serving
from acqstream.web.web_settings import WebSettings
from tests.waiting import WAIT_S

END_S = 30.0


@dataclass(frozen=True)
class Reply:
    """An answer of a server."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Site:
    """A server that answers. context: of one in this process."""

    url: str
    context: WebContext | None = None
    process: subprocess.Popen[str] | None = None

    @property
    def port(self) -> int:
        port = urlsplit(self.url).port
        assert port is not None
        return port

    def ask(
        self, path: str, method: str = "GET", headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> Reply:
        """Send a request with exactly this path, and read the answer. Names of its headers are in lower case."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        try:
            given = dict(headers or {})
            connection.putrequest(method, path, skip_host="Host" in given, skip_accept_encoding=True)
            for name, value in given.items():
                connection.putheader(name, value)
            if body is not None:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Reply(answer.status, found, answer.read())
        finally:
            connection.close()

    def rss_bytes(self) -> int:
        """Resident memory of the server's process now."""
        assert self.process is not None
        rss: int = psutil.Process(self.process.pid).memory_info().rss
        return rss


@contextmanager
def web_thread(data: Path, **settings: Any) -> Iterator[Site]:
    """A server in a thread of this process, at a free port of loopback."""
    ready, found = threading.Event(), []
    stop: asyncio.Event | None = None
    loop: asyncio.AbstractEventLoop | None = None

    async def serve() -> None:
        nonlocal stop, loop
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        async with serving(WebSettings(data=data, **{"port": 0, **settings})) as (url, context):
            found.append(Site(url, context))
            ready.set()
            await stop.wait()

    def run() -> None:
        try:
            asyncio.run(serve())
        finally:
            ready.set()

    thread = threading.Thread(target=run, name="web-server")
    thread.start()
    try:
        assert ready.wait(WAIT_S)
        assert found, "the server did not start"
        yield found[0]
    finally:
        if loop is not None and stop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(stop.set)
        thread.join(END_S)
        assert not thread.is_alive()


@contextmanager
def web_process(data: Path, *options: str, log: Path | None = None) -> Iterator[Site]:
    """`acqstream web` in a process of its own, at a free port of loopback."""
    path = log or data.parent / "web.log"
    command = [sys.executable, "-m", "acqstream", "web", "--data", str(data), "--port", "0", *options]
    with path.open("ab") as file:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=file, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("serving at "), f"{line!r} {path.read_text(errors='replace')}"
        yield Site(line.split()[-1], process=process)
    finally:
        process.terminate()
        try:
            process.communicate(timeout=END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
