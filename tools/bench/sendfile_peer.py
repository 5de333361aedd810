"""The least that whole frames over HTTP can cost: a program that only hands parts of a file to sockets.

It reads a request and looks at nothing in it: no routes, no rules, no index. On Linux the kernel sends the bytes.
"""

from __future__ import annotations

import socket
import sys
import threading
from pathlib import Path

_REQUEST_BYTES = 65536
_END = b"\r\n\r\n"


def answer_with_file(path: str, part_bytes: int) -> None:
    """Answer each request with the next part of the file, at a port that is printed, until standard input ends."""
    server = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=_accept, args=(server, Path(path), part_bytes), name="accept", daemon=True).start()
    print(f"127.0.0.1:{server.getsockname()[1]}", flush=True)
    sys.stdin.read()


def _accept(server: socket.socket, path: Path, part_bytes: int) -> None:
    while True:
        connection, _ = server.accept()
        threading.Thread(target=_answer, args=(connection, path, part_bytes), name="sendfile", daemon=True).start()


def _answer(connection: socket.socket, path: Path, part_bytes: int) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d" % part_bytes + _END
    n_parts, number = path.stat().st_size // part_bytes, 0
    with connection, path.open("rb") as file:
        while _has_request(connection):
            connection.sendall(head)
            connection.sendfile(file, number % n_parts * part_bytes, part_bytes)
            number += 1


def _has_request(connection: socket.socket) -> bool:
    """Wait for a request without a body; False at the end of the connection."""
    received = b""
    while not received.endswith(_END):
        more = connection.recv(_REQUEST_BYTES)
        if not more:
            return False
        received += more
    return True
