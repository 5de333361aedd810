"""Messages that hand memory over to the daemon, and the offer of it in `open`. docs/protocol.md, "Shared memory".

The handover is one message each way over a local socket of its own: AF_UNIX, SOCK_SEQPACKET on Linux, where the
descriptor of the memory comes with the producer's (SCM_RIGHTS); TCP on loopback on Windows, where the message names the
producer's handle. Client and daemon compare the identity of the socket's file. Everything else stays on ZeroMQ.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from acqstream.errors import ProtocolError
from acqstream.model.fields import check_integer, check_map, check_optional_integer
from acqstream.model.state import WORD_BYTES
from acqstream.protocol.encoding import Encoding, decode_header, encode_header, take_text

MAX_HANDOVER_BYTES = 4096
MAX_WHY = 300
_MAX_HANDLE = 2**26  # multiples of 4, at most 2**24 in a process; larger ones may be pseudo handles
_TOKEN = re.compile(r"[0-9a-f]{32}")


class MemoryMessage(NamedTuple):
    """The producer's message: the token, and on Windows the handle of the memory in the producer's process.

    claims is where `model.memory_claims` lie in the memory. None: every frame may be overwritten once it is published.
    """

    token: str
    handle: int | None = None
    claims: int | None = None


@dataclass(frozen=True, slots=True)
class MemoryOffer:
    """Field `memory` of `open`: the token with which memory was handed over, or the reason why none was."""

    token: str = ""
    why: str = ""


def parse_offer(fields: Mapping[str, Any]) -> MemoryOffer:
    """Field `memory` of `open`. Raises ProtocolError."""
    offer = check_map(fields.get("memory"), "memory")
    token = take_text(offer, "token", "")
    if token:
        _check_token(token)
    return MemoryOffer(token, take_text(offer, "why", "", max_length=MAX_WHY))


def encode_handover(token: str, handle: int | None = None, claims: int | None = None) -> bytes:
    """The message that hands memory over. token: 32 random hex digits; handle and claims as in MemoryMessage."""
    named = {} if handle is None else {"handle": handle}
    if claims is not None:
        named["claims"] = claims
    return encode_header({"t": "memory", "v": 1, "token": token, **named}, Encoding.JSON)


def parse_handover(message: bytes) -> MemoryMessage:
    """Raises ProtocolError."""
    fields, _ = decode_header(message)
    if fields.get("t") != "memory" or check_integer(fields.get("v"), "v") != 1:
        raise ProtocolError("expected a message of type 'memory', version 1")
    handle = check_optional_integer(fields.get("handle"), "handle", 1, _MAX_HANDLE)
    claims = check_optional_integer(fields.get("claims"), "claims")
    if claims is not None and claims % WORD_BYTES:
        raise ProtocolError(f"field 'claims' must be a multiple of {WORD_BYTES}, not {claims}")
    return MemoryMessage(_check_token(take_text(fields, "token")), handle, claims)


def encode_taken(generation: int, size: int) -> bytes:
    """The memory was taken: its number, and its bytes."""
    return encode_header({"t": "taken", "gen": generation, "bytes": size}, Encoding.JSON)


def encode_not_taken(text: str) -> bytes:
    return encode_header({"t": "error", "code": "bad_memory", "text": text}, Encoding.JSON)


def parse_handover_answer(message: bytes) -> int:
    """The memory's number. Raises ProtocolError with the daemon's reason if it was not taken."""
    fields, _ = decode_header(message)
    if fields.get("t") != "taken":
        raise ProtocolError(f"the daemon did not take it: {fields.get('text')!s:.200}", code="bad_memory")
    return check_integer(fields.get("gen"), "gen", minimum=1)


def _check_token(token: str) -> str:
    if _TOKEN.fullmatch(token) is None:
        raise ProtocolError("field 'token' must be 32 hex digits in lower case")
    return token


def socket_identity(path: str | os.PathLike[str]) -> str:
    """Device, inode and change time of the socket at `path`; empty if no socket can be seen there.

    Equal for two processes only if both see the same file, whatever each calls it: another machine, or a container with
    a socket of its own at the same path, differs.
    """
    try:
        status = os.stat(path)
    except (OSError, ValueError):  # ValueError: a zero byte in a path that came over the wire
        return ""
    if not stat.S_ISSOCK(status.st_mode):
        return ""
    return f"{status.st_dev}:{status.st_ino}:{status.st_ctime_ns}"
