"""Files of Windows, by handles of the system instead of descriptors of the C library.

The C library allows 8192 open files, has one position a file, opens files so that nobody can rename them, and gives
EINVAL for most errors. A handle is an int and is used like a descriptor, but only with `WindowsFiles`.
Sources: "File Management Functions", "File Buffering", [MS-FSCC] 2.4 and 2.5.
"""

from __future__ import annotations

import ctypes
import errno
import ntpath
import threading
from collections.abc import Sequence
from ctypes import byref, c_int64, c_uint32, c_uint64, sizeof

from acqstream.storage.platform import windows_api as types
from acqstream.storage.platform import windows_names as names
from acqstream.storage.platform.capabilities import DIRECT_STEP_BYTES, address_of, check_alignment, check_sectors
from acqstream.storage.platform.posix_files import FileStatus, PlainFiles
from acqstream.storage.platform.windows_api import (
    END_OF_FILE,
    INVALID_HANDLE,
    LOCKED,
    MAPPED,
    NO_MORE_DATA,
    UNSUPPORTED,
    call_error,
    check_success,
    close_handle,
    kernel32,
    last_error,
    nanoseconds_of,
    until_free,
    using,
    windows_error,
)
from acqstream.storage.platform.windows_names import extended_path, plain_path, refuse_link, volume_of

_READ_WRITE = types.GENERIC_READ | types.GENERIC_WRITE
_MAX_CALL_BYTES = 2**30  # lengths have 32 bits
_LOCK_OFFSET = 2**62  # locks of Windows are mandatory: this byte is never read or written
_MAX_PATH = 32768
_MAX_RANGES = 512  # answered in one call


class WindowsFiles(PlainFiles):
    """See `PosixFiles`. Windows cannot force a folder; `sync_directory` says what it does instead. Only administrators
    force a volume."""

    def __init__(self) -> None:
        self._direct: set[int] = set()  # handles that are open for direct I/O
        self._renamed: dict[str, str] = {}  # the last file that got its name on a volume; not yet forced
        self._forcing: dict[str, threading.Lock] = {}  # for each volume: what one thread forces, the next waits for

    def open(self, path: str, *, create: bool, direct: bool = False) -> int:
        refuse_link(path)
        flags = types.ATTRIBUTE_NORMAL | (types.FLAG_NO_BUFFERING if direct else 0)
        handle = names.open_handle(path, _READ_WRITE, types.CREATE_NEW if create else types.OPEN_EXISTING, flags)
        return self._checked(handle, path, direct)

    def open_for_reading(self, path: str, *, direct: bool = False) -> int:
        # Folders are opened too, as on other systems; `status` tells them from files.
        flags = types.FLAG_BACKUP_SEMANTICS | (types.FLAG_NO_BUFFERING if direct else 0)
        handle = names.open_handle(path, types.GENERIC_READ, types.OPEN_EXISTING, flags)
        return self._checked(handle, path, direct)

    def open_lock_file(self, path: str, *, is_made: bool = True) -> int:
        refuse_link(path)
        if not is_made:
            return self.open_for_reading(path)
        return names.open_handle(path, _READ_WRITE, types.OPEN_ALWAYS)

    def open_null(self) -> int:
        return names.open_handle(r"\\.\NUL", _READ_WRITE, types.OPEN_EXISTING)

    def close(self, fd: int) -> None:
        self._direct.discard(fd)  # before the call: the system may give the number to another file at once
        close_handle(fd)

    def pwritev(self, fd: int, buffers: Sequence[memoryview | bytes], offset: int) -> int:
        if fd in self._direct:
            check_alignment(buffers, offset)
        count, total = c_uint32(), 0
        for buffer in buffers:
            if not len(buffer):
                continue
            length = min(len(buffer), _MAX_CALL_BYTES)
            place = _place(offset + total)
            if not kernel32().WriteFile(fd, address_of(buffer), length, byref(count), byref(place)):
                if total:
                    break  # the next call reports the error
                raise call_error()
            total += count.value
            if count.value < len(buffer):
                break
        return total

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        if not length:
            return b""
        buffer = memoryview(bytearray(length))
        return bytes(buffer[: self.pread_into(fd, buffer, offset)])

    def pread_into(self, fd: int, buffer: memoryview, offset: int) -> int:
        if not len(buffer):
            return 0
        if fd in self._direct:
            check_alignment([buffer], offset)
        count, place = c_uint32(), _place(offset)
        length = min(len(buffer), _MAX_CALL_BYTES)
        if not kernel32().ReadFile(fd, address_of(buffer), length, byref(count), byref(place)):
            code = last_error()
            if code in END_OF_FILE:
                return 0
            raise windows_error(code)
        return count.value

    def fdatasync(self, fd: int) -> None:
        # Data, length and the log of the file system: Windows has no documented call that forces less.
        check_success(kernel32().FlushFileBuffers(fd))

    def reserve(self, fd: int, offset: int, length: int) -> bool:
        # Space after the end of the file is freed when the last handle is closed ([MS-FSCC] 2.4.4).
        if offset + length <= self.size(fd):
            return True  # a smaller allocation would cut the file
        code = _set(fd, types.FILE_ALLOCATION, c_int64(offset + length))
        if code and code not in UNSUPPORTED:
            raise windows_error(code)
        return not code

    def truncate(self, fd: int, length: int) -> None:
        if length > self.size(fd):
            self._allow_holes(fd)
        if fd in self._direct and length % DIRECT_STEP_BYTES:
            # A handle for direct I/O may only set lengths of complete sectors.
            handle = kernel32().ReOpenFile(fd, _READ_WRITE, types.SHARE_ALL, 0)
            if handle in (None, INVALID_HANDLE):
                raise call_error()
            with using(handle):
                _set_length(handle, length)
        else:
            _set_length(fd, length)

    def size(self, fd: int) -> int:
        size = c_int64()
        if not kernel32().GetFileSizeEx(fd, byref(size)):
            code = last_error()
            if code in UNSUPPORTED:  # NUL, a pipe
                return 0
            raise windows_error(code)
        return size.value

    def is_deleted(self, fd: int) -> bool:
        """Return False: what a writer has open is not deleted here."""
        del fd
        return False

    def status(self, fd: int) -> FileStatus:
        kind = kernel32().GetFileType(fd)
        if kind == types.TYPE_UNKNOWN and (code := last_error()):  # a disk that is gone, not a file of another kind
            raise windows_error(code)
        if kind != types.TYPE_DISK:
            return FileStatus((0, fd), is_regular=False, size=0, modified_ns=0)
        found = types.FileInformation()
        check_success(kernel32().GetFileInformationByHandle(fd, byref(found)))
        identity = types.FileIdentity()
        if not kernel32().GetFileInformationByHandleEx(fd, types.FILE_ID, byref(identity), sizeof(identity)):
            # A file system with identities of 64 bits only.
            identity = types.FileIdentity(found.volume, found.index_low | found.index_high << 32, 0)
        return FileStatus(
            (identity.volume, identity.low | identity.high << 64),
            is_regular=not found.attributes & types.ATTRIBUTE_DIRECTORY,
            size=found.size_low | found.size_high << 32,
            modified_ns=nanoseconds_of(found.write_low | found.write_high << 32),
        )

    def path_status(self, path: str) -> FileStatus:
        # Attributes alone: no way of opening keeps others from that, or is kept out.
        flags = types.FLAG_BACKUP_SEMANTICS
        with using(names.open_handle(path, types.FILE_READ_ATTRIBUTES, types.OPEN_EXISTING, flags)) as handle:
            return self.status(handle)

    def stored_bytes(self, path: str) -> int:
        found = types.FileStandardInformation()
        flags = types.FLAG_BACKUP_SEMANTICS
        with using(names.open_handle(path, types.FILE_READ_ATTRIBUTES, types.OPEN_EXISTING, flags)) as handle:
            answer = handle, types.FILE_STANDARD, byref(found), sizeof(found)
            check_success(kernel32().GetFileInformationByHandleEx(*answer))
        size, taken = int(found.end_of_file), int(found.allocated)
        return min(size, taken or size)  # some file systems report no allocation

    def real_path(self, fd: int, path: str) -> str:
        buffer = ctypes.create_unicode_buffer(_MAX_PATH)
        if not kernel32().GetFinalPathNameByHandleW(fd, buffer, _MAX_PATH, 0):
            return ntpath.realpath(path)  # some network file systems
        return plain_path(buffer.value)

    def data_ranges(self, fd: int, size: int) -> list[tuple[int, int]]:
        ranges: list[tuple[int, int]] = []
        answer, count = (types.AllocatedRange * _MAX_RANGES)(), c_uint32()
        start = 0
        while start < size:
            query = types.AllocatedRange(start, size - start)
            arguments = (byref(query), sizeof(query), byref(answer), sizeof(answer), byref(count), None)
            code = 0
            if not kernel32().DeviceIoControl(fd, types.FSCTL_QUERY_ALLOCATED_RANGES, *arguments):
                code = last_error()
            if code in UNSUPPORTED:
                return [(0, size)]
            if code not in (0, NO_MORE_DATA):
                raise windows_error(code)
            found = answer[: count.value // sizeof(types.AllocatedRange)]
            ranges += [(one.offset, min(one.offset + one.length, size)) for one in found]
            if not code or not found:
                break
            start = ranges[-1][1]
        return ranges

    def try_lock(self, fd: int) -> bool:
        place = _place(_LOCK_OFFSET)
        how = types.LOCK_EXCLUSIVE | types.LOCK_FAIL_IMMEDIATELY
        if kernel32().LockFileEx(fd, how, 0, 1, 0, byref(place)):
            return True
        code = last_error()
        if code in LOCKED:
            return False
        raise windows_error(code)

    def replace(self, source: str, target: str) -> None:
        if not names.replace(source, target):
            self._renamed[volume_of(target)] = target

    def unlink(self, path: str) -> None:
        names.unlink(path)

    def mkdir(self, path: str) -> None:
        names.mkdir(path)

    def link_folder(self, target: str, path: str) -> None:
        """Raises OSError (EPERM): links take a privilege that users do not have."""
        raise OSError(errno.EPERM, f"no link to {target}: Windows permits links to administrators only", path)

    def rmdir(self, path: str) -> None:
        names.rmdir(path)

    def sync_directory(self, path: str) -> None:
        """Force the file that got its name last on this volume, or the folder itself where that one cannot be opened.

        Windows does not promise that forcing a folder forces the names in it. NTFS writes changes of names into one
        log, in order, and forcing a file writes that log, with names from before. (Nobody cut the power to prove it.)
        """
        volume = volume_of(path)
        with self._forcing.setdefault(volume, threading.Lock()):
            target = self._renamed.pop(volume, None)
            if target is None:
                return
            try:
                with using(_open_to_force(target, path)) as handle:
                    self.fdatasync(handle)
            except BaseException:
                self._renamed.setdefault(volume, target)
                raise

    def free_bytes(self, path: str) -> int:
        free = c_uint64()  # for this user, within its quota
        check_success(kernel32().GetDiskFreeSpaceExW(extended_path(path), byref(free), None, None), path)
        return free.value

    def _checked(self, handle: int, path: str, direct: bool) -> int:
        """The handle, noted if it is for direct I/O; closed if sectors of the volume are too large or unknown."""
        if not direct:
            return handle
        try:
            check_sectors(_sector_bytes(handle), path)
        except OSError:
            close_handle(handle)
            raise
        self._direct.add(handle)
        return handle

    def _allow_holes(self, fd: int) -> None:
        # Else NTFS would allocate, and later write, all that the file grows by. FAT cannot: the file is then complete.
        count = c_uint32()
        if not kernel32().DeviceIoControl(fd, types.FSCTL_SET_SPARSE, None, 0, None, 0, byref(count), None):
            code = last_error()
            if code not in UNSUPPORTED:
                raise windows_error(code)


def _sector_bytes(handle: int) -> int:
    """The largest sector size that the volume of a file reports; 0 if it reports none."""
    found = types.StorageInformation()
    if not kernel32().GetFileInformationByHandleEx(handle, types.FILE_STORAGE, byref(found), sizeof(found)):
        return 0
    return int(max(found.logical, found.effective_atomic))


def _place(offset: int) -> types.Overlapped:
    return types.Overlapped(None, None, offset & 0xFFFF_FFFF, offset >> 32, None)


def _set_length(handle: int, length: int) -> None:
    """Set the end of a file, and wait for programs that have mapped it for a moment. Raises OSError."""

    def attempt() -> tuple[None, int]:
        return None, _set(handle, types.FILE_END_OF_FILE, c_int64(length))

    _, code = until_free(attempt, codes=MAPPED)
    if code:
        raise windows_error(code)


def _set(handle: int, kind: int, value: c_int64) -> int:
    """Set one value of a file; return the error code, 0 for none."""
    return 0 if kernel32().SetFileInformationByHandle(handle, kind, byref(value), sizeof(value)) else last_error()


def _open_to_force(path: str, folder: str) -> int:
    try:
        return names.open_handle(path, types.GENERIC_WRITE, types.OPEN_EXISTING)
    except (FileNotFoundError, PermissionError):
        # Removed since, a folder, or in use. Names from before must still be forced: the folder forces its own.
        return names.open_handle(folder, types.GENERIC_WRITE, types.OPEN_EXISTING, types.FLAG_BACKUP_SEMANTICS)
