"""Facts about this machine that producers are told."""

from __future__ import annotations

import functools
import uuid
from pathlib import Path


@functools.cache
def boot_id() -> str:
    """The same for all processes of this machine since it was started; unique to this process where unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return uuid.uuid4().hex
