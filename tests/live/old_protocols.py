"""What web pages, old ZeroMQ peers and other programs send to a port: bytes whose content would command the daemon."""

from __future__ import annotations

import contextlib
import socket

from tests.live.raw_peer import GREETING

ANSWER_S = 50.0
_BODY_BYTES = 8000
_HEADERS = (
    "Host: 127.0.0.1:5271\r\nConnection: keep-alive\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101\r\n"
    "Accept: */*\r\nOrigin: https://example.org\r\nSec-Fetch-Mode: no-cors\r\nReferer: https://example.org/\r\n"
)


def zmtp_1(*messages: bytes) -> bytes:
    """Messages of one part, as ZMTP 1.0 frames them: length, flags, content."""
    return b"".join(_length_1(1 + len(one)) + b"\0" + one for one in messages)


def unversioned(*messages: bytes) -> bytes:
    """ZMTP 1.0, as the first releases of ZeroMQ: an empty identity, then messages."""
    return zmtp_1(b"", *messages)


def versioned_1(*messages: bytes) -> bytes:
    """ZMTP 1.0 of a peer that can do more: the signature, revision 0."""
    return GREETING[:10] + b"\0\5" + zmtp_1(b"", *messages)


def versioned_2(*messages: bytes) -> bytes:
    """ZMTP 2.0: flags, length, content."""
    return GREETING[:10] + b"\1\5" + b"".join(b"\0" + bytes([len(one)]) + one for one in (b"", *messages))


def http(line: str, *messages: bytes, headers: str = "") -> bytes:
    """An HTTP request that is a stream of ZMTP 1.0 too: the body begins where the parser, led by the head, ends.

    line: the first line. A web page chooses the body of a POST freely, and it can find out the length of the head.
    """
    head = f"{line}\r\n{_HEADERS}{headers}Content-Type: text/plain\r\nContent-Length: {_BODY_BYTES}\r\n\r\n".encode()
    end = 0
    while end < len(head):  # the byte at `end` is the length of a message to that parser
        end += 1 + head[end]
    body = b" " * (end - len(head)) + zmtp_1(b"", *messages)  # an empty part ends what the head may have begun
    assert len(body) <= _BODY_BYTES
    return head + body.ljust(_BODY_BYTES)


def streams(*messages: bytes) -> dict[str, bytes]:
    """Everything that is no ZMTP 3, by what it is."""
    return {
        "ZMTP 1.0": unversioned(*messages),
        "ZMTP 1.0 with a signature": versioned_1(*messages),
        "ZMTP 2.0": versioned_2(*messages),
        "POST": http("POST / HTTP/1.1", *messages),
        "GET": http("GET / HTTP/1.1", *messages),
        "PUT": http("PUT /a HTTP/1.1", *messages),
        "HEAD": http("HEAD / HTTP/1.1", *messages),
        "preflight": http("OPTIONS / HTTP/1.1", *messages, headers="Access-Control-Request-Method: POST\r\n"),
        "WebSocket": http(
            "GET /ws HTTP/1.1",
            *messages,
            headers="Upgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
        ),
        "long POST": http("POST / HTTP/1.1", *messages, *[b'{"t":"ping"}'] * 200),
        "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + unversioned(*messages),
        "TLS": bytes.fromhex("16030102000100") + b"\x01\xfc\x03\x03" + bytes(32) + unversioned(*messages),
        "STUN": bytes.fromhex("000100002112a442") + bytes(12) + unversioned(*messages),
        "FTP": b"USER anonymous\r\nPASS x\r\n" + unversioned(*messages),
        "spaces": b" " * 66 + unversioned(*messages),
    }


def send_and_wait(place: int | str, content: bytes) -> bytes:
    """Send raw bytes to a tcp port or to the path of a local socket; what was answered until the other side hung up."""
    family = socket.AF_INET if isinstance(place, int) else socket.AF_UNIX
    answer = b""
    with socket.socket(family) as one:
        one.settimeout(ANSWER_S)
        one.connect(("127.0.0.1", place) if isinstance(place, int) else place)
        with contextlib.suppress(ConnectionError):
            one.sendall(content)
            with contextlib.suppress(OSError):  # hung up already
                one.shutdown(socket.SHUT_WR)
            while part := one.recv(65536):
                answer += part
    return answer


def _length_1(length: int) -> bytes:
    return bytes([length]) if length < 255 else b"\xff" + length.to_bytes(8, "big")
