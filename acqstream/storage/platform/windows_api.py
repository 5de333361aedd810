"""Functions, structures and error codes of the Windows API. Functions load on first use: every system can import them.

Argument types, constants and structures are those of Microsoft's reference (learn.microsoft.com/windows/win32/api), as
64-bit Windows has them. ctypes releases the interpreter lock during a call.

Python translates an error code by the table of the C library, which knows 45 of them; all others become EINVAL: a full
disk (39), a quota (1295), a lost share (64), a dying disk (1117). Source of the codes: "System Error Codes" of
Microsoft's documentation (winerror.h). time.time_ns has steps of 15.6 ms before Python 3.13, longer than many
exposures; the time of day here has steps below 1 us (GetSystemTimePreciseAsFileTime).
"""

from __future__ import annotations

import ctypes
import errno
import functools
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from ctypes import (
    POINTER,
    byref,
    c_int,
    c_int64,
    c_size_t,
    c_ssize_t,
    c_uint,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
    c_wchar,
    c_wchar_p,
)
from typing import Any, TypeVar

_T = TypeVar("_T")

UNSUPPORTED = frozenset((1, 50, 87, 120, 124, 665))
"""A file system or an older Windows without this call: invalid function, not supported, invalid parameter, not
implemented, invalid level, file system limitation (exFAT answers so to a rename with POSIX semantics)."""
IN_USE = frozenset((5, 32, 33, 303))
"""Access denied, sharing violation, lock violation, delete pending. A virus scanner, an indexer or a backup that has
just opened the file causes them for some milliseconds."""
MAPPED = frozenset((1224,))
"""A program has mapped the part of a file that is to be cut off. Virus scanners map what they read."""
FOLDER_IN_USE = IN_USE | {145}
"""As IN_USE, for a folder: the name of a removed file may stay in it until its last reader closes it."""
END_OF_FILE = frozenset((38, 109))  # of a file, of a pipe
NO_MORE_DATA = 234  # the answer did not fit; what fitted is there
LOCKED = frozenset((33, 997))  # by another handle; 997 (I/O pending) is the same answer of an asynchronous one

_CODES = {
    errno.ENOENT: (2, 3, 15, 18, 123, 161),
    errno.ENOTDIR: (267,),
    errno.EEXIST: (80, 183),
    errno.ENOTEMPTY: (145,),
    errno.EACCES: (5, 32, 33, 82, 225, 226, 303, 1920),
    errno.EPERM: (1314,),
    errno.EROFS: (19, 6009),
    errno.EBUSY: tuple(MAPPED),
    errno.EMFILE: (4,),
    errno.EBADF: (6,),
    errno.ENOMEM: (8, 14, 1450, 1455, 1816),
    errno.EXDEV: (17,),
    errno.EFBIG: (223,),
    errno.EINVAL: (87,),
    errno.ENAMETOOLONG: (111, 206),
    errno.ENOSYS: (1, 50, 120, 124),
    errno.ELOOP: (1921,),
    errno.ENOSPC: (39, 112),
    errno.EDQUOT: (1295,),
}
# All others are EIO: 21, 23, 27, 29, 30, 31, 433, 483, 1006, 1117, 1167, 1392, 1393 (the device), 51, 53, 54, 55, 59,
# 64, 67, 121, 1231, 1236 (the share), and what Microsoft adds. EINVAL would pass for "no direct I/O here".
_ERRNO = {code: number for number, codes in _CODES.items() for code in codes}

_FIRST_WAIT_S = 0.001
_MAX_WAIT_S = 0.064
PATIENCE_S = 1.0


def windows_error(code: int, path: str | None = None, detail: str = "") -> OSError:
    """The OSError for a Windows error code: FileNotFoundError, PermissionError, ... The text names the code.

    detail: what the system's text does not say.
    """
    number = _ERRNO.get(code, errno.EIO)
    describe = getattr(ctypes, "FormatError", None)  # on Windows only
    text = f"{describe(code).strip()} (Windows error {code})" if describe else f"Windows error {code}"
    text = f"{text}; {detail}" if detail else text
    # Not as the argument `winerror`: the class would then translate the code by its own table.
    return OSError(number, text, path) if path is not None else OSError(number, text)


def own_error(error: OSError) -> OSError:
    """An error of Python's own calls with the errno that `windows_error` gives its code; elsewhere as it is."""
    code = getattr(error, "winerror", None)
    return windows_error(code, error.filename) if code else error


def until_free(
    attempt: Callable[[], tuple[_T, int]],
    *,
    codes: Collection[int] = IN_USE,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[_T, int]:
    """Repeat `attempt` while its error code is one of `codes`, after 1, 2, 4 ... 64 ms, for PATIENCE_S in all.

    attempt returns a result and an error code, 0 for none; the last of them is returned.
    """
    end_s, wait_s = clock() + PATIENCE_S, _FIRST_WAIT_S
    while True:
        result, code = attempt()
        remaining_s = end_s - clock()
        if code not in codes or remaining_s <= 0:
            return result, code
        sleep(min(wait_s, remaining_s))
        wait_s = min(2 * wait_s, _MAX_WAIT_S)


GENERIC_READ, GENERIC_WRITE, DELETE = 0x8000_0000, 0x4000_0000, 0x0001_0000
FILE_READ_ATTRIBUTES = 0x80
SHARE_ALL = 1 | 2 | 4  # reading, writing, and deleting or renaming, by others meanwhile
CREATE_NEW, OPEN_EXISTING, OPEN_ALWAYS = 1, 3, 4
ATTRIBUTE_READ_ONLY, ATTRIBUTE_DIRECTORY, ATTRIBUTE_NORMAL, ATTRIBUTE_REPARSE_POINT = 0x1, 0x10, 0x80, 0x400
NO_ATTRIBUTES = 0xFFFF_FFFF
FLAG_NO_BUFFERING, FLAG_BACKUP_SEMANTICS, FLAG_OPEN_REPARSE_POINT = 0x2000_0000, 0x0200_0000, 0x0020_0000
TYPE_UNKNOWN = 0
TYPE_DISK = 1
MOVE_REPLACE_EXISTING, MOVE_WRITE_THROUGH = 1, 8
LOCK_FAIL_IMMEDIATELY, LOCK_EXCLUSIVE = 1, 2
# FILE_INFO_BY_HANDLE_CLASS
FILE_STANDARD, FILE_ALLOCATION, FILE_END_OF_FILE, FILE_STORAGE, FILE_ID = 1, 5, 6, 16, 18
FILE_DISPOSITION_EX, FILE_RENAME_EX = 21, 22
FSCTL_SET_SPARSE, FSCTL_QUERY_ALLOCATED_RANGES = 0x900C4, 0x940CF


class Overlapped(ctypes.Structure):
    """OVERLAPPED: the place in the file of one call, so that threads share a handle without a common position."""

    _fields_ = (
        ("internal", c_void_p),
        ("internal_high", c_void_p),
        ("offset", c_uint32),
        ("offset_high", c_uint32),
        ("event", c_void_p),
    )


class FileStandardInformation(ctypes.Structure):
    """FILE_STANDARD_INFO. allocated counts the space of a sparse file without its holes."""

    _fields_ = (
        ("allocated", c_int64),
        ("end_of_file", c_int64),
        ("links", c_uint32),
        ("is_delete_pending", c_uint8),
        ("is_directory", c_uint8),
    )


class FileInformation(ctypes.Structure):
    """BY_HANDLE_FILE_INFORMATION, with pairs of 32 bits as in the header: low and high where it says so."""

    _fields_ = (
        ("attributes", c_uint32),
        ("creation_low", c_uint32),
        ("creation_high", c_uint32),
        ("access_low", c_uint32),
        ("access_high", c_uint32),
        ("write_low", c_uint32),
        ("write_high", c_uint32),
        ("volume", c_uint32),
        ("size_high", c_uint32),
        ("size_low", c_uint32),
        ("links", c_uint32),
        ("index_high", c_uint32),
        ("index_low", c_uint32),
    )


class FileIdentity(ctypes.Structure):
    """FILE_ID_INFO: 128 bits, of which ReFS uses all."""

    _fields_ = (("volume", c_uint64), ("low", c_uint64), ("high", c_uint64))


class StorageInformation(ctypes.Structure):
    """FILE_STORAGE_INFO: sector sizes in bytes."""

    _fields_ = (
        ("logical", c_uint32),
        ("physical_atomic", c_uint32),
        ("physical_performance", c_uint32),
        ("effective_atomic", c_uint32),
        ("flags", c_uint32),
        ("sector_offset", c_uint32),
        ("partition_offset", c_uint32),
    )


class AllocatedRange(ctypes.Structure):
    """FILE_ALLOCATED_RANGE_BUFFER, bytes."""

    _fields_ = (("offset", c_int64), ("length", c_int64))


def rename_information(target: str, flags: int) -> ctypes.Structure:
    """FILE_RENAME_INFO for an absolute extended path; flags: 1 replaces, 2 for POSIX semantics."""

    class RenameInformation(ctypes.Structure):
        _fields_ = (
            ("flags", c_uint32),
            ("root", c_void_p),
            ("name_bytes", c_uint32),
            ("name", c_wchar * (len(target) + 1)),
        )

    # c_wchar has 2 bytes on Windows, where alone this is sent.
    return RenameInformation(flags, None, len(target) * ctypes.sizeof(c_wchar), target)


WIN_CTYPES: Any = ctypes  # ctypes with the members that it has on Windows only
HANDLE = c_void_p
INVALID_HANDLE = c_void_p(-1).value
_DWORD, _BOOL, _SIZE, _TEXT, _POINTER = c_uint32, c_int, c_size_t, c_wchar_p, c_void_p

Signatures = dict[str, tuple[Any, tuple[Any, ...]]]

_FILES: Signatures = {
    "CreateDirectoryW": (_BOOL, (_TEXT, _POINTER)),
    "CreateFileW": (HANDLE, (_TEXT, _DWORD, _DWORD, _POINTER, _DWORD, _DWORD, HANDLE)),
    "DeleteFileW": (_BOOL, (_TEXT,)),
    "DeviceIoControl": (_BOOL, (HANDLE, _DWORD, _POINTER, _DWORD, _POINTER, _DWORD, _POINTER, _POINTER)),
    "FlushFileBuffers": (_BOOL, (HANDLE,)),
    "GetDiskFreeSpaceExW": (_BOOL, (_TEXT, _POINTER, _POINTER, _POINTER)),
    "GetFileAttributesW": (_DWORD, (_TEXT,)),
    "GetFileInformationByHandle": (_BOOL, (HANDLE, _POINTER)),
    "GetFileInformationByHandleEx": (_BOOL, (HANDLE, c_int, _POINTER, _DWORD)),
    "GetFileSizeEx": (_BOOL, (HANDLE, _POINTER)),
    "GetFileType": (_DWORD, (HANDLE,)),
    "GetFinalPathNameByHandleW": (_DWORD, (HANDLE, _TEXT, _DWORD, _DWORD)),
    "LockFileEx": (_BOOL, (HANDLE, _DWORD, _DWORD, _DWORD, _DWORD, _POINTER)),
    "MoveFileExW": (_BOOL, (_TEXT, _TEXT, _DWORD)),
    "ReOpenFile": (HANDLE, (HANDLE, _DWORD, _DWORD, _DWORD)),
    "ReadFile": (_BOOL, (HANDLE, _POINTER, _DWORD, _POINTER, _POINTER)),
    "RemoveDirectoryW": (_BOOL, (_TEXT,)),
    "SetFileInformationByHandle": (_BOOL, (HANDLE, c_int, _POINTER, _DWORD)),
    "WriteFile": (_BOOL, (HANDLE, _POINTER, _DWORD, _POINTER, _POINTER)),
}
_PROCESSES_AND_MEMORY: Signatures = {
    "AssignProcessToJobObject": (_BOOL, (HANDLE, HANDLE)),
    "CloseHandle": (_BOOL, (HANDLE,)),
    "CreateFileMappingW": (HANDLE, (HANDLE, _POINTER, _DWORD, _DWORD, _DWORD, _TEXT)),
    "CreateJobObjectW": (HANDLE, (_POINTER, _TEXT)),
    "DuplicateHandle": (_BOOL, (HANDLE, HANDLE, HANDLE, POINTER(HANDLE), _DWORD, _BOOL, _DWORD)),
    "GetCurrentProcess": (HANDLE, ()),
    "GetProcessTimes": (_BOOL, (HANDLE, *[POINTER(c_uint64)] * 4)),
    "GetSystemTimePreciseAsFileTime": (None, (POINTER(c_uint64),)),
    "IsWow64Process2": (_BOOL, (HANDLE, POINTER(c_uint16), POINTER(c_uint16))),
    "K32GetMappedFileNameW": (_DWORD, (HANDLE, _POINTER, _POINTER, _DWORD)),
    "LocalFree": (_POINTER, (_POINTER,)),
    "MapViewOfFile": (_POINTER, (HANDLE, _DWORD, _DWORD, _DWORD, _SIZE)),
    "OpenProcess": (HANDLE, (_DWORD, _BOOL, _DWORD)),
    "SetConsoleCtrlHandler": (_BOOL, (_POINTER, _BOOL)),
    "SetInformationJobObject": (_BOOL, (HANDLE, c_int, _POINTER, _DWORD)),
    "SetThreadExecutionState": (_DWORD, (_DWORD,)),
    "TerminateJobObject": (_BOOL, (HANDLE, c_uint)),
    "UnmapViewOfFile": (_BOOL, (_POINTER,)),
    "VirtualQuery": (_SIZE, (_POINTER, _POINTER, _SIZE)),
}
_SECURITY: Signatures = {
    "ConvertSecurityDescriptorToStringSecurityDescriptorW": (_BOOL, (_POINTER, _DWORD, _DWORD, _POINTER, _POINTER)),
    "ConvertSidToStringSidW": (_BOOL, (_POINTER, _POINTER)),
    "ConvertStringSecurityDescriptorToSecurityDescriptorW": (_BOOL, (_TEXT, _DWORD, _POINTER, _POINTER)),
    "GetNamedSecurityInfoW": (_DWORD, (_TEXT, c_int, _DWORD, *[_POINTER] * 5)),
    "GetTokenInformation": (_BOOL, (HANDLE, c_int, _POINTER, _DWORD, _POINTER)),
    "OpenProcessToken": (_BOOL, (HANDLE, _DWORD, _POINTER)),
    "RegGetValueW": (c_int, (_POINTER, _TEXT, _TEXT, _DWORD, _POINTER, _POINTER, _POINTER)),
}
_WINDOW_MESSAGE = (HANDLE, c_uint, _POINTER, _POINTER)
_WINDOWS: Signatures = {
    "CreateWindowExW": (HANDLE, (_DWORD, _TEXT, _TEXT, _DWORD, *[c_int] * 4, HANDLE, HANDLE, HANDLE, _POINTER)),
    "DefWindowProcW": (c_ssize_t, _WINDOW_MESSAGE),
    "DispatchMessageW": (c_ssize_t, (_POINTER,)),
    "GetMessageW": (_BOOL, (_POINTER, HANDLE, c_uint, c_uint)),
    "PostMessageW": (_BOOL, _WINDOW_MESSAGE),
    "PostQuitMessage": (None, (c_int,)),
    "RegisterClassW": (c_uint16, (_POINTER,)),
    "SendMessageW": (c_ssize_t, _WINDOW_MESSAGE),
}
_PROGRAMS: Signatures = {
    "RmEndSession": (_DWORD, (_DWORD,)),
    "RmGetList": (_DWORD, (_DWORD, *[POINTER(c_uint)] * 2, _POINTER, POINTER(_DWORD))),
    "RmRegisterResources": (_DWORD, (_DWORD, c_uint, POINTER(_TEXT), c_uint, _POINTER, c_uint, _POINTER)),
    "RmStartSession": (_DWORD, (POINTER(_DWORD), _DWORD, _POINTER)),
}


def is_windows() -> bool:
    """Return True on Windows."""
    return sys.platform == "win32"


kernel32 = functools.cache(lambda: _load("kernel32", _FILES | _PROCESSES_AND_MEMORY))
"""Return kernel32.dll: files, processes, memory, the console. As all of these, raises OSError where it is missing."""
advapi32 = functools.cache(lambda: _load("advapi32", _SECURITY))
"""Return advapi32.dll: access lists, users, the registry."""
user32 = functools.cache(lambda: _load("user32", _WINDOWS))
"""Return user32.dll: windows and their messages."""
rstrtmgr = functools.cache(lambda: _load("rstrtmgr", _PROGRAMS))
"""Return rstrtmgr.dll, the Restart Manager: programs that use a file."""


def _load(name: str, signatures: Signatures) -> Any:
    if not is_windows():
        raise OSError(f"{name}.dll exists on Windows only")
    library = WIN_CTYPES.WinDLL(name, use_last_error=True)
    for function, (result, arguments) in signatures.items():
        entry = getattr(library, function)
        entry.restype, entry.argtypes = result, arguments
    return library


def last_error() -> int:
    """Return the error code of this thread's last call (winerror.h)."""
    code: int = WIN_CTYPES.get_last_error()
    return code


def call_error(text: str | None = None) -> OSError:
    """Return the error of this thread's last call as an exception. text: the call, or what it could not do."""
    return windows_error(last_error(), text)


def check_success(result: int | None, text: str | None = None) -> int:
    """Return the result of this thread's last call. Raises OSError, as `call_error`, if it is 0 or None."""
    if not result:
        raise call_error(text)
    return result


def open_process(process: int, access: int) -> int:
    """Return a handle of a process, which the caller closes. Raises OSError: PermissionError if it is not allowed."""
    return check_success(kernel32().OpenProcess(access, False, process), f"cannot open process {process}")


def close_handle(handle: int) -> None:
    """Close a handle. Raises OSError."""
    check_success(kernel32().CloseHandle(handle), "cannot close a handle")


@contextmanager
def using(handle: int) -> Iterator[int]:
    """Close the handle at the end of the block."""
    try:
        yield handle
    finally:
        close_handle(handle)


_1601_TO_1970 = 116_444_736_000_000_000  # in steps of 100 ns


def file_time() -> int:
    """Return the time as a FILETIME: 100 ns since 1601, UTC."""
    now = c_uint64()
    kernel32().GetSystemTimePreciseAsFileTime(byref(now))
    return now.value


def nanoseconds_of(time: int) -> int:
    """A FILETIME in ns since 1970, UTC."""
    return (time - _1601_TO_1970) * 100


def wall_clock_ns() -> int:
    """Return the time in ns since 1970, UTC. On other systems this is `time.time_ns`."""
    return nanoseconds_of(file_time())
