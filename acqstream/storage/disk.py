"""Disk: the calls of the writing side that can fail on a disk; tests replace it by a scripted one.

All methods raise plain OSError; the files built on top add the path and the attempted action. Offsets and lengths are
bytes. Nothing here buffers.
"""

from __future__ import annotations

import errno
import math
from collections.abc import Callable, Sequence
from typing import Protocol

from acqstream.errors import DatasetLocked
from acqstream.storage.platform import Files

Content = Sequence[bytes | memoryview]
"""The bytes of an object in parts, one after the other; the store copies none of them."""


Run = tuple[int, Content]
"""An offset in an object, in bytes, and the content that belongs there."""


class Disk(Protocol):
    """The disk calls of the writing side."""

    def open(self, path: str, *, create: bool, direct: bool = False) -> int:
        """A descriptor for reading and writing. create: the file must not exist. direct: past the page cache."""

    def close(self, fd: int) -> None: ...
    def pwritev(self, fd: int, buffers: Sequence[memoryview | bytes], offset: int) -> int:
        """Bytes written; may be fewer than given."""

    def pread(self, fd: int, length: int, offset: int) -> bytes: ...
    def fdatasync(self, fd: int) -> None: ...
    def reserve(self, fd: int, offset: int, length: int) -> bool:
        """Allocate blocks without changing the visible length. False where the file system cannot."""

    def reserve_step(self, fd: int) -> int:
        """Max bytes to reserve ahead at once: a cut later may free no part of one reservation. 0 for none."""

    def truncate(self, fd: int, length: int) -> None:
        """Set the length. Raises OSError EBUSY where a program has mapped the part to be cut off (Windows)."""

    def size(self, fd: int) -> int: ...
    def replace(self, source: str, target: str) -> None:
        """Rename a file or folder; a file replaces another one.

        Windows refuses it while anybody writes to either file, or has a file of the folder open.
        """

    def unlink(self, path: str) -> None: ...
    def mkdir(self, path: str) -> None: ...
    def link_folder(self, target: str, path: str) -> None:
        """Make a symbolic link at `path` to a folder; a relative target counts from the folder of the link.

        Raises FileExistsError; OSError where the system or the file system has no links.
        """

    def sync_directory(self, path: str) -> bool | None:
        """Force the names in a folder. False where the file system cannot; see `force_names`."""

    def open_file_system(self, folder: str) -> int | None:
        """A descriptor for `sync_file_system`, which reports errors from now on; None where it cannot do that."""

    def sync_file_system(self, fd: int) -> None:
        """Force all files and names of a file system; fd is from `open_file_system`."""

    def free_bytes(self, path: str) -> int: ...


class LocalDisk(Files):
    """The operating system's files. `Files` has the calls, so that none goes through a function more."""

    def sync_directory(self, path: str) -> bool | None:
        return force_names(super().sync_directory, path)

    def size(self, fd: int) -> int:
        """Raises FileNotFoundError for a deleted file: a reader may go on with it, a writer must not."""
        # Its blocks go when it is closed, so all that is written from now on is lost.
        if self.is_deleted(fd):
            raise FileNotFoundError(errno.ENOENT, "another program deleted the file")
        return super().size(fd)


def force_names(sync_directory: Callable[[str], bool | None], path: str) -> bool:
    """Force the names in a folder; False where the file system answers that it cannot, as some of networks do."""
    try:
        return sync_directory(path) is not False
    except OSError as error:
        # A disk that fails (EIO) is an error. These say that the call itself is unknown there.
        if error.errno not in _CANNOT_FORCE_NAMES:
            raise
        return False


def write_all(disk: Disk, fd: int, buffers: Sequence[memoryview | bytes], offset: int, *, step: int = 1) -> int:
    """Write all of `buffers` at `offset`, resuming after short writes; return the offset after the last byte.

    step is the alignment that a resumed write must keep: the block size for direct I/O.
    """
    queue = [memoryview(buffer).cast("B") for buffer in buffers if len(buffer)]
    stuck = False
    while queue:
        written = disk.pwritev(fd, queue[:_IOV_MAX], offset)
        if written <= 0 or (stuck and written < step):
            raise OSError(errno.EIO, "the disk took no bytes")
        stuck = written < step  # less than a block: try once more, then report an error
        written -= written % step
        offset += written
        while queue and written >= len(queue[0]):
            written -= len(queue.pop(0))
        if written:
            queue[0] = queue[0][written:]
    return offset


def check_length(disk: Disk, fd: int, path: str, shortest: int, longest: float = math.inf) -> None:
    """Raise DatasetLocked if an open file of this process has a length that another program gave it; else OSError."""
    try:
        size = disk.size(fd)
    except FileNotFoundError as error:
        raise DatasetLocked(f"{path} was deleted by another program; its frames are lost") from error
    if not shortest <= size <= longest:
        text = f"{path} was changed by another program: {size} bytes, expected {shortest}"
        raise DatasetLocked(f"{text}; end that program, then verify the dataset")


_CANNOT_FORCE_NAMES = {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EBADF}
_IOV_MAX = 512  # buffers a call; the limit of Linux is 1024 (UIO_MAXIOV)
