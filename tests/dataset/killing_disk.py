"""A disk whose process dies before one of the calls that change something."""

from __future__ import annotations

from collections.abc import Sequence

from acqstream.storage.files.disk import LocalDisk


class Killed(BaseException):
    """What `kill -9` is to a process."""


class KillingDisk(LocalDisk):
    """Dies before the call `left` that changes something."""

    def __init__(self, left: int) -> None:
        super().__init__()
        self.left = left

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Killed

    def open(self, path: str, *, create: bool, direct: bool = False) -> int:
        self._count()
        return super().open(path, create=create, direct=direct)

    def pwritev(self, fd: int, buffers: Sequence[memoryview | bytes], offset: int) -> int:
        self._count()
        return super().pwritev(fd, buffers, offset)

    def replace(self, source: str, target: str) -> None:
        self._count()
        super().replace(source, target)

    def unlink(self, path: str) -> None:
        self._count()
        super().unlink(path)

    def mkdir(self, path: str) -> None:
        self._count()
        super().mkdir(path)
