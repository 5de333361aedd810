"""Web servers that never end, drip, or send more than was asked: an error in bounded time and memory."""

from __future__ import annotations

import http.server
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import acqstream
from acqstream.errors import AcqStreamError, StorageError
from acqstream.storage.files import http_session
from acqstream.storage.files.url_path import RemotePath
from acqstream.storage.stores.data_path import HttpStore, data_path_of

GOLDEN = Path(__file__).parents[1] / "golden"
PATIENCE_S = 1.0
Answer = Callable[[http.server.BaseHTTPRequestHandler, bytes], None]


def _head(handler: http.server.BaseHTTPRequestHandler, content: bytes) -> bytes:
    """Send the head of a sound answer; its body."""
    asked = re.fullmatch(r"bytes=(\d+)-(\d+)", handler.headers.get("Range", ""))
    part = content[int(asked[1]) : int(asked[2]) + 1] if asked else content
    handler.send_response(206 if asked else 200)
    handler.send_header("Content-Length", str(len(part)))
    handler.send_header("Content-Type", "text/html")
    handler.end_headers()
    return part if handler.command == "GET" else b""


def _plain(handler: http.server.BaseHTTPRequestHandler, content: bytes) -> None:
    handler.wfile.write(_head(handler, content))


def _endless(handler: http.server.BaseHTTPRequestHandler, content: bytes) -> None:
    """Until the client leaves, and whatever range it asked for."""
    handler.close_connection = True
    handler.send_response(200)
    handler.end_headers()
    while handler.command == "GET":
        handler.wfile.write(content + bytes(2**20))


def _dripping(handler: http.server.BaseHTTPRequestHandler, content: bytes) -> None:
    for byte in _head(handler, content):
        handler.wfile.write(bytes([byte]))
        time.sleep(0.2)


def _dripping_head(handler: http.server.BaseHTTPRequestHandler, _content: bytes) -> None:
    handler.close_connection = True
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
    while True:
        handler.wfile.write(b"x")
        time.sleep(0.2)


def _silent(handler: http.server.BaseHTTPRequestHandler, _content: bytes) -> None:
    handler.close_connection = True
    handler.connection.settimeout(60)
    with suppress(OSError):
        handler.connection.recv(1)  # the end of the client


SAID: dict[Answer, str] = {
    _endless: "the server (does not report|sent the complete file)",
    _dripping: "the server is too slow",
    _dripping_head: "the server did not answer within",
    _silent: "the server did not answer within",
}


@contextmanager
def _serving(answer: Answer) -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None: ...

        def do_GET(self) -> None:
            path = GOLDEN / "ome_zarr" / self.path.lstrip("/")
            with suppress(OSError):
                if path.is_dir():
                    _plain(self, "".join(f'<a href="{one.name}">' for one in path.iterdir()).encode())
                elif path.is_file():
                    answer(self, path.read_bytes())
                else:
                    self.send_response(404)
                    self.send_header("Content-Length", "0")
                    self.end_headers()

        do_HEAD = do_GET  # noqa: N815 - its name for the library

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/oz_05.ome.zarr"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _peak_kib() -> int:
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_session, "PATIENCE_S", PATIENCE_S)


def _chunks_only(answer: Answer) -> Answer:
    def chosen(handler: http.server.BaseHTTPRequestHandler, content: bytes) -> None:
        (_plain if handler.path.endswith(".json") else answer)(handler, content)

    return chosen


def test_sound_server() -> None:
    with _serving(_plain) as url, acqstream.open(url) as dataset:
        assert dataset.levels[0].shape == (2, 4, 40, 44)


@pytest.mark.parametrize("answer", [_endless, _dripping, _dripping_head, _silent])
@pytest.mark.parametrize("which", ["documents", "chunks"])
def test_bounds(answer: Answer, which: str) -> None:
    before, begin_s = _peak_kib(), time.monotonic()
    with (
        _serving(answer if which == "documents" else _chunks_only(answer)) as url,
        pytest.raises(AcqStreamError, match=rf"{SAID[answer]}.*127\.0\.0\.1"),
        acqstream.open(url) as dataset,
    ):
        dataset.levels[0].read()
    assert _peak_kib() - before < 300 * 1024
    assert time.monotonic() - begin_s < 30 * PATIENCE_S


def test_slow_but_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long answer has time by its bytes: a slow line is no attack."""
    monkeypatch.setattr(http_session, "MIN_BYTES_PER_S", 2)
    with _serving(_dripping) as url:
        file = "zarr.json"
        place = RemotePath.of_url(f"{url}/{file}")
        assert place.read(0, 12) == (GOLDEN / "ome_zarr" / "oz_05.ome.zarr" / file).read_bytes()[:12]


def test_listing_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_session, "MAX_LISTING_BYTES", 2**20)

    class Listing(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None: ...

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            with suppress(OSError):
                for number in range(10**9):
                    self.wfile.write(f'<a href="a{number}/">a{number}/</a>\n'.encode())

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Listing)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        store = data_path_of(f"http://127.0.0.1:{server.server_port}/x").store(follows_links=False)
        assert isinstance(store, HttpStore)
        with pytest.raises(StorageError, match="more than"):
            list(store.children())
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
