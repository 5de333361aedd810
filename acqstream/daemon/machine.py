"""Facts about this machine for producers."""

from __future__ import annotations

import functools
import uuid

from acqstream.storage import platform


@functools.cache
def boot_id() -> str:
    """Return an id of this machine since its start; unique to this process if the system has none."""
    return platform.boot_id() or uuid.uuid4().hex
