"""Waking a thread that waits in a poll."""

from __future__ import annotations

import contextlib
import io
import os
import select
import socket

_ONE = (1).to_bytes(8, "little")  # counts as any number above 0, whatever the byte order


class Waker:
    """A descriptor that becomes readable after `wake`, from any thread, until `clear`.

    After `close` a `wake` does nothing.
    """

    def __init__(self) -> None:
        self._is_closed = False
        self._pair: tuple[socket.socket, socket.socket] | None = None
        if hasattr(os, "eventfd"):
            # As a file: a signal handler may close it in the middle of `wake`, and its number be given to another one.
            self._event = io.FileIO(os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC), "r+")
            self._descriptor = self._event.fileno()
        else:
            self._pair = socket.socketpair()
            for end in self._pair:
                end.setblocking(False)
            self._descriptor = self._pair[0].fileno()

    def fileno(self) -> int:
        return self._descriptor

    def wake(self) -> None:
        try:
            if self._pair is None:
                self._event.write(_ONE)
            else:
                with contextlib.suppress(BlockingIOError):  # full of earlier wakes: readable already
                    self._pair[1].send(b"w")
        except (ValueError, OSError):
            if not self._is_closed:
                raise

    def wait(self, timeout_s: float) -> None:
        """Until woken, at most so long."""
        select.select([self._descriptor], [], [], timeout_s)
        self.clear()

    def clear(self) -> None:
        try:
            if self._pair is None:
                self._event.read(8)
            else:
                self._pair[0].recv(4096)
        except BlockingIOError:
            return  # nothing was pending

    def close(self) -> None:
        self._is_closed = True
        if self._pair is None:
            self._event.close()
            return
        for end in self._pair:
            end.close()
