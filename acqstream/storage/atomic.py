"""Replacing a small file whole: readers see the old content or the new, never a part."""

from __future__ import annotations

import contextlib
import os

from acqstream.errors import StorageError
from acqstream.storage.disk import Disk, write_all

TEMPORARY_SUFFIX = ".new"


def replace_file(disk: Disk, path: str, content: bytes) -> None:
    """Write `content` beside `path`, force it, rename it into place and force the directory.

    On return the new content survives a power cut. Raises StorageError; the file then has its old content, or the new
    if only forcing the directory failed.
    """
    temporary = path + TEMPORARY_SUFFIX
    try:
        with contextlib.suppress(FileNotFoundError):
            disk.unlink(temporary)  # left by a crash
        fd = disk.open(temporary, create=True)
        try:
            write_all(disk, fd, [content], 0)
            disk.fdatasync(fd)
        finally:
            disk.close(fd)
        disk.replace(temporary, path)
        disk.sync_directory(os.path.dirname(path) or ".")
    except OSError as error:
        raise StorageError.wrap(error, path, "cannot replace") from error
