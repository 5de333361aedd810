"""Watches the machine: free space of the data directory's disk, and the load of processors, disk and memory.

Some of the space is kept to close acquisitions.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import psutil

from acqstream.daemon.config import DaemonConfig
from acqstream.model.status import LoadStatus, SpaceLevel
from acqstream.storage.files.disk import Disk
from acqstream.storage.files.free_space import Ballast
from acqstream.storage.platform.capabilities import has_niceness

logger = logging.getLogger("acqstream.daemon")

LOOK_INTERVAL_S = 0.2
MIRRORS_KEEP = 2  # times the reserve: the free space at which mirrors stop, the reserve and a margin as large
RATE_S, RATE_FRAMES = 60.0, 10
HYSTERESIS = 1.125  # times a bound: free space that ends a shortage
INTERVAL_S = 2.0
FIRST_INTERVAL_S = 0.25  # rates need two measurements: a new daemon has them soon
_BLOCK_DEVICES = Path("/sys/dev/block")


@dataclass(frozen=True, slots=True)
class Demand:
    """What an acquisition takes of the disk. bytes_per_s is the rate of its log; for each of these bytes its mirrors
    and levels take mirror_share, and they are mirror_backlog bytes behind. planned_bytes are still to come in its
    log; None: unknown.
    """

    bytes_per_s: float = 0.0
    mirror_share: float = 0.0
    mirror_backlog: float = 0.0
    planned_bytes: float | None = None

    @staticmethod
    def of_all(users: Iterable[SpaceUser]) -> Demand:
        """The demand of all together."""
        demands = [user.demand for user in users]
        rate = sum(one.bytes_per_s for one in demands)
        mirrors = sum(one.bytes_per_s * one.mirror_share for one in demands)
        share = mirrors / rate if rate > 0 else 0.0
        plans = [one.planned_bytes for one in demands if one.planned_bytes is not None]
        planned = sum(plans) if plans and len(plans) == len(demands) else None
        return Demand(rate, share, sum(one.mirror_backlog for one in demands), planned)


class RateWindow:
    """The rate of a run over the last minute, or over its last ten frames where these took longer."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int, int]] = deque()  # seconds, frames, bytes

    def rate(self, now_s: float, frames: int, size_bytes: int) -> float:
        """Bytes per second. Counts from the first call on: what a resumed run had before is not counted.

        Called about once a second with the totals of the run.
        """
        samples = self._samples
        if not samples or samples[-1][1] != frames:
            samples.append((now_s, frames, size_bytes))
        while len(samples) > 1 and now_s - samples[1][0] >= RATE_S and frames - samples[1][1] >= RATE_FRAMES:
            samples.popleft()
        then_s, frames_then, bytes_then = samples[0]
        if frames - frames_then >= RATE_FRAMES and not self._is_lapse(now_s, frames):
            then_s = max(then_s, now_s - RATE_S)  # a pause before the last minute does not count
        return (size_bytes - bytes_then) / (now_s - then_s) if now_s > then_s else 0.0

    def _is_lapse(self, now_s: float, frames: int) -> bool:
        """Return True if the last minute has fewer than RATE_FRAMES frames."""
        before = max((one[1] for one in self._samples if now_s - one[0] >= RATE_S), default=self._samples[0][1])
        return frames - before < RATE_FRAMES


class SpaceUser(Protocol):
    """An acquisition, as far as disk space is concerned."""

    @property
    def demand(self) -> Demand: ...
    @property
    def reserved_bytes(self) -> int: ...


class DiskSpace:
    """Measures free space every LOOK_INTERVAL_S, in a thread of its own, which may block while the disk stalls.

    free_bytes includes space that running acquisitions have reserved and not written yet; None if unknown. on_change is
    called from the thread when the level has changed.
    """

    def __init__(self, config: DaemonConfig, disk: Disk, on_change: Callable[[], None]) -> None:
        self.reserve_bytes = config.reserve_mb * 2**20
        self.free_bytes: int | None = None
        self.level = SpaceLevel.ENOUGH
        self.running: Collection[SpaceUser] = ()  # replaced by the loop
        self._demand = Demand()  # of all that run
        self._path = str(config.data.absolute())
        self.ballast = Ballast(disk, self._path, config.ballast_mb * 2**20)
        self._low_s = config.low_space_minutes * 60
        self._disk = disk
        self._on_change = on_change
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="space", daemon=True)

    def start(self) -> None:
        """Measure once, then start the thread."""
        self.measure()
        self._thread.start()

    def _watch(self) -> None:
        while not self._ended.wait(LOOK_INTERVAL_S):
            self.measure()

    def measure(self) -> None:
        """Update free_bytes and level."""
        try:
            free = self._disk.free_bytes(self._path)
        except OSError:
            self.free_bytes = None  # the disk is missing: the next write reports the error
            return
        running = self.running
        self.free_bytes = free + sum(one.reserved_bytes for one in running)
        self._demand = Demand.of_all(running)
        before, self.level = self.level, self._level_at(self.free_bytes, self._demand)
        if self.level is not before:
            logger.warning("space is %s: %s", self.level, self.text())
            self._on_change()
        if not self.ballast.is_reserved and free > 2 * self.reserve_bytes + self.ballast.length:
            self.ballast.take()

    def bytes_left(self, demand: Demand) -> float | None:
        """Return the bytes that the log can store above the reserve, with its mirrors; None if unknown.

        Mirrors take their share until they stop (MIRRORS_KEEP); the log has the rest.
        """
        if self.free_bytes is None:
            return None
        bound = MIRRORS_KEEP * self.reserve_bytes
        beside_mirrors = max(0.0, self.free_bytes - bound - demand.mirror_backlog) / (1 + demand.mirror_share)
        return beside_mirrors + max(0, min(self.free_bytes, bound) - self.reserve_bytes)

    def seconds_left(self, demand: Demand) -> float | None:
        """Return the seconds until the log reaches the reserve at its present rate; None if unknown."""
        size = self.bytes_left(demand)
        return None if size is None or demand.bytes_per_s <= 0 else size / demand.bytes_per_s

    def frames_left(self, demand: Demand, frame_bytes: float) -> int | None:
        """Return the number of frames of this size that the log can store above the reserve; None if unknown."""
        size = self.bytes_left(demand)
        return None if size is None or frame_bytes <= 0 else int(size / frame_bytes)

    def short_bytes(self, demand: Demand) -> float | None:
        """Return what the disk lacks for all that a run has planned; 0 if it fits, None if unknown.

        All other runs count, with their plans if each has one, else at their present rates.
        """
        planned, together = demand.planned_bytes, self._demand
        left = self.bytes_left(together)
        if planned is None or left is None:
            return None
        needed = max(planned, together.planned_bytes or 0.0)
        if together.planned_bytes is None and together.bytes_per_s > demand.bytes_per_s:
            if demand.bytes_per_s <= 0:
                return None
            needed = planned * together.bytes_per_s / demand.bytes_per_s
        return max(0.0, needed - left) * (1 + together.mirror_share)

    def close(self, *, is_disk_well: bool) -> None:
        """End the thread and delete the ballast file; skip both if the disk stalls (is_disk_well False)."""
        self._ended.set()
        if is_disk_well:
            if self._thread.is_alive():
                self._thread.join()
            self.ballast.release()

    def text(self) -> str:
        """Return a sentence for users: free space, disk and reserve."""
        free = "unknown" if self.free_bytes is None else _size_text(self.free_bytes)
        reserve = f"the last {_size_text(self.reserve_bytes)} are kept (reserve_mb)"
        return f"{free} left on the disk of {self._path}; {reserve}"

    def _level_at(self, free: int, demand: Demand) -> SpaceLevel:
        bound = self.reserve_bytes * (HYSTERESIS if self.level is SpaceLevel.FULL else 1)
        if free < bound:
            return SpaceLevel.FULL
        seconds = self.seconds_left(demand)
        low_s = self._low_s * (HYSTERESIS if self.level is SpaceLevel.LOW else 1)
        is_short = seconds is not None and seconds < low_s and not self._fits(demand)
        return SpaceLevel.LOW if free < 2 * self.reserve_bytes or is_short else SpaceLevel.ENOUGH

    def _fits(self, demand: Demand) -> bool:
        """Return True if the disk has space for all frames that the runs have still planned."""
        left = self.bytes_left(demand)
        return demand.planned_bytes is not None and left is not None and left >= demand.planned_bytes


def _size_text(size_bytes: int) -> str:
    return f"{size_bytes / 1e9:.1f} GB" if size_bytes >= 1e9 else f"{size_bytes / 1e6:.1f} MB"


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
