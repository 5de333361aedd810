"""Finds the daemon when the caller names no endpoint, and decides whether a daemon runs on this machine.

Safe mistakes: docs/decisions/019-local-socket.md.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from acqstream.errors import AcqStreamError, DaemonUnavailable
from acqstream.model.daemon_note import STARTING, start_mark
from acqstream.protocol.replies import Welcome
from acqstream.protocol.shared_memory import socket_identity
from acqstream.storage import platform
from acqstream.storage.files.directory_lock import holder_of
from acqstream.storage.local_sockets import private_folder
from acqstream.storage.platform.capabilities import group_ids, has_local_sockets, peer_user, user_id

DEFAULT_ENDPOINT = "tcp://127.0.0.1:5271"
ENDPOINT_VARIABLE = "ACQSTREAM_ENDPOINT"
SYSTEM_SOCKET = Path("/run/acqstream/acqstream.sock")  # systemd/acqstream.toml
_ADDRESS = ("127.0.0.1", 5271)
_OWN_SOCKETS = {SYSTEM_SOCKET.name: "", f"{_ADDRESS[1]}.sock": DEFAULT_ENDPOINT}
_PROBE_S = 0.2
IPC = "ipc://"


def find_endpoint(transport: str = "auto") -> str:
    """The endpoint to use, without waiting: the first of these that exists.

    1. ACQSTREAM_ENDPOINT. 2. The daemon of this user, known by its socket in this user's runtime folder. 3. The
    socket of the system service. 4. tcp://127.0.0.1:5271, whether or not a daemon listens there. With transport "tcp",
    local sockets are passed over.

    Raises DaemonUnavailable if only the system service could be meant, and this user may not reach it.
    """
    from_environment = os.environ.get(ENDPOINT_VARIABLE)
    if from_environment:
        return from_environment
    if transport == "tcp" or not has_local_sockets():
        return DEFAULT_ENDPOINT
    folders = list(_own_folders())
    for folder in folders:
        for name, endpoint in _OWN_SOCKETS.items():
            if _is_listening(folder / name):
                return endpoint or f"ipc://{folder / name}"
    if _is_socket(SYSTEM_SOCKET):
        return f"ipc://{SYSTEM_SOCKET}"
    if not folders and not_a_member(SYSTEM_SOCKET) and not _is_answered():
        raise DaemonUnavailable(f"no daemon answers at {DEFAULT_ENDPOINT}{not_a_member(SYSTEM_SOCKET)}")
    return DEFAULT_ENDPOINT


def not_a_member(path: Path) -> str:
    """The end of an error message if only members of a group may reach the socket, and this program is not one."""
    try:
        status = os.stat(path)
        if os.access(path, os.W_OK):
            return ""
    except PermissionError:
        status = _visible_parent(path)
    except OSError:
        return ""
    groups = group_ids()
    if groups is None or status.st_gid in groups:
        return ""
    group = _group_name(status.st_gid)
    return (
        f"; {path} is for members of group {group}, and you are not in group {group}: let an administrator run "
        f"`usermod -aG {group} USER`, then log in again"
    )


def hint(endpoint: str) -> str:
    """An addition to the message that no daemon answers at `endpoint`; may be empty."""
    if endpoint.startswith("ipc:///"):
        return not_a_member(Path(endpoint.removeprefix("ipc://")))
    return not_a_member(SYSTEM_SOCKET) if endpoint == DEFAULT_ENDPOINT else ""


def starting(endpoint: str) -> str:
    """The reason why no daemon answers at `endpoint`, if one of this user is starting there; else empty."""
    if not is_local(endpoint):  # the marks of this machine say nothing of another one
        return ""
    marks = [start_mark(folder, endpoint) for folder in (private_folder(), *_own_folders())]
    if endpoint == DEFAULT_ENDPOINT:
        marks.append(start_mark(SYSTEM_SOCKET.parent, f"ipc://{SYSTEM_SOCKET}"))
    for mark in marks:
        with contextlib.suppress(AcqStreamError):  # of another user
            if (holder := holder_of(str(mark))) is not None:
                return f"{STARTING} ({holder.name}): it checks its datasets; try again. It will answer at {endpoint}"
    return ""


def _own_folders() -> Iterator[Path]:
    """Folders for the sockets of a daemon of this user, those that exist and belong to this user."""
    user = user_id()
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    candidates = [Path(runtime) / "acqstream"] if runtime else []
    candidates += [Path(f"/run/user/{user}/acqstream"), Path(tempfile.gettempdir()) / f"acqstream-{user}"]
    for folder in dict.fromkeys(candidates):
        try:
            status = os.lstat(folder)
        except OSError:
            continue
        if stat.S_ISDIR(status.st_mode) and status.st_uid == user:
            yield folder


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError:
        return False


def _is_listening(path: Path) -> bool:
    """True if a process listens; the socket of a killed daemon remains."""
    if not _is_socket(path):
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except BlockingIOError:
            return True  # its queue is full
        except OSError:
            return False
    return True


def _is_answered() -> bool:
    try:
        with socket.create_connection(_ADDRESS, timeout=_PROBE_S):
            return True
    except TimeoutError:
        return True  # busy: the caller finds out with more patience
    except OSError:
        return False


def _visible_parent(path: Path) -> os.stat_result:
    for parent in path.parents:
        try:
            return os.stat(parent)
        except OSError:
            continue
    return os.stat("/")


def _group_name(number: int) -> str:
    try:
        import grp

        return grp.getgrgid(number).gr_name
    except (ImportError, KeyError):
        return str(number)


def has_equal_boot(welcome: Welcome) -> bool:
    """True if the daemon reports the boot id that this program sees. A container may see another one."""
    return bool(welcome.boot) and welcome.boot == platform.boot_id()


def is_socket_of(welcome: Welcome, path: str) -> bool:
    """True if this program sees the daemon's own socket at `path`."""
    identity = welcome.sockets.get(path)
    return bool(identity) and socket_identity(path) == identity


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
