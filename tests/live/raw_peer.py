"""A peer that speaks ZMTP 3 by hand, to send what no ZeroMQ library would."""

from __future__ import annotations

import contextlib
import socket
import struct
from types import TracebackType
from typing import Self

GREETING = b"\xff\0\0\0\0\0\0\0\x01\x7f\x03\x01NULL" + bytes(48)
READY = b"\x05READY\x0bSocket-Type\0\0\0\x06DEALER\x08Identity\0\0\0\0"
READY_OF_READER = b"\x05READY\x0bSocket-Type\0\0\0\x03SUB"
PING = b"\x04PING\0\0sign"  # a heartbeat, without a time to live
MORE, LONG, COMMAND = 1, 2, 4
_RESET_AT_CLOSE = struct.pack("ii", 1, 0)


class RawPeer:
    """A DEALER after its handshake, over tcp to a port, or over ipc to the path of a socket. is_reader: a SUB."""

    def __init__(self, place: int | str, *, is_reader: bool = False) -> None:
        if isinstance(place, int):
            self.socket = socket.create_connection(("127.0.0.1", place), timeout=50)
        else:
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.settimeout(10)
            self.socket.connect(place)
        try:
            self._shake_hands(is_reader=is_reader)
        except OSError:
            self.socket.close()
            raise

    def _shake_hands(self, *, is_reader: bool) -> None:
        ready = READY_OF_READER if is_reader else READY
        self.socket.sendall(GREETING + b"\x04" + bytes([len(ready)]) + ready)
        heard, more = b"", b"any"
        while (
            more and (b"XPUB" if is_reader else b"ROUTER") not in heard
        ):  # a message before its READY would count as a broken handshake
            more = self.socket.recv(4096)
            heard += more

    def send_part(self, content: bytes, *, more: bool) -> None:
        self.announce(len(content), more=more)
        self.socket.sendall(content)

    def announce(self, length: int, *, more: bool = False) -> None:
        """The head of a part, without its content."""
        self.socket.sendall(bytes([LONG | (MORE if more else 0)]) + length.to_bytes(8, "big"))

    def vanish_with_ping(self, message: bytes, count: int) -> None:
        """Small messages, a heartbeat, and the end of the connection, all at once."""
        messages = (bytes([0, len(message)]) + message) * count
        self.socket.sendall(messages + bytes([COMMAND, len(PING)]) + PING)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
        self.socket.close()

    def wait_until_closed(self) -> None:
        """Until the daemon hangs up; what it says before is dropped."""
        with contextlib.suppress(ConnectionResetError):
            while self.socket.recv(65536):
                pass

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()


def is_closed(one: socket.socket) -> bool:
    """Whether the other end has closed it; what it has sent is dropped."""
    one.setblocking(False)
    try:
        while one.recv(65536):
            pass
    except BlockingIOError:
        return False
    except ConnectionResetError:
        pass
    finally:
        one.settimeout(10)
    return True
