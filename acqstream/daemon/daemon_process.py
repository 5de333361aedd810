"""Identifies the process of a daemon, and finds out if the one that a lock file names still runs.

Mounts of one folder by FUSE, overlays and networks share no lock: docs/decisions/066-one-writer-across-mounts.md.
"""

from __future__ import annotations

import functools
import os
import time
import uuid

import psutil

from acqstream.storage import platform
from acqstream.storage.files.directory_lock import LockHolder, read_holder
from acqstream.storage.platform.capabilities import process_space

BEAT_S = 1.0
WATCH_S = 5.0
"""The longest wait for the heartbeat of a daemon that is not proved dead: it runs on another machine, or ran before
this one was started again, or in another container."""
_LOOK_S = 0.2
_CLOCK_S = 2.0  # by which the start of one process may differ: the kernel counts the machine's start in seconds


def own_process() -> str:
    """Return one word each: the machine since its start, the processes that are seen, number and start of this one."""
    return f"{boot_id()} {process_space()} {os.getpid()} {_started_s(os.getpid()):.2f}"


def is_running(process: str) -> bool | None:
    """Return if the process of this identity runs; None if it cannot be seen from here, or the identity is not one."""
    here, there = own_process().split(), process.split()
    if len(there) != len(here) or there[:2] != here[:2]:
        return None
    if there == here:
        return False  # a former daemon of this process
    try:
        number, started_s = int(there[2]), float(there[3])
        is_dead = psutil.Process(number).status() == psutil.STATUS_ZOMBIE
        return not is_dead and abs(_started_s(number) - started_s) < _CLOCK_S  # else the number was given again
    except psutil.NoSuchProcess:
        return False
    except (ValueError, psutil.AccessDenied):
        return None


def why_in_use(directory: str, holder: LockHolder) -> str:
    """Return a sign of life of the daemon that the lock file of a directory names; empty without one.

    Waits up to WATCH_S if it cannot be seen from here.
    """
    is_seen = is_running(holder.process) if holder.process else False
    if is_seen is not None:
        return "its process is running" if is_seen else ""
    latest_s = time.monotonic() + WATCH_S
    while time.monotonic() < latest_s:
        time.sleep(_LOOK_S)
        if read_holder(directory) != holder:
            return "its heartbeat in the directory goes on"
    return ""


def _started_s(number: int) -> float:
    """Seconds from the start of the machine, because the clock may be set meanwhile. Raises psutil.NoSuchProcess."""
    boot_s = psutil.boot_time()  # first: older versions of psutil keep it, and add the same one
    return float(psutil.Process(number).create_time() - boot_s)


@functools.cache
def boot_id() -> str:
    """Return an id of this machine since its start; unique to this process if the system has none."""
    return platform.boot_id() or uuid.uuid4().hex
