"""Memory limit of this process and its children, as a service manager has set it (cgroups version 2)."""

from __future__ import annotations

from pathlib import Path

_GROUP_OF_SELF = Path("/proc/self/cgroup")
_GROUPS = Path("/sys/fs/cgroup")
_VERSION_2 = "0::/"


def memory_limit_bytes(group_of_self: Path = _GROUP_OF_SELF, groups: Path = _GROUPS) -> int | None:
    """Return the minimum `memory.max` of this process's group and its parents, in bytes; None if none is set."""
    try:
        lines = group_of_self.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None  # no Linux
    own = next((groups / line.removeprefix(_VERSION_2) for line in lines if line.startswith(_VERSION_2)), groups)
    above = own.parents[: len(own.relative_to(groups).parts)]
    return min((limit for one in (own, *above) if (limit := _limit_of(one)) is not None), default=None)


def _limit_of(group: Path) -> int | None:
    try:
        text = (group / "memory.max").read_text(encoding="ascii").strip()
    except OSError:
        return None  # the first group has none
    return None if text == "max" else int(text)
