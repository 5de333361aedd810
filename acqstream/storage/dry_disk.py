"""A disk that accepts every call and changes nothing, for dry runs."""

from __future__ import annotations

import errno
from collections.abc import Sequence

from acqstream.storage.disk import LocalDisk

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
