"""What the tests must ask of each operating system in its own way."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest

from acqstream.storage.files.disk import LocalDisk

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


def descriptors_of(name: str) -> Counter[str]:
    """How many descriptors of this process there are of each file with `name` in its name (proc_pid_fd(5)).

    Not those of all files: threads of other tests open and close some at any time.
    """
    found: Counter[str] = Counter()
    for number in os.listdir("/proc/self/fd") if sys.platform == "linux" else ():
        with contextlib.suppress(FileNotFoundError):  # closed since it was listed
            file = os.readlink(f"/proc/self/fd/{number}")
            found[file] += name in file
    return +found


def make_pipe_file(path: Path) -> None:
    """A pipe with a name; skips the test where there are none."""
    if not hasattr(os, "mkfifo"):
        pytest.skip("no pipes with names on this platform")
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def make_link(path: Path, target: Path) -> None:
    """A symbolic link; skips the test where this user cannot make one, and under Wine 8, which reports success only."""
    try:
        path.symlink_to(target, target_is_directory=(path.parent / target).is_dir())
    except OSError as error:
        pytest.skip(f"no symbolic links: {error}")
    if not path.is_symlink():
        pytest.skip("Wine makes no symbolic links")


def remove_folder_in_use(path: Path) -> None:
    """Remove a folder with files that are open; skips the test where their names stay until they are closed."""
    try:
        shutil.rmtree(path)
    except OSError as error:
        if sys.platform != "win32":
            raise
        pytest.skip(f"names of open files stay, as before Windows 10 1809 and under Wine: {error}")


def lacks_space_ahead() -> bool:
    """True if files cannot reserve space after their end in the folder for temporary files."""
    disk = LocalDisk()
    with tempfile.TemporaryDirectory() as name:
        fd = disk.open(f"{name}/probe", create=True)
        try:
            return not disk.reserve(fd, 0, BLOCK_BYTES)
        finally:
            disk.close(fd)


def keeps_names_of_open_files() -> bool:
    """True if the name of a removed file stays until the file is closed (Wine; Windows on a share or an old disk)."""
    disk = LocalDisk()
    with tempfile.TemporaryDirectory() as name:
        path = f"{name}/probe"
        fd = disk.open(path, create=True)
        try:
            disk.unlink(path)
            return bool(os.listdir(name))
        finally:
            disk.close(fd)


def is_wine() -> bool:
    """https://wiki.winehq.org/Developer_FAQ: only Wine's ntdll tells a version of Wine."""
    return sys.platform == "win32" and hasattr(vars(ctypes)["WinDLL"]("ntdll"), "wine_get_version")


needs_sockets_to_close = pytest.mark.skipif(is_wine(), reason="Wine leaves the sockets of a killed process open")
needs_small_processes = pytest.mark.skipif(is_wine(), reason="a process under Wine has 100 MiB more from its start")
needs_names_to_go = pytest.mark.skipif(
    sys.platform == "win32" and keeps_names_of_open_files(), reason="names of open files stay until they are closed"
)
needs_a_real_disk = pytest.mark.skipif(
    sys.platform == "win32" and lacks_space_ahead(), reason="Wine has neither reserved space nor direct I/O"
)
