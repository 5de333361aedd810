"""Libraries of Windows, loaded at first use, so that the modules of Windows can be imported and checked everywhere."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from acqstream.storage.platform.windows_errors import windows_error

WIN_CTYPES: Any = ctypes  # ctypes with the members that it has on Windows only


@functools.cache
def library(name: str) -> Any:
    """The system library of this name, for example "kernel32". Its calls keep the error for `last_error`."""
    return WIN_CTYPES.WinDLL(name, use_last_error=True)


def last_error(what: str) -> OSError:
    """The error of the last call of this thread. what: the object that the call was about."""
    return error_of(WIN_CTYPES.get_last_error(), what)


def error_of(code: int, what: str) -> OSError:
    """The exception for an error code of Windows (winerror.h)."""
    return windows_error(code, what)
