"""How a process is made independent of the program that starts it, on Windows.

Source: "Process Creation Flags" on learn.microsoft.com. Not DETACHED_PROCESS: without a console, each console program
that the process starts would open a window of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from acqstream.storage.platform.windows_child_process import interpreter

_CREATE_NEW_PROCESS_GROUP = 0x0000_0200  # Ctrl-C does not reach it
_CREATE_NO_WINDOW = 0x0800_0000  # its own console, without a window that a user could close
_CREATE_BREAKAWAY_FROM_JOB = 0x0100_0000  # else it ends with the job of a terminal or a notebook server

_ALONE = _CREATE_NEW_PROCESS_GROUP | _CREATE_NO_WINDOW
DETACHED_OPTIONS: tuple[Mapping[str, Any], ...] = (
    {"creationflags": _ALONE | _CREATE_BREAKAWAY_FROM_JOB},
    {"creationflags": _ALONE},  # where the job lets no process leave
)
"""Keywords for subprocess.Popen, the best first."""

__all__ = ["DETACHED_OPTIONS", "interpreter"]
