"""A descriptor that other threads and signal handlers use to wake the server's poller."""

from __future__ import annotations

import contextlib
import socket


class LoopWaker:
    """`wake` from anywhere, `fileno` for the poller, `clear` in the loop."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._is_set = False

    def fileno(self) -> int:
        return self._reader.fileno()

    def wake(self) -> None:
        """Make the descriptor readable; cheap when it is already."""
        if self._is_set:
            return
        self._is_set = True
        # Full means that a wake-up is on its way already.
        with contextlib.suppress(BlockingIOError, OSError):
            self._writer.send(b"\0")

    def clear(self) -> None:
        """Before looking at what changed: a wake-up that comes later is not lost.

        The mark goes last: were it first, the byte of a wake-up in between would be taken here with the mark left set,
        and no later wake-up would send one.
        """
        with contextlib.suppress(BlockingIOError):
            while len(self._reader.recv(4096)) == 4096:
                pass
        self._is_set = False

    def close(self) -> None:
        self._reader.close()
        self._writer.close()
