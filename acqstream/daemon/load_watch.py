"""Measures the load of this machine and of the daemon: processors, the data disk, memory, scheduling priority."""

from __future__ import annotations

import logging
import os
import threading
import time
from pathlib import Path
from typing import Any

import psutil

from acqstream.model.status import LoadStatus
from acqstream.storage.platform.capabilities import has_niceness

logger = logging.getLogger("acqstream.daemon")

INTERVAL_S = 2.0
FIRST_INTERVAL_S = 0.25  # rates need two measurements: a new daemon has them soon
_BLOCK_DEVICES = Path("/sys/dev/block")


class LoadWatch:
    """Measures every INTERVAL_S in a thread of its own; `status` is the latest measurement.

    One measurement takes 0.2 ms of processor time (docs/decisions/033), and asks no disk. data: the data directory.
    """

    def __init__(self, data: Path) -> None:
        self.status = LoadStatus()
        self._process = psutil.Process()
        self._disk = disk_of(data)
        self._before: _Counters | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="load", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def _watch(self) -> None:
        interval_s = FIRST_INTERVAL_S
        try:
            self.measure()
            while not self._ended.wait(interval_s):
                interval_s = INTERVAL_S
                self.measure()
        except (psutil.Error, OSError) as error:  # /proc may be hidden from a service
            self.status = LoadStatus()
            logger.warning("cannot measure the load of this machine, its status will lack it: %s", error)

    def measure(self) -> None:
        """Update `status`. Shares and rates are those since the measurement before; None in the first one."""
        now, before = _Counters(self._process, self._disk), self._before
        self._before = now
        memory, nice = psutil.virtual_memory(), self._process.nice()
        self.status = LoadStatus(
            processors=psutil.cpu_count() or 1,
            processor_percent=None if before is None else now.processor_percent(before),
            daemon_processor_percent=None if before is None else now.daemon_processor_percent(before),
            daemon_memory_bytes=self._process.memory_info().rss,
            available_memory_bytes=memory.available,
            total_memory_bytes=memory.total,
            disk=self._disk,
            disk_write_bytes_per_s=None if before is None else now.disk_write_bytes_per_s(before),
            disk_busy_percent=None if before is None else now.disk_busy_percent(before),
            priority=f"nice {int(nice)}" if has_niceness() else _class_name(nice),
        )


class _Counters:
    """Counters at one time. Differences of two give shares and rates."""

    def __init__(self, process: psutil.Process, disk: str) -> None:
        self._at_s = time.monotonic()
        machine, own = psutil.cpu_times(), process.cpu_times()
        # Guests count as `user` already (proc(5), /proc/stat).
        self._machine_s: float = sum(machine) - getattr(machine, "guest", 0.0) - getattr(machine, "guest_nice", 0.0)
        self._idle_s: float = machine.idle + getattr(machine, "iowait", 0.0)
        self._own_s: float = own.user + own.system
        self._disk: Any = psutil.disk_io_counters(perdisk=True, nowrap=False).get(disk) if disk else None

    def processor_percent(self, before: _Counters) -> float | None:
        """Busy share of all processors, 0 to 100; None if the clock ticks of both are the same."""
        total_s = self._machine_s - before._machine_s
        return _percent(total_s - (self._idle_s - before._idle_s), total_s, 100.0)

    def daemon_processor_percent(self, before: _Counters) -> float | None:
        """Share of one processor: above 100 if threads run on several."""
        return _percent(self._own_s - before._own_s, self._at_s - before._at_s)

    def disk_write_bytes_per_s(self, before: _Counters) -> float | None:
        seconds = self._at_s - before._at_s
        if self._disk is None or before._disk is None or seconds <= 0:
            return None
        written: int = self._disk.write_bytes - before._disk.write_bytes
        return round(max(0, written) / seconds)

    def disk_busy_percent(self, before: _Counters) -> float | None:
        """Share of the time in which the disk had at least one request (iostat's %util); Linux only."""
        busy_ms, busy_before_ms = (getattr(one._disk, "busy_time", None) for one in (self, before))
        if busy_ms is None or busy_before_ms is None:
            return None
        return _percent((busy_ms - busy_before_ms) / 1000, self._at_s - before._at_s, 100.0)


def disk_of(path: Path) -> str:
    """Return the name of the block device under `path`, as the system counts it; empty where it has none.

    A folder in memory, on a network or on several devices (btrfs) has none; macOS and Windows count only whole disks.
    """
    try:
        device = os.stat(path).st_dev
        name = (_BLOCK_DEVICES / f"{os.major(device)}:{os.minor(device)}").resolve(strict=True).name
        counted = psutil.disk_io_counters(perdisk=True, nowrap=False)
    except (OSError, AttributeError, psutil.Error):  # AttributeError: no os.major on Windows
        return ""
    return name if name in counted else ""


def _percent(part: float, total: float, highest: float | None = None) -> float | None:
    if total <= 0:
        return None
    share = max(0.0, 100.0 * part / total)
    return round(share if highest is None else min(share, highest), 1)


def _class_name(priority: object) -> str:
    """Return a priority class of Windows in words: "above normal"."""
    return str(getattr(priority, "name", priority)).removesuffix("_PRIORITY_CLASS").replace("_", " ").lower()
