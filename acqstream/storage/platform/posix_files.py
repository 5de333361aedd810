"""Files of a POSIX system, by descriptors, and those that only their owner can read: what Linux and macOS share."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

# By getattr, so that this module can be imported on Windows, where tests compare its names.
NO_LINK: int = getattr(os, "O_NOFOLLOW", 0)
_CLOSE_ON_EXEC = getattr(os, "O_CLOEXEC", 0)
# O_NONBLOCK: opening a pipe without a writer would wait forever. Regular files ignore it.
_NO_WAIT = _CLOSE_ON_EXEC | getattr(os, "O_NONBLOCK", 0)
_ALL_USERS, _OTHERS = 0o007, 0o077


def create_private(path: Path) -> None:
    """Create an empty file of mode 0600. Raises OSError, FileExistsError if something has this name."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def exposure(path: Path) -> str:
    """Say how all users of the PC can read or change the file, and the remedy; empty if they cannot. Raises OSError."""
    mode = path.stat().st_mode
    return f"every user can read {path}; set mode 600 (chmod)" if mode & _ALL_USERS else ""


def open_log(path: Path) -> int:
    """A descriptor to append to a file that only this user can read; created where it is missing. Raises OSError.

    Others may write in a folder of data: no link is followed, and a file of another user is refused.
    """
    return open_own(str(path), os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def open_own(path: str, flags: int) -> int:
    """As `open_log`, with these flags of open(2)."""
    with telling_of_links(path):
        fd = os.open(path, flags | _NO_WAIT | NO_LINK, 0o600)
    try:
        found = os.fstat(fd)
        # On a network share all files may belong to the user who mounted it, as the folder does.
        owners = (os.geteuid(), 0, os.stat(os.path.dirname(path) or os.curdir).st_uid)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1 or found.st_uid not in owners:
            text = f"it is no regular file of this user with one name (its owner is user {found.st_uid}); remove it"
            raise OSError(errno.EPERM, text, path)
        if found.st_uid == os.geteuid() and found.st_mode & _OTHERS:
            with contextlib.suppress(PermissionError):  # exFAT has one mode for all files
                os.fchmod(fd, 0o600)
    except BaseException:
        os.close(fd)
        raise
    return fd


@contextlib.contextmanager
def telling_of_links(path: str) -> Iterator[None]:
    """Words for the error of NO_LINK."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "it is a link, which is not followed: remove it", path) from error
        raise


_F_FULLFSYNC = 51  # of macOS
_CANNOT_REACH_DRIVE = {errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL}

RESERVE_STEP_BYTES = 256 * 2**20  # a call per 256 MiB costs nothing, and a crash wastes no more until recovery


class FileStatus(NamedTuple):
    """The state of a file. identity is equal for two names or descriptors of one file."""

    identity: tuple[int, int]
    is_regular: bool
    size: int
    modified_ns: int


class PlainFiles:
    """What files of a system do of which nothing more is known."""

    def reserve_step(self, fd: int) -> int:
        """Max bytes to reserve ahead at once: a cut later may free no part of one reservation. 0 for none."""
        return RESERVE_STEP_BYTES

    def why_cached(self, path: str) -> str:
        """The reason why direct writes of a file, at least a page long, went through a page cache; "" if they did not
        or it is not known."""
        return ""

    def open_file_system(self, folder: str) -> int | None:
        """A descriptor for `sync_file_system`, which reports errors from now on; None where it cannot do that."""
        return None

    def sync_file_system(self, fd: int) -> None:
        """Force all files and names of a file system; fd is from `open_file_system`."""
        raise OSError(errno.ENOSYS, "this system does not force all files at once")

    def quotas(self, folder: str) -> dict[str, int | None]:
        """Bytes left of the quotas of new files there, by their names: sys.maxsize without a limit, None if this user
        cannot look it up. Empty without quotas, if `free_bytes` has them, or if the system does not report them."""
        return {}


class PosixFiles(PlainFiles):
    """Calls on files of the system. Offsets and lengths are bytes; all methods raise OSError.

    A descriptor belongs to the caller until `close`. Children do not inherit it.
    """

    def open(self, path: str, *, create: bool, direct: bool = False) -> int:
        """A descriptor for reading and writing. create: the file must not exist. direct: past the page cache.

        A link is not followed: a file of somebody else may be behind it.
        """
        flags = os.O_RDWR | _CLOSE_ON_EXEC | NO_LINK | self._direct_flag(path, direct)
        if create:
            flags |= os.O_CREAT | os.O_EXCL
        with telling_of_links(path):
            return os.open(path, flags, 0o666)

    def open_for_reading(self, path: str, *, direct: bool = False) -> int:
        """A descriptor for reading; a pipe does not block."""
        return os.open(path, os.O_RDONLY | _NO_WAIT | self._direct_flag(path, direct))

    def open_lock_file(self, path: str, *, is_made: bool = True) -> int:
        """A descriptor of a file that only this user can read: for reading and writing, and created where it is
        missing; else for reading."""
        return open_own(path, os.O_RDWR | os.O_CREAT if is_made else os.O_RDONLY)

    def open_null(self) -> int:
        """A descriptor that takes all writes and has no content."""
        return os.open(os.devnull, os.O_RDWR | _CLOSE_ON_EXEC)

    def close(self, fd: int) -> None:
        os.close(fd)

    def pwritev(self, fd: int, buffers: Sequence[memoryview | bytes], offset: int) -> int:
        """Bytes written; may be fewer than given."""
        return os.pwritev(fd, buffers, offset)

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        """Bytes read; may be fewer than asked for, and are none at the end of the file."""
        return os.pread(fd, length, offset)

    def pread_into(self, fd: int, buffer: memoryview, offset: int) -> int:
        """Bytes read into `buffer`; may be fewer than it takes, and are 0 at the end of the file."""
        return os.preadv(fd, [buffer], offset)

    def fdatasync(self, fd: int) -> None:
        """Force written data and the length of the file to the disk."""
        self._force(fd)

    def reserve(self, fd: int, offset: int, length: int) -> bool:
        """Allocate blocks without changing the visible length. False where the file system cannot."""
        return False

    def truncate(self, fd: int, length: int) -> None:
        os.ftruncate(fd, length)

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def is_deleted(self, fd: int) -> bool:
        """Return True if an open file has no name any more."""
        return not os.fstat(fd).st_nlink

    def status(self, fd: int) -> FileStatus:
        """The status of an open file."""
        return _status(os.fstat(fd))

    def path_status(self, path: str) -> FileStatus:
        """The status of the file that `path` leads to, through links."""
        return _status(os.stat(path))

    def stored_bytes(self, path: str) -> int:
        """Bytes of a file up to its end that take space: most of a raw cube of WKW are holes."""
        status = os.stat(path)
        return min(status.st_size, 512 * status.st_blocks or status.st_size)  # some file systems report no blocks

    def real_path(self, fd: int, path: str) -> str:
        """The real place of an open file, which was opened as `path`."""
        return os.path.realpath(path)

    def data_ranges(self, fd: int, size: int) -> list[tuple[int, int]]:
        """Byte ranges [start, end) with data in a file of `size` bytes; the bytes between them read as zeros.

        The complete file is one range where the file system reports no holes (lseek(2), SEEK_DATA).
        """
        if size and not hasattr(os, "SEEK_DATA"):
            return [(0, size)]
        ranges: list[tuple[int, int]] = []
        end = 0
        while end < size:
            try:
                start = os.lseek(fd, end, os.SEEK_DATA)
                end = os.lseek(fd, start, os.SEEK_HOLE)
            except OSError as error:
                if error.errno == errno.ENXIO:  # nothing but a hole up to the end
                    break
                if error.errno in (errno.EINVAL, errno.ENOTSUP):
                    return [(0, size)]
                raise
            ranges.append((start, end))
        return ranges

    def try_lock(self, fd: int) -> bool:
        """Lock an open file against other processes until it is closed; False if another one has locked it."""
        import fcntl  # not on Windows, where this module is imported by tests

        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def replace(self, source: str, target: str) -> None:
        """Rename a file or folder; a file at `target` is replaced."""
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def mkdir(self, path: str) -> None:
        os.mkdir(path)

    def link_folder(self, target: str, path: str) -> None:
        """Make a symbolic link at `path` to a folder; a relative target counts from the folder of the link."""
        os.symlink(target, path, target_is_directory=True)

    def rmdir(self, path: str) -> None:
        """Remove an empty folder."""
        os.rmdir(path)

    def sync_directory(self, path: str) -> bool | None:
        """Force the names in a folder to the disk."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._force(fd)
        finally:
            os.close(fd)
        return True

    def free_bytes(self, path: str) -> int:
        """Bytes that this user can still write to the file system of `path`."""
        status = os.statvfs(path)
        # f_bavail, not f_bfree: the blocks kept for root are not ours.
        return status.f_bavail * status.f_frsize

    def _force(self, fd: int) -> None:
        os.fsync(fd)

    def _direct_flag(self, path: str, direct: bool) -> int:
        """The flag of open(2) for direct I/O; raises OSError (EINVAL) if `direct` and the system has none."""
        if direct:
            raise OSError(errno.EINVAL, "no direct I/O on this platform", path)
        return 0


class MacFiles(PosixFiles):
    """macOS: fsync(2) leaves bytes in the memory of the drive, where a power cut loses them. Nobody has run it there.

    Source: Apple's manual page of fcntl(2).
    """

    def _force(self, fd: int) -> None:
        import fcntl  # not on Windows, where this module is imported by tests

        try:
            fcntl.fcntl(fd, _F_FULLFSYNC, 0)
        except OSError as error:
            if error.errno not in _CANNOT_REACH_DRIVE:
                raise
            os.fsync(fd)  # a file system that cannot reach its drive, such as a network's


def _status(status: os.stat_result) -> FileStatus:
    identity = (status.st_dev, status.st_ino)
    return FileStatus(identity, stat.S_ISREG(status.st_mode), status.st_size, status.st_mtime_ns)
