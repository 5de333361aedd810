"""Refuses on Linux what Windows refuses: tests find there what would fail on Windows.

A file that any process has open for writing cannot be renamed, replaced or removed, a folder with open files in it
cannot be renamed, a mapped file cannot be cut, and direct calls must be aligned. Readers share everything, as ours do
on Windows: they block a folder's new name only. Space reserved beyond the end of a file is freed when it is closed.
https://learn.microsoft.com/en-us/windows/win32/fileio/creating-and-opening-files explains the sharing of files,
https://learn.microsoft.com/en-us/windows/win32/fileio/file-buffering the alignment.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from acqstream.storage.files.disk import LocalDisk

STEP_BYTES = 4096

_TEXTS = {
    5: "Access is denied",
    32: "The process cannot access the file because it is being used by another process",
    1224: "The requested operation cannot be performed on a file with a user-mapped section open",
}


def take_over(set_attribute: Callable[[Any, str, Any], None] = setattr) -> None:
    """Let every `LocalDisk` of this process behave so. A test passes `monkeypatch.setattr`."""
    for name, check in _CHECKS.items():
        set_attribute(LocalDisk, name, _with(check, getattr(LocalDisk, name)))


def is_open_for_writing(path: str) -> bool:
    """True if any process has the file open for writing."""
    return not _is_leased(path, fcntl.F_RDLCK)


def is_open(path: str) -> bool:
    """True if any process has the file open."""
    return not _is_leased(path, fcntl.F_WRLCK)


def _is_leased(path: str, kind: int) -> bool:
    """Lease a file for a moment; False if the system refuses it because the file is open (fcntl(2), leases)."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return True  # the call itself reports what is wrong
    try:
        # Who opens it right now waits for an answer to a signal. The usual one, SIGIO, would end this process.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, kind)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)  # and with it the lease
    return True


def is_mapped(path: str) -> bool:
    """True if this process has mapped the file."""
    return os.path.realpath(path) in Path("/proc/self/maps").read_text()


def _with(check: Callable[..., None], call: Callable[..., Any]) -> Callable[..., Any]:
    def checked(disk: LocalDisk, *arguments: Any) -> Any:
        check(*arguments)
        return call(disk, *arguments)

    return checked


def _error(number: int, path: str) -> PermissionError:
    return PermissionError(errno.EACCES, f"[WinError {number}] {_TEXTS[number]}", path)


def _check_replace(source: str, target: str) -> None:
    if os.path.isdir(source):
        below = (os.path.join(folder, name) for folder, _, names in os.walk(source) for name in names)
        if os.path.exists(target) or any(map(is_open, below)):
            raise _error(5, source)
        return
    _check_unlink(source)
    if os.path.isdir(target) or is_open_for_writing(target) or _is_mapped_file(target):
        raise _error(5, target)


def _check_unlink(path: str) -> None:
    with contextlib.suppress(OSError):
        if not stat.S_ISREG(os.lstat(path).st_mode):
            return
    if is_open_for_writing(path):
        raise _error(32, path)
    if _is_mapped_file(path):
        raise _error(5, path)


def _is_mapped_file(path: str) -> bool:
    return os.path.isfile(path) and is_mapped(path)


def _check_truncate(descriptor: int, length: int) -> None:
    path = os.readlink(f"/proc/self/fd/{descriptor}")
    if length < os.fstat(descriptor).st_size and is_mapped(path):
        raise OSError(errno.EBUSY, f"[WinError 1224] {_TEXTS[1224]}", path)


def _check_pwritev(descriptor: int, buffers: Sequence[memoryview | bytes], offset: int) -> None:
    if not _is_direct(descriptor):
        return
    numbers = [offset]
    for buffer in buffers:
        view = memoryview(buffer)
        numbers += [view.nbytes, np.frombuffer(view, np.uint8).ctypes.data]
    _check_aligned("write", numbers)


def _check_pread(descriptor: int, length: int, offset: int) -> None:
    if _is_direct(descriptor):
        _check_aligned("read", [offset, length])


def _check_aligned(call: str, numbers: Sequence[int]) -> None:
    # Windows reports 87, EINVAL, which means "no direct I/O here" to the callers: they would hide the defect.
    assert not any(number % STEP_BYTES for number in numbers), f"direct {call} not aligned: {numbers}"


def _is_direct(descriptor: int) -> bool:
    return bool(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT)


def _check_close(descriptor: int) -> None:
    """Free what was reserved: MS-FSCC 2.4.4, "all unused allocation beyond EOF is freed on the last handle close"."""
    status = os.fstat(descriptor)
    is_writable = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
    if is_writable and stat.S_ISREG(status.st_mode) and status.st_blocks * 512 > status.st_size + STEP_BYTES:
        os.ftruncate(descriptor, status.st_size)


_CHECKS: dict[str, Callable[..., None]] = {
    "close": _check_close,
    "pread": _check_pread,
    "pwritev": _check_pwritev,
    "replace": _check_replace,
    "truncate": _check_truncate,
    "unlink": _check_unlink,
}
