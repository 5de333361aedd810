"""Settings of the web process. Pure values."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from acqstream.storage.memory_limit import MIB, usable_memory_bytes

DEFAULT_PORT = 5280
LOOPBACK = "127.0.0.1"
# Not those of all pages of an organisation, as of Vizarr (https://hms-dbmi.github.io): web_origins can add them.
VIEWER_ORIGINS = (
    "https://neuroglancer-demo.appspot.com",
    "https://avivator.gehlenborglab.org",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebLimits:
    """Bounds of what clients can take.

    connections: open at a time. requests: answered at a time, others get 503. streams: event streams open at a time.
    sending_bytes: of answers in memory that are being sent; memory_bytes: of chunks above 1 MiB among them, from the
    moment at which they are read or made.
    header_bytes: of one line or field of a request.
    first_request_s: for a complete request after connecting, or after its first byte. idle_s: between requests.
    patience_s, min_bytes_per_s: a client that reads an answer may be so many seconds behind this rate.
    read_bytes_per_s: of all answers together; None: recording_bytes_per_s while the daemon records, else not bounded.
    threads: that read files. datasets: open at a time. level_bytes: of lower levels kept in memory.
    """

    connections: int = 256
    requests: int = 64
    streams: int = 64
    stream_s: float = 90.0
    sending_bytes: int = field(default_factory=lambda: min(512 * MIB, usable_memory_bytes() // 8))
    memory_bytes: int = field(default_factory=lambda: min(256 * MIB, usable_memory_bytes() // 16))
    header_bytes: int = 8190
    first_request_s: float = 15.0
    idle_s: float = 60.0
    patience_s: float = 30.0
    min_bytes_per_s: int = 64 * 1024
    read_bytes_per_s: int | None = None
    recording_bytes_per_s: int = 50_000_000  # six frames of 2048 x 2048 uint16; a disk writes many times that
    threads: int = 2
    datasets: int = 32
    level_bytes: int = 128 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSettings:
    """data: the directory whose datasets are served. address, port: of the socket; port 0: any free one.

    socket: a local socket in place of the port. endpoint: of the daemon; None: found as by the other commands. hosts:
    further names by which clients may address the server. origins: of web pages that may read answers; "*": all.
    token: that every request must show; "": none. neuroglancer: folder with a built client of Neuroglancer.
    """

    data: Path
    address: str = LOOPBACK
    port: int = DEFAULT_PORT
    socket: Path | None = None
    endpoint: str | None = None
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = VIEWER_ORIGINS
    token: str = field(default="", repr=False)  # never in a log
    neuroglancer: Path | None = None
    limits: WebLimits = WebLimits()

    @property
    def is_local(self) -> bool:
        """True if only programs of this machine can connect."""
        return self.socket is not None or is_loopback(self.address)


def is_loopback(host: str) -> bool:
    """Return True for the names and numbers of this machine itself; host: without port and brackets."""
    return host in ("localhost", "::1") or (host.startswith("127.") and host.replace(".", "").isdecimal())
