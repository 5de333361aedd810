"""Decides whether a daemon runs on this machine. Safe mistakes: docs/decisions/019-local-socket.md."""

from __future__ import annotations

import ipaddress
import os
import socket
from urllib.parse import urlsplit

from acqstream.protocol.replies import Welcome
from acqstream.protocol.shared_memory import socket_identity
from acqstream.storage import platform
from acqstream.storage.platform.capabilities import has_local_sockets, peer_user

IPC = "ipc://"


def boot_id() -> str:
    """Identifies this machine until it starts again; empty where the platform has none."""
    return platform.boot_id()


def has_equal_boot(welcome: Welcome) -> bool:
    """True if the daemon reports the boot id that this program sees. A container may see another one."""
    return bool(welcome.boot) and welcome.boot == boot_id()


def is_socket_of(welcome: Welcome, path: str) -> bool:
    """True if this program sees the daemon's own socket at `path`.

    A daemon of an earlier version does not identify its sockets: then the boot id decides, and that something exists.
    """
    identity = welcome.sockets.get(path)
    if identity is not None:
        return bool(identity) and socket_identity(path) == identity
    return has_equal_boot(welcome) and (path.startswith("@") or os.path.exists(path))


def is_same_machine(welcome: Welcome, endpoint: str, *, has_memory: bool) -> bool:
    """True if a power cut ends client and daemon together; False in doubt, which only keeps frames longer.

    endpoint is that of the connection in use. has_memory: the daemon has mapped this program's memory, which proves it.
    A local socket proves it if its file is one that the daemon has bound; a forwarder listens on a file of its own.
    """
    if has_memory:
        return True
    if endpoint.startswith(IPC):
        identity = socket_identity(endpoint.removeprefix(IPC))
        if identity and identity in welcome.sockets.values():
            return True
    return is_local(endpoint) and has_equal_boot(welcome)


def is_loopback(endpoint: str) -> bool:
    """True for a tcp endpoint on this machine."""
    parts = urlsplit(endpoint)
    if parts.scheme != "tcp" or not parts.hostname:
        return False
    if parts.hostname == "localhost":
        return True
    try:
        return ipaddress.ip_address(parts.hostname).is_loopback
    except ValueError:
        return False  # a name


def listening_user(endpoint: str) -> int | None:
    """The user of the process that listens at a local socket; None if that is not known, as for tcp."""
    path = endpoint.removeprefix(IPC)
    if path == endpoint or not has_local_sockets():
        return None
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except OSError:
            return None  # no process listens, or its queue is full: the request that follows shows which
        return peer_user(probe)


def is_local(endpoint: str) -> bool:
    """True for an endpoint that only a daemon on this machine can have; a forwarded port may deceive."""
    return endpoint.startswith("ipc:") or is_loopback(endpoint)
