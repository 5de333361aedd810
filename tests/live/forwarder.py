"""A way to the daemon that can be cut."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from types import TracebackType
from typing import Self

from tests.live.daemon_process import free_port

CHUNK_BYTES = 2**16


class Forwarder:
    """Passes tcp connections on to a port; `cut` breaks those that stand, new ones are let through.

    cuts counts what `cut_when` did.
    """

    def __init__(self, port: int) -> None:
        self.connections = 0
        self.cuts = 0
        self._fatal, self._times = b"", 0
        self._target = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", free_port()))
        self.endpoint = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads: list[threading.Thread] = []
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        self._start(self._accept)

    def cut(self) -> None:
        """Break every connection, in the middle of whatever passes."""
        with self._lock:
            for one in self._open:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
            self._open.clear()

    def cut_when(self, text: bytes, times: int = 1) -> None:
        """`cut`, so often, instead of passing on what holds this text."""
        self._fatal, self._times = text, times

    def _start(self, target: object, *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return  # closed
            try:
                far = socket.create_connection(self._target)
            except OSError:
                near.close()
                continue
            with self._lock:
                self.connections += 1
                self._open += [near, far]
            self._start(self._pass_on, near, far)

    def _pass_on(self, near: socket.socket, far: socket.socket) -> None:
        with near, far, selectors.DefaultSelector() as selector:
            selector.register(near, selectors.EVENT_READ, far)
            selector.register(far, selectors.EVENT_READ, near)
            with contextlib.suppress(OSError):
                while all(self._pass_chunk(key) for key, _ in selector.select()):
                    pass

    def _pass_chunk(self, key: selectors.SelectorKey) -> bool:
        """Pass on what came in at one end; False at its end."""
        assert isinstance(key.fileobj, socket.socket)
        data = key.fileobj.recv(CHUNK_BYTES)
        if self._times and self._fatal in data:
            self._times -= 1
            self.cuts += 1
            return False
        key.data.sendall(data)
        return bool(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join()
