"""Local sockets: their names in the file system; and on Windows, which has none, the key of a daemon's port.

A name remains when its process is killed, and binding would take it even from a live process. So a name is taken over
only if no process listens there, and removed only while its owner listens. It is never that of another daemon.

Who can read the file of a port's key may connect. It is the daemon's public key (CURVE), which the daemon keeps secret.
A client needs it to begin a connection. Another program that takes the port later lacks the secret half, so no client
connects to it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import socket
import stat
import tempfile
from pathlib import Path

from acqstream.errors import ConfigError
from acqstream.storage.files.atomic_file import write_private
from acqstream.storage.files.small_file import read_small_file
from acqstream.storage.platform import FILES
from acqstream.storage.platform.capabilities import has_local_sockets, user_id

logger = logging.getLogger("acqstream.daemon")


def take_over(path: Path) -> None:
    """Remove the name that a killed daemon left. Raises ConfigError if it is anything else."""
    if not has_local_sockets():
        return  # this platform has no such sockets
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise ConfigError(f"cannot listen on {path}: a file exists there that is not a socket")
        if _is_listened_at(path):
            raise ConfigError(f"cannot listen on {path}: another process does; is another daemon running there?")
        path.unlink(missing_ok=True)
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigError(f"cannot listen on {path}: {error}") from error


def remove(path: Path) -> None:
    """Remove the name. Its owner calls this while it still listens there."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        logger.warning("cannot remove the socket %s: %s", path, error)


def _is_listened_at(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True  # busy, of another kind of socket, or not accessible to this user
    return True


_KEY = re.compile(rb"[!-~]{40}\n")  # Z85


def private_folder() -> Path:
    """This user's own folder for what programs of one session share: sockets, and keys of ports."""
    for name in ("RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR", "LOCALAPPDATA"):  # the last one on Windows
        value = os.environ.get(name)
        if value:
            return Path(value.split(os.pathsep)[0]) / ("" if name == "RUNTIME_DIRECTORY" else "acqstream")
    return Path(tempfile.gettempdir()) / f"acqstream-{user_id()}"


def write_port_key(port: int, key: bytes) -> None:
    """Keep the key of a port. The folder exists. Raises OSError."""
    write_private(_path(port), key + b"\n")


def read_port_key(port: int) -> bytes | None:
    """The key of a port in Z85; None for a port without one. Raises StorageError, CorruptDataset."""
    if not _path(port).exists():
        return None
    found = read_small_file(_path(port), 64)
    return found.rstrip(b"\n") if _KEY.fullmatch(found) else None


def remove_port_key(port: int) -> None:
    """Remove the key of a port, also one that a killed daemon has left. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        FILES.unlink(str(_path(port)))


def _path(port: int) -> Path:
    return private_folder() / f"{port}.key"
