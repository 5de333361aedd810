"""Small files that are replaced as a whole: readers see the old content or the new, never a part; and secret ones."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

from acqstream.errors import StorageError, wrapping
from acqstream.storage.files.disk import Disk, using, write_all
from acqstream.storage.files.read_file import ReadFile, is_absent
from acqstream.storage.platform import FILES, create_private, open_log


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only this user can read, in place of any file of this name. Raises OSError.

    Administrators can read it on Windows, as root can everywhere. What another user puts in its place is not written.
    """
    with contextlib.suppress(FileNotFoundError):
        FILES.unlink(str(path))  # a new file: an old one may be open in another process, or be a link
    create_private(path)
    try:
        with open(open_log(path), "wb") as file:
            file.write(content)
    except BaseException:
        with contextlib.suppress(OSError):
            path.unlink()
        raise


def replace_private(path: Path, content: bytes) -> None:
    """As `write_private`; readers see the old content or the new, and several programs may write. Raises OSError."""
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    write_private(temporary, content)
    FILES.replace(str(temporary), str(path))


def read_private(path: Path, max_bytes: int) -> bytes:
    """Up to max_bytes of a file of this user. Raises OSError, also for a link and for a file of somebody else."""
    with using(FILES, FILES.open_lock_file(str(path), is_made=False)) as fd:
        size, content = min(FILES.size(fd), max_bytes), bytearray()
        while len(content) < size and (piece := FILES.pread(fd, size - len(content), len(content))):
            content += piece
        return bytes(content)


TEMPORARY_SUFFIX = ".new"


def has_content(path: str, content: bytes) -> bool:
    """True if the file exists with exactly this content. Raises StorageError, CorruptDataset for a pipe or device."""
    try:
        file = ReadFile(Path(path))
    except StorageError as error:
        if is_absent(error):
            return False
        raise
    with contextlib.closing(file):
        return file.size() == len(content) and file.read(0, len(content)) == content


def replace_file(disk: Disk, path: str, content: bytes) -> None:
    """Write `content` beside `path`, force it, rename it into place and force the directory.

    On return the new content survives a power cut. Raises StorageError; the file then has its old content, or the new
    if only forcing the directory failed.
    """
    temporary = path + TEMPORARY_SUFFIX
    with wrapping(path, "cannot replace"):
        with contextlib.suppress(FileNotFoundError):
            disk.unlink(temporary)  # from a process that crashed
        with using(disk, disk.open(temporary, create=True)) as fd:
            write_all(disk, fd, [content], 0)
            disk.fdatasync(fd)
        disk.replace(temporary, path)
        disk.sync_directory(os.path.dirname(path) or ".")
