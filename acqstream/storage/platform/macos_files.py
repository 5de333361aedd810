"""Files of macOS: a forced file is on the disk, direct I/O and reserved space by fcntl(2).

Written from Apple's manual page of fcntl(2); nobody has run it on macOS.
"""

from __future__ import annotations

import errno
import os
import struct
from typing import Any

from acqstream.storage.platform.posix_files import PosixFiles

_F_PREALLOCATE, _F_NOCACHE, _F_GETPATH, _F_FULLFSYNC = 42, 48, 50, 51
_F_ALLOCATECONTIG, _F_ALLOCATEALL = 2, 4
_F_PEOFPOSMODE = 3  # from the end of the blocks that the file has
_FSTORE = struct.Struct("@Iiqqq")  # fstore_t: flags, position mode, offset, length, bytes allocated
_MAX_PATH = 1024
_UNSUPPORTED = {errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL}


class MacFiles(PosixFiles):
    """See `PosixFiles`. Calls for direct I/O need no alignment; what is in the page cache already stays there."""

    def open(self, path: str, *, create: bool, direct: bool = False) -> int:
        return self._uncached(super().open(path, create=create), direct)

    def open_for_reading(self, path: str, *, direct: bool = False) -> int:
        return self._uncached(super().open_for_reading(path), direct)

    def fdatasync(self, fd: int) -> None:
        self._force(fd)

    def reserve(self, fd: int, offset: int, length: int) -> bool:
        missing = offset + length - os.fstat(fd).st_blocks * 512
        if missing <= 0:
            return True
        for flags in (_F_ALLOCATECONTIG | _F_ALLOCATEALL, _F_ALLOCATEALL):  # in one piece, else in several
            try:
                _control(fd, _F_PREALLOCATE, _FSTORE.pack(flags, _F_PEOFPOSMODE, 0, missing, 0))
            except OSError as error:
                if error.errno in _UNSUPPORTED:
                    return False
                failure = error
            else:
                return True
        raise failure

    def real_path(self, fd: int, path: str) -> str:
        try:
            name: bytes = _control(fd, _F_GETPATH, bytes(_MAX_PATH))
        except OSError:  # a file that was removed, a network file system
            return super().real_path(fd, path)
        return os.fsdecode(name.partition(b"\0")[0])

    def _force(self, fd: int) -> None:
        # fsync(2) of macOS leaves the bytes in the memory of the drive, where a power cut loses them.
        try:
            _control(fd, _F_FULLFSYNC, 0)
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
            os.fsync(fd)  # a file system that cannot reach its drive, such as a network's

    def _uncached(self, fd: int, direct: bool) -> int:
        if direct:
            try:
                _control(fd, _F_NOCACHE, 1)
            except OSError as error:
                os.close(fd)
                raise OSError(errno.EINVAL, f"no direct I/O: {error.strerror}") from error
        return fd


def _control(fd: int, command: int, argument: int | bytes) -> Any:
    import fcntl  # not on Windows, where this module is imported by tests

    return fcntl.fcntl(fd, command, argument)
