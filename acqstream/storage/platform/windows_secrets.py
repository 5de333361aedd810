"""Files that only their owner can read, by access lists (ACLs). With the names of `posix_secrets`.

Sources: "Security Descriptor String Format", "ACE Strings", "SID Strings", CreateFileW, GetNamedSecurityInfoW on
learn.microsoft.com. Not tried on a real Windows: Wine keeps no access lists.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
from pathlib import Path

from acqstream.storage.platform import windows_file_types as types
from acqstream.storage.platform.windows_api import INVALID_HANDLE, advapi32, call_error, close_handle, kernel32
from acqstream.storage.platform.windows_errors import windows_error

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
    convert = advapi32().ConvertStringSecurityDescriptorToSecurityDescriptorW
    if not convert(text, _SDDL_REVISION, ctypes.byref(descriptor), None):
        raise call_error(str(path))
    try:
        attributes = _Attributes(ctypes.sizeof(_Attributes), descriptor, 0)
        how = types.GENERIC_WRITE, 0, ctypes.byref(attributes), types.CREATE_NEW, types.ATTRIBUTE_NORMAL
        handle = kernel32().CreateFileW(str(path), *how, None)
        if handle == INVALID_HANDLE:
            raise call_error(str(path))
        close_handle(handle)
    finally:
        _free(descriptor)


def open_log(path: Path) -> int:
    """A descriptor to append to a file, created where it is missing. Raises OSError for a link in its place."""
    refuse_link(str(path))
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o600)


def refuse_link(path: str) -> None:
    """Raises OSError for a link, which would be followed."""
    if os.path.islink(path):
        raise OSError(errno.ELOOP, "it is a link, which is not followed: remove it", path)


def exposure(path: Path) -> str:
    """Say how all users of the PC can read or change the file, and the remedy; empty if they cannot. Raises OSError."""
    groups = open_to(_dacl(path))
    if not groups:
        return ""
    remedy = f'run: icacls "{path}" /inheritance:r /grant:r "*{_user_sid()}:F"'  # in any shell
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
    advapi = advapi32()
    answers = None, None, None, None, ctypes.byref(descriptor)
    code = advapi.GetNamedSecurityInfoW(str(path), _FILE_OBJECT, _DACL_INFORMATION, *answers)
    if code:
        raise windows_error(code, str(path))
    try:
        convert = advapi.ConvertSecurityDescriptorToStringSecurityDescriptorW
        if not convert(descriptor, _SDDL_REVISION, _DACL_INFORMATION, ctypes.byref(text), None):
            raise call_error(str(path))
        return _take_text(text)
    finally:
        _free(descriptor)


def _user_sid() -> str:
    """The id of the user of this process, in text."""
    advapi = advapi32()
    token, size = ctypes.c_void_p(), ctypes.c_uint32()
    if not advapi.OpenProcessToken(kernel32().GetCurrentProcess(), _TOKEN_QUERY, ctypes.byref(token)):
        raise call_error("OpenProcessToken")
    try:
        advapi.GetTokenInformation(token, _TOKEN_USER, None, 0, ctypes.byref(size))  # the size
        user = ctypes.create_string_buffer(size.value)
        if not advapi.GetTokenInformation(token, _TOKEN_USER, user, size, ctypes.byref(size)):
            raise call_error("GetTokenInformation")
    finally:
        close_handle(token.value or 0)
    sid, text = ctypes.c_void_p.from_buffer(user), ctypes.c_void_p()  # TOKEN_USER begins with a pointer to the id
    if not advapi.ConvertSidToStringSidW(sid, ctypes.byref(text)):
        raise call_error("ConvertSidToStringSidW")
    return _take_text(text)


def _take_text(text: ctypes.c_void_p) -> str:
    """Copy a string that Windows has allocated, and free it."""
    try:
        return ctypes.wstring_at(text.value or 0)
    finally:
        _free(text)


def _free(memory: ctypes.c_void_p) -> None:
    kernel32().LocalFree(memory)
