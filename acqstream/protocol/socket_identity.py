"""Identifies the file of a local socket, so that client and daemon can compare what they see at a path."""

from __future__ import annotations

import os
import stat


def socket_identity(path: str | os.PathLike[str]) -> str:
    """Device, inode and change time of the socket at `path`; empty if no socket can be seen there.

    Equal for two processes only if both see the same file, whatever each calls it: another machine, or a container with
    a socket of its own at the same path, differs.
    """
    try:
        status = os.stat(path)
    except (OSError, ValueError):  # ValueError: a zero byte in a path that came over the wire
        return ""
    if not stat.S_ISSOCK(status.st_mode):
        return ""
    return f"{status.st_dev}:{status.st_ino}:{status.st_ctime_ns}"
