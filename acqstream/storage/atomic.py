"""Replacing a small file whole: readers see the old content or the new, never a part."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from acqstream.errors import StorageError
from acqstream.storage.disk import Disk, write_all
from acqstream.storage.read_file import ReadFile, is_absent

TEMPORARY_SUFFIX = ".new"


def has_content(path: str, content: bytes) -> bool:
    """Whether a file is there and holds just this. Raises StorageError, CorruptDataset for a pipe, folder or device."""
    try:
        file = ReadFile(Path(path))
    except StorageError as error:
        if is_absent(error):
            return False
        raise
    try:
        return file.size() == len(content) and file.read(0, len(content)) == content
    finally:
        file.close()


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


def ensure_file(disk: Disk, path: str, content: bytes) -> None:
    """As `replace_file`, unless the file holds this content already: then its name alone is forced."""
    try:
        is_there = has_content(path, content)
        if is_there:
            disk.sync_directory(os.path.dirname(path) or ".")
    except OSError as error:
        raise StorageError.wrap(error, path, "cannot look at") from error
    if not is_there:
        replace_file(disk, path, content)
