"""Disk: the calls of the writing side that can fail on a disk; dry for rehearsals, and watched for calls that stall.

Tests replace it by a scripted one. All methods raise plain OSError; the files built on top add the path and the
attempted action. Offsets and lengths are bytes. Nothing here buffers.
"""

from __future__ import annotations

import errno
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from acqstream.errors import DatasetLocked
from acqstream.storage.files.directory_lock import HeldFolder
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


@contextmanager
def using(files: Disk | Files, fd: int) -> Iterator[int]:
    """Close the descriptor at the end of the block."""
    try:
        yield fd
    finally:
        files.close(fd)


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


_READ_ONLY = {errno.EROFS, errno.EACCES, errno.EPERM}


class DryDisk(LocalDisk):
    """Reads are real. An existing file is opened read-only if it is not writable."""

    def open(self, path: str, *, create: bool, direct: bool = False) -> int:
        if create:
            return self.open_null()
        try:
            return super().open(path, create=False)
        except OSError as error:
            if error.errno not in _READ_ONLY:
                raise
            return self.open_for_reading(path)

    def pwritev(self, fd: int, buffers: Sequence[memoryview | bytes], offset: int) -> int:
        return sum(len(buffer) for buffer in buffers)

    def fdatasync(self, fd: int) -> None:
        return

    def reserve(self, fd: int, offset: int, length: int) -> bool:
        return False

    def truncate(self, fd: int, length: int) -> None:
        return

    def replace(self, source: str, target: str) -> None:
        return

    def unlink(self, path: str) -> None:
        return

    def mkdir(self, path: str) -> None:
        return

    def link_folder(self, target: str, path: str) -> None:
        return

    def sync_directory(self, path: str) -> None:
        return

    def open_file_system(self, folder: str) -> None:
        return


STALL_S = 1.0  # a disk call that takes longer counts as stalled
MAX_STALLS = 1000  # recorded; later ones are only counted

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class SlowCall:
    """A disk call longer than STALL_S, finished or not. began_s is seconds since 1970."""

    call: str
    file: str
    began_s: float
    seconds: float

    def joined(self, other: SlowCall) -> SlowCall | None:
        """The time of both together, named after the older one; None if they do not overlap."""
        first, second = sorted((self, other), key=lambda one: one.began_s)
        if second.began_s >= first.began_s + first.seconds:
            return None
        return replace(first, seconds=max(first.seconds, second.began_s - first.began_s + second.seconds))


class WatchedDisk:
    """A `Disk` that passes each call to `inner` and measures it. Thread-safe; two clock readings a call.

    on_stall is called when a stalled call has returned, by the thread that made the call; on_unforced with the first
    folder whose names the file system cannot force. Paths in `folder` stay right when it is moved.
    """

    def __init__(
        self,
        inner: Disk,
        on_stall: Callable[[SlowCall], None],
        on_unforced: Callable[[str], None] = lambda _: None,
        folder: HeldFolder | None = None,
    ) -> None:
        self._inner = inner
        self.folder = folder or HeldFolder("")
        self._on_stall, self._on_unforced = on_stall, on_unforced
        self.has_unforced_names = False
        # One entry per thread, which only that thread writes: single dict operations need no lock on the frame path.
        self._running: dict[int, tuple[str, str, float]] = {}  # call, path, start (monotonic seconds)
        self._paths: dict[int, str] = {}  # by descriptor, so that a stalled write can name its file

    def stalled_call(self) -> SlowCall | None:
        """The oldest call in progress, if it is older than STALL_S."""
        # A copy: other threads start and end calls while min() walks through them.
        running = list(self._running.copy().values())
        call, path, since_s = min(running, key=lambda entry: entry[2], default=("", "", time.monotonic()))
        return _slow_call(call, path, since_s)

    def _watch(self, call: str, path: str, action: Callable[[], _T]) -> _T:
        thread, since_s = threading.get_ident(), time.monotonic()
        self._running[thread] = (call, path, since_s)
        try:
            return action()
        finally:  # a call that fails after a long wait is a stall too
            del self._running[thread]
            slow = _slow_call(call, path, since_s)
            if slow is not None:
                self._on_stall(slow)

    def open(self, path: str, *, create: bool, direct: bool = False) -> int:
        fd = self._watch("open", path, lambda: self._inner.open(self.folder.at(path), create=create, direct=direct))
        self._paths[fd] = path
        return fd

    def close(self, fd: int) -> None:
        path = self._paths.pop(fd, "")  # before the call: the system may give the number to another file at once
        self._watch("close", path, lambda: self._inner.close(fd))

    def pwritev(self, fd: int, buffers: Sequence[memoryview | bytes], offset: int) -> int:
        return self._watch("write", self._paths.get(fd, ""), lambda: self._inner.pwritev(fd, buffers, offset))

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        return self._watch("read", self._paths.get(fd, ""), lambda: self._inner.pread(fd, length, offset))

    def fdatasync(self, fd: int) -> None:
        self._watch("fdatasync", self._paths.get(fd, ""), lambda: self._inner.fdatasync(fd))

    def reserve(self, fd: int, offset: int, length: int) -> bool:
        return self._watch("reserve", self._paths.get(fd, ""), lambda: self._inner.reserve(fd, offset, length))

    def reserve_step(self, fd: int) -> int:
        return self._inner.reserve_step(fd)

    def truncate(self, fd: int, length: int) -> None:
        self._watch("truncate", self._paths.get(fd, ""), lambda: self._inner.truncate(fd, length))

    def size(self, fd: int) -> int:
        return self._inner.size(fd)  # not watched: on local file systems fstat reads no disk

    def replace(self, source: str, target: str) -> None:  # of a closed file: see StackFile
        at = self.folder.at
        self._watch("rename", target, lambda: self._inner.replace(at(source), at(target)))

    def unlink(self, path: str) -> None:
        self._watch("unlink", path, lambda: self._inner.unlink(self.folder.at(path)))

    def mkdir(self, path: str) -> None:
        self._watch("mkdir", path, lambda: self._inner.mkdir(self.folder.at(path)))

    def link_folder(self, target: str, path: str) -> None:
        self._watch("symlink", path, lambda: self._inner.link_folder(target, path))

    def sync_directory(self, path: str) -> bool:
        is_forced = self._watch("fsync", path, lambda: force_names(self._inner.sync_directory, self.folder.at(path)))
        if not (is_forced or self.has_unforced_names):
            self.has_unforced_names = True
            self._on_unforced(path)
        return is_forced

    def open_file_system(self, folder: str) -> int | None:
        return self._inner.open_file_system(self.folder.at(folder))

    def sync_file_system(self, fd: int) -> None:
        self._watch("syncfs", self.folder.path, lambda: self._inner.sync_file_system(fd))

    def free_bytes(self, path: str) -> int:
        return self._watch("statvfs", path, lambda: self._inner.free_bytes(self.folder.at(path)))


def _slow_call(call: str, path: str, since_s: float) -> SlowCall | None:
    seconds = time.monotonic() - since_s
    if seconds < STALL_S:
        return None
    # Measured on the monotonic clock, dated on the wall clock: only the first never jumps.
    return SlowCall(call, os.path.basename(path), time.time() - seconds, seconds)
