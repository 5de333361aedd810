"""What the tests must ask of each operating system in its own way."""

from __future__ import annotations

import ctypes
import importlib
import os
import sys
import tempfile
from pathlib import Path

import pytest

from acqstream.storage.disk import LocalDisk

needs_pipe_files = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names on this platform")

_FILE_STANDARD_INFO = 1
BLOCK_BYTES = 4096


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


def make_link(path: Path, target: Path) -> None:
    """A symbolic link; skips the test where this user cannot make one, and under Wine 8, which reports success only."""
    try:
        path.symlink_to(target)
    except OSError as error:
        pytest.skip(f"no symbolic links: {error}")
    if not path.is_symlink():
        pytest.skip("Wine makes no symbolic links")


def lacks_space_ahead() -> bool:
    """True if files cannot reserve space after their end in the folder for temporary files."""
    disk = LocalDisk()
    with tempfile.TemporaryDirectory() as name:
        fd = disk.open(f"{name}/probe", create=True)
        try:
            return not disk.reserve(fd, 0, BLOCK_BYTES)
        finally:
            disk.close(fd)


needs_a_real_disk = pytest.mark.skipif(
    sys.platform == "win32" and lacks_space_ahead(), reason="Wine has neither reserved space nor direct I/O"
)
