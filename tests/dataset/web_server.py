"""A web server on loopback for datasets, which keeps what it was asked."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class Requests(list[str]):
    """What was asked of a server, as "METHOD path range"; faults are paths that fail."""

    has_ranges = True
    lists_folders = True
    tells_length = True


class Handler(SimpleHTTPRequestHandler):
    def __init__(self, *arguments: Any, asked: Requests, **keywords: Any) -> None:
        self.asked = asked
        super().__init__(*arguments, **keywords)

    def do_HEAD(self) -> None:
        self.asked.append(f"HEAD {self.path}")
        super().do_HEAD()

    def do_GET(self) -> None:
        self.asked.append(f"GET {self.path} {self.headers.get('Range', '')}")
        path = Path(self.translate_path(self.path))
        found = re.fullmatch(r"bytes=(\d*)-(\d+)", self.headers.get("Range", ""))
        if not (path.is_file() and found and self.asked.has_ranges):
            super().do_GET()
            return
        size = path.stat().st_size
        first, last = (int(found[1]), int(found[2])) if found[1] else (max(0, size - int(found[2])), size - 1)
        with path.open("rb") as file:  # not all of it: a sparse cube file may have gigabytes
            file.seek(first)
            part = file.read(last + 1 - first)
        self.send_response(HTTPStatus.PARTIAL_CONTENT)
        self.send_header("Content-Range", f"bytes {first}-{first + len(part) - 1}/{size}")
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        self.wfile.write(part)

    def send_header(self, keyword: str, value: str) -> None:
        if keyword != "Content-Length" or self.asked.tells_length:
            super().send_header(keyword, value)

    def do_OPTIONS(self) -> None:
        """A page of another origin asks whether it may use headers of its own."""
        self.asked.append(f"OPTIONS {self.path}")
        self.send_response(HTTPStatus.NO_CONTENT)
        self.end_headers()

    def end_headers(self) -> None:
        self.send_header("Access-Control-Allow-Origin", "*")
        self.send_header("Access-Control-Allow-Headers", "*")
        self.send_header("Access-Control-Expose-Headers", "*")
        super().end_headers()

    def list_directory(self, path: Any) -> Any:
        if not self.asked.lists_folders:
            self.send_error(HTTPStatus.FORBIDDEN)
            return None
        return super().list_directory(path)

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - the base class calls it so
        """Nothing on stderr."""


@contextmanager
def serving(folder: Path) -> Iterator[tuple[str, Requests]]:
    asked = Requests()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, asked=asked, directory=str(folder)))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
