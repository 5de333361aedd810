"""Waking a thread that waits in a poll."""

from __future__ import annotations

import os
import select
import socket


class Waker:
    """A descriptor that becomes readable after `wake`, from any thread, until `clear`."""

    def __init__(self) -> None:
        self._pair: tuple[socket.socket, socket.socket] | None = None
        if hasattr(os, "eventfd"):
            self._descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        else:
            self._pair = socket.socketpair()
            for end in self._pair:
                end.setblocking(False)
            self._descriptor = self._pair[0].fileno()

    def fileno(self) -> int:
        return self._descriptor

    def wake(self) -> None:
        if self._pair is None:
            os.eventfd_write(self._descriptor, 1)
            return
        try:
            self._pair[1].send(b"w")
        except BlockingIOError:
            return  # full of earlier wakes: readable already

    def wait(self, timeout_s: float) -> None:
        """Until woken, at most so long."""
        select.select([self._descriptor], [], [], timeout_s)
        self.clear()

    def clear(self) -> None:
        try:
            if self._pair is None:
                os.eventfd_read(self._descriptor)
            else:
                self._pair[0].recv(4096)
        except BlockingIOError:
            return  # nothing was pending

    def close(self) -> None:
        if self._pair is None:
            os.close(self._descriptor)
            return
        for end in self._pair:
            end.close()
