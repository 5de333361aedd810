"""Processor time and memory of processes."""

from __future__ import annotations

import os
import platform
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from acqstream.bench.measurement import ProcessCost


def cpu_seconds(pid: int) -> float:
    """User and system time so far: of this process exactly, of another one in ticks and with its children."""
    return time.process_time() if pid == os.getpid() else sum(_spent(psutil.Process(pid)))


def children_cpu_seconds(pid: int) -> float:
    """User and system time so far of the children of a process: of those that live, and of those that it waited for
    (not on Windows, which does not tell)."""
    return _spent(psutil.Process(pid))[1]


def _spent(process: psutil.Process) -> tuple[float, float]:
    """Of itself, and of its children."""
    while True:
        times = process.cpu_times()
        ended_s = children_s = _ended_children(times)
        for child in process.children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                found = child.cpu_times()
                children_s += found.user + found.system + _ended_children(found)
        if _ended_children(process.cpu_times()) == ended_s:  # else one has ended meanwhile, and is counted in part
            return times.user + times.system, children_s


def _ended_children(times: Any) -> float:
    return float(getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0))


def peak_memory_bytes(pid: int) -> int | None:
    """The largest resident size a process ever had (VmHWM on Linux, the peak working set on Windows)."""
    if platform.system() == "Linux":
        for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        return None
    peak = getattr(psutil.Process(pid).memory_info(), "peak_wset", None)
    return None if peak is None else int(peak)


def reset_peak_memory() -> None:
    """Let the peak of this process begin anew, where the system can (Linux)."""
    counter = Path("/proc/self/clear_refs")
    if counter.exists():
        with suppress(PermissionError):  # inside some containers; then the peak is that of its whole life
            counter.write_text("5", encoding="ascii")


class UsageMeter:
    """Processor time and peak memory of a process from here on."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._start_s = cpu_seconds(pid)

    def cost(self) -> ProcessCost:
        """CPU since the start, and the peak memory since the last reset."""
        return ProcessCost(cpu_seconds(self._pid) - self._start_s, peak_memory_bytes(self._pid))


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
