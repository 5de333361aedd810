"""The local buffer of a run, and handing it over to a daemon on the same machine."""

from __future__ import annotations

import secrets
import socket
import weakref
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from acqstream.errors import ProtocolError
from acqstream.model.state import CLAIM_BYTES, WORD_BYTES
from acqstream.protocol import shared_memory as wire
from acqstream.storage.files.boundary import distrust
from acqstream.storage.handover import PAGE_BYTES, close_handle, make_sealed_memory
from acqstream.storage.page_memory import PageMemory
from acqstream.storage.platform import memory_listener


class LocalMemory:
    """The pixel memory of a run. shared: memory that a daemon can map, if the system supports it.

    private_why is the reason why it cannot be handed over; empty if it can. claim_words lie behind the pixels, for
    FrameClaims; None in private memory.
    """

    def __init__(self, size: int, *, shared: bool, why_not: str = "the endpoint may be on another machine") -> None:
        self._handle = -1
        self._finalizer: weakref.finalize[[int], LocalMemory] | None = None  # also of a run that failed to start
        self.pages: memoryview | None
        self.claim_words: memoryview | None = None
        self._claims_at = -(-size // WORD_BYTES) * WORD_BYTES
        self.private_why = why_not
        if shared:
            try:
                pages, self._handle = make_sealed_memory(-(-(self._claims_at + CLAIM_BYTES) // PAGE_BYTES) * PAGE_BYTES)
                self.pages = pages[:size]
                self.claim_words = pages[self._claims_at :][:CLAIM_BYTES].cast("q")
                self._finalizer = weakref.finalize(self, close_handle, self._handle)
                self.private_why = ""
                return
            except OSError as error:
                self.private_why = f"no memory can be shared here: {error}"
        self.pages = PageMemory(size).view

    def close(self) -> None:
        """End handing over. The pages are freed with their last user."""
        self.pages = self.claim_words = None
        self._handle = -1
        if self._finalizer is not None:
            self._finalizer()

    def hand_over(self, address: str, timeout_s: float) -> Handover:
        """Hand the memory to the daemon that listens at `address`, which has timeout_s to answer."""
        distrusted = distrust(Path(address)) if memory_listener.HAS_NAME else ""
        if reason := self.private_why or distrusted:
            return Handover(why=reason)
        token = secrets.token_hex(16)
        connection: socket.socket | None = None
        try:
            connection = memory_listener.connect_to(address, timeout_s)
            message = wire.encode_handover(token, memory_listener.named_handle(self._handle), self._claims_at)
            memory_listener.send_memory(connection, message, self._handle)
            answer = memory_listener.receive_answer(connection, wire.MAX_HANDOVER_BYTES)
            if not answer:
                raise ConnectionResetError("the daemon has closed the connection")
            wire.parse_handover_answer(answer)
        except (OSError, ProtocolError) as error:
            if connection is not None:
                connection.close()
            return Handover(
                why=f"{address}: {_reason(error)}", is_broken=isinstance(error, ConnectionError | TimeoutError)
            )
        return Handover(connection, token)


def _reason(error: OSError | ProtocolError) -> str:
    if isinstance(error, FileNotFoundError):
        return "the socket is missing; the daemon has another view of the file system (a container, PrivateTmp)"
    if isinstance(error, PermissionError):
        return f"{error}; only the daemon's user and group may share memory"
    return str(error)


@dataclass(frozen=True, slots=True)
class Handover:
    """Memory on its way to the daemon, which keeps it until `open` names it or `connection` is closed.

    why is the reason for a failure. is_broken: the failure is one of a daemon that is just ending.
    """

    connection: socket.socket | None = None
    token: str = ""
    why: str = ""
    is_broken: bool = False

    def field(self) -> dict[str, Any]:
        """Field `memory` of `open`."""
        return {"token": self.token} if self.token else {"why": self.why[: wire.MAX_WHY]}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.connection is not None:
            with suppress(OSError):
                self.connection.close()
