"""Lets other programs go first: for processes that only look at what is recorded."""

from __future__ import annotations

import psutil

_NICENESS = 10


def go_last() -> None:
    """Give this process a lower priority for processor and, on Linux, disk; threads that start later inherit it.

    The class "idle" of the disk would stop a live picture altogether while a camera fills the disk: it is the lowest
    level of the usual class (ioprio_set(2)). A priority that is lower already is kept.
    """
    process = psutil.Process()
    if psutil.WINDOWS:
        process.nice(psutil.BELOW_NORMAL_PRIORITY_CLASS)
        return
    process.nice(max(_NICENESS, process.nice()))
    if psutil.LINUX and process.ionice().ioclass != psutil.IOPRIO_CLASS_IDLE:
        process.ionice(psutil.IOPRIO_CLASS_BE, 7)
