"""A stack file in writing: complete blocks, direct I/O where the system has it, space reserved ahead.

The file is created under a private name. When its header is complete it is closed, renamed and opened again, because
Windows renames no open file; so no reader meets a stack without header. Its visible length never runs ahead of its
data.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections.abc import Sequence

from acqstream.errors import StorageError, wrapping
from acqstream.storage.files.disk import Disk, check_length, using, write_all
from acqstream.storage.platform.capabilities import DIRECT_STEP_BYTES

logger = logging.getLogger("acqstream.storage")

PRIVATE_SUFFIX = ".part"


class StackFile:
    """One stack file, from its private name to its exact length. Used by one thread at a time."""

    def __init__(self, disk: Disk, path: str, *, limit_bytes: int = 2**32) -> None:
        self.path = path
        self.end = 0
        self.direct = True
        self.buffered_reason = ""
        self._disk = disk
        self._limit_bytes = limit_bytes
        self._reserved = self._longest = 0
        self._can_reserve = True
        self._fd = -1
        self._private = path + PRIVATE_SUFFIX
        self._has_name = False
        try:
            with contextlib.suppress(FileNotFoundError):
                disk.unlink(self._private)  # from a process that crashed
            self._open(create=True)
            self._reserve(0)
        except OSError as error:
            self.close()
            raise StorageError.wrap(error, self._private, "cannot create") from error

    @property
    def io(self) -> str:
        """The kind of I/O in use: "direct" or "buffered"."""
        return "direct" if self.direct else "buffered"

    @property
    def reserved_ahead_bytes(self) -> int:
        """Bytes reserved after the last byte written; no other file can take them."""
        return max(0, self._reserved - self.end)

    def begin(self, header: memoryview) -> None:
        """Write the header (complete blocks, block-aligned memory), force it and give the file its name."""
        self.write([header], 0)
        self.sync()
        with wrapping(self.path, "cannot publish the stack file"):
            self.close()
            self._disk.replace(self._private, self.path)
            self._has_name = True
            self._reopen()
            self._disk.sync_directory(os.path.dirname(self.path))

    def reopen(self, path: str) -> None:
        """Resume writing after `close`, where the file has this path now. Raises StorageError."""
        self.path = path
        with wrapping(path, "cannot open again"):
            self._reopen()

    def write(self, blocks: Sequence[memoryview], offset: int) -> None:
        """Write complete blocks of block-aligned memory at `offset`, a block boundary.

        Raises StorageError, DatasetLocked if another program has changed the length.
        """
        length = sum(len(block) for block in blocks)
        try:
            check_length(self._disk, self._fd, self.path, self.end, self._longest)
            self._longest = max(self._longest, offset + length)  # a write that fails may leave bytes up to there
            if self._can_reserve and offset + length > self._reserved:
                self._reserve(offset + length)
            self._write(blocks, offset)
        except OSError as error:
            raise StorageError.wrap(error, self.path, f"cannot write {length} bytes at byte {offset}") from error
        self.end = max(self.end, offset + length)

    def sync(self) -> None:
        """Force all written bytes to the disk. After an error the file must not be used again."""
        # After a failed fsync Linux drops the dirty pages and reports success next time: a second try would hide it.
        end = self.end  # another thread may write meanwhile
        try:
            self._disk.fdatasync(self._fd)
            check_length(self._disk, self._fd, self.path, end)
        except OSError as error:
            raise StorageError.wrap(error, self.path, "cannot force to the disk") from error

    def finish(self, patches: Sequence[tuple[int, bytes]], length: int) -> None:
        """Apply the last patches, cut the file to its exact length, force and close it."""
        with wrapping(self.path, "cannot finish"):
            self.close()
            finish_file(self._disk, self.path, patches, length)

    def discard(self) -> None:
        """Close and remove a file that no index entry names. Raises OSError."""
        self.close()
        with contextlib.suppress(FileNotFoundError):
            self._disk.unlink(self.path if self._has_name else self._private)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            self._disk.close(fd)

    def _open(self, *, create: bool) -> None:
        path = self._private
        try:
            self._fd = self._disk.open(path, create=create, direct=self.direct)
        except OSError as error:
            if error.errno != errno.EINVAL or not self.direct:
                raise
            self._stop_direct(error)
            create = create and not os.path.exists(path)  # some file systems refuse after creating the name
            self._fd = self._disk.open(path, create=create)

    def _stop_direct(self, error: OSError) -> None:
        self.direct = False
        self.buffered_reason = error.strerror or str(error)

    def _reopen(self) -> None:
        self._fd = self._disk.open(self.path, create=False, direct=self.direct)
        # Windows frees the space beyond the end of a file that is closed. Elsewhere this finds it reserved.
        if self._can_reserve and self._reserved > self.end:
            self._allocate(0, self._reserved)

    def _write(self, blocks: Sequence[memoryview], offset: int) -> None:
        step = DIRECT_STEP_BYTES if self.direct else 1
        try:
            write_all(self._disk, self._fd, blocks, offset, step=step)
        except OSError as error:
            if error.errno != errno.EINVAL or not self.direct or offset != 0:
                raise
            # Some file systems accept O_DIRECT and fail at the first write (FUSE, network mounts).
            self._stop_direct(error)
            self.close()
            self._open(create=False)
            write_all(self._disk, self._fd, blocks, offset)

    def _reserve(self, needed: int) -> None:
        """Reserve a step beyond byte `needed`; a failure only turns reserving off."""
        max_step = self._disk.reserve_step(self._fd)
        if not max_step:
            self._can_reserve = False
            return
        # At most a sixteenth of the free space: other acquisitions reserve on the same disk.
        free = self._disk.free_bytes(os.path.dirname(self.path))
        step = min(max_step, max(free // 16, 0))
        start = max(self._reserved, needed)
        length = min(step, self._limit_bytes - start)  # a stack never grows beyond its limit
        length -= length % DIRECT_STEP_BYTES
        total = start + length - self._reserved
        if total > 0:
            self._allocate(self._reserved, total)

    def _allocate(self, offset: int, length: int) -> None:
        try:
            self._can_reserve = self._disk.reserve(self._fd, offset, length)
            self._reserved = offset + length if self._can_reserve else 0
        except OSError:
            # Too little space for a step: free the reserved part. The write itself reports a full disk.
            self._can_reserve = False
            self._reserved = 0
            self._disk.truncate(self._fd, self.end)


def finish_file(disk: Disk, path: str, patches: Sequence[tuple[int, bytes]], length: int) -> None:
    """Patch, cut and force a stack file. Idempotent: closing and recovery use it.

    A file that another process has mapped cannot be cut on Windows: it keeps zeros at its end, up to a block boundary.
    Readers see the same frames, `verify` reports the zeros, and `repair` cuts them once no process maps the file.
    Raises OSError.
    """
    with using(disk, disk.open(path, create=False)) as fd:
        for offset, content in patches:
            write_all(disk, fd, [content], offset)
        try:
            disk.truncate(fd, length)
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            # All frames are in the file and the page chain has its end, so readers see the same as in a cut file.
            logger.warning(
                "%s stays longer than its %d bytes, because a program has mapped it: %s", path, length, error
            )
        disk.fdatasync(fd)
