"""Receives memory that producers on this machine hand over, until their `open` names it. Used by the loop only.

One message each way over a local socket; docs/protocol.md, "Shared memory". The file system decides which users may
connect (mode 0660 in the runtime directory); the credentials of the peer are checked as well.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import threading
import weakref
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from acqstream.daemon import socket_names
from acqstream.errors import ConfigError, ProtocolError
from acqstream.protocol import shared_memory as wire
from acqstream.storage.handover import (
    map_sealed_memory,
    peer_credentials,
    peer_groups,
    receive_descriptors,
    unavailable_reason,
)

logger = logging.getLogger("acqstream.daemon")

SOCKET_MODE = 0o660
MAX_VISITORS = 64
VISIT_S = 10.0
"""Memory that no `open` names is dropped after this time, and any that is not taken when its producer disconnects."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class ProducerMemory:
    """A producer's memory, mapped read-only. generation is its number here; descriptor is for the view process."""

    generation: int
    view: memoryview
    descriptor: int

    @staticmethod
    def map(generation: int, descriptor: int) -> ProducerMemory:
        """Map memory; the caller keeps its descriptor. Raises OSError or ValueError if it is not safe to use."""
        view = map_sealed_memory(descriptor)
        duplicate = os.dup(descriptor)
        memory = ProducerMemory(generation, view, duplicate)
        # The kernel closes it when the process exits.
        weakref.finalize(memory, os.close, duplicate).atexit = False
        return memory

    def part(self, place: wire.MemoryPlace, length: int) -> memoryview:
        """Return `length` bytes at a place, not copied. Raises ProtocolError if they are outside this memory."""
        if place.generation != self.generation:
            text = f"'mem' names memory {place.generation}; this connection's is {self.generation}"
            raise ProtocolError(text, code="bad_memory")
        if place.offset + length > len(self.view):
            text = f"'mem' names bytes {place.offset} to {place.offset + length - 1}; the memory has {len(self.view)}"
            raise ProtocolError(text, code="bad_memory")
        return self.view[place.offset : place.offset + length]

    def unmap(self) -> None:
        """Release the mapping, now or with the last frame that is still written from it."""
        # The kernel unmaps page by page, which would block the loop for 0.1 s per 256 MB: so a thread does it.
        # Frames that are not written yet keep slices of the view; dropping the last of them drops the mapping.
        threading.Thread(target=self.view.release, name=f"unmap-{self.generation}", daemon=True).start()


@dataclass(slots=True, eq=False)
class _Visitor:
    """A connection and the memory that it handed over. refusal, if not empty, is sent instead of taking any."""

    socket: socket.socket
    until_s: float
    refusal: str
    token: str = ""
    memory: ProducerMemory | None = None


class SharedMemoryServer:
    """Listens at `path`. Raises ConfigError if it cannot. The descriptor `fileno` is readable when `serve` has work."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._numbers = count(1)
        self._visitors: dict[int, _Visitor] = {}
        socket_names.take_over(path)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        try:
            self._listener.bind(str(path))
            path.chmod(SOCKET_MODE)  # in time: no process can connect before `listen`
            self._group = path.stat().st_gid
            self._listener.listen(16)
        except OSError as error:
            self._listener.close()
            raise ConfigError(f"cannot listen on {path} for shared memory: {error}") from error
        self._ready = select.epoll()
        self._ready.register(self._listener, select.EPOLLIN)

    @staticmethod
    def is_possible() -> bool:
        """Return True if this platform can hand memory over (Linux)."""
        return not unavailable_reason() and hasattr(select, "epoll")

    def fileno(self) -> int:
        return self._ready.fileno()

    def close(self) -> None:
        socket_names.remove(self.path)
        for descriptor in list(self._visitors):
            self._dismiss(descriptor)
        self._ready.close()
        self._listener.close()

    def take(self, token: str) -> ProducerMemory:
        """Return the memory that was handed over with this token. Raises ProtocolError (bad_memory) if none was."""
        for descriptor, visitor in self._visitors.items():
            if visitor.token == token and visitor.memory is not None:
                memory = visitor.memory
                self._dismiss(descriptor)
                return memory
        raise ProtocolError("no memory was handed over to this daemon with the token named", code="bad_memory")

    def keep(self, token: str, until_s: float) -> None:
        """Keep memory that a waiting `open` names until this time, while its producer is connected."""
        # It counts as a visitor all the while, so MAX_VISITORS bounds what stalled requests keep mapped.
        for visitor in self._visitors.values():
            if visitor.token == token:
                visitor.until_s = until_s

    def serve(self, now_s: float) -> None:
        """Handle connections and messages that have arrived; never waits."""
        for descriptor, _ in self._ready.poll(0):
            if descriptor == self._listener.fileno():
                self._admit(now_s)
            else:
                self._receive(descriptor)
        for descriptor in [key for key, visitor in self._visitors.items() if now_s > visitor.until_s]:
            self._dismiss(descriptor)

    def _admit(self, now_s: float) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError as error:
            logger.warning("a producer's connection for shared memory failed: %s", error)
            return
        connection.setblocking(False)
        # Above MAX_VISITORS a visitor gets an answer; above twice as many not even that, to bound descriptors.
        if len(self._visitors) >= 2 * MAX_VISITORS:
            connection.close()
            return
        self._visitors[connection.fileno()] = _Visitor(connection, now_s + VISIT_S, self._refusal(connection))
        self._ready.register(connection, select.EPOLLIN)

    def _refusal(self, connection: socket.socket) -> str:
        """Return why this peer is refused; empty for the daemon's user, root, and members of the socket's group."""
        if len(self._visitors) >= MAX_VISITORS:
            return f"{MAX_VISITORS} producers are handing over memory, which is the limit; try again"
        process, user, group = peer_credentials(connection)
        if user in (0, os.geteuid()) or self._group in (group, *peer_groups(connection)):
            return ""
        return f"process {process} of user {user} is neither of the daemon's user nor of the socket's group"

    def _receive(self, descriptor: int) -> None:
        """Receive one message; take its memory, or refuse it and disconnect."""
        visitor = self._visitors[descriptor]
        connection = visitor.socket
        descriptors: list[int] = []
        try:
            message, descriptors = receive_descriptors(connection, wire.MAX_HANDOVER_BYTES)
            if not message:
                self._dismiss(descriptor)
                return
            visitor.token, visitor.memory = self._take_in(message, descriptors, visitor.refusal)
        except (ProtocolError, OSError, ValueError) as error:
            logger.warning("a producer's memory was refused: %s", error)
            _answer(connection, wire.encode_not_taken(str(error)))
            self._dismiss(descriptor)
        else:
            _answer(connection, wire.encode_taken(visitor.memory.generation, len(visitor.memory.view)))
        finally:
            for received in descriptors:  # the mapping keeps its own duplicate
                os.close(received)

    def _take_in(self, message: bytes, descriptors: list[int], refusal: str) -> tuple[str, ProducerMemory]:
        if refusal:  # after the message was read: closing a connection with unread messages would drop the answer
            raise ProtocolError(refusal)
        token = wire.parse_handover(message)
        if len(descriptors) != 1:
            raise ProtocolError(f"{len(descriptors)} descriptors came with the message; expected one, of the memory")
        return token, ProducerMemory.map(next(self._numbers), descriptors[0])

    def _dismiss(self, descriptor: int) -> None:
        visitor = self._visitors.pop(descriptor)
        self._ready.unregister(descriptor)
        visitor.socket.close()


def offered_memory(server: SharedMemoryServer | None, offer: wire.MemoryOffer) -> tuple[ProducerMemory | None, str]:
    """Return the memory that an `open` names, or None and the reason why frames come as messages."""
    if not offer.token:
        return None, offer.why or "the producer offered no memory"
    if server is None:
        return None, "this daemon does not use shared memory"
    try:
        return server.take(offer.token), ""
    except ProtocolError as error:
        return None, str(error)


def _answer(connection: socket.socket, message: bytes) -> None:
    with suppress(OSError):  # the peer disconnected: its `open` will not come either
        connection.send(message)
