"""CPU time and peak memory of processes."""

from __future__ import annotations

import os
import platform
import time
from contextlib import suppress
from pathlib import Path

import psutil

from acqstream.bench.measurement import ProcessCost


def cpu_seconds(pid: int) -> float:
    """User and system time so far: of this process exactly, of another one in ticks and with its living children."""
    if pid == os.getpid():
        return time.process_time()
    process = psutil.Process(pid)
    total = 0.0
    for one in (process, *process.children(recursive=True)):
        times = one.cpu_times()
        total += times.user + times.system
    return total


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
    """What a process spends from here on."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._start_s = cpu_seconds(pid)

    def cost(self) -> ProcessCost:
        """CPU since the start, and the peak memory since the last reset."""
        return ProcessCost(cpu_seconds(self._pid) - self._start_s, peak_memory_bytes(self._pid))
