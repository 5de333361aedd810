"""The resources that a daemon takes once, at its start, and lends to its acquisitions."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

from acqstream.daemon.config import DaemonConfig
from acqstream.daemon.disk_reads import DiskReads
from acqstream.daemon.load_watch import LoadWatch
from acqstream.daemon.space import MIRRORS_KEEP, DiskSpace
from acqstream.daemon.view_process import ViewProcess
from acqstream.errors import ConfigError
from acqstream.log.memory_budget import MemoryBudget
from acqstream.mirrors.chunk_plan import Budget
from acqstream.mirrors.memory_need import MIB
from acqstream.mirrors.ready_memory import ready_bytes
from acqstream.model.view_spec import PYRAMID_KIND
from acqstream.protocol.requests import parse_views
from acqstream.storage.files.disk import Disk
from acqstream.storage.memory_limit import check_memory, usable_memory_bytes

logger = logging.getLogger("acqstream.daemon")

_PROGRAM_MB = 96  # this process and the views' process, as long as they do little

_IDLE, _OF_A_RUN, _OF_A_CONNECTION = 28, 8, 2  # descriptors in use: measured, with some that are open for a moment
_SHARE_OF_A_RUN = 20  # with connections: its own, and those of programs that ask
_SPARE = 100  # connections that come at once; libzmq ends the process if there is none for one over a local socket
_MIN_FOR_LOCAL_SOCKETS = 1024


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


def fitting(config: DaemonConfig, limit: int) -> DaemonConfig:
    """Return the configuration with fewer acquisitions and connections if it needs more than `limit` descriptors.

    Raises ConfigError if not even one acquisition fits.
    """
    needed = _IDLE + _OF_A_RUN * config.max_acquisitions + _OF_A_CONNECTION * config.max_connections + _SPARE
    if limit >= needed:
        return config
    text = f"this process may open {limit} files and connections; its configuration needs {needed}"
    advice = "raise that limit (ulimit -n, LimitNOFILE of a service)"
    has_tcp = any(endpoint.startswith("tcp:") for endpoint in config.endpoints)
    if limit < (_IDLE + _SHARE_OF_A_RUN if has_tcp else _MIN_FOR_LOCAL_SOCKETS):
        raise ConfigError(f"{text}, and it is too little for one acquisition: {advice}")
    has_ipc = limit >= _MIN_FOR_LOCAL_SOCKETS
    free = limit - _IDLE - (_SPARE if has_ipc else 0)
    runs = min(config.max_acquisitions, free // _SHARE_OF_A_RUN)
    connections = min(config.max_connections, (free - _OF_A_RUN * runs) // _OF_A_CONNECTION)
    without = "" if has_ipc else ", none over the local socket"
    logger.warning("%s; at most %d acquisitions and %d connections%s: %s", text, runs, connections, without, advice)
    fewer = {"max_acquisitions": runs, "max_connections": connections, "ipc": config.ipc and has_ipc}
    return config.model_copy(update=fewer)
