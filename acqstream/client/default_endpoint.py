"""Finds the daemon when the caller names no endpoint."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from acqstream.client.machine import is_local
from acqstream.errors import AcqStreamError, DaemonUnavailable
from acqstream.model.daemon_note import STARTING, start_mark
from acqstream.storage.files.directory_lock import holder_of
from acqstream.storage.platform.capabilities import group_ids, has_local_sockets, user_id
from acqstream.storage.port_key import private_folder

DEFAULT_ENDPOINT = "tcp://127.0.0.1:5271"
ENDPOINT_VARIABLE = "ACQSTREAM_ENDPOINT"
SYSTEM_SOCKET = Path("/run/acqstream/acqstream.sock")  # systemd/acqstream.toml
_ADDRESS = ("127.0.0.1", 5271)
_OWN_SOCKETS = {SYSTEM_SOCKET.name: "", f"{_ADDRESS[1]}.sock": DEFAULT_ENDPOINT}
_PROBE_S = 0.2


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
