"""The key of a daemon's port on Windows, which has no local sockets: who can read its file may connect.

It is the daemon's public key (CURVE), which the daemon keeps secret. A client needs it to begin a connection. Another
program that takes the port later lacks the secret half, so no client connects to it.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from pathlib import Path

from acqstream.storage.files.atomic_file import write_private
from acqstream.storage.files.small_file import read_small_file
from acqstream.storage.platform import FILES
from acqstream.storage.platform.capabilities import user_id

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
