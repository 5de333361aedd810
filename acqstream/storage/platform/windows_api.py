"""Functions of the Windows API, loaded on first use: every platform can import the modules that need them.

Argument types are those of Microsoft's reference (learn.microsoft.com/windows/win32/api), as 64-bit Windows has them.
ctypes releases the interpreter lock during a call.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from ctypes import POINTER, c_int, c_size_t, c_ssize_t, c_uint, c_uint16, c_uint32, c_uint64, c_void_p, c_wchar_p
from typing import Any

from acqstream.storage.platform.windows_errors import windows_error

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
