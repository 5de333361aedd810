"""Hands memory and orders to another process on this machine.

The platform decides how memory is shared and how it travels: sealed memory files beside the bytes of a local socket on
Linux (`platform.linux_memory`), sections whose handles are duplicated into the receiver on Windows
(`platform.windows_memory`). A handle is an integer that its owner closes: a descriptor, or a HANDLE.

Elsewhere this module imports, `unavailable_reason` names the missing function, and functions raise OSError.
"""

from __future__ import annotations

import json
import socket
import time
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from acqstream.storage.platform import shared_memory

MAX_LINE_BYTES = 65536


PAGE_BYTES = shared_memory.PAGE_BYTES
unavailable_reason = shared_memory.unavailable_reason
orders_unavailable_reason = shared_memory.orders_unavailable_reason
make_sealed_memory = shared_memory.make_sealed_memory
map_memory = shared_memory.map_memory
map_sealed_memory = shared_memory.map_sealed_memory
duplicate_handle = shared_memory.duplicate_handle
close_handle = shared_memory.close_handle


class OrderSender:
    """Sends orders over a stream socket without waiting: lines of JSON, each with memory for the receiver to map.

    process is the receiver's number, which it must not end before orders are added. blocked_since_s: time (monotonic
    seconds) since which the peer reads nothing; None while it reads.
    """

    def __init__(self, connection: socket.socket, process: int) -> None:
        self.blocked_since_s: float | None = None
        self._connection = connection
        self._process = process
        self._queue: deque[tuple[bytes, list[int]]] = deque()

    def add(self, order: Mapping[str, Any], *handles: int) -> None:
        """Queue an order. Handles are copied: the caller may close them at once. Raises OSError."""
        fields, copies = shared_memory.attach_memory(handles, self._process)
        self._queue.append((json.dumps({**order, **fields}).encode() + b"\n", copies))

    def send(self) -> None:
        """Send what the socket takes now. Raises OSError if the peer is gone."""
        while self._queue:
            line, copies = self._queue[0]
            try:
                sent = shared_memory.send_attached(self._connection, line, copies)
            except BlockingIOError:
                self.blocked_since_s = self.blocked_since_s or time.monotonic()
                return
            self.blocked_since_s = None
            _close_all(copies)
            if sent < len(line):
                self._queue[0] = (line[sent:], [])
                return
            self._queue.popleft()

    def close(self) -> None:
        """Drop the orders that were not sent. The connection stays the caller's."""
        while self._queue:
            _close_all(self._queue.popleft()[1])


def receive_orders(connection: socket.socket) -> Iterator[tuple[dict[str, Any], list[memoryview]]]:
    """Yield orders with their memory mapped read-only, until the sender closes its end. Raises OSError."""
    pending, handles = b"", deque[int]()
    while True:
        try:
            data, received = shared_memory.receive_attached(connection, MAX_LINE_BYTES)
        except ConnectionError:
            return
        handles += received
        if not data:
            return
        *lines, pending = (pending + data).split(b"\n")
        for line in lines:
            order = json.loads(line)
            own = shared_memory.attached_memory(order, handles)
            try:
                yield order, [map_memory(handle) for handle in own]
            finally:
                _close_all(own)


def _close_all(handles: list[int]) -> None:
    for handle in handles:
        close_handle(handle)
