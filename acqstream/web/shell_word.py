"""A path as one word of a command line that somebody copies into a terminal. Pure."""

from __future__ import annotations

import re
import shlex

_WINDOWS = re.compile(r"[A-Za-z]:[\\/]|\\\\")


def shell_word(path: str) -> str:
    """The path quoted for a POSIX shell, so that nothing in it is run; with double quotes for a path of Windows."""
    if _WINDOWS.match(path) is not None:
        return f'"{path}"'  # no name there has a double quote
    return shlex.quote(path)
