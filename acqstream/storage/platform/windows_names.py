"""Names of files on Windows: opening, renaming and removing while other processes have the file open.

Whoever opens a file decides what others may do with it meanwhile. All files of acqstream are opened so that others may
read, write, rename and remove them (FILE_SHARE_*). A file that another program opened otherwise is waited for, because
most such programs have it for some milliseconds; see `windows_errors.until_free`.
"""

from __future__ import annotations

import ctypes
import errno
import os
import secrets

from acqstream.storage.platform import windows_file_types as types
from acqstream.storage.platform.windows_api import INVALID_HANDLE, close_handle, kernel32, last_error
from acqstream.storage.platform.windows_errors import FOLDER_IN_USE, IN_USE, UNSUPPORTED, until_free, windows_error
from acqstream.storage.platform.windows_file_users import file_users
from acqstream.storage.platform.windows_paths import extended_path

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
    handle = open_handle(source, types.DELETE, types.OPEN_EXISTING, _FOLDERS_AND_LINKS)
    try:
        request = types.rename_information(new_name, _REPLACE | _POSIX_RENAME)
        return _set_information(handle, types.FILE_RENAME_EX, request)
    finally:
        close_handle(handle)


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
    handle = open_handle(path, types.DELETE, types.OPEN_EXISTING, _FOLDERS_AND_LINKS)
    try:
        request = ctypes.c_uint32(_DELETE | _POSIX_DELETE | _IGNORE_READ_ONLY)
        return _set_information(handle, types.FILE_DISPOSITION_EX, request)
    finally:
        close_handle(handle)


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
    if not kernel32().CreateDirectoryW(extended_path(path), None):
        raise windows_error(last_error(), path)


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
