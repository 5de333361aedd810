"""Receives memory that producers on this machine hand over, until their `open` names it. Used by the loop only.

One message each way over a local socket; docs/protocol.md, "Shared memory". The platform decides who may connect and
how memory arrives (`storage.platform.linux_memory_listener`, `windows_memory_listener`).
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from acqstream.errors import ConfigError, ProtocolError
from acqstream.model.state import CLAIM_BYTES
from acqstream.protocol import shared_memory as wire
from acqstream.protocol.frame_batch import MemoryPlace
from acqstream.storage import local_sockets
from acqstream.storage.handover import close_handle, duplicate_handle, map_sealed_memory
from acqstream.storage.platform import memory_listener

logger = logging.getLogger("acqstream.daemon")

MAX_VISITORS = 64
VISIT_S = 10.0
"""Memory that no `open` names is dropped after this time, and any that is not taken when its producer disconnects."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class ProducerMemory:
    """A producer's memory, mapped read-only. generation is its number here; handle is for the view process.

    claims: see MemoryMessage.
    """

    generation: int
    view: memoryview
    handle: int
    claims: int | None = None

    @staticmethod
    def map(generation: int, handle: int, claims: int | None = None) -> ProducerMemory:
        """Map memory; the caller keeps its handle. Raises OSError or ValueError if it is not safe to use."""
        view = map_sealed_memory(handle)
        if claims is not None and claims + CLAIM_BYTES > len(view):
            raise ValueError(f"'claims' names byte {claims} of a memory of {len(view)}")
        duplicate = duplicate_handle(handle)
        memory = ProducerMemory(generation, view, duplicate, claims)
        # The system closes it when the process exits.
        weakref.finalize(memory, close_handle, duplicate).atexit = False
        return memory

    def part(self, place: MemoryPlace, length: int) -> memoryview:
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

    peer: memory_listener.MemoryPeer
    until_s: float
    refusal: str
    token: str = ""
    memory: ProducerMemory | None = None


class SharedMemoryServer:
    """Listens at `path`, or where the platform chooses if it uses no names. Raises ConfigError if it cannot.

    address is where clients connect, for `welcome`.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._numbers = count(1)
        self._visitors: dict[int, _Visitor] = {}
        if path is not None:
            local_sockets.take_over(path)
        try:
            self._listener = memory_listener.MemoryListener(path)
        except OSError as error:
            raise ConfigError(f"cannot listen on {path or 'loopback'} for shared memory: {error}") from error
        self.address = self._listener.address

    @staticmethod
    def is_possible() -> bool:
        """Return True if this platform can hand memory over (Linux, Windows)."""
        return memory_listener.is_possible()

    def register_with(self, register: Callable[[int], None], unregister: Callable[[int], None]) -> None:
        """Register the sockets that the loop polls: any of them is readable when `serve` has work."""
        self._listener.register_with(register, unregister)

    def close(self) -> None:
        if self.path is not None:
            local_sockets.remove(self.path)
        for number in list(self._visitors):
            self._dismiss(number)
        self._listener.close()

    def restore(self) -> None:
        """Listen again if the socket was removed. Raises OSError."""
        if self.path is not None and not self.path.exists():
            self._listener.restore(self.path)

    def take(self, token: str) -> ProducerMemory:
        """Return the memory that was handed over with this token. Raises ProtocolError (bad_memory) if none was."""
        for number, visitor in self._visitors.items():
            if visitor.token == token and visitor.memory is not None:
                memory = visitor.memory
                self._dismiss(number)
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
        has_arrivals, senders = self._listener.ready()
        for number in senders:
            self._receive(number)
        if has_arrivals:
            self._admit(now_s)
        for number in [key for key, visitor in self._visitors.items() if now_s > visitor.until_s]:
            self._dismiss(number)

    def _admit(self, now_s: float) -> None:
        try:
            peer = self._listener.accept()
        except OSError as error:
            logger.warning("a producer's connection for shared memory failed: %s", error)
            return
        # Above MAX_VISITORS a visitor gets an answer; above twice as many not even that, to bound descriptors.
        if len(self._visitors) >= 2 * MAX_VISITORS:
            peer.close()
            return
        is_full = len(self._visitors) >= MAX_VISITORS
        refusal = f"{MAX_VISITORS} producers are handing over memory, which is the limit; try again" if is_full else ""
        self._visitors[peer.socket.fileno()] = _Visitor(peer, now_s + VISIT_S, refusal or peer.refusal())
        self._listener.watch(peer)

    def _receive(self, number: int) -> None:
        """Receive one message; take its memory, or refuse it and disconnect."""
        visitor = self._visitors[number]
        try:
            message = visitor.peer.receive(wire.MAX_HANDOVER_BYTES)
            if message is None:
                return
            if not message:
                self._dismiss(number)
                return
            visitor.token, visitor.memory = self._take_in(message, visitor)
        except (ProtocolError, OSError, ValueError) as error:
            logger.warning("a producer's memory was refused: %s", error)
            _answer(visitor.peer, wire.encode_not_taken(str(error)))
            self._dismiss(number)
        else:
            _answer(visitor.peer, wire.encode_taken(visitor.memory.generation, len(visitor.memory.view)))

    def _take_in(self, message: bytes, visitor: _Visitor) -> tuple[str, ProducerMemory]:
        if visitor.refusal:  # after the message was read: closing a connection with unread messages drops the answer
            raise ProtocolError(visitor.refusal)
        asked = wire.parse_handover(message)
        handle = visitor.peer.take_memory(asked.handle)
        try:
            return asked.token, ProducerMemory.map(next(self._numbers), handle, asked.claims)
        finally:
            close_handle(handle)  # the memory keeps its own duplicate

    def _dismiss(self, number: int) -> None:
        visitor = self._visitors.pop(number)
        self._listener.forget(visitor.peer)
        visitor.peer.close()


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


def _answer(peer: memory_listener.MemoryPeer, message: bytes) -> None:
    with suppress(OSError):  # the peer disconnected: its `open` will not come either
        peer.send(message)
