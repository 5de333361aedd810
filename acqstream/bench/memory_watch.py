"""The most memory of its own that a daemon's process of views takes, looked at ten times a second."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil

_POLL_S = 0.1


class MemoryWatch:
    """peak_bytes: resident memory that is not shared with others, all children of a process together."""

    def __init__(self, pid: int) -> None:
        self.peak_bytes = 0
        self._process = psutil.Process(pid)

    def look(self) -> None:
        total = 0
        for child in self._process.children():
            with suppress(psutil.NoSuchProcess):
                found = child.memory_info()
                total += found.rss - getattr(found, "shared", 0)  # where the system does not tell: all of it
        self.peak_bytes = max(self.peak_bytes, total)


@contextmanager
def watched_children(pid: int) -> Iterator[MemoryWatch]:
    """While the block runs."""
    watch, ended = MemoryWatch(pid), threading.Event()

    def look() -> None:
        while not ended.wait(_POLL_S):
            watch.look()

    thread = threading.Thread(target=look, name="memory of the views", daemon=True)
    thread.start()
    try:
        yield watch
    finally:
        ended.set()
        thread.join()
