"""A disk whose standing still is seen: which call it is, on which file, and for how long."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from acqstream.storage.disk import Disk

STALL_S = 1.0  # a disk call that takes longer is worth telling
MAX_STALLS = 1000  # noted; later ones are only counted

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class SlowCall:
    """A disk call that took, or takes, longer than STALL_S. began_s is seconds since 1970."""

    call: str
    file: str
    began_s: float
    seconds: float


class WatchedDisk:
    """`Disk` over another one. Thread-safe; two clock readings a call.

    on_stall is called, from the thread that waited, when a call that stood still has returned.
    """

    def __init__(self, inner: Disk, on_stall: Callable[[SlowCall], None]) -> None:
        self._inner = inner
        self._on_stall = on_stall
        self._running: dict[int, tuple[str, str, float]] = {}  # by thread: call, file, since (monotonic)
        self._paths: dict[int, str] = {}

    def standing_still(self) -> SlowCall | None:
        """The call that has been running for longest, if for longer than STALL_S."""
        running = list(self._running.copy().values())
        call, path, since_s = min(running, key=lambda one: one[2], default=("", "", time.monotonic()))
        return _slow_call(call, path, since_s)

    def _watch(self, call: str, path: str, action: Callable[[], _T]) -> _T:
        thread, since_s = threading.get_ident(), time.monotonic()
        self._running[thread] = (call, path, since_s)
        try:
            return action()
        finally:
            del self._running[thread]
            slow = _slow_call(call, path, since_s)
            if slow is not None:
                self._on_stall(slow)

    def open(self, path: str, *, create: bool, direct: bool = False) -> int:
        fd = self._watch("open", path, lambda: self._inner.open(path, create=create, direct=direct))
        self._paths[fd] = path
        return fd

    def close(self, fd: int) -> None:
        path = self._paths.pop(fd, "")
        self._watch("close", path, lambda: self._inner.close(fd))

    def pwritev(self, fd: int, buffers: Sequence[memoryview | bytes], offset: int) -> int:
        return self._watch("write", self._paths.get(fd, ""), lambda: self._inner.pwritev(fd, buffers, offset))

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        return self._watch("read", self._paths.get(fd, ""), lambda: self._inner.pread(fd, length, offset))

    def fdatasync(self, fd: int) -> None:
        self._watch("fdatasync", self._paths.get(fd, ""), lambda: self._inner.fdatasync(fd))

    def reserve(self, fd: int, offset: int, length: int) -> bool:
        return self._watch("reserve", self._paths.get(fd, ""), lambda: self._inner.reserve(fd, offset, length))

    def truncate(self, fd: int, length: int) -> None:
        self._watch("truncate", self._paths.get(fd, ""), lambda: self._inner.truncate(fd, length))

    def size(self, fd: int) -> int:
        return self._inner.size(fd)

    def replace(self, source: str, target: str) -> None:
        self._watch("rename", target, lambda: self._inner.replace(source, target))
        for fd, path in self._paths.copy().items():
            if path == source:
                self._paths[fd] = target

    def unlink(self, path: str) -> None:
        self._watch("unlink", path, lambda: self._inner.unlink(path))

    def mkdir(self, path: str) -> None:
        self._watch("mkdir", path, lambda: self._inner.mkdir(path))

    def sync_directory(self, path: str) -> None:
        self._watch("fsync", path, lambda: self._inner.sync_directory(path))

    def free_bytes(self, path: str) -> int:
        return self._watch("statvfs", path, lambda: self._inner.free_bytes(path))


def _slow_call(call: str, path: str, since_s: float) -> SlowCall | None:
    seconds = time.monotonic() - since_s
    if seconds < STALL_S:
        return None
    return SlowCall(call, os.path.basename(path), time.time() - seconds, seconds)
