"""The client of the benchmark: it counts what came complete, however it was cut, and nothing else."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import pytest

from bench.http_client import ObjectClient, read_frames

BODY = bytes(range(256)) * 12_000  # more than the client's buffer


def answer(status: str, body: bytes) -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\nETag: x\r\n\r\n" % (status.encode(), len(body)) + body


@contextmanager
def serving(answers: Sequence[Sequence[bytes]]) -> Iterator[tuple[int, list[bytes]]]:
    """A server that answers each request with parts, and then closes the connection; its port and the requests."""
    requests: list[bytes] = []

    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for parts in answers:
                requests.append(connection.recv(65536))
                with suppress(ConnectionError):  # a client that has seen enough leaves
                    for part in parts:
                        connection.sendall(part)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1], requests
        thread.join()


def test_counts_answers_with_status_200() -> None:
    whole, missing = answer("200 OK", BODY), answer("404 Not Found", b"not found")
    with serving([[whole], [missing], [answer("200 OK", b"")], [whole]]) as (port, requests):
        counts: list[int] = []
        read_frames(port, ["/a", "/b", "/c", "/d"], counts)
    assert counts == [len(BODY), 0, len(BODY)]
    assert [one.split()[1] for one in requests] == [b"/a", b"/b", b"/c", b"/d"]
    assert all(f"Host: 127.0.0.1:{port}".encode() in one for one in requests)


@pytest.mark.parametrize("at", [1, 12, 30, 52, 53, 60])
def test_headers_may_come_in_parts(at: int) -> None:
    whole = answer("200 OK", BODY[:40])
    with serving([[whole[:at], whole[at:]], [whole]]) as (port, _):
        counts: list[int] = []
        read_frames(port, ["/a", "/b"], counts)
    assert counts == [40, 40]


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ([answer("200 OK", BODY)[:-1]], "closed"),
        ([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"], "Content-Length"),
        ([b"x" * 70_000], "no end of the headers"),
        ([], "closed"),
    ],
)
def test_an_answer_that_is_not_whole_is_an_error(parts: list[bytes], reason: str) -> None:
    with serving([parts]) as (port, _), socket.create_connection(("127.0.0.1", port)) as connection:
        with pytest.raises(ConnectionError, match=f"/a: .*{reason}"):
            ObjectClient(connection).get("/a")
