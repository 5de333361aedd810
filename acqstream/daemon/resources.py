"""The resources that a daemon takes once, at its start, and lends to its acquisitions."""

from __future__ import annotations

import math
from collections.abc import Callable

from acqstream.daemon.config import DaemonConfig
from acqstream.daemon.disk_reads import DiskReads
from acqstream.daemon.load_watch import LoadWatch
from acqstream.daemon.space import MIRRORS_KEEP, DiskSpace
from acqstream.daemon.view_process import ViewProcess
from acqstream.log.memory_budget import MemoryBudget
from acqstream.mirrors.chunk_plan import Budget
from acqstream.mirrors.memory_need import MIB
from acqstream.mirrors.ready_memory import ready_bytes
from acqstream.model.view_spec import PYRAMID_KIND
from acqstream.protocol.mirrors import parse_views
from acqstream.storage.disk import Disk
from acqstream.storage.memory_limit import check_memory, usable_memory_bytes

_PROGRAM_MB = 96  # this process and the views' process, as long as they do little


class Resources:
    """Memory, the disk and its space, the load, and the view process. wake: wakes the loop, from any thread."""

    def __init__(self, config: DaemonConfig, disk: Disk, wake: Callable[[], None]) -> None:
        self.disk = disk
        self.wake = wake
        check_memory("memory_mb of the daemon", (config.memory_mb + _PROGRAM_MB) * MIB)  # it is touched at once
        self.budget = MemoryBudget(config.memory_mb * 2**20)
        self.space = DiskSpace(config, disk, wake)
        self.reads = DiskReads(wake)
        self.preparations = DiskReads(wake, name="open-requests", max_s=math.inf)  # the producer decides how long
        self.load = LoadWatch(config.data)
        options = {PYRAMID_KIND: {"memory_bytes": config.pyramid_memory_mb * 2**20}}
        self.views = ViewProcess(
            self.budget.memory,
            options=options,
            mirror_memory_mb=config.mirror_memory_mb,
            keep_free_mb=MIRRORS_KEEP * config.reserve_mb,
            ready_bytes=ready_bytes_of(config),
        )


def ready_bytes_of(config: DaemonConfig) -> int:
    """Memory that the views' process takes at its start: never more than one mirror may."""
    if config.ready_memory_mb is None:
        budget = Budget.of(config.mirror_memory_mb)
        wanted = ready_bytes(parse_views(config.mirrors), budget, usable_memory_bytes())
    else:
        wanted = config.ready_memory_mb * MIB
    return min(wanted, config.mirror_memory_mb * MIB)
