"""Memory that this process and its children may use: a service manager, a container or JupyterHub may set a limit.

Linux counts it per control group, versions 1 and 2, and kills a process of the group when it is used up. A group is
also limited by those above it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from acqstream.errors import ConfigError
from acqstream.storage.platform.capabilities import address_limit_bytes

_GROUP_OF_SELF = Path("/proc/self/cgroup")
_GROUPS = Path("/sys/fs/cgroup")
_LIMITS = ("memory.max", "memory.high", "memory.limit_in_bytes")  # the last one: version 1
_USES = ("memory.current", "memory.usage_in_bytes")
_UNLIMITED = 2**60  # version 1 has a large number in place of none
MIB = 2**20


def memory_limit_bytes(group_of_self: Path = _GROUP_OF_SELF, groups: Path = _GROUPS) -> int | None:
    """Return the smallest limit of this process's groups and those above them, in bytes; None if there is none."""
    limits = (limit for group in _own_groups(group_of_self, groups) if (limit := _limit_of(group)) is not None)
    return min(limits, default=None)


def memory_left_bytes(group_of_self: Path = _GROUP_OF_SELF, groups: Path = _GROUPS) -> int | None:
    """Return how much of its limit this process may still take, in bytes; None without a limit."""
    left = []
    for group in _own_groups(group_of_self, groups):
        limit = _limit_of(group)
        used = next((number for name in _USES if (number := _number(group / name)) is not None), None)
        if limit is not None and used is not None:
            left.append(limit - used + _reclaimable(group))
    return min(left, default=None)


def usable_memory_bytes() -> int:
    """Return the memory from which defaults are computed: that of the PC, or the limit of this process."""
    import psutil  # here: a producer needs it for nothing else

    bounds = psutil.virtual_memory().total, memory_limit_bytes(), address_limit_bytes()
    return min(bound for bound in bounds if bound is not None)


def check_memory(setting: str, needed_bytes: int) -> None:
    """Raise ConfigError if `setting` asks for more than the limit of this process leaves: the system would kill it."""
    left = memory_left_bytes()
    if left is not None and needed_bytes > left:
        limit = memory_limit_bytes() or left
        raise ConfigError(
            f"{setting} needs {needed_bytes // MIB} MiB, and {max(0, left) // MIB} MiB are left: this service or "
            f"container may use {limit // MIB} MiB (its control group, see /proc/self/cgroup); set a smaller value of "
            f"{setting.partition(' ')[0]}, or raise that limit (MemoryMax of a service, --memory of a container)"
        )


def _own_groups(group_of_self: Path, groups: Path) -> Iterator[Path]:
    """Yield the folders of this process's groups, and of those above. In a container the first one may be its own."""
    try:
        lines = group_of_self.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return  # no Linux
    for line in lines:
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controllers and "memory" not in controllers.split(","):
            continue
        root = groups / controllers
        own = root / path.lstrip("/")
        yield from (own, *own.parents[: len(own.parts) - len(root.parts)])


def _limit_of(group: Path) -> int | None:
    limits = (number for name in _LIMITS if (number := _number(group / name)) is not None)
    return min((number for number in limits if number < _UNLIMITED), default=None)


def _reclaimable(group: Path) -> int:
    """Return the bytes of the page cache, which the system takes back when memory is short."""
    try:
        counts = dict(map(str.split, (group / "memory.stat").read_text(encoding="ascii").splitlines()))
    except OSError:
        return 0
    prefix = "total_" if "total_cache" in counts else ""  # version 1: with the groups below
    return sum(int(counts.get(f"{prefix}{name}", 0)) for name in ("inactive_file", "active_file"))


def _number(path: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError):  # the first group has no such file; "max" is no limit
        return int(path.read_text(encoding="ascii"))
    return None
