"""A large file that a library writes: a file object under a temporary name, renamed once it is complete.

Libraries that write one large file (tifffile, h5py) take a file object. This one makes their calls calls of a `Disk`.
It also remembers the first failed call, since HDF5 reports a full disk in words of its own, or not at all.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

from acqstream.errors import DatasetError, DatasetExists, StorageError, wrapping
from acqstream.storage.files.disk import Disk, write_all

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

PART_SUFFIX = ".part"


class NewFile(io.RawIOBase):
    """Reads and writes at a position, unbuffered; used by one thread. failure is the first error of the disk."""

    def __init__(self, disk: Disk, descriptor: int) -> None:
        super().__init__()
        self._disk = disk
        self._descriptor = descriptor
        self._position = 0
        self.failure: OSError | None = None

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Set the position, also beyond the end of the file. Raises ValueError before its start."""
        with self._noting():
            start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position}.get(whence)
            position = (self._disk.size(self._descriptor) if start is None else start) + offset
        if position < 0:
            raise ValueError(f"position {position} lies before the start of the file")
        self._position = position
        return position

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        target = memoryview(buffer).cast("B")
        with self._noting():
            data = self._disk.pread(self._descriptor, len(target), self._position)
        target[: len(data)] = data
        self._position += len(data)
        return len(data)

    def write(self, data: ReadableBuffer, /) -> int:
        """Write all of `data`; return its bytes."""
        with self._noting():
            end = write_all(self._disk, self._descriptor, [memoryview(data)], self._position)
        written, self._position = end - self._position, end
        return written

    def truncate(self, size: int | None = None, /) -> int:
        size = self._position if size is None else size
        with self._noting():
            self._disk.truncate(self._descriptor, size)
        return size

    def take_failure(self) -> OSError | None:
        """The failure, which this file forgets: the error's traceback names the file, and a cycle would keep both."""
        failure, self.failure = self.failure, None
        return failure

    @contextmanager
    def _noting(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.failure = self.failure or error
            raise


@contextmanager
def new_file(disk: Disk, path: Path, *, min_bytes: int = 0, is_replaced: bool = False) -> Iterator[NewFile]:
    """A file for a library to write, which gets its name, forced to disk, when the block ends without an error.

    Until then it is called `.NAME.XXXXXXXX.part`; after an error it is removed. min_bytes: length that the file will
    have at least; a disk with less free space is not filled, since others write to it. is_replaced: an existing file
    stays until the new one is complete. Raises DatasetExists if the name is taken, DatasetError if it is that of a
    folder, StorageError for each failed disk call, also for one that the library kept to itself.
    """
    _check_name(path, is_replaced=is_replaced)
    temporary = str(path.with_name(f".{path.name}.{secrets.token_hex(4)}{PART_SUFFIX}"))
    with wrapping(str(path), "cannot create"):
        _check_space(disk, path, min_bytes)
        descriptor = disk.open(temporary, create=True)
    file = NewFile(disk, descriptor)
    try:
        try:
            yield file
            if file.failure is None:
                disk.fdatasync(descriptor)
        finally:
            disk.close(descriptor)
        if file.failure is not None:
            raise file.failure
        _check_name(path, is_replaced=is_replaced)  # another program may have taken the name since
        disk.replace(temporary, str(path))
        disk.sync_directory(str(path.parent))
    except BaseException as error:
        with contextlib.suppress(OSError):
            disk.unlink(temporary)
        if isinstance(error, KeyboardInterrupt) or (file.failure is None and type(error) is not OSError):
            raise
        raise StorageError.wrap(cast("OSError", file.take_failure() or error), str(path), "cannot write") from error


def _check_space(disk: Disk, path: Path, min_bytes: int) -> None:
    free_bytes = disk.free_bytes(str(path.parent)) if min_bytes else 0
    if free_bytes < min_bytes:
        raise OSError(errno.ENOSPC, f"it needs {min_bytes:,} bytes, and {free_bytes:,} are free")


def _check_name(path: Path, *, is_replaced: bool) -> None:
    if path.is_dir():
        raise DatasetError(f"{path} is a folder: expected the name of a file")
    if not is_replaced and os.path.lexists(path):
        raise DatasetExists(f"{path} already exists: name another file, or replace it")
