"""Names of files on Windows: opening, renaming and removing while other processes have the file open; long paths.

Whoever opens a file decides what others may do with it meanwhile. All files of acqstream are opened so that others may
read, write, rename and remove them (FILE_SHARE_*). A file that another program opened otherwise is waited for, because
most such programs have it for some milliseconds; see `windows_api.until_free`. An error names the programs that have
the file open. Files that only their owner can read have access lists (ACLs), with the names of `posix_files`.

Sources: "Restart Manager", RM_PROCESS_INFO, "Security Descriptor String Format", "ACE Strings", "SID Strings",
CreateFileW, GetNamedSecurityInfoW on learn.microsoft.com. Not tried on a real Windows: Wine names no programs and keeps
no access lists.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import logging
import ntpath
import os
import re
import secrets
from ctypes import byref, c_int, c_uint, c_uint32, c_wchar, c_wchar_p
from pathlib import Path
from typing import Any

from acqstream.storage.platform import windows_api as types
from acqstream.storage.platform.windows_api import (
    FOLDER_IN_USE,
    IN_USE,
    INVALID_HANDLE,
    UNSUPPORTED,
    WIN_CTYPES,
    advapi32,
    call_error,
    check_success,
    close_handle,
    kernel32,
    last_error,
    rstrtmgr,
    until_free,
    using,
    windows_error,
)

_EXTENDED = "\\\\?\\"
_DEVICE = "\\\\.\\"
_SHARE = "\\\\?\\UNC\\"


def extended_path(path: str, absolute: str | None = None) -> str:
    r"""`path` as an absolute extended path: `\\?\C:\data`, `\\?\UNC\server\share\data`. Paths of devices stay.

    The system takes an extended path as it is, so `.`, `..` and slashes are resolved here. absolute: the absolute path
    if it is known, for tests. Source: "Maximum Path Length Limitation", "Naming Files, Paths, and Namespaces".
    """
    if path.startswith((_EXTENDED, _DEVICE)):
        return path
    full = ntpath.abspath(path) if absolute is None else absolute
    if full.startswith((_EXTENDED, _DEVICE)):  # abspath makes a device of NUL and its like
        return full
    return _SHARE + full[2:] if full.startswith("\\\\") else _EXTENDED + full


def plain_path(path: str) -> str:
    r"""The reverse of `extended_path`, as os.path.realpath gives it: without `\\?\`."""
    if path.startswith(_SHARE):
        return "\\\\" + path[len(_SHARE) :]
    return path.removeprefix(_EXTENDED)


def volume_of(path: str) -> str:
    """The drive or share of a path, in lower case; empty for a relative one."""
    return ntpath.splitdrive(plain_path(os.fspath(path)))[0].lower()


@functools.cache
def has_long_paths() -> bool:
    """Return True if calls of Python itself see files whose path has more than 259 characters.

    They do if LongPathsEnabled is set in the registry and the program is marked as longPathAware, as python.exe is
    ("Maximum Path Length Limitation"). Microsoft's reference lacks RtlAreLongPathsEnabled, which CPython's tests name
    (test_os.py). Wine lacks the function, and the limit.
    """
    ask = getattr(WIN_CTYPES.WinDLL("ntdll"), "RtlAreLongPathsEnabled", None)
    if ask is None:
        return True
    ask.restype = ctypes.c_uint8  # BOOLEAN: the other bits of the register may have any value
    return bool(ask())


logger = logging.getLogger("acqstream.storage")

_KEY_CHARACTERS = 33  # CCH_RM_SESSION_KEY and a zero
_MAX_PROGRAMS = 8  # more would make no clearer text
_MORE_DATA = 234


class ProgramInformation(ctypes.Structure):
    """RM_PROCESS_INFO, which begins with RM_UNIQUE_PROCESS."""

    _fields_ = (
        ("process", c_uint32),
        ("start_low", c_uint32),
        ("start_high", c_uint32),
        ("name", c_wchar * 256),
        ("service", c_wchar * 64),
        ("kind", c_int),
        ("status", c_uint32),
        ("session", c_uint32),
        ("is_restartable", c_int),
    )


def file_users(path: str) -> list[str]:
    """Names and process ids of at most 8 programs that have a file open: ["Micro-Manager (4711)"].

    Empty if the system names none: for folders, files of other PCs, and where it lacks the Restart Manager.
    """
    try:
        manager = rstrtmgr()
    except OSError as error:
        logger.debug("cannot ask who uses %s: %s", path, error)
        return []
    session, key = c_uint32(), ctypes.create_unicode_buffer(_KEY_CHARACTERS)
    if manager.RmStartSession(byref(session), 0, key):
        return []
    try:
        return _users(manager, session, plain_path(extended_path(path)))
    finally:
        manager.RmEndSession(session)


def _users(manager: Any, session: c_uint32, path: str) -> list[str]:
    if manager.RmRegisterResources(session, 1, (c_wchar_p * 1)(path), 0, None, 0, None):
        return []
    programs, reasons = (ProgramInformation * _MAX_PROGRAMS)(), c_uint32()
    total, count = c_uint(), c_uint(_MAX_PROGRAMS)
    code = manager.RmGetList(session, byref(total), byref(count), programs, byref(reasons))
    if code == _MORE_DATA:
        # The answer did not fit, so it may be incomplete: ask once more with enough space.
        programs, count = (ProgramInformation * total.value)(), c_uint(total.value)
        code = manager.RmGetList(session, byref(total), byref(count), programs, byref(reasons))
    if code:
        return []
    return [f"{program.name} ({program.process})" for program in programs[: min(count.value, _MAX_PROGRAMS)]]


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
    check_success(convert(text, _SDDL_REVISION, ctypes.byref(descriptor), None), str(path))
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
        check_success(convert(descriptor, _SDDL_REVISION, _DACL_INFORMATION, ctypes.byref(text), None), str(path))
        return _take_text(text)
    finally:
        _free(descriptor)


def _user_sid() -> str:
    """The id of the user of this process, in text."""
    advapi = advapi32()
    token, size = ctypes.c_void_p(), ctypes.c_uint32()
    done = advapi.OpenProcessToken(kernel32().GetCurrentProcess(), _TOKEN_QUERY, ctypes.byref(token))
    check_success(done, "OpenProcessToken")
    with using(token.value or 0):
        advapi.GetTokenInformation(token, _TOKEN_USER, None, 0, ctypes.byref(size))  # the size
        user = ctypes.create_string_buffer(size.value)
        done = advapi.GetTokenInformation(token, _TOKEN_USER, user, size, ctypes.byref(size))
        check_success(done, "GetTokenInformation")
    sid, text = ctypes.c_void_p.from_buffer(user), ctypes.c_void_p()  # TOKEN_USER begins with a pointer to the id
    check_success(advapi.ConvertSidToStringSidW(sid, ctypes.byref(text)), "ConvertSidToStringSidW")
    return _take_text(text)


def _take_text(text: ctypes.c_void_p) -> str:
    """Copy a string that Windows has allocated, and free it."""
    try:
        return ctypes.wstring_at(text.value or 0)
    finally:
        _free(text)


def _free(memory: ctypes.c_void_p) -> None:
    kernel32().LocalFree(memory)


_REPLACE, _POSIX_RENAME = 1, 2  # FILE_RENAME_FLAG_*
_DELETE, _POSIX_DELETE, _IGNORE_READ_ONLY = 0x1, 0x2, 0x10  # FILE_DISPOSITION_FLAG_*
_LASTING = types.ATTRIBUTE_DIRECTORY | types.ATTRIBUTE_READ_ONLY


def open_handle(path: str, access: int, disposition: int, flags: int = types.ATTRIBUTE_NORMAL) -> int:
    """Open a file so that others may do anything with it (CreateFileW); the caller closes the handle. Raises OSError.

    Access that is denied for a folder or a read-only file is not waited for.
    """
    name = extended_path(path)

    def attempt() -> tuple[int, int]:
        handle = kernel32().CreateFileW(name, access, types.SHARE_ALL, None, disposition, flags, None)
        return (handle, 0) if handle not in (None, INVALID_HANDLE) else (-1, last_error())

    handle, code = attempt()
    if code == 5 and _is_denied_for_good(name):
        raise windows_error(code, path)
    if code:
        handle, code = until_free(attempt)
    if code:
        raise _error(code, path)
    return handle


def replace(source: str, target: str) -> bool:
    """Rename a file or folder; a file at `target` is replaced, also if it is open. Raises OSError.

    Return True if the new name is on the disk already.

    With POSIX semantics (Windows 10 1607, NTFS and ReFS) the target's name is free at once, and its readers keep what
    they have open. Elsewhere MoveFileExW does it: it fails while any process has the target open.
    """
    new_name = extended_path(target)

    def attempt() -> tuple[bool, int]:
        code = _rename_by_handle(source, new_name)
        if code not in UNSUPPORTED:
            return False, code
        flags = types.MOVE_REPLACE_EXISTING | types.MOVE_WRITE_THROUGH
        return True, 0 if kernel32().MoveFileExW(extended_path(source), new_name, flags) else last_error()

    is_forced, code = until_free(attempt)
    if code:
        raise _error(code, source if code in (2, 3) else target)
    return is_forced


def _rename_by_handle(source: str, new_name: str) -> int:
    # A handle for the rename alone: one with DELETE that stayed open would keep out all who do not share it.
    with using(open_handle(source, types.DELETE, types.OPEN_EXISTING, _FOLDERS_AND_LINKS)) as handle:
        request = types.rename_information(new_name, _REPLACE | _POSIX_RENAME)
        return _set_information(handle, types.FILE_RENAME_EX, request)


def unlink(path: str) -> None:
    """Remove a file, also one that is open; its readers keep it. Raises OSError, EISDIR for a folder."""
    name = extended_path(path)
    attributes = kernel32().GetFileAttributesW(name)
    is_link = attributes != types.NO_ATTRIBUTES and attributes & types.ATTRIBUTE_REPARSE_POINT
    if attributes != types.NO_ATTRIBUTES and attributes & types.ATTRIBUTE_DIRECTORY and not is_link:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)

    def attempt() -> tuple[None, int]:
        code = _delete_by_handle(path)
        return None, _delete_by_scratch_name(name) if code in UNSUPPORTED else code

    _, code = until_free(attempt)
    if code:
        raise _error(code, path)


def _delete_by_handle(path: str) -> int:
    with using(open_handle(path, types.DELETE, types.OPEN_EXISTING, _FOLDERS_AND_LINKS)) as handle:
        request = ctypes.c_uint32(_DELETE | _POSIX_DELETE | _IGNORE_READ_ONLY)
        return _set_information(handle, types.FILE_DISPOSITION_EX, request)


def _delete_by_scratch_name(name: str) -> int:
    # Without POSIX semantics a removed name stays until the last handle is closed, and cannot be used meanwhile.
    scratch = f"{name}.{secrets.token_hex(4)}.deleted"
    library = kernel32()
    if not library.MoveFileExW(name, scratch, 0):
        return last_error()
    remove = library.RemoveDirectoryW if _is_folder(scratch) else library.DeleteFileW  # a link to a folder
    if remove(scratch):
        return 0
    code = last_error()
    library.MoveFileExW(scratch, name, 0)  # the error of the removal counts
    return code


def mkdir(path: str) -> None:
    """Create a folder (CreateDirectoryW). Raises OSError."""
    check_success(kernel32().CreateDirectoryW(extended_path(path), None), path)


def rmdir(path: str) -> None:
    """Remove an empty folder (RemoveDirectoryW). Raises OSError, ENOTEMPTY if it does not become empty."""
    name = extended_path(path)

    def attempt() -> tuple[None, int]:
        return None, 0 if kernel32().RemoveDirectoryW(name) else last_error()

    _, code = until_free(attempt, codes=FOLDER_IN_USE)
    if code:
        raise windows_error(code, path)


_FOLDERS_AND_LINKS = types.FLAG_BACKUP_SEMANTICS | types.FLAG_OPEN_REPARSE_POINT  # folders, and links as themselves


def _error(code: int, path: str) -> OSError:
    """The error of a call that was repeated; it names the programs that still have the file open."""
    users = file_users(path) if code in IN_USE else []
    return windows_error(code, path, f"open in {', '.join(users)}" if users else "")


def _set_information(handle: int, kind: int, value: ctypes.Structure | ctypes.c_uint32) -> int:
    done = kernel32().SetFileInformationByHandle(handle, kind, ctypes.byref(value), ctypes.sizeof(value))
    return 0 if done else last_error()


def _is_denied_for_good(name: str) -> bool:
    attributes = kernel32().GetFileAttributesW(name)
    return bool(attributes != types.NO_ATTRIBUTES and attributes & _LASTING)


def _is_folder(name: str) -> bool:
    attributes = kernel32().GetFileAttributesW(name)
    return bool(attributes != types.NO_ATTRIBUTES and attributes & types.ATTRIBUTE_DIRECTORY)
