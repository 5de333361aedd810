"""Where a benchmark ran: machine, file system, versions."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

_PACKAGES = ("numpy", "pyzmq", "xxhash", "ndstorage", "tifffile", "acquire-zarr", "tensorstore")
_CPU_INFO = Path("/proc/cpuinfo")


def machine_of(directory: Path) -> dict[str, Any]:
    """What a report says of the machine, and of the file system of `directory`."""
    return {
        "system": platform.platform(),
        "python": platform.python_version(),
        "processor": _processor(),
        "processors": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "file_system": file_system_of(directory),
    }


def file_system_of(directory: Path) -> str:
    """Type of the file system that holds `directory`, "unknown" where the system does not tell."""
    place = directory.resolve()
    mounts = [part for part in psutil.disk_partitions(all=True) if place.is_relative_to(part.mountpoint)]
    return max(mounts, key=lambda part: len(part.mountpoint)).fstype if mounts else "unknown"


def versions() -> dict[str, str]:
    """Of the packages that have a part in the figures; "not installed" for those that are not."""
    return {name: _version(name) for name in _PACKAGES}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _processor() -> str:
    if _CPU_INFO.exists():
        for line in _CPU_INFO.read_text("utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor()
