"""A producer with shared memory as anybody may write one: from docs/protocol.md, with nothing of this package."""

from __future__ import annotations

import json
import mmap
import os
import secrets
import socket
from types import TracebackType
from typing import Any

import pytest

from tests.live.wire_client import WireClient

fcntl = pytest.importorskip("fcntl")
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | 0x10  # F_SEAL_FUTURE_WRITE
PAGE = 4096
PAGES = 512


def memory_file(size: int, *, seals: int = SEALS, is_there: bool = True) -> int:
    """The descriptor of a memory file."""
    descriptor = os.memfd_create("a test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, size)
    if is_there and size:
        os.posix_fallocate(descriptor, 0, size)
    if seals:
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor


def hand_over(path: str, message: bytes | dict[str, Any], *descriptors: int) -> tuple[socket.socket, dict[str, Any]]:
    """One message to the desk: the connection, and the answer."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(10)
    connection.connect(path)
    content = message if isinstance(message, bytes) else json.dumps(message).encode()
    if descriptors:
        socket.send_fds(connection, [content], descriptors)
    else:
        connection.send(content)
    return connection, json.loads(connection.recv(4096))


class MemoryClient(WireClient):
    """A WireClient whose frames lie in `memory`."""

    def __init__(self, endpoint: str, size: int = PAGES * PAGE) -> None:
        super().__init__(endpoint)
        self._descriptor = memory_file(size, seals=0)
        self.memory = mmap.mmap(self._descriptor, size)
        fcntl.fcntl(self._descriptor, fcntl.F_ADD_SEALS, SEALS)
        self.generation = 0

    def open(self, name: str, ds: str, **more: Any) -> dict[str, Any]:
        """With the memory handed over."""
        path = self.hello()["memory"]
        token = secrets.token_hex(16)
        connection, taken = hand_over(path, {"t": "memory", "v": 1, "token": token}, self._descriptor)
        with connection:
            assert (taken["t"], taken["bytes"]) == ("taken", len(self.memory)), taken
            opened = super().open(name, ds, memory={"token": token}, **more)
        if opened["t"] == "opened":
            assert opened["memory"] == taken["gen"]
            self.generation = taken["gen"]
        return opened

    def place(self, offset: int, payload: bytes) -> list[int]:
        """Put the payload there; the field `mem` of its frame."""
        self.memory[offset : offset + len(payload)] = payload
        return [self.generation, offset]

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, value, trace)
        self.memory.close()
        os.close(self._descriptor)
