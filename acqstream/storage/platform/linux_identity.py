"""Identity of this machine since its start, on Linux."""

from __future__ import annotations

from pathlib import Path

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")  # random(4)


def boot_id() -> str:
    """An id that differs between machines, and between two starts of one; empty if the system has none."""
    try:
        return BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""
