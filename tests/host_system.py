"""What the tests must ask of each operating system in its own way."""

from __future__ import annotations

import ctypes
import importlib
import os
import sys
from pathlib import Path

import pytest

needs_pipe_files = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names on this platform")

_FILE_STANDARD_INFO = 1


def allocated_bytes(path: Path | str) -> int:
    """Bytes on the disk that belong to a file: fewer than its length where it has holes, more where some is reserved.

    FILE_STANDARD_INFO.AllocationSize: https://learn.microsoft.com/windows/win32/api/winbase/ns-winbase-file_standard_info
    """
    if sys.platform != "win32":
        return os.stat(path).st_blocks * 512
    information = (ctypes.c_int64 * 3)()
    kernel = vars(ctypes)["WinDLL"]("kernel32", use_last_error=True)
    with open(path, "rb") as file:
        handle = ctypes.c_void_p(importlib.import_module("msvcrt").get_osfhandle(file.fileno()))
        size = ctypes.sizeof(information)
        assert kernel.GetFileInformationByHandleEx(handle, _FILE_STANDARD_INFO, ctypes.byref(information), size)
    return information[0]


def make_pipe_file(path: Path) -> None:
    """A pipe with a name; skips the test where there are none."""
    if not hasattr(os, "mkfifo"):
        pytest.skip("no pipes with names on this platform")
    path.unlink(missing_ok=True)
    os.mkfifo(path)
