"""Facts about this machine for producers."""

from __future__ import annotations

import functools
import uuid
from pathlib import Path


@functools.cache
def boot_id() -> str:
    """Return an id of this machine since its start; unique to this process if the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return uuid.uuid4().hex
