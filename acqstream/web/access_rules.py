"""Rules for who may read answers: Host, Origin and token of a request. Pure.

The Host rule stops DNS rebinding: a page of a stranger can make its own name lead to 127.0.0.1, but its requests carry
that name. The Origin rule keeps other web pages from reading what a browser on this machine may fetch.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Collection
from urllib.parse import unquote, urlsplit

from acqstream.web.web_settings import is_loopback

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
