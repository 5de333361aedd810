"""Files that only their owner can read, by access lists (ACLs). With the names of `posix_secrets`.

Sources: "Security Descriptor String Format", "ACE Strings", "SID Strings", CreateFileW, GetNamedSecurityInfoW on
learn.microsoft.com. Not tried on a real Windows: Wine keeps no access lists.
"""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Any

from acqstream.storage.platform.windows_calls import error_of, last_error, library

_GENERIC_WRITE, _CREATE_NEW, _ATTRIBUTE_NORMAL = 0x40000000, 1, 0x80
_INVALID_HANDLE = ctypes.c_void_p(-1).value
_SDDL_REVISION = 1
_FILE_OBJECT, _DACL_INFORMATION = 1, 4  # SE_FILE_OBJECT, DACL_SECURITY_INFORMATION
_TOKEN_QUERY, _TOKEN_USER = 0x0008, 1
_EVERYBODY = {
    "WD": "Everyone",
    "AU": "Authenticated Users",
    "BU": "Users",
    "BG": "Guests",
    "AN": "Anonymous",
    "IU": "Interactive",
    "DU": "Domain Users",
    "NU": "Network",
}
_ACE = re.compile(r"\((?P<kind>\w+);(?P<flags>\w*);(?P<rights>\w*);[^;]*;[^;]*;(?P<who>[^;)]+)[^)]*\)")


class _Attributes(ctypes.Structure):
    """SECURITY_ATTRIBUTES."""

    _fields_ = (
        ("length", ctypes.c_uint32),
        ("descriptor", ctypes.c_void_p),
        ("is_inherited", ctypes.c_int),
    )


def create_private(path: Path) -> None:
    """Create an empty file for this user, SYSTEM and administrators. Raises OSError, FileExistsError.

    The list is given at creation, so that at no time another user can open the file.
    """
    # P: nothing is inherited from the folder. FA: all rights on a file.
    text = f"D:P(A;;FA;;;{_user_sid()})(A;;FA;;;SY)(A;;FA;;;BA)"
    descriptor = ctypes.c_void_p()
    convert = library("advapi32").ConvertStringSecurityDescriptorToSecurityDescriptorW
    if not convert(ctypes.c_wchar_p(text), _SDDL_REVISION, ctypes.byref(descriptor), None):
        raise last_error(str(path))
    try:
        attributes = _Attributes(ctypes.sizeof(_Attributes), descriptor, 0)
        create = library("kernel32").CreateFileW
        create.restype = ctypes.c_void_p
        handle = create(
            ctypes.c_wchar_p(str(path)),
            ctypes.c_uint32(_GENERIC_WRITE),
            ctypes.c_uint32(0),
            ctypes.byref(attributes),
            ctypes.c_uint32(_CREATE_NEW),
            ctypes.c_uint32(_ATTRIBUTE_NORMAL),
            None,
        )
        if handle == _INVALID_HANDLE:
            raise last_error(str(path))
        _close(handle)
    finally:
        _free(descriptor)


def exposure(path: Path) -> str:
    """Say how all users of the PC can read or change the file, and the remedy; empty if they cannot. Raises OSError."""
    groups = open_to(_dacl(path))
    if not groups:
        return ""
    remedy = f'run: icacls "{path}" /inheritance:r /grant:r "%USERNAME%:F"'
    return f"{', '.join(groups)} can read {path}; {remedy}"


def open_to(dacl: str) -> list[str]:
    """Groups of all users that an access list in SDDL gives any right to."""
    body = dacl.partition("D:")[2]
    if not body or body.startswith("NO_ACCESS_CONTROL"):
        return ["Everyone"]  # without a list, all access is allowed
    aces = _ACE.finditer(body)
    # IO: the entry is for files that are made in a folder later, and gives no right on this one.
    users = (ace["who"] for ace in aces if ace["kind"] in ("A", "XA") and "IO" not in ace["flags"])
    return [_EVERYBODY[who] for who in users if who in _EVERYBODY]


def _dacl(path: Path) -> str:
    """The access list of a file in SDDL."""
    descriptor, text = ctypes.c_void_p(), ctypes.c_void_p()
    advapi = library("advapi32")
    name = ctypes.c_wchar_p(str(path))
    code = advapi.GetNamedSecurityInfoW(
        name, _FILE_OBJECT, _DACL_INFORMATION, None, None, None, None, ctypes.byref(descriptor)
    )
    if code:
        raise error_of(code, str(path))
    try:
        convert = advapi.ConvertSecurityDescriptorToStringSecurityDescriptorW
        if not convert(descriptor, _SDDL_REVISION, _DACL_INFORMATION, ctypes.byref(text), None):
            raise last_error(str(path))
        return _take_text(text)
    finally:
        _free(descriptor)


def _user_sid() -> str:
    """The id of the user of this process, in text."""
    kernel, advapi = library("kernel32"), library("advapi32")
    kernel.GetCurrentProcess.restype = ctypes.c_void_p
    token, size = ctypes.c_void_p(), ctypes.c_uint32()
    process = ctypes.c_void_p(kernel.GetCurrentProcess())
    if not advapi.OpenProcessToken(process, _TOKEN_QUERY, ctypes.byref(token)):
        raise last_error("OpenProcessToken")
    try:
        advapi.GetTokenInformation(token, _TOKEN_USER, None, 0, ctypes.byref(size))  # the size
        user = ctypes.create_string_buffer(size.value)
        if not advapi.GetTokenInformation(token, _TOKEN_USER, user, size, ctypes.byref(size)):
            raise last_error("GetTokenInformation")
    finally:
        _close(token.value)
    sid, text = ctypes.c_void_p.from_buffer(user), ctypes.c_void_p()  # TOKEN_USER begins with a pointer to the id
    if not advapi.ConvertSidToStringSidW(sid, ctypes.byref(text)):
        raise last_error("ConvertSidToStringSidW")
    return _take_text(text)


def _take_text(text: ctypes.c_void_p) -> str:
    """Copy a string that Windows has allocated, and free it."""
    try:
        return ctypes.wstring_at(text.value or 0)
    finally:
        _free(text)


def _free(memory: ctypes.c_void_p) -> None:
    library("kernel32").LocalFree(memory)


def _close(handle: Any) -> None:
    library("kernel32").CloseHandle(ctypes.c_void_p(handle))
