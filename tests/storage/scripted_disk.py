"""A disk that follows a script: it records every call, and fails, shortens or stalls the ones it was told to."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from acqstream.storage.files.disk import Disk, LocalDisk

ANY = "any"


@dataclass(frozen=True, slots=True)
class Call:
    """One disk call: what it was, the file's name, and offset and length in bytes where it has them."""

    kind: str
    name: str
    offset: int = 0
    length: int = 0


@dataclass(slots=True)
class Fault:
    """Fails the nth matching call with `code`, or all from the nth on."""

    kind: str
    nth: int
    code: int
    part: str  # of the file's name
    for_good: bool
    seen: int = 0
    delivered: int = 0


@dataclass(slots=True)
class Stall:
    """Holds the nth matching call until `go` is set; `entered` tells that it has come."""

    kind: str
    nth: int
    part: str
    seen: int = 0
    entered: threading.Event = field(default_factory=threading.Event)
    go: threading.Event = field(default_factory=threading.Event)


class ScriptedDisk:
    """`Disk` over another one. Thread-safe."""

    def __init__(self, inner: Disk | None = None) -> None:
        self._inner = inner or LocalDisk()
        self._lock = threading.Lock()
        self._names: dict[int, str] = {}
        self._faults: list[Fault] = []
        self._mended = 0
        self._shortening: tuple[Fault, int] | None = None
        self._stalls: list[Stall] = []
        self._most_bytes: list[int] = []
        self.can_reserve = True
        self.can_direct = True
        self.can_join = False  # force all files at once: each is forced by a call of its own
        self.calls: list[Call] = []

    def fail(self, kind: str, nth: int = 1, code: int = errno.EIO, *, part: str = "", for_good: bool = False) -> Fault:
        """Fail a call of this kind (or ANY) on a file with `part` in its name; counted from now on, from 1."""
        fault = Fault(kind, nth, code, part, for_good)
        with self._lock:
            self._faults.append(fault)
        return fault

    def mend(self) -> None:
        """No more failures."""
        with self._lock:
            self._mended += sum(fault.delivered for fault in self._faults)
            self._faults.clear()

    def stall(self, kind: str, nth: int = 1, *, part: str = "") -> Stall:
        """Hold such a call until told to go on."""
        stall = Stall(kind, nth, part)
        with self._lock:
            self._stalls.append(stall)
        return stall

    def shorten(self, *most_bytes: int) -> None:
        """The next writes take at most so many bytes each."""
        self._most_bytes.extend(most_bytes)

    def shorten_from(self, nth: int, most_bytes: int, *, for_good: bool) -> Fault:
        """The nth write, or every one from it on, takes at most so many bytes."""
        self._shortening = (Fault("pwritev", nth, 0, "", for_good), most_bytes)
        return self._shortening[0]

    def of(self, *kinds: str, part: str = "") -> list[Call]:
        """The calls so far of these kinds on files with `part` in their name."""
        with self._lock:
            return [call for call in self.calls if call.kind in kinds and part in call.name]

    @property
    def delivered(self) -> int:
        return self._mended + sum(fault.delivered for fault in self._faults)

    def open(self, path: str, *, create: bool, direct: bool = False) -> int:
        self._enter("create" if create else "open", path)
        if direct and not self.can_direct:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        fd = self._inner.open(path, create=create, direct=direct)
        self._names[fd] = path
        return fd

    def close(self, fd: int) -> None:
        name = self._names.pop(fd)
        self._inner.close(fd)
        self._enter("close", name)

    def pwritev(self, fd: int, buffers: Sequence[memoryview | bytes], offset: int) -> int:
        length = sum(len(buffer) for buffer in buffers)
        self._enter("pwritev", self._names[fd], offset, length)
        most = self._most_of_this_write(self._names[fd])
        if most is None or most >= length:
            return self._inner.pwritev(fd, buffers, offset)
        if most <= 0:
            return most
        content = b"".join(bytes(buffer) for buffer in buffers)[:most]
        other = self._inner.open(self._names[fd], create=False)  # without direct I/O, so that any length will do
        try:
            return self._inner.pwritev(other, [content], offset)
        finally:
            self._inner.close(other)

    def _most_of_this_write(self, name: str) -> int | None:
        with self._lock:
            if self._most_bytes:
                return self._most_bytes.pop(0)
            if self._shortening is not None and is_hit(self._shortening[0], "pwritev", name):
                return self._shortening[1]
        return None

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        self._enter("pread", self._names[fd], offset, length)
        return self._inner.pread(fd, length, offset)

    def fdatasync(self, fd: int) -> None:
        self._enter("fdatasync", self._names[fd])
        self._inner.fdatasync(fd)

    def reserve(self, fd: int, offset: int, length: int) -> bool:
        self._enter("reserve", self._names[fd], offset, length)
        return self.can_reserve and self._inner.reserve(fd, offset, length)

    def reserve_step(self, fd: int) -> int:
        return self._inner.reserve_step(fd)

    def truncate(self, fd: int, length: int) -> None:
        self._enter("truncate", self._names[fd], length)
        self._inner.truncate(fd, length)

    def size(self, fd: int) -> int:
        self._enter("size", self._names[fd])
        return self._inner.size(fd)

    def replace(self, source: str, target: str) -> None:
        self._enter("replace", target)
        self._inner.replace(source, target)
        for fd, name in list(self._names.items()):
            if name == source:
                self._names[fd] = target

    def unlink(self, path: str) -> None:
        self._enter("unlink", path)
        self._inner.unlink(path)

    def mkdir(self, path: str) -> None:
        self._enter("mkdir", path)
        self._inner.mkdir(path)

    def link_folder(self, target: str, path: str) -> None:
        self._enter("link_folder", path)
        self._inner.link_folder(target, path)

    def sync_directory(self, path: str) -> None:
        self._enter("sync_directory", path)
        self._inner.sync_directory(path)

    def open_file_system(self, folder: str) -> int | None:
        fd = self._inner.open_file_system(folder) if self.can_join else None
        if fd is not None:
            self._names[fd] = folder
        return fd

    def sync_file_system(self, fd: int) -> None:
        self._enter("sync_file_system", "")
        self._inner.sync_file_system(fd)

    def free_bytes(self, path: str) -> int:
        self._enter("free_bytes", path)
        return self._inner.free_bytes(path)

    def _enter(self, kind: str, path: str, offset: int = 0, length: int = 0) -> None:
        name = os.path.basename(path)
        with self._lock:
            self.calls.append(Call(kind, name, offset, length))
            stalls = [stall for stall in self._stalls if matches(stall, kind, name)]
            codes = [fault.code for fault in self._faults if is_hit(fault, kind, name)]
        for stall in stalls:
            if stall.seen == stall.nth:
                stall.entered.set()
                stall.go.wait()
        if codes:
            raise OSError(codes[0], os.strerror(codes[0]))


def matches(rule: Any, kind: str, name: str) -> bool:
    """Whether a rule is about this call; counts those that are."""
    if rule.kind not in (ANY, kind) or rule.part not in name:
        return False
    rule.seen += 1
    return True


def is_hit(fault: Fault, kind: str, name: str) -> bool:
    if not matches(fault, kind, name):
        return False
    hit = fault.seen == fault.nth or (fault.for_good and fault.seen > fault.nth)
    fault.delivered += hit
    return hit
