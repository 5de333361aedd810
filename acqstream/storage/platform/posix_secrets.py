"""Files that only their owner can read, by modes: Linux and macOS."""

from __future__ import annotations

import os
from pathlib import Path

_ALL_USERS = 0o007


def create_private(path: Path) -> None:
    """Create an empty file of mode 0600. Raises OSError, FileExistsError if something has this name."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def exposure(path: Path) -> str:
    """Say how all users of the PC can read or change the file, and the remedy; empty if they cannot. Raises OSError."""
    mode = path.stat().st_mode
    return f"every user can read {path}; set mode 600 (chmod)" if mode & _ALL_USERS else ""
