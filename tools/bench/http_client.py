"""`acqstream web` for a benchmark, and clients of it on loopback."""

from __future__ import annotations

import re
import socket
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from acqstream.bench.child_process import child_command, serve
from acqstream.bench.comparison import DATASET
from acqstream.bench.workload import Workload
from bench.sendfile_peer import answer_with_file

CLIENTS = 2
_END_S = 10.0
_TIMEOUT_S = 60.0
_MAX_HEAD_BYTES = 65536
_HEAD_END = b"\r\n\r\n"
_LENGTH = re.compile(rb"\r\ncontent-length: *([0-9]+)", re.IGNORECASE)


@contextmanager
def web_server(
    data: Path, endpoint: str | None = None, read_mb_s: int | None = None
) -> Iterator[tuple[int, psutil.Process]]:
    """A web face of `data`: its port and its process. endpoint: of the daemon that it asks; read_mb_s: its bound."""
    arguments = ["web", "--data", str(data), "--port", "0"]
    arguments += [] if endpoint is None else ["--endpoint", endpoint]
    arguments += [] if read_mb_s is None else ["--read-mb-s", str(read_mb_s)]
    with _server(child_command(serve, arguments=arguments)) as found:
        yield found


@contextmanager
def sendfile_server(data: Path, part_bytes: int) -> Iterator[tuple[int, psutil.Process]]:
    """A program that answers with parts of the first stack file below `data` alone: its port and its process."""
    path = min(data.glob(f"{DATASET}/*.tif"))
    with _server(child_command(answer_with_file, path=path, part_bytes=part_bytes)) as found:
        yield found


@contextmanager
def _server(command: Sequence[str]) -> Iterator[tuple[int, psutil.Process]]:
    """A program that prints its port, and ends when its standard input does: also if the benchmark is killed."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            yield int(line.rpartition(":")[2]), psutil.Process(process.pid)
        finally:
            process.terminate()
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()


def frame_paths(workload: Workload) -> Sequence[str]:
    """Each frame once, as a chunk of OME-Zarr."""
    return [f"/data/{DATASET}/ome.zarr/0/c/{time}/0/0" for time in range(workload.frames)]


def piece_paths(workload: Workload, side: int) -> Sequence[str]:
    """Of each frame all complete pieces of side x side."""
    rows, columns = (max(1, length // side) for length in workload.shape[:2])
    base = f"/data/{DATASET}@chunk={side}/ome.zarr/0/c"
    return [
        f"{base}/{time}/{row}/{column}"
        for time in range(workload.frames)
        for row in range(rows)
        for column in range(columns)
    ]


def read_frames(port: int, paths: Sequence[str], counts: list[int], end: threading.Event | None = None) -> None:
    """Read objects over one connection, until `end`; counts gets the bytes of each that was answered."""
    with socket.create_connection(("127.0.0.1", port), timeout=_TIMEOUT_S) as connection:
        client = ObjectClient(connection)
        for path in paths:
            if end is not None and end.is_set():
                return
            status, count = client.get(path)
            if status == 200:
                counts.append(count)


class ObjectClient:
    """Asks over a connection that stays open, and drops what it gets. RFC 9112; answers with a Content-Length only.

    Not a client of the standard library: beside one of those, on two processors, a server shows a quarter less.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._host = "{}:{}".format(*connection.getpeername()[:2])
        self._buffer = memoryview(bytearray(2**20))

    def get(self, path: str) -> tuple[int, int]:
        """Status and length of the body, which has come. Raises ConnectionError if it ends early, or has no length."""
        self._connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {self._host}\r\n\r\n".encode())
        received, at = 0, -1
        while at < 0:
            received += self._receive(received, path)
            at = bytes(self._buffer[: min(received, _MAX_HEAD_BYTES)]).find(_HEAD_END)
            if at < 0 and received >= _MAX_HEAD_BYTES:
                raise ConnectionError(f"{path}: no end of the headers within {_MAX_HEAD_BYTES} bytes")
        head = bytes(self._buffer[:at])
        found = _LENGTH.search(head)
        if found is None:
            raise ConnectionError(f"{path}: an answer without Content-Length")
        count = int(found[1])
        left = count - (received - at - len(_HEAD_END))
        while left > 0:
            left -= self._receive(0, path)
        return int(head[9:12]), count

    def _receive(self, first: int, path: str) -> int:
        """Receive what is there into the buffer, from `first` on."""
        count = self._connection.recv_into(self._buffer[first:])
        if not count:
            raise ConnectionError(f"{path}: the server has closed the connection")
        return count
