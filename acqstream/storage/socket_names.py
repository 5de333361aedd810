"""Takes over and removes the names of local sockets in the file system.

A name remains when its process is killed, and binding would take it even from a live process. So a name is taken over
only if no process listens there, and removed only while its owner listens. It is never that of another daemon.
"""

from __future__ import annotations

import logging
import socket
import stat
from pathlib import Path

from acqstream.errors import ConfigError
from acqstream.storage.platform.capabilities import has_local_sockets

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
