"""Wraps a Disk and reports calls that stall, with the call, the file and the duration."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from acqstream.storage.disk import Disk, force_names
from acqstream.storage.held_folder import HeldFolder

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
