"""Settings of the web process, the file with its token, and the rules for who may read answers.

The Host rule stops DNS rebinding: a page of a stranger can make its own name lead to 127.0.0.1, but its requests carry
that name. The Origin rule keeps other web pages from reading what a browser on this machine may fetch.
"""

from __future__ import annotations

import hmac
import os
import re
import secrets
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from acqstream.errors import ConfigError, FileMissing, StorageError
from acqstream.storage.files.atomic_file import write_private
from acqstream.storage.files.boundary import distrust
from acqstream.storage.files.small_file import read_small_file
from acqstream.storage.memory_limit import MIB, usable_memory_bytes
from acqstream.storage.platform import exposure

_TOKEN = re.compile(r"[A-Za-z0-9_-]{16,200}")
_MAX_BYTES = 1024
_GROUP_MODE = 0o640


def read_or_make_token(path: Path, *, for_group: bool = False) -> str:
    """The token in a file, which is made if it is missing: for its owner, or for its owner and group.

    Raises ConfigError for a file that every user of the PC can read or replace, or that holds no token; StorageError.
    """
    if stranger := distrust(path):
        raise ConfigError(f"token file {path}: {stranger}; name one in a folder of your own")
    try:
        content = read_small_file(path, _MAX_BYTES)
    except FileMissing:
        return _make(path, for_group=for_group)
    problem = exposure(path)
    if problem:
        raise ConfigError(f"token file: {problem}")
    token = content.decode("ascii", "replace").strip()
    if not _TOKEN.fullmatch(token):
        raise ConfigError(f"token file {path}: expected 16 to 200 letters, digits, _ and -; delete it to get a new one")
    return token


def _make(path: Path, *, for_group: bool) -> str:
    token = secrets.token_urlsafe(24)
    try:
        write_private(path, token.encode() + b"\n")
        if for_group:
            os.chmod(path, _GROUP_MODE)
    except OSError as error:
        raise StorageError.wrap(error, str(path), "write the token file") from error
    return token


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

    @property
    def token_path(self) -> str:
        """The begin of paths that show the token; "" without one."""
        return f"/t/{quote(self.token, safe='')}" if self.token else ""


def is_loopback(host: str) -> bool:
    """Return True for the names and numbers of this machine itself; host: without port and brackets."""
    return host in ("localhost", "::1") or (host.startswith("127.") and host.replace(".", "").isdecimal())


_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z._-]+)(:(?P<port>[0-9]{1,5}))?")
_TOKEN_PATH = re.compile(r"/t/(?P<token>[^/?]+)(?=[/?]|$)")
TOKEN_COOKIE = "acqstream_token"
_BEARER = "bearer "


def host_name(header: str) -> str:
    """The name in a Host header, in lower case, without port and brackets; "" for one that is not valid."""
    match = _HOST.fullmatch(header)
    return match["name"].strip("[]").lower() if match else ""


def token_cookie(host: str) -> str:
    """The name of the cookie with the token: one for each port, as browsers tell no ports of a host apart."""
    match = _HOST.fullmatch(host)
    return f"{TOKEN_COOKIE}_{(match['port'] if match else None) or 80}"


def is_known_host(header: str, own_address: str, hosts: Collection[str]) -> bool:
    """Return True if a request addresses this server by one of its names.

    own_address: the address at which the request arrived; "" for a local socket. The port may be another one: tunnels
    change it.
    """
    name = host_name(header)
    return bool(name) and (is_loopback(name) or name == own_address.lower() or name in {host.lower() for host in hosts})


def allowed_origin(origin: str | None, host: str, origins: Collection[str]) -> str:
    """The value of Access-Control-Allow-Origin for a request; "" for a page that may not read the answer.

    host: the Host header. Pages of this server, of other ports of loopback, and of `origins` may.
    """
    if not origin or origin == "null":
        return "*" if origin and "*" in origins else ""
    try:
        parts = urlsplit(origin)
        name = (parts.hostname or "").lower()
    except ValueError:
        return ""
    is_plain = origin.isascii() and "@" not in origin and f"{parts.scheme}://{parts.netloc}" == origin
    if "*" in origins or origin in origins or not is_plain:
        return origin if "*" in origins or origin in origins else ""
    is_own = parts.scheme in ("http", "https") and parts.netloc.lower() == host.lower()
    return origin if is_own or (parts.scheme == "http" and is_loopback(name)) else ""


def is_own_origin(origin: str | None, host: str) -> bool:
    """Return True if a request that changes something comes from a page of this server, or from no browser."""
    return origin is None or (bool(host) and origin.lower() in (f"http://{host.lower()}", f"https://{host.lower()}"))


def split_token(raw_path: str) -> tuple[str, str]:
    """The token at the begin of a path (`/t/TOKEN/data/...`) and the path after it; "" without one."""
    match = _TOKEN_PATH.match(raw_path)
    if match is None:
        return "", raw_path
    return unquote(match["token"]), raw_path[match.end() :] or "/"


def bearer_token(authorization: str) -> str:
    """The token of an Authorization header; "" for other kinds."""
    return authorization[len(_BEARER) :].strip() if authorization.lower().startswith(_BEARER) else ""


def is_token_shown(token: str, shown: Collection[str]) -> bool:
    """Return True if one of the shown tokens is the right one. Takes the same time wherever they differ."""
    expected = token.encode()
    # Every one is compared: stopping at the first would tell by its time which one was right.
    results = [hmac.compare_digest(one.encode("utf-8", "replace"), expected) for one in shown]
    return any(results)
