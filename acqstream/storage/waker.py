"""Descriptor that wakes a thread out of a poll."""

from __future__ import annotations

import io
import os
import select
import socket
from collections.abc import Callable
from functools import partial

from acqstream.storage.platform.capabilities import has_eventfd, has_poll

_ONE = (1).to_bytes(8, "little")  # counts as a number above 0 in either byte order
_DRAIN_BYTES = 4096


class Waker:
    """Becomes readable after `wake`, and stays so until `clear`.

    `wake` may be called from any thread and from signal handlers. Wakes before the next `clear` are merged into one.
    It uses an eventfd (Linux, eventfd(2)), and a socket pair elsewhere. It owns its descriptors until `close`; after
    that `wake` does nothing.
    """

    def __init__(self) -> None:
        self._is_closed = False
        self._is_set = False
        self._files: tuple[io.FileIO | socket.socket, ...]
        # Bound calls, so that a wake runs no further Python function.
        self._write: Callable[[], object]
        self._read: Callable[[], object]
        if has_eventfd():
            # A file object: a handler may close it in the middle of `wake`, and the number be given to another file.
            event = io.FileIO(os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC), "r+")
            self._files = (event,)
            self._write, self._read = partial(event.write, _ONE), partial(event.read, len(_ONE))
        else:
            reader, writer = self._files = socket.socketpair()
            reader.setblocking(False)
            writer.setblocking(False)
            self._write, self._read = partial(writer.send, b"w"), partial(reader.recv, _DRAIN_BYTES)
        self._descriptor = self._files[0].fileno()

    def fileno(self) -> int:
        return self._descriptor

    def wake(self) -> None:
        """Make the descriptor readable; costs no system call while it is. Raises OSError when the system refuses."""
        if self._is_set:
            return
        try:
            self._is_set = True
            self._write()
        except BlockingIOError:
            return  # the pair is full of earlier wakes, so it is readable
        except BaseException as error:
            self._is_set = False  # also after Ctrl-C: the mark without the byte would silence all later wakes
            if not (self._is_closed and isinstance(error, ValueError | OSError)):
                raise

    def wait(self, timeout_s: float) -> None:
        """Return once woken, after timeout_s seconds at the latest."""
        if has_poll():  # select takes no descriptor from 1024 on
            poll = select.poll()
            poll.register(self._descriptor, select.POLLIN)
            poll.poll(timeout_s * 1000)
        else:
            select.select([self._descriptor], [], [], timeout_s)
        self.clear()

    def clear(self) -> None:
        """Take the wakes so far. Call it before looking at what changed, so that no later change is missed.

        The mark goes last. Were it first, the byte of a wake in between would be read here with the mark left set, and
        no later wake would write one.
        """
        try:
            self._read()
        except BlockingIOError:
            pass  # no wake is pending
        self._is_set = False

    def close(self) -> None:
        self._is_closed = True
        for file in self._files:
            file.close()
