"""Functions of the Windows API, loaded on first use: every platform can import the modules that need them.

Argument types are those of Microsoft's reference (learn.microsoft.com/windows/win32/api), as 64-bit Windows has them.
ctypes releases the interpreter lock during a call.
"""

from __future__ import annotations

import ctypes
import functools
import sys
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
from typing import Any

from acqstream.storage.platform.windows_errors import windows_error

# Constants and structures of the file functions of Windows, as in Microsoft's documentation.


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
_CONNECTIONS: Signatures = {
    "GetExtendedTcpTable": (_DWORD, (_POINTER, POINTER(_DWORD), _BOOL, _DWORD, c_int, _DWORD)),
}


def is_windows() -> bool:
    """Return True on Windows."""
    return sys.platform == "win32"


@functools.cache
def kernel32() -> Any:
    """Return kernel32.dll: files, processes, memory, the console. Raises OSError where it is missing."""
    return _load("kernel32", _FILES | _PROCESSES_AND_MEMORY)


@functools.cache
def advapi32() -> Any:
    """Return advapi32.dll: access lists, users, the registry. Raises OSError where it is missing."""
    return _load("advapi32", _SECURITY)


@functools.cache
def user32() -> Any:
    """Return user32.dll: windows and their messages. Raises OSError where it is missing."""
    return _load("user32", _WINDOWS)


@functools.cache
def iphlpapi() -> Any:
    """Return iphlpapi.dll: connections. Raises OSError where it is missing."""
    return _load("iphlpapi", _CONNECTIONS)


@functools.cache
def rstrtmgr() -> Any:
    """Return rstrtmgr.dll, the Restart Manager: programs that use a file. Raises OSError where it is missing."""
    return _load("rstrtmgr", _PROGRAMS)


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


def call_error(text: str) -> OSError:
    """Return the error of this thread's last call as an exception. text: the call, or what it could not do."""
    return windows_error(last_error(), text)


def open_process(process: int, access: int) -> int:
    """Return a handle of a process, which the caller closes. Raises OSError: PermissionError if it is not allowed."""
    handle: int | None = kernel32().OpenProcess(access, False, process)
    if not handle:
        raise call_error(f"cannot open process {process}")
    return handle


def close_handle(handle: int) -> None:
    """Close a handle. Raises OSError."""
    if not kernel32().CloseHandle(handle):
        raise call_error("cannot close a handle")


# The time of day on Windows, in steps below 1 us.
#
# time.time_ns has steps of 15.6 ms before Python 3.13, longer than many exposures. Source:
# GetSystemTimePreciseAsFileTime and FILETIME on learn.microsoft.com.


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
