"""Functions of the Windows API, loaded on first use: every platform can import the modules that need them.

Argument types are those of Microsoft's reference (learn.microsoft.com/windows/win32/api), as 64-bit Windows has them.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from ctypes import POINTER, c_int, c_size_t, c_uint32, c_uint64, c_void_p, c_wchar_p
from typing import Any

HANDLE = c_void_p
_DWORD, _BOOL, _SIZE = c_uint32, c_int, c_size_t

_KERNEL: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "AssignProcessToJobObject": (_BOOL, (HANDLE, HANDLE)),
    "CloseHandle": (_BOOL, (HANDLE,)),
    "CreateFileMappingW": (HANDLE, (HANDLE, c_void_p, _DWORD, _DWORD, _DWORD, c_wchar_p)),
    "CreateJobObjectW": (HANDLE, (c_void_p, c_wchar_p)),
    "DuplicateHandle": (_BOOL, (HANDLE, HANDLE, HANDLE, POINTER(HANDLE), _DWORD, _BOOL, _DWORD)),
    "GetCurrentProcess": (HANDLE, ()),
    "GetProcessTimes": (_BOOL, (HANDLE, *[POINTER(c_uint64)] * 4)),
    "GetSystemTimePreciseAsFileTime": (None, (POINTER(c_uint64),)),
    "IsWow64Process2": (_BOOL, (HANDLE, POINTER(ctypes.c_uint16), POINTER(ctypes.c_uint16))),
    "K32GetMappedFileNameW": (_DWORD, (HANDLE, c_void_p, c_void_p, _DWORD)),
    "MapViewOfFile": (c_void_p, (HANDLE, _DWORD, _DWORD, _DWORD, _SIZE)),
    "OpenProcess": (HANDLE, (_DWORD, _BOOL, _DWORD)),
    "SetInformationJobObject": (_BOOL, (HANDLE, c_int, c_void_p, _DWORD)),
    "UnmapViewOfFile": (_BOOL, (c_void_p,)),
    "VirtualQuery": (_SIZE, (c_void_p, c_void_p, _SIZE)),
}
_NETWORK: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "GetExtendedTcpTable": (_DWORD, (c_void_p, POINTER(_DWORD), _BOOL, _DWORD, c_int, _DWORD)),
}


def is_windows() -> bool:
    """Return True on Windows."""
    return sys.platform == "win32"


@functools.cache
def kernel32() -> Any:
    """Return kernel32.dll with the functions above."""
    return _load("kernel32", _KERNEL)


@functools.cache
def iphlpapi() -> Any:
    """Return iphlpapi.dll with the functions above."""
    return _load("iphlpapi", _NETWORK)


def _load(name: str, functions: dict[str, tuple[Any, tuple[Any, ...]]]) -> Any:
    library = vars(ctypes)["WinDLL"](name, use_last_error=True)  # other platforms have no such class
    for function, (result, arguments) in functions.items():
        entry = getattr(library, function)
        entry.restype, entry.argtypes = result, arguments
    return library


def last_error(text: str) -> OSError:
    """Return the error of this thread's last call as an OSError; text says what failed."""
    return windows_error(vars(ctypes)["get_last_error"](), text)


def windows_error(code: int, text: str) -> OSError:
    """Return a Windows error code as an OSError, with the system's text after ours."""
    meaning = vars(ctypes)["FormatError"](code).strip()
    error: OSError = vars(ctypes)["WinError"](code, f"{text}: {meaning}")
    return error


def open_process(process: int, access: int) -> int:
    """Return a handle of a process, which the caller closes. Raises OSError: PermissionError if it is not allowed."""
    handle: int | None = kernel32().OpenProcess(access, False, process)
    if not handle:
        raise last_error(f"cannot open process {process}")
    return handle


def close_handle(handle: int) -> None:
    """Raises OSError."""
    if not kernel32().CloseHandle(handle):
        raise last_error("cannot close a handle")
